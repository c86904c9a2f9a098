"""Render docs/results.md and the table of README and home page from the stated numbers: this file, run.

    python tools/results.py [--take FILE]

--take: first replace stated tables by those of FILE, which `graphopt reproduce -o` wrote, with machine, date
and commit; all rows of a table must have been measured.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from graphopt.reproduce.page import first_page_table, page
from graphopt.reproduce.stated import FILE, load

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "results.md"
FIRST_PAGES = ROOT / "README.md", ROOT / "docs" / "index.md"
"""Pages that show the rows marked `readme`, between these marks."""
BEGIN, END = "<!-- results: begin -->\n", "<!-- results: end -->"
_MEASURED = ("seconds", "chi2", "initial_chi2", "vertices", "edges")


def with_table(text: str, table: str) -> str:
    """A first page with this table between its marks."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise SystemExit(f"the page has no marks '{BEGIN.strip()}' and '{END}'.")
    return before + begin + table + end + after


def taken(document: dict[str, Any], measured: dict[str, Any]) -> dict[str, Any]:
    """The stated document with the tables that were measured."""
    by_name = {table["name"]: table for table in measured["tables"]}
    return {**document, "tables": [_table(table, by_name.get(table["name"])) for table in document["tables"]]}


def _table(table: dict[str, Any], measured: dict[str, Any] | None) -> dict[str, Any]:
    if measured is None:
        return table
    found = {row["name"]: row for row in measured["rows"]}
    missing = [row["name"] for row in table["rows"] if row["name"] not in found]
    if missing:
        raise SystemExit(f"table {table['name']}: {', '.join(missing)} not measured.")
    rows = [_row(row, found[row["name"]]) for row in table["rows"]]
    head = {name: measured[name] for name in ("date", "commit", "machine")}
    return {**table, **head, "rows": rows}


def _row(row: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    peers = {peer["solver"]: peer for peer in found["peers"]}
    numbers = {name: found[name] for name in _MEASURED if found.get(name) is not None}
    return {**row, **numbers, "peers": [{**peer, **peers.get(peer["solver"], {})} for peer in row["peers"]]}


def main() -> None:
    """Write all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--take", type=Path, metavar="FILE", help="what graphopt reproduce -o wrote")
    args = parser.parse_args()
    if args.take is not None:
        document = taken(json.loads(FILE.read_text("utf-8")), json.loads(args.take.read_text("utf-8")))
        FILE.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    stated = load()
    PAGE.write_text(page(stated), encoding="utf-8")
    for path in FIRST_PAGES:
        path.write_text(with_table(path.read_text("utf-8"), first_page_table(stated)), "utf-8")


if __name__ == "__main__":
    main()
