"""Cameras of a rig: projection and rays are inverse to each other, also beyond 90 degrees, in edges too."""

from __future__ import annotations

import numpy as np
import pytest

import slam_bridge as sb
from graphopt.errors import OptionError
from graphopt.geometry import SE3, SO3
from graphopt.geometry.rig_cameras import RIG_CAMERA_MODELS
from graphopt.types import marginal, visual_inertial
from graphopt.types.visual_inertial import (
    CALIB_PIXEL_EDGES,
    PIXEL_EDGES,
    POSE_PIXEL_EDGES,
    EdgeCalibDepth,
    EdgeCalibStereo,
    EdgeDepth,
    EdgePoseDepth,
    EdgePoseStereo,
    EdgeStereo,
)

INTRINSICS = {
    "pinhole": [458.0, 457.0, 367.0, 248.0],
    "radtan": [458.654, 457.296, 367.215, 248.375, -0.28340811, 0.07395907, 0.00019359, 1.76187114e-05, 0.0],
    "kb8": [190.978, 190.973, 254.932, 256.897, 0.00348, 0.000715, -0.00205, 0.000203],
    "double_sphere": [160.0, 161.0, 254.0, 257.0, -0.24, 0.56],
    "omni": [750.0, 751.0, 367.0, 248.0, 1.2, -0.2, 0.05, 0.001, -0.0005],
}
WIDEST = {"pinhole": 60.0, "radtan": 35.0, "kb8": 110.0, "double_sphere": 110.0, "omni": 75.0}
"""[deg] from the axis."""
MOUNTING = np.array([0.05, -0.02, 0.01, *SO3.exp(np.array([-1.5, 0.1, 0.2])).storage])


def camera(model, **rest):
    return sb.Camera(MOUNTING, model, INTRINSICS[model], **rest)


def rays(model, count=500, seed=0):
    rng = np.random.default_rng(seed)
    theta = np.deg2rad(WIDEST[model]) * np.sqrt(rng.uniform(0.0, 1.0, count))
    phi = rng.uniform(-np.pi, np.pi, count)
    return np.stack([np.sin(theta) * np.cos(phi), np.sin(theta) * np.sin(phi), np.cos(theta)], axis=1)


@pytest.mark.parametrize("model", RIG_CAMERA_MODELS)
def test_unprojection_inverts_projection(model):
    """The ray of a point's pixel is the point's direction, to 1e-9, whatever its distance."""
    model_camera, directions = camera(model), rays(model)
    distance = np.random.default_rng(1).uniform(0.3, 30.0, len(directions))
    assert model_camera.sees(directions * distance[:, None]).all()
    pixels = model_camera.project(directions * distance[:, None])
    np.testing.assert_allclose(model_camera.unproject(pixels), directions, atol=1e-9)


@pytest.mark.parametrize("model", ["kb8", "double_sphere"])
def test_points_beyond_90_degrees(model):
    """A point beside and behind the camera's plane has a pixel outside of those of 90 degrees."""
    model_camera = camera(model)
    radius = [
        np.hypot(
            *(model_camera.project(np.array([np.sin(a), 0.0, np.cos(a)])) - model_camera.intrinsics[2:4])
        )
        for a in np.deg2rad([80.0, 89.999, 90.0, 90.001, 100.0])
    ]
    assert np.all(np.diff(radius) > 0.0)
    assert radius[2] - radius[1] == pytest.approx(radius[3] - radius[2], rel=1e-3)


def test_kannala_brandt_is_smooth_at_the_axis():
    """Value and slope are those of the pinhole at the axis, on both sides of where the series takes over."""
    kb8 = camera("kb8")
    fx, _, cx, cy = kb8.intrinsics[:4]
    for x in (0.0, 1e-12, 9.9e-6, 1.01e-5, 1e-4):
        pixel = kb8.project(np.array([2.0 * x, 0.0, 2.0]))
        theta = np.arctan(x)
        exact = theta * (1.0 + kb8.intrinsics[4] * theta**2)
        np.testing.assert_allclose(pixel, [cx + fx * exact, cy], atol=1e-10)


def test_points_behind_are_told():
    """`sees` is False where a projection is not that of the camera; `Rig.project` gives NaN there."""
    pinhole, fisheye = camera("pinhole"), camera("kb8")
    points = np.array([[0.1, 0.2, -3.0], [0.1, 0.2, 3.0], [3.0, 0.0, -0.5]])
    np.testing.assert_array_equal(pinhole.sees(points), [False, True, False])
    assert fisheye.sees(points[1:]).all()
    double_sphere = camera("double_sphere")
    np.testing.assert_array_equal(double_sphere.sees(points), [False, True, True])
    pixels, valid = sb.Rig([pinhole, fisheye]).project(np.array([0, 0, 1]), points)
    np.testing.assert_array_equal(valid, [False, True, True])
    assert np.isnan(pixels[0]).all() and np.isfinite(pixels[1:]).all()
    barrel = sb.Camera(MOUNTING, "radtan", [458.0, 457.0, 367.0, 248.0, -0.3, 0.0, 0.0, 0.0, 0.0])
    aside = np.array([[1.0, 0.0, 1.0], [1.1, 0.0, 1.0]])  # r (1 - 0.3 r^2) falls beyond r = 1.054
    np.testing.assert_array_equal(barrel.sees(aside), [True, False])
    small = camera("pinhole", resolution=(752, 480))
    np.testing.assert_array_equal(small.sees(np.array([[0.0, 0.0, 1.0], [1.0, 0.0, 1.0]])), [True, False])


@pytest.mark.parametrize("model", ["pinhole", "radtan", "kb8", "omni"])
def test_models_are_opencv_s(model):
    """OpenCV projects to the same pixels (pinhole, radtan, fisheye; omni by way of its unit sphere)."""
    cv2 = pytest.importorskip("cv2")
    model_camera, points = camera(model), 3.0 * rays(model)
    points = points[points[:, 2] > 0.2]
    numbers = model_camera.intrinsics
    matrix = np.array([[numbers[0], 0.0, numbers[2]], [0.0, numbers[1], numbers[3]], [0.0, 0.0, 1.0]])
    zero = np.zeros(3)
    given = points.copy()
    if model == "kb8":
        theirs, _ = cv2.fisheye.projectPoints(given[:, None], zero, zero, matrix, numbers[4:])
    elif model == "omni":
        given[:, 2] += numbers[4] * np.linalg.norm(points, axis=1)
        theirs, _ = cv2.projectPoints(given[:, None], zero, zero, matrix, numbers[5:])
    else:
        theirs, _ = cv2.projectPoints(
            given[:, None], zero, zero, matrix, numbers[4:] if model == "radtan" else None
        )
    np.testing.assert_allclose(model_camera.project(points), theirs[:, 0], atol=1e-8)


def _observed(model, stereo=False):
    """Poses (n, 7), points (n, 3) of the world in front of the camera, which has this mounting."""
    rng = np.random.default_rng(3)
    directions = rays(model, 20, 4) * rng.uniform(1.0, 8.0, (20, 1))
    poses = np.asarray(SE3.exp(0.5 * rng.normal(size=(20, 6))).storage)
    world = SE3(poses).act(SE3(MOUNTING).act(directions))
    return poses, np.asarray(world), directions


@pytest.mark.parametrize("model", RIG_CAMERA_MODELS)
def test_edges_are_projections(model):
    """All three kinds of edges of a model have the camera's projection - measured as their error."""
    model_camera = camera(model)
    poses, world, local = _observed(model)
    expected = model_camera.project(local) - [3.0, 4.0]
    constants = np.tile(MOUNTING, (20, 1)), np.tile(model_camera.intrinsics, (20, 1))
    pixel = np.tile([3.0, 4.0], (20, 1))
    np.testing.assert_allclose(
        PIXEL_EDGES[model].error((poses, world), constants, pixel), expected, atol=1e-8
    )
    known = np.concatenate([pixel, world], axis=1)
    np.testing.assert_allclose(POSE_PIXEL_EDGES[model].error((poses,), constants, known), expected, atol=1e-8)
    flow = np.tile([10.0, -20.0], (20, 1))
    moved = CALIB_PIXEL_EDGES[model].error(
        (poses, world, *constants, np.full((20, 1), 0.01)), (), np.concatenate([pixel, flow], axis=1)
    )
    np.testing.assert_allclose(moved, expected + 0.01 * flow, atol=1e-8)


def test_stereo_and_depth_edges():
    """The right column is that of a second pinhole camera at the baseline; depth is z."""
    pinhole = camera("pinhole", baseline=0.11)
    poses, world, local = _observed("pinhole")
    right = pinhole.project(local - [0.11, 0.0, 0.0])
    expected = np.concatenate([pinhole.project(local), right[:, :1]], axis=1)
    np.testing.assert_allclose(pinhole.right_column(local), right[:, 0], atol=1e-9)
    constants = np.tile(MOUNTING, (20, 1)), np.tile([*pinhole.intrinsics, 0.11], (20, 1))
    error = EdgeStereo.error((poses, world), constants, np.zeros((20, 3)))
    np.testing.assert_allclose(error, expected, atol=1e-8)
    known = np.concatenate([np.zeros((20, 3)), world], axis=1)
    np.testing.assert_allclose(EdgePoseStereo.error((poses,), constants, known), expected, atol=1e-8)
    depth = EdgeDepth.error((poses, world), constants[:1], np.ones((20, 1)))
    np.testing.assert_allclose(depth[:, 0], local[:, 2] - 1.0, atol=1e-12)
    known = np.concatenate([np.ones((20, 1)), world], axis=1)
    moved = EdgeCalibStereo.error(
        (poses, world, constants[0], np.full((20, 1), 0.01)),
        constants[1:],
        np.tile([0, 0, 0, 10, -20], (20, 1)),
    )
    np.testing.assert_allclose(moved, expected + np.array([0.1, -0.2, 0.1]), atol=1e-8)
    by_vertex = EdgeCalibDepth.error((poses, world, constants[0]), (), np.ones((20, 1)))
    np.testing.assert_allclose(by_vertex, depth, atol=1e-12)
    np.testing.assert_allclose(EdgePoseDepth.error((poses,), constants[:1], known), depth, atol=1e-12)


def test_prior_edge_measures_how_far_states_moved():
    """The error is the update from the reference to the state, minus the offset."""
    rng = np.random.default_rng(5)
    pose = np.asarray(SE3.exp(rng.normal(size=6)).storage)
    vectors = rng.normal(size=(3, 3))
    delta, offset = 0.1 * rng.normal(size=15), rng.normal(size=15)
    kinds = marginal.STATE_TYPES
    before = [pose, *vectors]
    ends = np.cumsum([0, *(kind.tangent_dim for kind in kinds)])
    now = [
        kind.oplus(x, delta[a:b]) for kind, x, a, b in zip(kinds, before, ends[:-1], ends[1:], strict=True)
    ]
    error = marginal.EdgePriorState.error(tuple(now), (), np.concatenate([*before, offset]))
    np.testing.assert_allclose(error, delta - offset, atol=1e-12)
    assert marginal.prior_edge(*kinds) is marginal.EdgePriorState
    with pytest.raises(OptionError, match="cannot hold"):
        marginal.prior_edge(visual_inertial.VertexTimeOffset)


def test_misuse_is_named():
    """Wrong calibrations are refused with what was got and what is possible."""
    with pytest.raises(sb.CameraError, match=r"expected \(9,\) finite numbers: fx, fy"):
        sb.Camera(MOUNTING, "radtan", INTRINSICS["pinhole"])
    with pytest.raises(OptionError, match="'fov' is unknown"):
        sb.Camera(MOUNTING, "fov", INTRINSICS["pinhole"])
    with pytest.raises(sb.CameraError, match="rectified pair"):
        camera("kb8", baseline=0.1)
    with pytest.raises(sb.CameraError, match="focal lengths"):
        sb.Camera.pinhole(MOUNTING, 0.0, 1.0, 1.0, 1.0)
    with pytest.raises(sb.CameraError, match="length 2"):
        sb.Camera.pinhole([0, 0, 0, 0, 0, 0, 2.0], 1.0, 1.0, 1.0, 1.0)
    with pytest.raises(sb.CameraError, match="no rotation"):
        sb.pose_of_matrix(np.diag([1.0, 1.0, -1.0, 1.0]))
    with pytest.raises(sb.CameraError, match="no baseline"):
        camera("pinhole").right_column(np.ones(3))
