"""Who owns what, and what is a copy: the same answers as g2opy, case by case."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from both import assert_same, both, isometry, optimizer_of, ring


def _edge(g2o, first, second):
    edge = g2o.EdgeSE3()
    edge.set_vertex(0, first)
    edge.set_vertex(1, second)
    edge.set_measurement(isometry(g2o, [1.0, 0.0, 0.0]))
    edge.set_information(np.eye(6))
    return edge


def _sorted_edges(optimizer):
    return sorted(optimizer.edges(), key=lambda edge: edge.vertex(0).id())


def optimizer_is_gone(g2o):
    """Vertices and edges that are held live on and can be evaluated."""
    optimizer = ring(g2o)
    vertex, edge = optimizer.vertex(3), _sorted_edges(optimizer)[2]
    del optimizer
    gc.collect()
    edge.compute_error()
    return [vertex.id(), vertex.get_estimate_data(), np.array(edge.error), len(edge.vertices())]


def edge_is_removed_and_added(g2o):
    """An edge out of the graph keeps its vertices; it comes back once."""
    optimizer = ring(g2o)
    edge = _sorted_edges(optimizer)[2]
    answers = [optimizer.remove_edge(edge), optimizer.remove_edge(edge), len(optimizer.edges())]
    edge.compute_error()
    answers += [edge.chi2(), edge.vertex(0).id(), optimizer.add_edge(edge), optimizer.add_edge(edge)]
    return [*answers, len(optimizer.edges()), edge.internal_id()]


def graph_is_cleared(g2o):
    """Everything can be added again, here or elsewhere, and optimized."""
    optimizer = ring(g2o)
    vertices, edges = [optimizer.vertex(i) for i in range(8)], _sorted_edges(optimizer)
    optimizer.clear()
    answers = [len(optimizer.vertices()), len(optimizer.edges()), edges[0].vertex(0) is vertices[0]]
    other = optimizer_of(g2o)
    answers += [other.add_vertex(vertex) for vertex in vertices] + [other.add_edge(edge) for edge in edges]
    other.initialize_optimization()
    answers.append(other.optimize(3))
    other.compute_active_errors()
    return [*answers, other.active_chi2()]


def vertex_is_removed(g2o):
    """A removed vertex keeps its id and its numbers; it cannot be removed twice."""
    optimizer = ring(g2o)
    vertex = optimizer.vertex(2)
    answers = [optimizer.remove_vertex(vertex), optimizer.remove_vertex(vertex), vertex.id()]
    return [*answers, optimizer.vertex(2) is None, len(optimizer.vertices()), vertex.get_estimate_data()]


def ids_are_taken(g2o):
    """An id is given once; a vertex without id is refused."""
    optimizer = ring(g2o)
    vertex, unnamed = g2o.VertexSE3(), g2o.VertexSE3()
    vertex.set_id(2)
    answers = [optimizer.add_vertex(vertex), optimizer.add_vertex(unnamed), optimizer.vertex(2) is vertex]
    return [*answers, optimizer.change_id(optimizer.vertex(2), 50), optimizer.vertex(50).id()]


def one_object_per_vertex(g2o):
    """Asking twice gives the same Python object."""
    optimizer = ring(g2o)
    vertex = optimizer.vertex(2)
    others = list(optimizer.vertices().values())
    return [
        optimizer.vertex(2) is vertex,
        any(other is vertex for other in others),
        {vertex: 1}[optimizer.vertex(2)],
    ]


def containers_are_copies(g2o):
    """Changing what is returned changes nothing in the graph."""
    optimizer = ring(g2o)
    edge = _sorted_edges(optimizer)[0]
    edge.vertices()[0] = None
    optimizer.vertices().clear()
    optimizer.edges().clear()
    return [edge.vertex(0) is not None, len(optimizer.vertices()), len(optimizer.edges())]


def values_are_copies(g2o):
    """Estimates and measurements are copied in and out."""
    point = g2o.VertexPointXYZ()
    given = np.array([1.0, 2.0, 3.0])
    point.set_estimate(given)
    given[0] = 7.0
    pose = g2o.VertexSE3()
    pose.set_estimate(isometry(g2o, [1.0, 2.0, 3.0]))
    pose.estimate().set_translation(np.full((3, 1), 9.0))
    return [point.estimate(), pose.estimate().translation()]


def kernel_is_shared(g2o):
    """An edge holds the kernel object itself."""
    kernel, edge = g2o.RobustKernelHuber(1.0), g2o.EdgeSE2()
    edge.set_robust_kernel(kernel)
    kernel.set_delta(3.0)
    return [edge.robust_kernel().delta(), edge.robust_kernel() is kernel]


def graph_holds_what_was_added(g2o):
    """Python objects of subclasses, parameters and actions stay although nobody else holds them."""

    class Own(g2o.VectorXVertex):
        def __init__(self):
            super().__init__()
            self.set_dimension(1)
            self.set_estimate(np.zeros(1))
            self.extra = 5

    optimizer = ring(g2o)
    vertex, parameter = Own(), g2o.ParameterSE3Offset()
    action = g2o.SparseOptimizerTerminateAction()
    vertex.set_id(90)
    parameter.set_id(0)
    action.set_gain_threshold(1e-2)
    answers = [optimizer.add_vertex(vertex), optimizer.add_parameter(parameter)]
    answers.append(optimizer.add_post_iteration_action(action))
    del vertex, parameter, action
    gc.collect()
    answers += [optimizer.vertex(90).extra, optimizer.parameter(0).id(), optimizer.parameter(1) is None]
    optimizer.initialize_optimization()
    return [*answers, optimizer.optimize(50) < 20]


def edges_before_their_vertices(g2o):
    """The order of adding does not matter."""
    optimizer = optimizer_of(g2o)
    vertices = []
    for i in range(3):
        vertices.append(g2o.VertexSE3())
        vertices[i].set_id(i)
        vertices[i].set_fixed(i == 0)
    answers = [optimizer.add_edge(_edge(g2o, vertices[i], vertices[i + 1])) for i in range(2)]
    answers += [optimizer.add_vertex(vertex) for vertex in vertices]
    optimizer.initialize_optimization()
    return [*answers, optimizer.optimize(4), vertices[2].get_estimate_data()]


def vertex_that_was_never_added(g2o):
    """An edge brings it along, with an id of its own or without one."""
    answers = []
    for id in (77, 3, None):
        optimizer, vertex = ring(g2o), g2o.VertexSE3()
        if id is not None:
            vertex.set_id(id)
        vertex.set_estimate(isometry(g2o, [3.0, 3.0, 3.0]))
        edge = _edge(g2o, optimizer.vertex(0), vertex)
        answers += [optimizer.add_edge(edge), len(optimizer.vertices()), optimizer.initialize_optimization()]
        answers += [len(optimizer.active_vertices()), optimizer.optimize(5), vertex.get_estimate_data()]
        answers.append(vertex.hessian_index() >= 0)
    return answers


def vertices_in_two_graphs(g2o):
    """Two optimizers may share vertices and edges; removing from one leaves the other alone."""
    first, second = ring(g2o), optimizer_of(g2o)
    a, b = first.vertex(2), first.vertex(3)
    answers = [second.add_vertex(a), second.add_vertex(b)]
    a.set_fixed(True)
    answers.append(second.add_edge(_edge(g2o, a, b)))
    answers.append(second.add_edge(next(edge for edge in first.edges() if edge.vertex(0) is a)))
    second.initialize_optimization()
    answers += [second.optimize(5), b.get_estimate_data()]
    a.set_fixed(False)
    first.initialize_optimization()
    answers += [first.optimize(6), b.get_estimate_data()]
    answers += [second.remove_vertex(b), first.vertex(3) is b, len(first.vertices())]
    first.initialize_optimization()
    return [*answers, first.optimize(1), b.get_estimate_data()]


def vertices_given_twice(g2o):
    """Refused, while two edges between the same vertices are not."""
    optimizer = ring(g2o)
    v = optimizer.vertex(0)
    answers = [optimizer.add_edge(_edge(g2o, v, v)), optimizer.add_edge(_edge(g2o, v, optimizer.vertex(1)))]
    return [*answers, len(optimizer.edges())]


def nothing_to_optimize(g2o):
    """Return values where nothing is active, nothing is free, or the errors are zero."""
    optimizer, answers = ring(g2o), []
    answers.append(optimizer.optimize(3))
    answers += [optimizer.initialize_optimization(5), len(optimizer.active_edges())]
    for vertex in optimizer.vertices().values():
        vertex.set_fixed(True)
    answers += [optimizer.initialize_optimization(), optimizer.optimize(3)]
    exact = optimizer_of(g2o)
    for i in range(2):
        vertex = g2o.VertexSE3()
        vertex.set_id(i)
        vertex.set_estimate(isometry(g2o, [float(i), 0.0, 0.0]))
        vertex.set_fixed(i == 0)
        exact.add_vertex(vertex)
    exact.add_edge(_edge(g2o, exact.vertex(0), exact.vertex(1)))
    exact.initialize_optimization()
    return [*answers, exact.optimize(5), exact.chi2()]


CASES = [
    optimizer_is_gone,
    edge_is_removed_and_added,
    graph_is_cleared,
    vertex_is_removed,
    ids_are_taken,
    one_object_per_vertex,
    containers_are_copies,
    values_are_copies,
    kernel_is_shared,
    graph_holds_what_was_added,
    edges_before_their_vertices,
    vertex_that_was_never_added,
    vertices_in_two_graphs,
    vertices_given_twice,
    nothing_to_optimize,
]


@pytest.mark.oracle
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_same_as_g2opy(case):
    """The docstrings of the cases say what they ask."""
    assert_same(*both(case), atol=1e-6)
