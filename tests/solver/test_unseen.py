"""Points that cameras do not see: the compiled pass names the same edges as numpy."""

import numpy as np
import pytest

import slam_bridge  # noqa: F401  (its types are registered)
from graphopt.errors import SymbolicError
from graphopt.graph import Graph
from graphopt.graph.behind import edges_behind
from graphopt.io import extra_types  # noqa: F401
from graphopt.problem import unseen
from graphopt.types import registry
from graphopt.types.base import EdgeType

IMAGES = [
    edge_type
    for edge_type in registry.edge_types()
    if isinstance(edge_type, EdgeType) and edge_type.sees is not None
]


def images(kind, count, rng):
    """Edges of random vertices and parameters."""
    graph, ids = Graph(), []
    for number, vertex in enumerate(kind.vertices):
        start = np.tile(np.asarray(vertex.identity, float), (count, 1))
        own = np.arange(count) + number * count
        graph.add_vertices(vertex, own, vertex.oplus(start, rng.normal(size=(count, vertex.tangent_dim))))
        ids.append(own)
    constants = []
    for number, parameter in enumerate(kind.parameters):
        graph.add_parameters(parameter, [number], [np.asarray(parameter.identity, float)])
        constants.append(np.full(count, number))
    measurement = rng.normal(size=(count, kind.measurement_dim))
    named = {"parameters": np.stack(constants, axis=1)} if constants else {}
    graph.add_edges(kind, np.stack(ids, axis=1), measurement, **named)
    return graph


@pytest.mark.parametrize("kind", IMAGES, ids=lambda kind: kind.tag)
def test_the_same_edges_as_numpy(kind):
    """Of all edges and of some, with numbers that are not finite."""
    rng = np.random.default_rng(3)
    count = 2 * unseen.FEW
    graph = images(kind, count, rng)
    graph.vertex_set(kind.vertices[0]).estimate[7] = np.nan
    whole = graph.select(-1).edges[0]
    rows = rng.permutation(count)[: unseen.FEW + 50]
    part = graph.select(edges={graph.edge_sets[0]: np.sort(rows)}).edges[0]
    for edges in (whole, part):
        expected = edges_behind(graph, edges)
        np.testing.assert_array_equal(unseen.edges_unseen(graph, edges), expected)
        assert len(expected) < len(edges.rows)


def test_most_types_are_compiled_and_what_cannot_be_is_left_to_numpy(monkeypatch):
    """A `sees` that asks for numbers is no program; its answer is numpy's."""
    kind = registry.edge_type("EDGE_PROJECT_XYZ2UV:EXPMAP")
    assert unseen.blindness(kind) is not None
    assert sum(unseen.blindness(image) is not None for image in IMAGES) > 0.8 * len(IMAGES)
    graph = images(kind, unseen.FEW, np.random.default_rng(0))
    expected = unseen.edges_unseen(graph, graph.select(-1).edges[0]).tolist()

    def refuse(edge_type):
        raise SymbolicError(edge_type.name)

    monkeypatch.setattr(unseen.codegen, "compile_errors", refuse)
    monkeypatch.setattr(unseen, "blindness", unseen.blindness.__wrapped__)
    assert unseen.blindness(kind) is None
    assert unseen.edges_unseen(graph, graph.select(-1).edges[0]).tolist() == expected != []
