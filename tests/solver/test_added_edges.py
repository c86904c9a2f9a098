"""Edges that a function of arrays evaluates add their part to H, b and chi2 of the others."""

from __future__ import annotations

import numpy as np
import pytest
import vulkan_devices  # noqa: F401  (how llvmpipe runs)

import graphopt
from graphopt.errors import GraphError
from graphopt.linear.options import SolverOptions
from graphopt.problem.gauge import choose_gauge
from graphopt.problem.structure import Structure
from graphopt.solver.added import places_of
from graphopt.solver.create import create_block_solver
from graphopt.solver.trial import Damping
from graphopt.types import registry
from graphopt.types.outside import outside_edge_type


@pytest.fixture(scope="module")
def kind():
    made = outside_edge_type(
        lambda points, measured: points - measured,
        lambda points, measured: (points - measured, [np.tile(np.eye(2), (len(points), 1, 1))]),
        tag="EDGE_TEST_ADDED",
        vertices=["VERTEX_XY"],
        residual_dim=2,
        measurement_dim=2,
    )
    yield made
    registry.unregister(made)


def chain(kind, weight=3.0):
    """Three points: two differences, and the first one's place by an outside edge without a kernel."""
    graph = graphopt.Graph()
    graph.add_vertices("VERTEX_XY", range(3), [[0.1, 0.2], [1.0, 0.3], [2.2, 0.1]])
    graph.add_edges("EDGE_POINTXY", [[0, 1], [1, 2]], [[1.0, 0.0], [1.0, 0.0]])
    graph.add_edges(kind, [[0]], [[0.5, 0.5]], weight * np.eye(2))
    return graph, create_block_solver(graph, Structure(graph.select()), SolverOptions(device="cpu"))


def dense(graph, weight):
    """H, b and chi2 by numpy."""
    x = graph.vertex_sets[0].estimate.ravel()
    J = np.kron([[-1.0, 1.0, 0.0], [0.0, -1.0, 1.0], [1.0, 0.0, 0.0]], np.eye(2))
    e = J @ x - [1.0, 0.0, 1.0, 0.0, 0.5, 0.5]
    omega = np.diag([1.0] * 4 + [weight] * 2)
    return J.T @ omega @ J, -J.T @ omega @ e, e @ omega @ e


def test_blocks_have_the_sizes_of_their_vertices():
    """Of pairs of slots, and the parts of b."""
    graph = graphopt.Graph()
    graph.add_vertices("VERTEX_SE2", [0, 1])
    graph.add_vertices("VERTEX_XY", [2], [[1.0, 0.0]])
    graph.add_edges("EDGE_SE2", [[0, 1]])
    graph.add_edges("EDGE_SE2_XY", [[0, 2], [1, 2]], [[1.0, 0.0], [1.0, 0.1]])
    structure = Structure(graph.select())
    (group,) = [each for each in structure.groups if each.edge_set.type.tag == "EDGE_SE2_XY"]
    blocks, parts = places_of(structure, group)
    assert [(pair, size) for pair, _, size in blocks] == [((0, 0), 9), ((0, 1), 6), ((1, 1), 4)]
    assert [(slot, size) for slot, _, size in parts] == [(0, 3), (1, 2)]


def test_equations_are_the_dense_ones(kind):
    """Chi2, b and the Gauss-Newton step; a step that cannot be solved for changes nothing."""
    for weight, is_solved in ((3.0, True), (-3.0, False)):
        graph, solver = chain(kind, weight)
        before = graph.vertex_sets[0].estimate.copy()
        H, b, chi2 = dense(graph, weight)
        assert solver.linearize() == pytest.approx(chi2, rel=1e-14)
        np.testing.assert_allclose(solver.b, b, rtol=1e-13)
        trial = solver.trial(Damping(0.0))
        assert trial.solved == is_solved
        if is_solved:
            np.testing.assert_allclose(solver.dx, np.linalg.solve(H, b), rtol=1e-12)
            assert trial.chi2 == pytest.approx(0.0, abs=1e-20)
            solver.pop()
        assert solver.chi2() == pytest.approx(chi2, rel=1e-14)
        solver.finish()
        np.testing.assert_array_equal(graph.vertex_sets[0].estimate, before)


def test_what_is_not_finite_is_named(kind):
    """Of the outside edges, of the others, of none."""
    graph, solver = chain(kind)
    assert solver.first_non_finite() is None
    graph.edge_set(kind).measurement[:] = np.nan
    solver.refresh()
    assert "EDGE_TEST_ADDED between vertices 0 (row 0) is not finite" in solver.first_non_finite()


def test_held_components_are_refused(kind):
    """What evaluates the edge does not know of them."""
    graph, _ = chain(kind)
    graph.hold([0], [1])
    with pytest.raises(
        GraphError, match="EDGE_TEST_ADDED is evaluated outside the block solver, which cannot"
    ):
        graphopt.optimize(graph)


def test_points_of_several_dimensions_have_no_gauge(own_types):
    """Nothing moves both by one vector; poses beside them have one."""
    flat, space = (graphopt.group_type(f"GaugePoint{dim}", dim, role="point") for dim in (2, 3))

    @graphopt.edge_type(tag="EDGE_TEST_SHADOW", vertices=(flat, space), measurement_dim=2)
    def EdgeShadow(below, above, z):
        return above[..., :2] - below - z

    graph = graphopt.Graph()
    graph.add_vertices(flat, [0], [[0.0, 0.0]])
    graph.add_vertices(space, [1, 2], [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    graph.add_edges(EdgeShadow, [[0, 1], [0, 2]], [[0.0, 0.0], [1.0, 1.0]])
    graph.add_vertices("VERTEX_SE2", [5, 6])
    graph.add_edges("EDGE_SE2", [[5, 6]], [[1.0, 0.0, 0.0]])
    [(number, _)] = choose_gauge(graph, graph.select())
    assert graph.vertex_sets[number].type.tag == "VERTEX_SE2"


@pytest.mark.parametrize("method", ["lm", "gn", "auto"])
def test_the_optimum_of_compiled_edges(kind, method):
    """On the device and on the CPU, of outside edges and of their compiled twins."""
    rng = np.random.default_rng(0)
    truth, measured = rng.uniform(0, 9, (30, 2)), rng.standard_normal((29, 2))
    ends = []
    for prior, device in (("EDGE_PRIOR_XY", "cpu"), (kind, "cpu"), (kind, "vulkan")):
        graph = graphopt.Graph()
        graph.add_vertices("VERTEX_XY", range(30), truth)
        graph.add_edges("EDGE_POINTXY", [(i, i + 1) for i in range(29)], measured)
        graph.add_edges(prior, [[0], [12], [29]], truth[[0, 12, 29]], 5.0 * np.eye(2), kernel="Cauchy")
        summary = graphopt.optimize(
            graph, method, device=device, precision="double" if device != "cpu" else "auto"
        )
        assert summary.device.startswith(device)
        ends.append((summary.final_chi2, graph.vertex_sets[0].estimate.copy()))
    for chi2, estimate in ends[1:]:
        assert chi2 == pytest.approx(ends[0][0], rel=1e-9)
        np.testing.assert_allclose(estimate, ends[0][1], atol=1e-5)
