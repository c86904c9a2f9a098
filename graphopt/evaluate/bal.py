"""`graphopt eval bal`: problems by configuration, as tables 5.4, 5.5 and 5.7 of Gopinath's thesis.

The mean squared error is chi2 / observations [px^2], chi2 the sum of squared pixel errors without robust
kernel.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from graphopt.evaluate.report.sparsity import patterns
from graphopt.evaluate.solve import measure, units_of

units = partial(units_of, ("graphopt.evaluate.bal:evaluate", "graphopt.evaluate.peers:bal"))


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
