"""Render docs/results.md and the table of README and home page from docs/results.json: this file, run.

The JSON holds what was measured: per table the machine, commit and command; per row a problem with seconds by
kind of call, chi2, and what other solvers need, each with its source. Rows marked `readme` are shown on the
first pages.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS, PAGE = ROOT / "docs" / "results.json", ROOT / "docs" / "results.md"
FIRST_PAGES = ROOT / "README.md", ROOT / "docs" / "index.md"
"""Pages that show the rows marked `readme`, between these marks."""
BEGIN, END = "<!-- results: begin -->\n", "<!-- results: end -->"

CALLS = {
    "first": "first call",
    "other ids": "new structure",
    "copy": "known structure",
    "again": "same graph",
    "fresh": "fresh objects",
    "step of 10": "iteration, 10 products",
    "step of 40": "40 products",
}
"""Kinds of calls, as benchmarks/calls.py names them (fresh: `make bench`), iterations with so many products
with S (benchmarks/scaling.py), and their columns."""

HEAD = """\
# Results

<!-- Made from results.json by `python benchmarks/results.py`; do not edit. -->

chi2 is the sum of e' Omega e without a factor 1/2, recomputed from the estimates in float64 on the CPU; for
bundle adjustment the sum of squared pixel errors. *First call*: the first one with this problem in its
process, with compilation of kernels where they are not cached. Later calls of the process: *new structure*,
other vertex ids and another order of edges; *known structure*, a copy of the graph; *same graph*, its start
values put back. Problems marked *synthetic* have the published sizes, not the published photographs. Other
solvers' numbers stand below each table with their source, time and chi2.
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


def peers(row: dict[str, Any]) -> str:
    """Other solvers, each with time and chi2."""
    parts = []
    for peer in row["peers"]:
        end = f" to {digits(peer['chi2'])}" if peer["chi2"] is not None else ""
        parts.append(f"{peer['solver']} {duration(peer['seconds'])}{end}")
    return "; ".join(parts)


def rows_of(heads: list[str], rows: list[list[str]]) -> list[str]:
    """The lines of a table."""
    return [f"| {' | '.join(cells)} |" for cells in (heads, ["---"] * len(heads), *rows)]


def section(table: dict[str, Any], sources: dict[str, str]) -> str:
    """One table with its machine, commit and sources, and the one of other solvers."""
    rows = table["rows"]
    calls = [call for call in CALLS if any(call in row["seconds"] for row in rows)]
    has_chi2 = any(row["chi2"] is not None for row in rows)
    ours, others = [], []
    for row in rows:
        times = [duration(row["seconds"].get(call)) for call in calls]
        ours.append([row["problem"], row["size"], *times, *[digits(row["chi2"])] * has_chi2])
        if row["peers"]:
            others.append([row["problem"], times[-1], peers(row)])
    used = {peer["source"] for row in rows for peer in row["peers"]}
    lines = [
        f"## {table['title']}\n",
        f"{table['machine']}. {table['date']}, commit {table['commit']}.",
        f"`{table['command']}`. {table['note']}\n",
        *rows_of(["problem", "size", *(CALLS[call] for call in calls), *["chi2"] * has_chi2], ours),
        "",
    ]
    if others:
        lines += [*(f"Others: {sources[name]}." for name in sources if name in used), ""]
        lines += rows_of(["problem", f"graphopt, {CALLS[calls[-1]]}", "others"], others)
    return "\n".join(lines) + "\n"


def page(document: dict[str, Any]) -> str:
    """The text of docs/results.md."""
    return "\n".join([HEAD, *(section(table, document["sources"]) for table in document["tables"])])


def readme_table(document: dict[str, Any]) -> str:
    """The rows that the README shows."""
    lines = []
    for table in document["tables"]:
        machine = table["machine"].partition(",")[0].partition(" (")[0]
        for row in filter(lambda row: row.get("readme"), table["rows"]):
            shown = [call for call in ("first", "again", "fresh") if call in row["seconds"]]
            times = ", ".join(f"{CALLS[call]} {duration(row['seconds'][call])}" for call in shown)
            lines.append([row["problem"], machine, times, digits(row["chi2"]), peers(row)])
    heads = ["problem", "machine", "time of a call", "chi2", "others"]
    return "\n".join(rows_of(heads, lines)) + "\n"


def with_table(readme: str, table: str) -> str:
    """A first page with this table between its marks."""
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise SystemExit(f"the page has no marks '{BEGIN.strip()}' and '{END}'.")
    return before + begin + table + end + after


def main() -> None:
    """Write all."""
    document = json.loads(RESULTS.read_text(encoding="utf-8"))
    PAGE.write_text(page(document), encoding="utf-8")
    for path in FIRST_PAGES:
        path.write_text(with_table(path.read_text("utf-8"), readme_table(document)), "utf-8")


if __name__ == "__main__":
    main()
