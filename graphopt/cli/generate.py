"""`graphopt generate`: make a synthetic graph and write it."""

from __future__ import annotations

import argparse

_VISUAL_INERTIAL = {"vi-sequence": "run_sequence", "vi": "run_problem"}
"""Kinds that `slam_bridge` makes."""


def run(args: argparse.Namespace) -> int:
    """Generate the graph; return 0."""
    if args.kind in _VISUAL_INERTIAL:
        from graphopt.cli import generate_vi

        return getattr(generate_vi, _VISUAL_INERTIAL[args.kind])(args)
    from graphopt import io
    from graphopt.evaluate import datasets

    io.check_writable(args.output)
    common = ("command", "kind", "output")
    options = {name: value for name, value in vars(args).items() if name not in common}
    graph = getattr(datasets, args.kind)(**options)
    io.write(graph, args.output)
    chi2 = graph.chi2()
    print(f"{args.output}: {graph.num_vertices} vertices, {graph.num_edges} edges, chi2 {chi2:.6g}")
    return 0
