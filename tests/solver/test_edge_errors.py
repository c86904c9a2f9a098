"""Errors of edges after an optimization, natively on any device, are those of the residual functions."""

import numpy as np
import pytest

import graphopt
from graphopt.datasets import ba, manhattan
from graphopt.graph.residuals import errors
from graphopt.solver import reuse
from graphopt.solver.cpu import group_errors
from graphopt.solver.structure import Structure

GRAPHS = {
    "bal": lambda: ba(6, 80, camera="bal", seed=1),
    "expmap": lambda: ba(6, 80, camera="expmap", seed=1),
    "manhattan": lambda: manhattan(nodes=400, seed=1),
}


@pytest.mark.parametrize("name", list(GRAPHS))
def test_of_groups(name):
    """Of all edges and of those that a robust kernel or a level sets apart."""
    graph = GRAPHS[name]()
    edge_set = graph.edge_sets[0]
    edge_set.kernel[::3] = 1
    edge_set.level[::7] = 1
    seen = 0
    for group in Structure(graph.select()).groups:
        expected = errors(graph, edge_set, group.rows)
        structure = Structure(graph.select())
        np.testing.assert_allclose(group_errors(structure, group), expected, rtol=1e-9, atol=1e-9)
        seen += len(group.rows)
    assert seen == np.count_nonzero(edge_set.level == 0)


@pytest.mark.parametrize("device", ["cpu", "vulkan"])
def test_after_an_optimization(device, monkeypatch):
    """Numpy is asked only for the edges that took no part; after a change of the graph for all."""
    graph = ba(5, 120, seed=2)
    edge_set = graph.edge_sets[0]
    edge_set.level[5:9] = 1
    graphopt.optimize(graph, "lm", 1, device=device)
    expected = errors(graph, edge_set, np.arange(len(edge_set)))
    asked = []
    monkeypatch.setattr(reuse, "errors", lambda *a: asked.append(a[2].tolist()) or errors(*a))
    np.testing.assert_allclose(reuse.edge_errors(graph, edge_set), expected, rtol=1e-9, atol=1e-9)
    assert asked == [[5, 6, 7, 8]]
    graph.remove_edges(edge_set, [3])
    np.testing.assert_allclose(reuse.edge_errors(graph, edge_set), np.delete(expected, 3, axis=0), rtol=1e-9)
    assert len(asked[-1]) == len(edge_set)
