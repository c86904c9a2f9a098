"""Native passes over observations: whose points lie in their cameras' cones, who has how many inliers."""

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
    """axis . d > cosine |d| for every row; what is not finite is in no cone, nor is the centre."""
    rng = np.random.default_rng(0)
    poses, mountings = (np.asarray(SE3.exp(rng.normal(size=(k, 6))).storage) for k in (5, 3))
    cosine = np.array([0.0, -np.inf, 0.6])
    world_T_cam = SE3(poses[:, None]) * SE3(mountings)
    centre, axis = np.asarray(world_T_cam.translation), np.asarray(world_T_cam.rotation.to_matrix())[..., 2]
    points = rng.normal(size=(40, 3))
    points[7, 1], points[8, 0] = np.nan, np.inf
    k, c, j = rng.integers(0, 5, 90_000), rng.integers(0, 3, 90_000), rng.integers(0, 40, 90_000)
    away = points[j] - centre[k, c]
    with np.errstate(invalid="ignore"):
        depth, length = np.einsum("oc,oc->o", axis[k, c], away), np.linalg.norm(away, axis=1)
        expected = np.isfinite(length) & (depth > np.where(cosine[c] == 0.0, 0.0, cosine[c] * length))
    found = kernels.in_cones(poses, mountings, cosine, k, c, points, j)
    np.testing.assert_array_equal(found, expected)
    assert kernels.in_cones(poses, mountings, cosine, k[:0], c[:0], points, j[:0]).shape == (0,)
    still = np.array([[1.0, 2.0, 3.0, 0.0, 0.0, 0.0, 1.0]])
    zero = np.zeros(1, int)
    assert not kernels.in_cones(still, np.eye(7)[6:], cosine[:1], zero, zero, still[:, :3], zero)[0]


def test_cones_refuse_rows_beyond():
    """A row that is not there, a length or a width that does not fit is named."""
    two, points, cosine, row = np.zeros((2, 7)), np.zeros((4, 3)), np.zeros(2), np.array([0])
    good = [two, two, cosine, row, row, points, row]
    for place, wrong, error, text in (
        (6, np.array([4]), IndexError, "landmark has row 4 of a table with 4 rows"),
        (3, np.array([-1]), IndexError, "keyframe has row -1"),
        (4, np.array([2]), IndexError, "camera has row 2"),
        (6, np.array([0, 1]), ValueError, "landmark must have length 1"),
        (2, np.zeros(3), ValueError, "one row for each camera"),
        (5, np.zeros((4, 2)), ValueError, "points must be"),
        (0, np.zeros((2, 3)), ValueError, "world_T_body must be"),
    ):
        with pytest.raises(error, match=text):
            kernels.in_cones(*good[:place], wrong, *good[place + 1 :])


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


def test_inliers_are_counted_as_by_numpy():
    """By keyframe and landmark; who has one of a landmark that is known, or that another one has one of."""
    rng = np.random.default_rng(3)
    for count in (0, 1, 30, 400):
        inliers, known = rng.random(count) < 0.3, rng.random(60) < 0.05
        keyframe, landmark = rng.integers(0, 12, count), rng.integers(0, 60, count)
        by_keyframe, by_landmark, shares = kernels.tally(inliers, keyframe, landmark, 12, known)
        np.testing.assert_array_equal(by_keyframe, np.bincount(keyframe[inliers], minlength=12))
        np.testing.assert_array_equal(by_landmark, np.bincount(landmark[inliers], minlength=60))
        pairs = set(zip(keyframe[inliers].tolist(), landmark[inliers].tolist(), strict=True))
        views = np.bincount([point for _, point in pairs], minlength=60) if pairs else np.zeros(60)
        expected = {frame for frame, point in pairs if known[point] or views[point] > 1}
        assert set(np.flatnonzero(shares).tolist()) == expected
    with pytest.raises(IndexError, match="landmark has row 60"):
        kernels.tally(np.ones(1, bool), np.zeros(1, int), np.array([60]), 12, known)
    with pytest.raises(ValueError, match="keyframe must have length 2"):
        kernels.tally(np.ones(2, bool), np.zeros(1, int), np.zeros(2, int), 12, known)
