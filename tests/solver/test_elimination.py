"""Marginalized vertices are eliminated where that saves operations, and the answer is the same either way."""

import numpy as np
import pytest

import graphopt
from graphopt.evaluate.datasets import ba
from graphopt.linear.options import SolverOptions
from graphopt.linear.systems import elimination_flops
from graphopt.problem.structure import Structure
from graphopt.solver.create import create_block_solver


def few_points(cameras=150, points=9):
    """Many cameras that all see the same few points, which a user has marked as marginalized."""
    graph = graphopt.Graph()
    rng = np.random.default_rng(0)
    ids = np.arange(cameras)
    estimates = np.tile([0, 0, 0, 0, 0, 0, 1.0], (cameras, 1))
    estimates[:, :3] = rng.normal(size=(cameras, 3)) * 0.3
    graph.add_vertices("VERTEX_SE3:EXPMAP", ids, estimates)
    places = rng.normal(size=(points, 3)) + np.array([0.0, 0.0, 8.0])
    graph.add_vertices("VERTEX_XYZ", cameras + np.arange(points), places, marginalized=True)
    pairs = np.stack(np.meshgrid(cameras + np.arange(points), ids, indexing="ij"), -1).reshape(-1, 2)
    return graph, pairs, places


def projected(graph, pairs, places, cameras):
    """Edges with the true pixels plus noise."""
    rng = np.random.default_rng(2)
    poses = graph.vertex_set("VERTEX_SE3:EXPMAP").estimate
    point = places[pairs[:, 0] - cameras] + poses[pairs[:, 1], :3]
    pixels = 500.0 * point[:, :2] / point[:, 2:] + [320.0, 240.0] + rng.normal(size=(len(pairs), 2))
    graph.add_parameters("PARAMS_CAMERAPARAMETERS", [0], [[500.0, 320.0, 240.0, 0.0]])
    graph.add_edges("EDGE_PROJECT_XYZ2UV:EXPMAP", pairs, pixels, parameters=np.zeros((len(pairs), 1), int))
    return graph


def systems(graph):
    """What `auto` takes, and the step by each choice."""
    graph.set_fixed([0, 1])
    steps, chosen = {}, None
    for schur in ("auto", "explicit", "off"):
        structure = Structure(graph.select())
        solver = create_block_solver(graph, structure, SolverOptions(device="cpu", schur=schur))
        solver.linearize()
        assert solver.solve(1.0)
        steps[schur] = solver.dx.copy()
        chosen = chosen or solver.describe()["schur"]
    return chosen, steps


def test_many_poses_through_few_points_are_not_eliminated_by_points():
    """S would be full: 150 cameras see 9 points. All in one ordering takes a fraction."""
    small, pairs, places = few_points()
    graph = projected(small, pairs, places, 150)
    chosen, steps = systems(graph)
    assert chosen == "off"
    for schur in ("explicit", "off"):
        np.testing.assert_allclose(steps["auto"], steps[schur], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("camera", ["bal", "expmap"])
def test_usual_bundle_adjustment_is_eliminated(camera):
    """Many points, few cameras."""
    graph = ba(cameras=30, points=1500, camera=camera)
    structure = Structure(graph.select())
    assert structure.has_schur
    solver = create_block_solver(graph, structure, SolverOptions(device="cpu"))
    assert solver.describe()["schur"] == "explicit"


def test_the_count_is_that_of_a_dense_example():
    """k points seen by all n cameras: n^2 / 2 blocks for each, then a full factor."""
    small, pairs, places = few_points(cameras=20, points=5)
    structure = Structure(projected(small, pairs, places, 20).select())
    forming = 5 * 0.5 * 20**2 * 2 * 6 * 6 * 3
    assert elimination_flops(structure) == pytest.approx(forming + 120**3 / 3)
    other = 20 * 0.5 * 5**2 * 2 * 3 * 3 * 6
    assert elimination_flops(structure, of_kept=True) == pytest.approx(other + 15**3 / 3)
