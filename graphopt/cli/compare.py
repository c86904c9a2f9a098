"""`graphopt compare`: the differences of two results of `graphopt eval`."""

from __future__ import annotations

import argparse

from graphopt.cli import arguments, output
from graphopt.cli.parsers import non_negative_float

_MARKS = {"better": "+", "worse": "-", "failed": "-", "mended": "+"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.description = "Compare two results of graphopt eval by entry. Exit status 1: something got worse."
    parser.add_argument("before", metavar="A", help="folder or results.json")
    parser.add_argument("after", metavar="B", help="folder or results.json")
    parser.add_argument(
        "--tolerance",
        type=non_negative_float,
        default=0.1,
        metavar="X",
        help="relative change of times and memory that counts (default: 0.1); of errors a hundredth",
    )
    arguments.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Print what changed; return 1 if anything got worse, else 0."""
    from graphopt.evaluate.compare import compare
    from graphopt.evaluate.results import load

    changes = compare(load(args.before), load(args.after), args.tolerance)
    if args.json:
        output.print_json({"changes": [{**vars(change), "ratio": change.ratio} for change in changes]})
    else:
        rows = [
            (
                _MARKS.get(change.verdict, ""),
                change.key,
                change.column,
                change.text,
                _ratio(change.ratio),
                change.verdict,
            )
            for change in changes
            if change.verdict != "same"
        ]
        if rows:
            output.print_table(("", "entry", "number", "A -> B", "B / A", "verdict"), rows, ("B / A",))
        same = sum(change.verdict == "same" for change in changes)
        print(f"{len(rows)} differences, {same} numbers within the tolerance")
    return 1 if any(change.verdict in ("worse", "failed") for change in changes) else 0


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
