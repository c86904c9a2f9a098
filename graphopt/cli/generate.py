"""`graphopt generate`: make a synthetic graph, or a visual-inertial sequence or problem, and write it."""

from __future__ import annotations

import argparse
from typing import Any

from graphopt.cli import generate_vi
from graphopt.cli.declared import add_options, declared
from graphopt.cli.parsers import Parser, fraction, non_negative_float, non_negative_int

KINDS = {
    "sphere": "3D poses on a spiral over a sphere",
    "torus": "3D poses on a spiral over a torus",
    "manhattan": "2D random walk along the streets of a city",
    "grid": "3D poses on a cubic grid",
    "ba": "bundle adjustment: cameras around a scene of points",
    "published": "bundle adjustment with the size of a published problem",
    "street": "bundle adjustment of any size: cameras along a street",
}
"""Functions of `graphopt.evaluate.datasets`."""
_SIGMA = {"type": non_negative_float, "metavar": "SIGMA"}
_SETTINGS: dict[str, dict[str, Any]] = {
    "noise_translation": _SIGMA,
    "noise_rotation": _SIGMA,
    "noise_pixel": _SIGMA,
    "closures": {"type": fraction, "metavar": "P"},
    "outliers": {"type": fraction, "metavar": "P"},
    "seed": {"type": non_negative_int},
    "camera": {"choices": ("bal", "expmap")},
    "start": {"choices": ("odometry", "truth")},
}


def add_arguments(parser: Parser) -> None:
    """What the command takes, for each kind."""
    parser.description = (
        "Make a synthetic graph with known ground truth, measurement noise and loop closures."
    )
    kinds = parser.add_subparsers(dest="kind", metavar="KIND", required=True)
    for kind, text in KINDS.items():
        made = kinds.add_parser(kind, help=text)
        made.add_argument("-o", "--output", metavar="FILE", required=True, help="graph file to write")
        options = declared(f"graphopt/evaluate/datasets/{_module(kind)}.py", kind)
        add_options(made, made, options, options, **_SETTINGS)
    generate_vi.add_kinds(kinds)


def _module(kind: str) -> str:
    return {"ba": "bundle_adjustment", "published": "published_sizes", "street": "published_sizes"}.get(
        kind, "pose_graphs"
    )


def run(args: argparse.Namespace) -> int:
    """Generate the graph; return 0."""
    if args.kind in generate_vi.KINDS:
        return generate_vi.KINDS[args.kind](args)
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
