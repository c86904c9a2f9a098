"""What the examples' command lines share: options, errors, tables."""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from graphopt.errors import GraphOptError


class ExampleError(GraphOptError, ValueError):
    """A file or an option that an example cannot work with."""


def parser(doc: str | None, *, data: str = "", output: str = "") -> argparse.ArgumentParser:
    """Options --data, --device, -o; `data` and `output` say what they are, none is offered without."""
    result = argparse.ArgumentParser(
        description=(doc or "").strip(), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if data:
        result.add_argument("--data", nargs="+", type=Path, metavar="PATH", help=data)
    result.add_argument("--device", default="auto", help="auto, cpu, vulkan or vulkan:NUMBER (default: auto)")
    if output:
        result.add_argument("-o", "--output", type=Path, metavar="OUT", help=output)
    return result


def existing(paths: Sequence[Path], expected: int | None = None, meaning: str = "") -> list[Path]:
    """The paths, each of which exists; `expected` many, which `meaning` explains."""
    if expected is not None and len(paths) != expected:
        raise ExampleError(f"--data got {len(paths)} paths, expected {expected}: {meaning}.")
    for path in paths:
        if not path.exists():
            raise ExampleError(f"{path} does not exist.")
    return list(paths)


def write_table(path: Path, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a .csv file."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(rows)


def run(main: Callable[[list[str] | None], object]) -> None:
    """Run an example; an error that it can explain becomes one line and exit code 2."""
    try:
        main(None)
    except (GraphOptError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
