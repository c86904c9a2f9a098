"""`graphopt convert`: read one format, write another."""

from __future__ import annotations

import argparse
import os
import sys

from graphopt.cli import arguments, streams, vib
from graphopt.errors import OptionError
from graphopt.suggestions import did_you_mean


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.description = (
        "Read a graph and write it in the format that the output's name stands for. Maps of keyframes and "
        "landmarks (.vib, pySLAM's .json, Osmap's .yaml) likewise, to each other, .g2o and COLMAP folders."
    )
    graph = "graph file, or a map's; - for standard input"
    parser.add_argument("input", metavar="IN", type=streams.input_file, help=graph)
    target = "file to write, - for standard output; .gz .bz2 .xz compress it"
    parser.add_argument("output", metavar="OUT", type=streams.output_file, help=target)
    parser.add_argument("--from", dest="input_format", metavar="FORMAT", help="format of IN, if unclear")
    parser.add_argument("--to", dest="output_format", metavar="FORMAT", help="format of OUT, if unclear")
    arguments.add_dialect(parser)
    dialect = "dialect of OUT (default: that of IN, if OUT's format has it)"
    parser.add_argument("--to-dialect", metavar="NAME", help=dialect)


def run(args: argparse.Namespace) -> int:
    """Convert the file; return 0."""
    if _holds_map(args):
        return _convert_map(args)
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
    stream = sys.stderr if args.output == streams.OUTPUT else sys.stdout
    counts = f"{graph.num_vertices} vertices, {graph.num_edges} edges"
    print(f"{args.output}: {counts} from {args.input}", file=stream)
    return 0


_MAPS = (".vib", ".yaml", ".yml", ".osa")
"""Endings of files that hold a map of keyframes and landmarks, not a graph."""


def _holds_map(args: argparse.Namespace) -> bool:
    """One of the files is a map. JSON is pySLAM's unless its content, --from or --to say that it is g2o's."""
    source, target = args.input.lower(), args.output.lower()
    if source.endswith(_MAPS) or target.endswith(_MAPS) or vib.is_map_archive(args.input):
        return True
    if "g2o_json" in (args.input_format, args.output_format):
        return False
    return target.endswith(".json") if not source.endswith(".json") else not _is_tree(args.input)


def _is_tree(path: str) -> bool:
    """A JSON file of g2o's."""
    if not os.path.isfile(path):
        return False
    from graphopt.io.g2o_tree import tree_format

    with open(path, "rb") as file:
        return tree_format(file.read(1000)) is not None


def _convert_map(args: argparse.Namespace) -> int:
    given = {"--from": args.input_format, "--to": args.output_format, "--dialect": args.dialect}
    given["--to-dialect"] = args.to_dialect
    for option, value in given.items():
        if value is not None:
            raise OptionError(f"{option} is for graphs; of maps the names of the files say the format.")
    from slam_bridge.exchange.convert import map_format, read_map_file, write_map_file

    map_format(args.output)
    problem = read_map_file(args.input)
    for warning in write_map_file(problem, args.output):
        print(f"graphopt: {warning}", file=sys.stderr)
    world = problem.map
    counts = f"{len(world.keyframes)} keyframes, {len(world.landmarks)} landmarks"
    print(f"{args.output}: {counts}, {len(world.observations)} observations from {args.input}")
    return 0
