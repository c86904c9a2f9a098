"""Types that know which measurement their vertices would give: with it the error is zero."""

import numpy as np
import pytest

from graphopt.errors import GraphError
from graphopt.types import registry
from graphopt.types.base import EdgeType

NOISE = np.random.default_rng(2)
KNOWING = [
    edge_type
    for edge_type in registry.edge_types()
    if isinstance(edge_type, EdgeType) and edge_type.measure is not None
]


def values_of(kind):
    """Ten random vertices and parameters."""
    states = tuple(
        np.array(
            [
                vertex.oplus(np.array(vertex.identity), NOISE.uniform(0.1, 0.4, vertex.tangent_dim))
                for _ in range(10)
            ]
        )
        for vertex in kind.vertices
    )
    return states, tuple(np.tile(np.array(parameter.identity), (10, 1)) for parameter in kind.parameters)


@pytest.mark.parametrize("kind", KNOWING, ids=lambda kind: kind.tag)
def test_the_error_vanishes(kind):
    """At the measurement that the type gives, and not at another one."""
    states, constants = values_of(kind)
    measurement = kind.measured(states, constants)
    assert measurement.shape == (10, kind.measurement_dim)
    assert np.abs(kind.error(states, constants, measurement)).max() < 1e-9
    other = measurement.copy()
    other[:, 0] += 0.1
    assert np.abs(kind.error(states, constants, other)).max() > 1e-3


def test_motions_and_points_know():
    """As g2o's types do."""
    tags = {kind.tag for kind in KNOWING}
    assert {"EDGE_SE2", "EDGE_SE3:QUAT", "EDGE_SE3:EXPMAP", "EDGE_SIM3:EXPMAP", "EDGE_SE2_XY"} <= tags
    with pytest.raises(GraphError, match="does not say"):
        registry.edge_type("EDGE_SE3_PROJECT_XYZ:EXPMAP").measured((), ())


@pytest.mark.parametrize("kind", KNOWING, ids=lambda kind: kind.tag)
def test_of_the_drop_in(kind):
    """`set_measurement_from_state` of g2o's edges asks the type."""
    from graphopt import g2o
    from graphopt.g2o.elements.edge_types import edge_class
    from graphopt.g2o.elements.parameters import parameter_class
    from graphopt.g2o.elements.vertex_types import vertex_class

    optimizer = g2o.SparseOptimizer()
    states, _ = values_of(kind)
    edge = edge_class(kind)()
    for slot, each_vertex in enumerate(kind.vertices):
        vertex = vertex_class(each_vertex)()
        vertex.set_id(slot)
        order = [3, 4, 5, 6, 0, 1, 2, 7] if each_vertex.tag == "VERTEX_SIM3:EXPMAP" else slice(None)  # g2o's
        assert vertex.set_estimate_data(states[slot][0][order]) is not False
        optimizer.add_vertex(vertex)
        edge.set_vertex(slot, vertex)
    for number, each_parameter in enumerate(kind.parameters):
        parameter = parameter_class(each_parameter)()
        parameter.set_id(number)
        optimizer.add_parameter(parameter)
        edge.set_parameter_id(number, number)
    optimizer.add_edge(edge)
    edge.compute_error()
    assert np.abs(edge.error()).max() > 1e-3
    assert edge.set_measurement_from_state()
    edge.compute_error()
    assert np.abs(edge.error()).max() < 1e-9
