"""Observations without a residual: a step that hides everything has cost 0, and is not taken."""

import copy

import numpy as np
import pytest
from pycolmaps import need_sensor_poses

import graphopt.colmap
from graphopt.colmap import adjustment
from graphopt.colmap.hidden import num_hidden
from graphopt.colmap.memory import Scene
from graphopt.cpu_kernels import kernels
from graphopt.optimizer import TerminationType
from tests.colmap.test_adjustment import cost, scene

pycolmap = pytest.importorskip("pycolmap", reason="pycolmap, the oracle of COLMAP models, is not installed")


@pytest.mark.parametrize(
    ("model", "cameras"), [("OPENCV", 1), ("OPENCV", 2), ("DIVISION", 1), ("EQUIRECTANGULAR", 1)]
)
def test_hidden_observations_are_those_that_pycolmap_does_not_project(model: str, cameras: int) -> None:
    if cameras == 2:
        need_sensor_poses()
    made = scene(model, seed=3, cameras_per_rig=cameras)
    centre = np.mean([image.projection_center() for image in made.images.values()], axis=0)
    for identifier in sorted(made.points3D)[:20]:
        point = made.points3D[identifier]
        point.xyz = centre + 40.0 * (centre - point.xyz)
    if model == "DIVISION":  # whose image then ends at 19 degrees from the axis
        for camera in made.cameras.values():
            camera.params = [*camera.params[:-1], 2.0]
    expected = sum(
        image.project_point(made.points3D[keypoint.point3D_id].xyz) is None
        for image in made.images.values()
        for keypoint in image.points2D
        if keypoint.has_point3D()
    )
    found = Scene(made).model
    assert num_hidden(found, found.observations()) == expected
    assert (expected > 15) == (model != "EQUIRECTANGULAR")


@pytest.mark.parametrize(("method", "seed"), [("auto", 2), ("dogleg", 1), ("dogleg", 3)])
def test_a_step_that_hides_everything_is_not_taken(method: str, seed: int) -> None:
    """Of FULL_OPENCV's twelve parameters these scenes hardly determine some: a step may leave for good."""
    made = scene("FULL_OPENCV", seed=seed)
    summary = graphopt.colmap.bundle_adjustment(made, device="cpu", method=method, max_iterations=100)
    assert summary.is_solution_usable() and summary.final_chi2 > 400.0
    assert cost(made) == pytest.approx(summary.final_chi2, rel=1e-9)  # projects every point


@pytest.mark.parametrize("leaves_at", [0, 2])
def test_the_run_ends_before_that_step(leaves_at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is the first one, nothing is changed."""
    made = scene("OPENCV", seed=8)
    before, calls = copy.deepcopy(made), []

    def leaving(problem, **settings):
        summary = solve(problem, **settings)
        calls.append(settings.get("max_iterations"))
        if len(calls) == 1:
            summary.iterations[leaves_at] = summary.iterations[leaves_at]._replace(chi2=0.0)
            problem.graph.vertex_set("VERTEX_TRACKXYZ").estimate[:] *= -1e3
        return summary

    solve = adjustment.solve
    monkeypatch.setattr(adjustment, "solve", leaving)
    summary = graphopt.colmap.bundle_adjustment(made, device="cpu", max_iterations=50)
    assert f"Step {leaves_at + 1} would have lowered the cost by taking" in summary.message
    if leaves_at == 0:
        assert summary.termination is TerminationType.REFUSED and not summary.is_solution_usable()
        assert calls == [50] and cost(made) == cost(before)
        return
    assert calls == [50, 2] and len(summary.iterations) == 2
    assert cost(made) == pytest.approx(summary.final_chi2, rel=1e-9) and cost(made) < 0.5 * cost(before)


def test_rows_outside_are_refused() -> None:
    with pytest.raises(ValueError, match="not there"):
        kernels.count_behind(np.array([1]), np.array([0]), np.zeros((1, 4)), np.zeros((1, 3)), 0.0)
