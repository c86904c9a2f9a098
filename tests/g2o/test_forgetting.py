"""A vertex that was removed is forgotten everywhere: long runs with constant windows need constant memory."""

from __future__ import annotations

import gc
import tracemalloc
import weakref

import numpy as np
import pytest
from both import isometry, ring

import graphopt.g2o as g2o
from graphopt.errors import GraphError


class Keyframe(g2o.VertexSE3):
    """Vertices that can be told from those of other tests."""


def _add_keyframe(optimizer, number):
    """A vertex and an edge to it."""
    vertex = Keyframe()
    vertex.set_id(number)
    vertex.set_estimate(isometry(g2o, [1.0, 2.0, 3.0]))
    optimizer.add_vertex(vertex)
    edge = g2o.EdgeSE3()
    edge.set_vertex(0, optimizer.vertex(0))
    edge.set_vertex(1, vertex)
    edge.set_measurement(isometry(g2o, [1.0, 2.0, 3.0]))
    edge.set_information(np.eye(6))
    optimizer.add_edge(edge)
    return vertex


def _cycles(optimizer, numbers, optimize_each):
    for number in numbers:
        vertex = _add_keyframe(optimizer, number)
        assert len(vertex.edges()) == 1  # asks who has which edges, as covisibility graphs do
        if number % optimize_each == 0:
            optimizer.initialize_optimization()
            optimizer.optimize(1)
        optimizer.remove_vertex(vertex)


def _sizes(optimizer):
    """Entries of everything that the optimizer holds by itself."""
    return {name: len(var) for name, var in vars(optimizer).items() if hasattr(var, "__len__")}


def test_memory_is_constant():
    """Thousands of vertices come and go."""
    optimizer = ring(g2o, 6)
    _cycles(optimizer, range(1000, 2100), 50)  # pools have handed out a whole chunk of rows
    gc.collect()
    sizes = _sizes(optimizer)
    tracemalloc.start()
    try:
        _cycles(optimizer, range(2100, 4150), 50)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0]
        _cycles(optimizer, range(4150, 8250), 50)
        gc.collect()
        grown_more = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert _sizes(optimizer) == sizes
    assert grown_more - grown < 200_000  # 4,100 vertices and edges have more than 2,000,000 bytes
    assert sum(type(object_) is Keyframe for object_ in gc.get_objects()) <= 1  # of the last initialization


def test_nobody_holds_a_removed_vertex():
    """It is gone when the program lets it go, at the latest with the next initialization."""
    optimizer = ring(g2o, 6)
    vertex = _add_keyframe(optimizer, 77)
    assert len(vertex.edges()) == 1
    gone = weakref.ref(vertex)
    optimizer.remove_vertex(vertex)
    del vertex
    gc.collect()
    assert gone() is None

    vertex = _add_keyframe(optimizer, 78)
    optimizer.initialize_optimization()
    optimizer.optimize(1)
    gone = weakref.ref(vertex)
    optimizer.remove_vertex(vertex)
    del vertex
    optimizer.initialize_optimization()
    gc.collect()
    assert gone() is None


def test_edges_of_a_vertex_that_came_back():
    """What is forgotten with a vertex is learned anew."""
    optimizer = ring(g2o, 6)
    vertex = optimizer.vertex(3)
    edges = vertex.edges()
    assert len(edges) == 2
    optimizer.remove_vertex(vertex)
    assert vertex.edges() == set() and len(optimizer.vertex(2).edges()) == 1
    optimizer.add_vertex(vertex)
    for edge in edges:
        assert optimizer.add_edge(edge)
    assert vertex.edges() == edges and len(optimizer.vertex(2).edges()) == 2


@pytest.mark.parametrize("id", [2**63, -(2**63) - 1, 10**30])
def test_ids_of_64_bits(id):
    """A larger one is refused where it is given, not in the next optimization."""
    optimizer = ring(g2o, 6)
    vertex = g2o.VertexSE3()
    vertex.set_id(5000)
    for call in (vertex.set_id, optimizer.vertex(2).set_id, lambda given: optimizer.change_id(vertex, given)):
        with pytest.raises(GraphError, match=rf"fit a signed integer of 64 bits .*got {id}\."):
            call(id)
    assert vertex.id() == 5000 and optimizer.vertex(2).id() == 2
    vertex.set_id(2**63 - 1)
    assert optimizer.add_vertex(vertex) and optimizer.vertex(2**63 - 1) is vertex
    with pytest.raises(TypeError, match=r"must be an integer, got 1\.5"):
        vertex.set_id(1.5)


def test_id_of_the_constructor():
    """It is refused when the vertex joins a graph."""
    optimizer = ring(g2o, 6)
    with pytest.raises(GraphError, match="64 bits"):
        optimizer.add_vertex(g2o.VertexSE3(2**63))
    assert len(optimizer.vertices()) == 6
