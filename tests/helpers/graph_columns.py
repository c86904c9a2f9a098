"""All arrays of a set of a graph, to compare sets and graphs."""

import numpy as np

from graphopt.graph import Graph

_NAMES = (
    *("ids", "estimate", "fixed", "marginalized", "held", "lower", "upper", "values", "sequence"),
    *("vertices", "measurement", "information", "kernel", "kernel_width", "level", "parameters"),
)


def columns_of(of_type) -> dict[str, np.ndarray]:
    """Of a vertex, edge or parameter set, by name."""
    return {name: of_type.look(name) for name in _NAMES if of_type.has(name)}


def sets_of(graph: Graph) -> list:
    """Sets of vertices, parameters and edges that have something."""
    return [one for one in (*graph.vertex_sets, *graph.parameter_sets, *graph.edge_sets) if len(one)]


def assert_same(found: Graph, expected: Graph) -> None:
    """The same types, numbers and order."""
    for one, other in zip(sets_of(found), sets_of(expected), strict=True):
        assert one.type == other.type
        for name, column in columns_of(other).items():
            assert np.array_equal(columns_of(one)[name], column), (one.type.tag, name)
    assert found.next_order() == expected.next_order() and found.unparsed == expected.unparsed
