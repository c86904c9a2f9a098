"""`graphopt eval bal`: problems by configuration, as tables 5.4, 5.5 and 5.7 of Gopinath's thesis.

The mean squared error is chi2 / observations [px^2], chi2 the sum of squared pixel errors without robust
kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from graphopt.evaluate.runner import Unit
from graphopt.evaluate.solve import measure
from graphopt.evaluate.sparsity import patterns


def units(
    paths: dict[str, Path],
    configurations: Sequence[str],
    peers: Sequence[str],
    options: dict[str, Any],
    runs: int,
) -> list[Unit]:
    """One unit per problem and configuration, and per problem and peer.

    paths: problems by name. configurations: names of `solver.configurations`, or "auto".
    """
    units_of_all = []
    for name, path in paths.items():
        common = {"name": name, "path": str(path)}
        for configuration in configurations:
            own = {"configuration": configuration, "options": options, "runs": runs}
            units_of_all.append(
                Unit(f"{name} {configuration}", "graphopt.evaluate.bal:evaluate", {**common, **own})
            )
        for peer in peers:
            units_of_all.append(
                Unit(f"{name} {peer}", "graphopt.evaluate.peers:bal", {**common, "peer": peer, "runs": runs})
            )
    return units_of_all


def evaluate(name: str, path: str, configuration: str, options: dict[str, Any], runs: int) -> dict[str, Any]:
    """The entry of one problem under one configuration."""
    import graphopt

    graph = graphopt.read(path)
    entry, _ = measure(graph, configuration, options, runs)
    return {
        "problem": name,
        "solver": configuration,
        **sizes(graph),
        **entry,
        **errors(graph, entry),
        "sparsity": patterns(graph),
    }


def sizes(graph: Any) -> dict[str, int]:
    """Cameras, points and observations of a graph of bundle adjustment."""
    points = sum(
        len(vertex_set)
        for vertex_set in graph.vertex_sets
        if vertex_set.marginalized.all() or vertex_set.type.tangent_dim == 3
    )
    cameras = graph.num_vertices - points
    return {"cameras": cameras, "points": points, "observations": graph.num_edges}


def errors(graph: Any, entry: dict[str, Any]) -> dict[str, float]:
    """Mean squared errors before and after."""
    count = max(graph.num_edges, 1)
    return {"initial_mse": entry["initial_chi2"] / count, "mse": entry["chi2"] / count}
