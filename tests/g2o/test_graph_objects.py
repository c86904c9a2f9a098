"""Vertices, edges and graphs as objects: ids, ownership, removal, copies."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from both import isometry, ring, same_as_g2opy

import graphopt.g2o as ours


@pytest.mark.oracle
@same_as_g2opy()
def test_adding(g2o):
    """What may be added, and what the graph then has."""
    optimizer = g2o.SparseOptimizer()
    first, second, twin = g2o.VertexSE3(), g2o.VertexSE3(), g2o.VertexSE3()
    facts = [first.id(), optimizer.add_vertex(first)]
    for vertex, id in ((first, 3), (second, 4), (twin, 3)):
        vertex.set_id(id)
    facts += [optimizer.add_vertex(vertex) for vertex in (first, first, second, twin)]
    edge = g2o.EdgeSE3()
    facts += [edge.num_undefined_vertices(), edge.vertex(0), edge.internal_id(), edge.id(), edge.level()]
    edge.set_vertex(0, first)
    facts.append(optimizer.add_edge(edge))
    edge.set_vertex(1, second)
    facts += [optimizer.add_edge(edge), optimizer.add_edge(edge), edge.internal_id()]
    facts += [optimizer.vertex(3) is first, optimizer.vertex(9), sorted(optimizer.vertices())]
    facts += [len(optimizer.edges()), edge.vertices()[1] is second]
    facts += [optimizer.change_id(first, 8), first.id(), optimizer.vertex(8) is first]
    facts += [optimizer.remove_edge(edge), optimizer.remove_edge(edge), len(optimizer.edges())]
    facts += [
        optimizer.remove_vertex(second),
        len(optimizer.vertices()),
        second.id(),
        optimizer.add_edge(edge),
    ]
    return facts[:-1]


@pytest.mark.oracle
@same_as_g2opy(atol=1e-12)
def test_vertex_data(g2o):
    """Sizes, vectors, oplus, push and pop of every vertex class."""
    facts = {}
    update = 0.1 * np.arange(1.0, 8.0)
    for name in ("SE2", "PointXY", "SE3", "PointXYZ", "SE3Expmap", "Sim3Expmap", "Cam", "Intrinsics"):
        vertex = getattr(g2o, f"Vertex{name}")()
        dims = [vertex.dimension(), vertex.estimate_dimension(), vertex.minimal_estimate_dimension()]
        vertex.oplus(update[: vertex.dimension()])
        moved = vertex.get_estimate_data()
        vertex.push()
        vertex.oplus(update[: vertex.dimension()])
        depth = vertex.stack_size()
        vertex.pop()
        good = vertex.set_estimate_data(moved)
        if name == "Intrinsics":
            moved = moved[:4]  # g2opy never sets the fifth
        bad = vertex.set_estimate_data(np.zeros(40))
        facts[name] = [dims, moved, depth, vertex.stack_size(), good, bad]
    return facts


@pytest.mark.oracle
@same_as_g2opy(atol=1e-12)
def test_minimal_data(g2o):
    """Minimal vectors round trip as in g2opy."""
    facts = []
    for name in ("SE3", "SE3Expmap", "SE2"):
        vertex = getattr(g2o, f"Vertex{name}")()
        numbers = 0.1 * np.arange(1.0, 1.0 + vertex.minimal_estimate_dimension())
        facts += [vertex.set_minimal_estimate_data(numbers), vertex.get_estimate_data()]
        facts.append(vertex.get_minimal_estimate_data())
    return facts


@pytest.mark.oracle
@same_as_g2opy()
def test_push_and_pop_of_the_optimizer(g2o):
    """Of active vertices; discard keeps the new estimates."""
    optimizer = ring(g2o)
    optimizer.initialize_optimization()
    found = []
    for end in ("pop", "discard_top"):
        optimizer.push()
        optimizer.vertex(1).set_estimate(isometry(g2o, [9.0, 9.0, 9.0]))
        getattr(optimizer, end)()
        found.append(optimizer.vertex(1).estimate().translation())
    return found


def test_removed_vertex_takes_its_edges_along():
    """The vertex and the edges keep their data and can be added again."""
    optimizer = ring(ours)
    vertex = optimizer.vertex(2)
    edges = vertex.edges()
    measurements = {edge: edge.get_measurement_data() for edge in edges}
    assert len(edges) == 2 and optimizer.remove_vertex(vertex)
    assert len(optimizer.edges()) == 6 and len(optimizer.vertices()) == 7
    assert optimizer.initialize_optimization() and optimizer.optimize(2) == 2
    for edge, data in measurements.items():
        np.testing.assert_array_equal(edge.get_measurement_data(), data)
    assert optimizer.add_vertex(vertex) and all(optimizer.add_edge(edge) for edge in edges)
    assert optimizer.initialize_optimization() and optimizer.optimize(5) == 5


def test_objects_outlive_the_optimizer():
    """A vertex that is held keeps its estimate after clear() and after the optimizer is gone."""
    optimizer = ring(ours)
    optimizer.initialize_optimization()
    optimizer.optimize(3)
    vertex, other = optimizer.vertex(5), optimizer.vertex(6)
    expected = vertex.estimate().matrix()
    optimizer.clear()
    assert not optimizer.vertices() and not optimizer.edges() and vertex.edges() == set()
    np.testing.assert_array_equal(vertex.estimate().matrix(), expected)
    assert optimizer.add_vertex(vertex)
    del optimizer
    gc.collect()
    np.testing.assert_array_equal(vertex.estimate().matrix(), expected)
    assert other.id() == 6


def test_many_objects_share_nothing():
    """Rows of different objects are different, over several chunks and after others died."""
    points = []
    for i in range(5000):
        point = ours.VertexPointXYZ()
        point.set_estimate([i, 0.0, 0.0])
        if i % 3:
            points.append((i, point))
    gc.collect()
    assert all(point.estimate()[0] == i for i, point in points)
    assert ours.VertexPointXYZ().estimate().tolist() == [0.0, 0.0, 0.0]


def test_error_belongs_to_the_last_computation():
    """chi2 follows a new error or information, not a new estimate, until the error is computed again."""
    optimizer = ring(ours)
    edge = next(iter(optimizer.edges()))
    edge.compute_error()
    before = edge.chi2()
    edge.vertex(1).set_estimate(isometry(ours, [5.0, 5.0, 5.0]))
    assert edge.chi2() == before
    edge.set_information(2.0 * edge.information())
    assert edge.chi2() == pytest.approx(2.0 * before)
    edge.error = np.zeros(6)
    assert edge.chi2() == 0.0
    edge.compute_error()
    assert edge.chi2() > before
    np.testing.assert_array_equal(edge.error(), edge.error)


def test_merge_and_detach():
    """`merge_vertices` moves edges; `detach_vertex` leaves them incomplete and out of the optimization."""
    optimizer = ring(ours)
    assert optimizer.merge_vertices(optimizer.vertex(3), optimizer.vertex(6), True)
    assert optimizer.vertex(6) is None and len(optimizer.vertex(3).edges()) == 4
    assert optimizer.detach_vertex(optimizer.vertex(3))
    optimizer.initialize_optimization()
    assert len(optimizer.active_edges()) == 4


def test_missing_parameter():
    """An edge that needs a parameter is refused until the graph has it."""
    optimizer = ours.SparseOptimizer()
    pose, point = ours.VertexSE3(0), ours.VertexPointXYZ(1)
    optimizer.add_vertex(pose)
    optimizer.add_vertex(point)
    edge = ours.EdgeSE3PointXYZ()
    edge.set_vertex(0, pose)
    edge.set_vertex(1, point)
    assert not optimizer.add_edge(edge) and not edge.set_parameter_id(1, 0)
    offset = ours.ParameterSE3Offset()
    offset.set_id(4)
    assert (
        edge.set_parameter_id(0, 4)
        and optimizer.add_parameter(offset)
        and not optimizer.add_parameter(offset)
    )
    assert optimizer.add_edge(edge) and edge.parameter(0) is offset
