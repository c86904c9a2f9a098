"""`graphopt reproduce`: measure published numbers again, and say which of them hold."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphopt.cli import arguments, output
from graphopt.cli.parsers import Parser, positive_float

if TYPE_CHECKING:
    from graphopt.reproduce.compare import Check
    from graphopt.reproduce.stated import Stated


def add_arguments(parser: Parser) -> None:
    """What the command takes."""
    parser.description = (
        "Fetch or generate the data of each published number, measure it, and print it beside the stated "
        "one. The exit status is 1 where chi2 differs by more than 1e-6, or where the ratio of two times of "
        "one run is more than 10 % worse."
    )
    parser.add_argument("tables", nargs="*", metavar="TABLE", help="names of --list (default: all)")
    parser.add_argument("--rows", type=arguments.names, metavar="NAMES", help="only these: sphere2500,intel")
    parser.add_argument("--list", action="store_true", help="tables and rows, and whether their data is here")
    parser.add_argument(
        "--device",
        type=arguments.device,
        metavar="DEVICE",
        help="for rows of a GPU (default: vulkan; the CPU where there is no GPU)",
    )
    parser.add_argument("--limit", type=positive_float, metavar="S", help="end a run after so many seconds")
    parser.add_argument(
        "--against",
        metavar="FILE",
        type=Path,
        help="compare with this file of an earlier -o instead of the published numbers",
    )
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, help="also write all numbers as JSON")
    arguments.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Measure the tables; return 0 if all that was compared holds."""
    from graphopt import io
    from graphopt.reproduce.measure import Machine
    from graphopt.reproduce.stated import load

    recipes = load()
    stated = (recipes if args.against is None else recipes.against(load(args.against))).chosen(
        args.tables, args.rows or ()
    )
    if args.list:
        _print_list(stated, args.json)
        return 0
    if args.output is not None:
        io.check_writable(args.output)
    run = _Run(stated, Machine(args.device, args.limit), args)
    try:
        run.measure()
    except KeyboardInterrupt:
        run.interrupted = True
    return run.report()


class _Run:
    """What was measured so far, printed table by table and written after each row."""

    def __init__(self, stated: Stated, machine: Any, args: argparse.Namespace) -> None:
        self.stated, self.machine, self.args = stated, machine, args
        self.measured: dict[str, dict[str, dict[str, Any]]] = {}
        self.checks: list[Check] = []
        self.skipped: list[tuple[str, str]] = []
        self.interrupted = False
        self._begun = time.strftime("%Y-%m-%d")
        _ = machine.load  # before this command is what keeps it busy

    def measure(self) -> None:
        """All rows; an interrupted table is printed with the rows that it has."""
        for table in self.stated.tables.values():
            entries = self.measured.setdefault(table["name"], {})
            try:
                for row in table["rows"]:
                    self._say(f"{table['name']}: {row['name']} ...")
                    entries[row["name"]] = self.machine.measure(table, row)
                    self._write()
            finally:
                if entries:
                    self._print(table, entries)

    def report(self) -> int:
        """The last sentence, or all as JSON; the exit status."""
        failed = [check for check in self.checks if not check.holds]
        if self.args.json:
            output.print_json(self.document())
        compared = f"{len(self.checks)} numbers compared, {len(self.checks) - len(failed)} hold"
        sentences = [f"{compared}."]
        if failed:
            names = dict.fromkeys(f"{check.table} {check.row} ({check.quantity})" for check in failed)
            sentences.append(f"Not reproduced: {', '.join(names)}.")
        if self.skipped:
            rows = ", ".join(dict.fromkeys(name for name, _ in self.skipped))
            sentences.append(f"Left out, with the reason above: {rows}.")
        if self.interrupted:
            sentences.append("Interrupted: rows that were not finished are missing.")
        if self.args.output is not None:
            self._write()
            sentences.append(f"Written: {self.args.output}.")
        text = " ".join(sentences)
        print(text, file=sys.stderr if self.args.json else sys.stdout)
        return int(bool(failed) or self.interrupted or not self.checks)

    def document(self) -> dict[str, Any]:
        """Tables as the published ones, with the numbers of here; and what was compared."""
        from graphopt.evaluate import machine
        from graphopt.reproduce.compare import checks

        tables, compared = [], []
        head = {"date": self._begun, "commit": machine.commit(), "machine": self.machine.words}
        for name, entries in self.measured.items():
            table = self.stated.tables[name]
            compared += [vars(check) for check in checks(table, entries)]
            rows = [
                {**row, **entries[row["name"]]}
                for row in table["rows"]
                if "seconds" in entries.get(row["name"], ())
            ]
            tables.append({**table, **head, "rows": rows})
        skipped = [{"row": name, "reason": reason} for name, reason in self.skipped]
        return {
            "sources": self.stated.sources,
            "tables": tables,
            "compared": compared,
            "skipped": skipped,
            "busy": bool(self.machine.load),
            "interrupted": self.interrupted,
        }

    def _print(self, table: dict[str, Any], entries: dict[str, dict[str, Any]]) -> None:
        from graphopt.reproduce.compare import checks
        from graphopt.reproduce.page import section, verdicts

        found = checks(table, entries)
        skipped = [(name, entry["skipped"]) for name, entry in entries.items() if "skipped" in entry]
        skipped += self.machine.notes
        self.machine.notes = []
        self.checks += found
        self.skipped += skipped
        if not self.args.json:
            shown = {**table, "rows": [row for row in table["rows"] if row["name"] in entries]}
            print(section(shown, self.stated.sources, entries, self.machine.words))
            print(verdicts(found, [*skipped, *self._remarks(table, entries)]), flush=True)

    def _remarks(self, table: dict[str, Any], entries: dict[str, dict[str, Any]]) -> list[tuple[str, str]]:
        """What to know of the numbers: a busy machine, another kind of device than the stated one."""
        busy = [("times", f"{self.machine.load}; do not trust them")] if self.machine.load else []
        other = [name for name, entry in entries.items() if entry.get("is_stated_device") is False]
        names = ", ".join(dict.fromkeys(str(entries[name].get("device_name")) for name in other))
        reason = f"ran on {names}, stated on {table['machine'].split(';')[0]}: only chi2 can be compared"
        return [*busy, *([(", ".join(other), reason)] if other else [])]

    def _write(self) -> None:
        from graphopt.io.files import write_bytes

        if self.args.output is not None:
            write_bytes(self.args.output, (output.to_json(self.document()) + "\n").encode())

    def _say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


def _print_list(stated: Stated, as_json: bool) -> None:
    from graphopt.evaluate.datasets.registry import find

    rows = []
    for table in stated.tables.values():
        for row in table["rows"]:
            source = row.get("run", {}).get("graph", {})
            dataset = source.get("dataset")
            data = "generated" if dataset is None else str(find(dataset).path() or f"fetched: {dataset}")
            device = row.get("device", table["device"])
            rows.append((table["name"], row["name"], row["size"], "CPU" if device == "cpu" else "GPU", data))
    columns = ("table", "row", "size", "device", "data")
    if as_json:
        output.print_json({"rows": [dict(zip(columns, row, strict=True)) for row in rows]})
    else:
        output.print_table(columns, rows)
