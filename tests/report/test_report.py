"""Pictures are drawn for every kind of graph; trajectory errors and alignments are right."""

import numpy as np
import pytest

from graphopt.errors import GraphError, OptionError, ShapeError
from graphopt.evaluate import datasets
from graphopt.evaluate.report import (
    figure,
    plot_before_after,
    plot_convergence,
    plot_graph,
    plot_run,
    plot_sparsity,
    poses_of_graph,
    trajectory_errors,
)
from graphopt.evaluate.report.scene import scene
from graphopt.evaluate.trajectories import Trajectory, compare
from graphopt.geometry import SE3, SO3
from graphopt.graph import Graph

SMALL = {
    "sphere": lambda **kw: datasets.sphere(nodes_per_level=12, laps=6, **kw),
    "manhattan": lambda **kw: datasets.manhattan(nodes=120, **kw),
    "bal": lambda **kw: datasets.ba(cameras=6, points=80, **kw),
    "expmap": lambda **kw: datasets.ba(cameras=6, points=80, camera="expmap", **kw),
}
SUMMARY = {
    "initial_chi2": 100.0,
    "final_chi2": 1.0,
    "iterations": [{"chi2": 10.0, "seconds": 0.1}, {"chi2": 1.0, "seconds": 0.2}],
}


def random_trajectory(seed, count=50):
    """Return poses (count, 7) of a smooth walk with turning."""
    rng = np.random.default_rng(seed)
    shift = np.cumsum(rng.normal(0.0, 1.0, (count, 3)), axis=0)
    return SE3.from_parts(shift, SO3.exp(rng.normal(0.0, 1.0, (count, 3))).storage)


@pytest.mark.parametrize(
    ("kind", "ending"), [*((kind, ".png") for kind in SMALL), ("sphere", ".pdf"), ("manhattan", ".svg")]
)
def test_a_run_is_drawn(kind, ending, tmp_path):
    """Before, after and convergence are written for planar, spatial and bundle adjustment graphs."""
    path = tmp_path / f"run{ending}"
    plot_run(path, SMALL[kind](), SMALL[kind](start="truth"), SUMMARY)
    assert path.stat().st_size > 5000


def test_single_pictures_are_drawn(tmp_path):
    """A graph, a pair of graphs, a comparison of runs and a sparsity pattern each make a file."""
    graph = SMALL["sphere"]()
    plot_graph(tmp_path / "a.png", graph, "title")
    plot_before_after(tmp_path / "b.png", graph, graph)
    plot_convergence(tmp_path / "c.png", {"one": SUMMARY, "two": SUMMARY})
    plot_sparsity(tmp_path / "d.png", graph)
    assert all((tmp_path / f"{name}.png").stat().st_size > 3000 for name in "abcd")


def test_what_cannot_be_drawn_is_refused(tmp_path):
    """Unknown endings and graphs without a place in the world are errors with a way out."""
    with pytest.raises(OptionError, match=r"\.png"):
        figure.require_matplotlib("a.txt")
    with pytest.raises(GraphError, match="its types are: none"):
        plot_graph(tmp_path / "a.png", Graph())


@pytest.mark.parametrize("kind", ["bal", "expmap"])
def test_cameras_are_drawn_at_their_centres(kind):
    """Both camera models put the same generated cameras on the same ring around the scene."""
    drawn = scene(SMALL[kind](start="truth"))
    assert drawn.is_ba
    assert drawn.num_poses == 6
    np.testing.assert_allclose(np.hypot(*drawn.poses[:, :2].T), 8.0, atol=1e-9)


def test_edges_join_the_drawn_vertices():
    """Line k of a scene joins the positions of edge k's two vertices, whatever the order of the ids."""
    graph = Graph()
    graph.add_vertices("VERTEX_SE2", [7, -3, 5], [[7.0, 0.0, 0.0], [-3.0, 0.0, 0.0], [5.0, 0.0, 0.0]])
    graph.add_vertices("VERTEX_XY", [100], [[100.0, 0.0]])
    graph.add_edges("EDGE_SE2", [(7, 5), (5, -3)], np.zeros((2, 3)))
    graph.add_edges("EDGE_SE2_XY", [(-3, 100)], np.zeros((1, 2)))
    drawn = scene(graph)
    np.testing.assert_array_equal(drawn.positions[drawn.lines][..., 0], [[7, 5], [5, -3], [-3, 100]])


def test_trajectories_that_do_not_match_are_refused():
    """Different lengths and a step as long as the trajectory are errors that say what to do."""
    poses = random_trajectory(6).storage
    with pytest.raises(ShapeError, match="match_by_time"):
        trajectory_errors(poses, poses[1:])
    with pytest.raises(OptionError, match="delta"):
        trajectory_errors(poses, poses, delta=50)


@pytest.mark.parametrize("value", [1e200, np.nan, np.inf, -1e308])
def test_numbers_that_overflow_are_refused(value):
    """With the pose, for positions and quaternions; large ones that do not overflow are compared."""
    poses = random_trajectory(6).storage
    for column in (0, 5):
        wrong = poses.copy()
        wrong[7, column] = value
        for pair, name in (((wrong, poses), "estimate"), ((poses, wrong), "reference")):
            with pytest.raises(OptionError, match=f"Pose 7 of the {name} is"):
                trajectory_errors(*pair)
    far = poses * [1e60, 1e60, 1e60, 1, 1, 1, 1]
    assert trajectory_errors(far, far, align="sim3").ate_rmse < 1e47


def test_one_definition_of_relative_errors():
    """Reports and `graphopt eval trajectory` give one number for any delta."""
    reference, estimate = random_trajectory(8).storage, random_trajectory(9).storage
    times = np.arange(len(reference)) * 0.1
    for delta in (1, 3, 10):
        errors = trajectory_errors(estimate, reference, delta=delta)
        compared = compare(Trajectory(times, estimate), Trajectory(times, reference), delta=delta)
        assert errors.rpe_translation_rmse == compared.statistics()["rpe"]["translation_m"]["rmse"]
    with pytest.raises(OptionError, match=r"delta is 1\.5 frames, must be a whole number"):
        trajectory_errors(estimate, reference, delta=1.5)


def test_planar_poses_become_spatial_ones():
    """A planar pose is a turn about z: its matrix has the planar one's rotation and translation."""
    ids, poses = poses_of_graph(SMALL["manhattan"]())
    estimate = SMALL["manhattan"]().vertex_set("VERTEX_SE2").estimate
    matrix = SE3(poses).to_matrix()
    np.testing.assert_allclose(matrix[:, 0, 0], np.cos(estimate[:, 2]), atol=1e-12)
    np.testing.assert_allclose(matrix[:, 1, 0], np.sin(estimate[:, 2]), atol=1e-12)
    np.testing.assert_array_equal(poses[:, :2], estimate[:, :2])
    np.testing.assert_array_equal(ids, np.arange(120))
