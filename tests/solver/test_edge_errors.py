"""Errors of edges at a graph's estimates are the residual functions', solved before or not."""

import numpy as np
import pytest

import graphopt
from graphopt.evaluate.datasets import ba, manhattan, sphere
from graphopt.graph.residuals import errors
from graphopt.solver.edge_errors import edge_errors


@pytest.mark.parametrize("solved", [False, True])
@pytest.mark.parametrize(
    "make",
    [
        lambda: ba(cameras=5, points=40, camera="bal"),
        lambda: ba(cameras=5, points=40, camera="expmap"),
        lambda: sphere(nodes_per_level=6, laps=4),
        lambda: manhattan(nodes=60),
    ],
)
def test_errors_are_those_of_the_residuals(make, solved):
    """Before any optimization, after one on the CPU, once numbers were written since, or vertices added."""
    graph = make()
    if solved:
        graphopt.optimize(graph, "lm", 2, device="cpu")
    for change in (lambda: None, lambda: _move(graph), lambda: graph.add_vertices("VERTEX_XY", [10**6])):
        change()
        for edges in graph.edge_sets:
            expected = errors(graph, edges, np.arange(len(edges)))
            found = edge_errors(graph, edges)
            np.testing.assert_allclose(found, expected, atol=1e-11 * np.abs(expected).max())


def _move(graph):
    """Write estimates and measurements."""
    for vertices in graph.vertex_sets:
        vertices.estimate[:, 0] += 0.25
    for edges in graph.edge_sets:
        edges.measurement[:, 0] += 0.125
