"""`graphopt convert`: read one format, write another."""

from __future__ import annotations

import argparse
import sys

from graphopt.cli.suggestions import did_you_mean
from graphopt.errors import OptionError


def run(args: argparse.Namespace) -> int:
    """Convert the file; return 0."""
    from graphopt import io

    for option, name in (("--from", args.input_format), ("--to", args.output_format)):
        if name is not None and name not in io.FORMATS:
            known = ", ".join(io.FORMATS)
            raise OptionError(
                f"{option}: unknown format '{name}'.{did_you_mean(name, io.FORMATS)} Known: {known}."
            )
    io.check_writable(args.output, args.output_format)
    graph, report = io.read_with_report(args.input, args.input_format, args.dialect)
    written = io.write(graph, args.output, args.output_format, args.to_dialect)
    warnings = [*report.warnings, *written]
    for warning in warnings:
        print(f"graphopt: {warning}", file=sys.stderr)
    print(f"{args.output}: {graph.num_vertices} vertices, {graph.num_edges} edges from {args.input}")
    return 0
