"""Where cameras' models hold is a cone, and one native pass says which observed points lie in theirs."""

from __future__ import annotations

import numpy as np
import pytest

import slam_bridge as sb
from graphopt.cpu_kernels import kernels
from graphopt.geometry import SE3, SO3
from graphopt.geometry.rig_cameras import RIG_CAMERA_MODELS
from slam_bridge.selection import select

CAMERAS = [
    ("pinhole", []),
    ("radtan", [-0.3, 0.07, 1e-4, -2e-4, 0.0]),
    ("radtan", [0.1, 0.2, 0.0, 0.0, 0.0]),
    ("kb8", [0.02, 0.01, -0.02, 0.004]),
    ("kb8", [-0.2, 0.0, 0.0, 0.0]),
    ("kb8", [-0.03, 0.0, 0.0, 0.0]),
    ("kb8", [0.0, 0.0, 0.0, 0.0]),
    ("double_sphere", [-0.2, 0.59]),
    ("double_sphere", [0.3, 0.4]),
    ("omni", [0.9, 0.1, 0.0, 0.0, 0.0]),
    ("omni", [1.7, 0.1, 0.0, 0.0, 0.0]),
]


@pytest.mark.parametrize(("model", "rest"), CAMERAS)
def test_a_model_holds_in_its_cone(model, rest):
    """For points in all directions, also straight ahead and behind."""
    kind, numbers = RIG_CAMERA_MODELS[model], np.array([400.0, 410.0, 320.0, 240.0, *rest])
    points = np.random.default_rng(2).normal(size=(5000, 3)) * [1.0, 1.0, 2.0]
    points[:2] = [[0.0, 0.0, 1.0], [0.0, 0.0, -1.0]]
    in_cone = points[:, 2] > kind.cone(numbers) * np.linalg.norm(points, axis=1)
    np.testing.assert_array_equal(in_cone, kind.sees(numbers, points))


def test_cones_are_those_of_numpy():
    """axis . d > cosine |d| for every pair of rows; what is not finite is in no cone, nor is the centre."""
    rng = np.random.default_rng(0)
    centre, axis, cosine = rng.normal(size=(5, 3)), rng.normal(size=(5, 3)), rng.uniform(-0.7, 0.7, 5)
    cosine[:2] = 0.0, -np.inf
    points = rng.normal(size=(40, 3))
    points[7, 1], points[8, 0], points[9] = np.nan, np.inf, centre[2]
    i, j = rng.integers(0, 5, 90_000), rng.integers(0, 40, 90_000)
    away = points[j] - centre[i]
    with np.errstate(invalid="ignore"):
        depth, length = np.einsum("oc,oc->o", axis[i], away), np.linalg.norm(away, axis=1)
        expected = np.isfinite(length) & (depth > np.where(cosine[i] == 0.0, 0.0, cosine[i] * length))
    np.testing.assert_array_equal(kernels.in_cones(centre, axis, cosine, i, points, j), expected)
    assert kernels.in_cones(centre, axis, cosine, i[:0], points, j[:0]).shape == (0,)


def test_cones_refuse_rows_beyond():
    """A row that is not there, a length or a width that does not fit is named."""
    two, points, cosine, row = np.zeros((2, 3)), np.zeros((4, 3)), np.zeros(2), np.array([0])
    with pytest.raises(IndexError, match="landmarks has row 4 of a table with 4 rows"):
        kernels.in_cones(two, two, cosine, row, points, np.array([4]))
    with pytest.raises(IndexError, match="views has row -1"):
        kernels.in_cones(two, two, cosine, np.array([-1]), points, row)
    with pytest.raises(ValueError, match="landmarks must have length 1"):
        kernels.in_cones(two, two, cosine, row, points, np.array([0, 1]))
    with pytest.raises(ValueError, match="one row for each view"):
        kernels.in_cones(two, two, np.zeros(3), row, points, row)
    with pytest.raises(ValueError, match="points must be"):
        kernels.in_cones(two, two, cosine, row, np.zeros((4, 2)), row)


@pytest.mark.parametrize("models", [[0], [4], [0, 4, 7]])
def test_observations_hold_where_their_cameras_see_the_points(models):
    """For turned and shifted mountings, one camera or several of different models."""
    rng = np.random.default_rng(1)
    cameras = [
        sb.Camera(
            np.array([*rng.normal(size=3), *np.asarray(SO3.exp(rng.normal(size=3)).storage)]),
            CAMERAS[k][0],
            np.array([400.0, 400.0, 320.0, 240.0, *CAMERAS[k][1]]),
        )
        for k in models
    ]
    world = sb.Map(sb.Rig(cameras))
    poses = np.asarray(SE3.exp(rng.normal(size=(4, 6))).storage)
    keyframes = world.add_keyframes(np.arange(4), poses)
    landmarks = world.add_landmarks(3.0 * rng.normal(size=(30, 3)))
    frame, point = np.repeat(np.arange(4), 30), np.tile(np.arange(30), 4)
    camera = rng.integers(0, len(cameras), 120)
    world.add_observations(keyframes[frame], landmarks[point], rng.normal(size=(120, 2)), camera=camera)
    found = select(world, keyframes).holds()
    positions = world.landmarks["position"]
    expected = [
        bool(cameras[c].sees(cameras[c].in_camera(poses[f], positions[p])))
        for c, f, p in zip(camera, frame, point, strict=True)
    ]
    np.testing.assert_array_equal(found, expected)
    assert 0 < found.sum() < 120
