"""`graphopt.linearize`: H, b, J, errors as scipy matrices equal the block solver's and differences."""

import numpy as np
import pytest
import scipy.sparse.linalg

import graphopt
from graphopt.errors import GraphError
from graphopt.evaluate import datasets
from graphopt.linear.options import SolverOptions
from graphopt.problem.structure import Structure
from graphopt.solver.cpu import CpuBlockSolver

GRAPHS = {
    "poses": lambda: datasets.sphere(nodes_per_level=8, laps=4, seed=1),
    "parameters": lambda: datasets.ba(cameras=4, points=20, camera="expmap", seed=2),
    "bundle": lambda: datasets.ba(cameras=4, points=20, seed=3),
}


def graph_of(name):
    """A graph with a robust kernel on every other edge and one vertex fixed."""
    graph = GRAPHS[name]()
    for edge_set in graph.edge_sets:
        edge_set.kernel[::2] = 1
    graph.set_fixed([int(graph.vertex_ids()[0])])
    return graph


@pytest.mark.parametrize("name", GRAPHS)
def test_equals_the_block_solver(name):
    """H times vectors, b and chi2 as the solver has them; H = J'WJ and b = -J'We."""
    graph = graph_of(name)
    found = graphopt.linearize(graph)
    structure = Structure(graph.select())
    solver = CpuBlockSolver(graph, structure, SolverOptions())
    assert found.chi2 == pytest.approx(solver.linearize(), rel=1e-12) == pytest.approx(graph.chi2())
    scale = np.abs(found.H).max()
    for vector in np.random.default_rng(0).normal(size=(3, structure.dim)):
        np.testing.assert_allclose(found.H @ vector, solver.multiply(vector), rtol=0, atol=1e-12 * scale)
    np.testing.assert_allclose(found.b, solver.b, rtol=0, atol=1e-11 * np.abs(solver.b).max())
    assert abs(found.H - found.H.T).max() < 1e-12 * scale
    np.testing.assert_allclose((found.J.T @ found.W @ found.J).toarray(), found.H.toarray())
    np.testing.assert_allclose(-found.J.T @ (found.W @ found.residuals), found.b)
    assert np.array_equal(found.vertex_ids, structure.ids)


@pytest.mark.parametrize("name", GRAPHS)
def test_rows_and_columns_are_where_they_are_said_to_be(name):
    """Residuals in the order of `edges`; columns of a vertex are the differences by its update."""
    graph = graph_of(name)
    found = graphopt.linearize(graph)
    for part in found.edges:
        errors = part.edge_set.errors(part.rows)
        np.testing.assert_allclose(found.residuals[part.first :][: errors.size], errors.ravel(), atol=1e-12)
    step = 1e-6
    for vertex_id in (int(found.vertex_ids[0]), int(found.vertex_ids[-1])):
        vertex = graph.vertex(vertex_id)
        start = vertex.estimate.copy()
        for number, column in enumerate(range(*found.columns(vertex_id).indices(found.J.shape[1]))):
            delta = step * np.eye(vertex.type.tangent_dim)[number]
            values = []
            for sign in (1, -1):
                vertex.estimate = vertex.type.oplus(start, sign * delta)
                values.append(
                    np.concatenate([edge.edge_set.errors(edge.rows).ravel() for edge in found.edges])
                )
            vertex.estimate = start
            expected = (values[0] - values[1]) / (2 * step)
            np.testing.assert_allclose(found.J[:, [column]].toarray().ravel(), expected, atol=2e-4, rtol=1e-5)


def test_a_step_with_scipy_is_a_gauss_newton_step():
    """H d = b solved by scipy gives the estimates of method "gn"."""
    graph, other = graph_of("poses"), graph_of("poses")
    found = graphopt.linearize(graph)
    d = scipy.sparse.linalg.spsolve(found.H, found.b)
    for vertex_id in found.vertex_ids.tolist():
        vertex = graph.vertex(vertex_id)
        vertex.estimate = vertex.type.oplus(vertex.estimate, d[found.columns(vertex_id)])
    graphopt.optimize(other, "gn", 1, fix="none")
    translations = [graph.vertex_sets[0].estimate[:, :3] for graph in (graph, other)]
    np.testing.assert_allclose(*translations, atol=1e-9)
    assert graph.chi2() == pytest.approx(other.chi2(), rel=1e-9)


def test_marginalized_vertices_come_last():
    """Points after cameras, so the Schur complement is a corner."""
    found = graphopt.linearize(graph_of("bundle"))
    dims = np.diff(found.offsets)
    assert (np.diff(dims) <= 0).all() and dims[0] > dims[-1] == 3


def test_a_vertex_without_columns_is_named():
    """Fixed vertices, and ids that do not exist."""
    graph = graph_of("poses")
    found = graphopt.linearize(graph)
    for vertex_id in (int(graph.vertex_ids()[0]), 10**9):
        with pytest.raises(GraphError, match=f"Vertex {vertex_id} has no columns"):
            found.columns(vertex_id)
