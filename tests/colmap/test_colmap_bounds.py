"""Bounds of a COLMAP adjustment: intrinsics and depths."""

import copy
from typing import Any

import numpy as np
import pytest

import graphopt.colmap
from graphopt.colmap import Bounds
from graphopt.errors import OptionError
from graphopt.optimizer import TerminationType
from tests.colmap.test_adjustment import colmaps, cost, scene

SIZE = 1024
"""Larger side of the scenes' images [px]."""


def with_focal_length(made: Any, focal_length: float) -> Any:
    """The same with one focal length for all cameras."""
    changed = copy.deepcopy(made)
    for camera in changed.cameras.values():
        camera.params = [focal_length, *camera.params[1:]]
    return changed


def depths(made: Any) -> np.ndarray:
    """Of all observations."""
    found = []
    for image in made.images.values():
        pose = image.cam_from_world()
        points = [keypoint.point3D_id for keypoint in image.points2D if keypoint.has_point3D()]
        found += [(pose * made.points3D[point].xyz)[2] for point in points]
    return np.array(found)


@pytest.mark.parametrize("device", ["cpu", "vulkan"])
def test_an_active_bound_is_a_constant(device: str) -> None:
    """With the focal length at its bound the cost is COLMAP's with a constant one there."""
    made = scene()
    bounded = 1.02 * 1280.0
    ours = copy.deepcopy(made)
    bounds = Bounds(min_focal_length_ratio=bounded / SIZE, max_focal_length_ratio=10.0, max_extra_param=1.0)
    summary = graphopt.colmap.bundle_adjustment(ours, device=device, bounds=bounds)
    assert summary.is_usable and "moved onto them" in summary.message
    assert [camera.params[0] for camera in ours.cameras.values()] == [bounded]
    theirs = colmaps(with_focal_length(made, bounded), refine_focal_length=False)
    assert cost(ours) == pytest.approx(cost(theirs), rel=1e-6)
    assert summary.final_chi2 == pytest.approx(cost(ours), rel=1e-9)
    (active,) = summary.kkt.bounds
    assert (active.component, active.side, active.value) == (0, "lower", bounded) and active.multiplier > 0.0
    nearby = colmaps(with_focal_length(made, bounded + 0.1), refine_focal_length=False)
    assert (cost(nearby) - cost(theirs)) / 0.1 == pytest.approx(active.multiplier, rel=0.02)


def test_bounds_that_are_not_reached() -> None:
    """COLMAP's own limits of a mapper change nothing in a good model."""
    made = scene(seed=3)
    free, ours = copy.deepcopy(made), copy.deepcopy(made)
    expected = graphopt.colmap.bundle_adjustment(free)
    bounds = Bounds(
        min_focal_length_ratio=0.1, max_focal_length_ratio=10.0, max_extra_param=1.0, min_depth=0.1
    )
    summary = graphopt.colmap.bundle_adjustment(ours, bounds=bounds)
    assert summary.final_cost == pytest.approx(expected.final_cost, rel=1e-6)
    assert summary.kkt.bounds == () == summary.kkt.inequalities
    assert summary.num_residuals == expected.num_residuals


def test_depths() -> None:
    """Points that come too near are kept at the smallest depth; all others are where they fit best."""
    made = scene(seed=5)
    free = copy.deepcopy(made)
    expected = graphopt.colmap.bundle_adjustment(free)
    smallest = float(np.quantile(depths(free), 0.01))
    ours = copy.deepcopy(made)
    summary = graphopt.colmap.bundle_adjustment(ours, bounds=Bounds(min_depth=smallest))
    assert summary.termination in (TerminationType.CONVERGENCE, TerminationType.NO_IMPROVEMENT)
    assert depths(ours).min() == pytest.approx(smallest, abs=1e-6)
    assert summary.final_cost > expected.final_cost and summary.kkt.inequalities
    assert cost(ours) == pytest.approx(summary.final_chi2, rel=1e-6)


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ({"cameras": {77: ([0.0], [1.0])}}, "camera 77"),
        ({"cameras": {1: ([0.0], [1.0])}}, "bounds of camera 1"),
        ({"max_extra_param": -1.0}, "max_extra_param"),
        ({"min_focal_length_ratio": 2.0, "max_focal_length_ratio": 1.0}, "above max_focal_length_ratio"),
    ],
)
def test_wrong_bounds(bounds: Any, message: str) -> None:
    """Each is named."""
    with pytest.raises(OptionError, match=message):
        graphopt.colmap.bundle_adjustment(scene(), bounds=Bounds(**bounds))
