"""`graphopt export`: types and graph of a problem for the C library."""

from __future__ import annotations

import argparse
import runpy
from pathlib import Path
from typing import TYPE_CHECKING

from graphopt.errors import OptionError

if TYPE_CHECKING:
    from graphopt.graph import Graph

BUILTIN = "builtin"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.description = (
        "Write the programs of a problem's types (types.txt) and its graph (graph.txt), which the C library "
        "(native/embed/README.md) loads."
    )
    problem = "graph file, Python program with a variable 'graph', or 'builtin': every built-in type"
    parser.add_argument("problem", metavar="PROBLEM", help=problem)
    parser.add_argument("-o", "--output", metavar="DIR", required=True, help="folder to write to")
    about = "vulkan: kernels as SPIR-V, too (default: cpu)"
    parser.add_argument("--device", choices=("cpu", "vulkan"), default="cpu", help=about)


def run(args: argparse.Namespace) -> int:
    """Write types.txt and graph.txt; return 0."""
    from graphopt.io.export import export_builtin_types, export_graph

    if args.problem == BUILTIN:
        print(f"{export_builtin_types(args.output, args.device)}: every built-in type of .g2o files")
        return 0
    graph = problem_graph(args.problem)
    types, data = export_graph(graph, args.output, args.device)
    print(f"{types}: programs of {len(graph.edge_sets)} edge and {len(graph.vertex_sets)} vertex types")
    print(f"{data}: {graph.num_vertices} vertices, {graph.num_edges} edges")
    return 0


def problem_graph(path: str) -> Graph:
    """Graph of a file, or the variable `graph` of a Python program, which may define types."""
    from graphopt.graph import Graph

    if Path(path).suffix != ".py":
        from graphopt import io

        return io.read(path)
    graph = runpy.run_path(path).get("graph")
    if not isinstance(graph, Graph):
        got = "nothing" if graph is None else f"a {type(graph).__name__}"
        raise OptionError(f"{path}: the variable 'graph' is {got}, expected a graphopt.Graph.")
    return graph
