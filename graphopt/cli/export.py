"""`graphopt export`: types and graph of a problem for the C library."""

from __future__ import annotations

import argparse
import runpy
from pathlib import Path

from graphopt.errors import OptionError
from graphopt.graph import Graph

BUILTIN = "builtin"


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
    if Path(path).suffix != ".py":
        from graphopt import io

        return io.read(path)
    graph = runpy.run_path(path).get("graph")
    if not isinstance(graph, Graph):
        got = "nothing" if graph is None else f"a {type(graph).__name__}"
        raise OptionError(f"{path}: the variable 'graph' is {got}, expected a graphopt.Graph.")
    return graph
