"""Tables of results in Markdown: docs/results.md, and the same tables with what was measured here.

With measured numbers each cell has both: `36.9 ms (stated 38.1 ms)`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from graphopt.reproduce.compare import Check
from graphopt.reproduce.stated import Stated

Measured = dict[str, dict[str, Any]]
"""Entries of a table's rows by name."""

CALLS = {
    "first": "first call",
    "other ids": "new structure",
    "copy": "known structure",
    "again": "same graph",
    "fresh": "fresh objects",
    "step of 10": "iteration, 10 products",
    "step of 40": "40 products",
}
"""Kinds of calls, iterations with so many products with S, and their columns."""

HEAD = """\
# Results

<!-- Made by `python tools/results.py`; do not edit. -->

[`graphopt reproduce`](cli.md#reproduce) measures every row of this page again and prints it beside the number
stated here. Problems marked *synthetic* are generated and have the published sizes, not the published
photographs.

chi2 is the sum of e' Omega e without a factor 1/2, recomputed from the estimates in float64 on the CPU; for
bundle adjustment the sum of squared pixel errors. *First call*: the first one with this problem in its
process, with compilation of kernels where they are not cached. Later calls of the process: *new structure*,
other vertex ids and another order of edges; *known structure*, a copy of the graph; *same graph*, its start
values put back. Other solvers stand in the last column with time and chi2, their source below.
"""


def duration(seconds: float | None) -> str:
    """Three digits, in the unit that suits them."""
    if seconds is None:
        return ""
    return f"{seconds:.3g} s" if seconds >= 1.0 else f"{1e3 * seconds:.3g} ms"


def digits(chi2: float | None) -> str:
    """chi2 with up to seven digits."""
    if chi2 is None:
        return ""
    return f"{chi2:,.0f}" if chi2 >= 1e4 else f"{chi2:.6g}"


def page(stated: Stated) -> str:
    """The text of docs/results.md."""
    return "\n".join([HEAD, *(section(table, stated.sources) for table in stated.tables.values())])


def section(
    table: dict[str, Any], sources: dict[str, str], measured: Measured | None = None, machine: str = ""
) -> str:
    """One table with its machine and commit, other solvers in the last column, and their sources.

    measured: numbers of here, which are shown first. machine: of here, in words.
    """
    rows = [(row, (measured or {}).get(row["name"], {})) for row in table["rows"]]
    calls = [
        call
        for call in CALLS
        if any(call in row["seconds"] or call in here.get("seconds", ()) for row, here in rows)
    ]
    has_chi2 = any(row["chi2"] is not None for row, _ in rows)
    has_peers = any(row["peers"] for row, _ in rows)
    lines_of_rows = []
    for row, here in rows:
        found = here.get("seconds", {})
        times = [
            _both(duration(row["seconds"].get(call)), duration(found.get(call)), measured) for call in calls
        ]
        chi2 = _both(digits(row["chi2"]), digits(here.get("chi2")), measured)
        peers = _peers(row, here, measured)
        lines_of_rows.append([row["problem"], row["size"], *times, *[chi2] * has_chi2, *[peers] * has_peers])
    used = {peer["source"] for row, _ in rows for peer in row["peers"] if "source" in peer}
    heads = ["problem", "size", *(CALLS[call] for call in calls)]
    heads += ["chi2"] * has_chi2 + ["others"] * has_peers
    lines = [
        f"## {table['title']}\n",
        *([f"Here: {machine}."] if measured is not None else []),
        f"{'' if measured is None else 'Stated: '}{table['machine']}. {table['date']}, "
        f"commit {table['commit']}. `graphopt reproduce {table['name']}`.",
        f"{table['note']}\n",
        *_rows_of(heads, lines_of_rows),
        *([""] if used else []),
        *(f"Others: {sources[name]}." for name in sources if name in used),
    ]
    return "\n".join(lines) + "\n"


def verdicts(found: Iterable[Check], skipped: Iterable[tuple[str, str]]) -> str:
    """What holds and what does not, and rows and solvers that were left out, each with the reason."""
    rows = [
        [check.row, check.quantity, _number(check.here), _number(check.stated), _verdict(check)]
        for check in found
    ]
    lines = _rows_of(["row", "number", "here", "stated", "result"], rows) if rows else []
    lines += ["", *(f"- {name}: {reason}" for name, reason in skipped)]
    return "\n".join(lines).strip("\n") + "\n"


def _verdict(check: Check) -> str:
    return check.result if check.holds else f"**FAILS**: {check.result}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.10g}" if abs(value) >= 100.0 else f"{value:.4g}"


def _both(stated: str, here: str, measured: Measured | None) -> str:
    """The cell of a number."""
    if measured is None or not (stated or here):
        return stated
    return f"{here or '-'} (stated {stated})" if stated else here


def _peers(row: dict[str, Any], here: dict[str, Any], measured: Measured | None) -> str:
    """Other solvers, each with time and chi2."""
    found = {peer["solver"]: peer for peer in here.get("peers", [])}
    parts = []
    for peer in row["peers"]:
        measured_time = duration(found.get(peer["solver"], {}).get("seconds"))
        time = _both(duration(peer["seconds"]), measured_time, measured)
        chi2 = peer.get("chi2")
        end = f"to {digits(chi2)}" if chi2 is not None else ""
        parts.append(" ".join(filter(None, (peer["solver"], time, end))))
    return "; ".join(parts)


def _rows_of(heads: list[str], rows: list[list[str]]) -> list[str]:
    """The lines of a table."""
    head, *lines = [f"| {' | '.join(cells)} |" for cells in (heads, *rows)]
    return [head, "|---" * len(heads) + "|", *lines]


def first_page_table(stated: Stated) -> str:
    """The rows that README and home page show: those marked `readme`."""
    lines = []
    for table in stated.tables.values():
        machine = table["machine"].partition(",")[0].partition(" (")[0]
        for row in filter(lambda row: row.get("readme"), table["rows"]):
            new = "other ids" if "other ids" in row["seconds"] else "first"
            shown = [call for call in (new, "again", "fresh") if call in row["seconds"]]
            times = ", ".join(f"{CALLS[call]} {duration(row['seconds'][call])}" for call in shown)
            lines.append([row["problem"], machine, times, digits(row["chi2"]), _peers(row, {}, None)])
    heads = ["problem", "machine", "time of a call", "chi2", "others"]
    return "\n".join(_rows_of(heads, lines)) + "\n"
