"""Windows of simulated keyframes: the truth is recovered, with cameras and without."""

import itertools

import numpy as np
import pytest
from simulation import CAMERA, observe, poses_and_velocities, samples

import graphopt
import slam_bridge as sb
from graphopt.geometry import SE3, SO3
from graphopt.types.sba import EdgeStereoSE3ProjectXYZ
from graphopt.types.slam3d import EdgeSE3PointXYZDisparity
from slam_bridge.inertial_ba import InertialOptions

NOISE = sb.ImuNoise(gyro_density=1e-3, acc_density=1e-2)
GYRO_BIAS, ACC_BIAS = np.array([0.03, -0.02, 0.04]), np.array([0.15, -0.1, 0.2])
TIMES = 0.25 * np.arange(13)


def factors(rate=1000.0):
    """Measurements between the keyframes, integrated with zero biases."""
    imu = samples(TIMES[-1], rate, GYRO_BIAS, ACC_BIAS)
    stamps = np.rint(TIMES * 1e9).astype(np.int64)
    return [sb.preintegrate(imu.between(a, b), NOISE) for a, b in itertools.pairwise(stamps)]


def perturbed(rng, poses, turn=0.02, shift=0.05):
    """Poses moved at random [rad, m]."""
    n = len(poses)
    tangent = np.concatenate([turn * rng.normal(size=(n, 3)), shift * rng.normal(size=(n, 3))], axis=1)
    return np.asarray((SE3(poses) * SE3.exp(tangent)).storage)


def visual_window(rng, right=True, fixed=False):
    """A window from perturbed states, with 150 landmarks seen without noise."""
    poses, velocities = poses_and_velocities(TIMES)
    points = rng.uniform([-8.0, 4.0, -4.0], [8.0, 12.0, 4.0], (150, 3))
    keyframe, point, pixel, column = observe(poses, points)
    started = points + 0.1 * rng.normal(size=points.shape)
    visual = sb.Visual(CAMERA, started, keyframe, point, pixel, column if right else None)
    start = perturbed(rng, poses)
    fixed = np.broadcast_to(fixed, len(poses))
    start[fixed] = poses[fixed]
    velocity = np.where(fixed[:, None], velocities, velocities + 0.2 * rng.normal(size=velocities.shape))
    biases = np.where(fixed[:, None], GYRO_BIAS, 0.0), np.where(fixed[:, None], ACC_BIAS, 0.0)
    frames = sb.Keyframes.start(start, velocity, *biases, fixed)
    return sb.InertialWindow(frames, factors(), visual), poses, velocities, points


def rotation_errors(first, second):
    """(n,) angles between poses [rad]."""
    return np.linalg.norm((SE3(first).rotation.inverse() * SE3(second).rotation).log(), axis=1)


def test_disparity_edge_has_the_chi2_of_the_stereo_pixels():
    """The edge on world_T_body with the carried-over information has EdgeStereoSE3ProjectXYZ's chi2."""
    rng = np.random.default_rng(0)
    poses, _ = poses_and_velocities(TIMES)
    points = rng.uniform([-8.0, 4.0, -4.0], [8.0, 12.0, 4.0], (30, 3))
    keyframe, point, pixel, right = observe(poses, points)
    pixel, right = pixel + rng.normal(size=pixel.shape), right + rng.normal(size=right.shape)
    visual = sb.Visual(CAMERA, points, keyframe, point, pixel, right, sigma=1.7)
    measured, information = visual.disparity_measurements()
    fx, fy, cx, cy = CAMERA.intrinsics
    camera = np.tile([*CAMERA.body_T_cam, fx, fy, cx, cy], (len(keyframe), 1))
    error = EdgeSE3PointXYZDisparity.error((poses[keyframe], points[point]), (camera,), measured)
    intrinsics = [fx, fy, cx, cy, fx * CAMERA.baseline]
    stored = np.concatenate([pixel, right[:, None], np.tile(intrinsics, (len(right), 1))], axis=1)
    cam_T_world = sb.cam_T_world_from_world_T_body(poses, CAMERA.body_T_cam)[keyframe]
    pixels = EdgeStereoSE3ProjectXYZ.error((points[point], cam_T_world), (), stored)
    np.testing.assert_allclose(
        np.einsum("ni,nij,nj->n", error, information, error), np.sum(pixels**2, axis=1) / 1.7**2, rtol=1e-9
    )


def test_pose_conventions_round_trip():
    """cam_T_world and world_T_body convert into each other."""
    poses, _ = poses_and_velocities(TIMES)
    there = sb.cam_T_world_from_world_T_body(poses, CAMERA.body_T_cam)
    back = sb.world_T_body_from_cam_T_world(there, CAMERA.body_T_cam)
    assert np.abs(back[:, :3] - poses[:, :3]).max() < 1e-13
    assert rotation_errors(back, poses).max() < 1e-7
    point = np.array([1.0, 2.0, 3.0])
    expected = SE3(CAMERA.body_T_cam).inverse_act(SE3(poses).inverse_act(point))
    np.testing.assert_allclose(SE3(there).act(point), expected, atol=1e-13)


@pytest.mark.parametrize("right", [True, False], ids=["stereo", "mono"])
def test_full_window_recovers_the_truth(right):
    """Stereo and mono, nothing fixed: shape, roll and pitch, scale, velocities and biases come out right."""
    window, poses, velocities, points = visual_window(np.random.default_rng(1), right)
    result = sb.solve(window)
    assert result.summary.is_usable
    assert result.rounds > 1  # the biases were far from zero
    # the gauge: undo the position and the turn about the vertical that the window started from
    found = result.keyframes
    turn = SE3(poses[0]).rotation * SE3(found.world_T_body[0]).rotation.inverse()
    angles = np.asarray(turn.log())
    assert np.abs(angles[:2]).max() < 2e-4  # roll and pitch, from gravity
    yaw = SO3.exp(np.array([0.0, 0.0, angles[2]]))
    moved = yaw.act(found.world_T_body[:, :3] - found.world_T_body[0, :3]) + poses[0, :3]
    np.testing.assert_allclose(moved, poses[:, :3], atol=2e-3)
    np.testing.assert_allclose(yaw.act(found.velocity), velocities, atol=2e-3)
    np.testing.assert_allclose(found.gyro_bias, np.tile(GYRO_BIAS, (13, 1)), atol=2e-5)
    np.testing.assert_allclose(found.acc_bias, np.tile(ACC_BIAS, (13, 1)), atol=2e-3)
    seen = np.bincount(window.visual.point, minlength=len(points)) >= 4
    landmarks = yaw.act(result.points - found.world_T_body[0, :3]) + poses[0, :3]
    assert np.abs(landmarks - points)[seen].max() < 1e-2


def test_gauge_prior_costs_nothing():
    """The prior of position and yaw adds nothing to chi2 at the answer; a millimetre would add 1."""
    window, *_ = visual_window(np.random.default_rng(1))
    result = sb.solve(window)
    graph = sb.build_graph(sb.InertialWindow(result.keyframes, result.imu, window.visual))
    held = sb.build_graph(window).edge_set("EDGE_SE3_PRIOR")
    moved = graph.vertex_set("VERTEX_SE3:QUAT").estimate[:1]
    offset = np.array([SE3.identity_storage])
    error = held.type.error((moved,), (offset,), held.measurement)
    assert np.einsum("ni,nij,nj->", error, held.information, error) < 1e-5


def test_local_window_keeps_the_old_keyframes():
    """With older keyframes fixed at the truth, the free ones arrive there and the others do not move."""
    fixed = np.arange(len(TIMES)) < 6
    window, poses, velocities, _ = visual_window(np.random.default_rng(2), fixed=fixed)
    assert np.array_equal(window.with_free(7).keyframes.fixed, fixed)
    result = sb.solve(window.with_free(7))
    np.testing.assert_array_equal(result.keyframes.world_T_body[:6, :3], poses[:6, :3])
    np.testing.assert_array_equal(result.keyframes.velocity[:6], velocities[:6])
    np.testing.assert_allclose(result.keyframes.world_T_body[:, :3], poses[:, :3], atol=1e-4)
    assert rotation_errors(result.keyframes.world_T_body, poses).max() < 1e-4
    np.testing.assert_allclose(result.keyframes.velocity, velocities, atol=1e-3)


def test_the_answer_is_a_minimum():
    """The gradient at the answer is zero, to what stopping at 1e-7 of chi2 leaves: no step lowers chi2."""
    window, *_ = visual_window(np.random.default_rng(4))
    graph = sb.build_graph(window)
    summary = graphopt.optimize(graph, fix="none", max_iterations=200)
    again = graphopt.optimize(graph, "gn", 3, fix="none")
    assert again.final_chi2 == pytest.approx(summary.final_chi2, rel=1e-5, abs=1e-9)


def test_initialization_finds_gravity_scale_and_biases():
    """From poses in a turned map whose unit is 0.4 m: scale to 1e-3, down to 1e-3 rad, biases, velocities."""
    poses, velocities = poses_and_velocities(TIMES)
    tilt, scale = SO3.exp(np.array([0.6, -1.2, 0.5])), 0.4
    placed = tilt.act(poses[:, :3]) / scale, (tilt * SE3(poses).rotation).storage
    start = sb.initialize(np.concatenate(placed, axis=1), factors(), acc_bias_sigma=1.0)
    assert start.scale == pytest.approx(scale, rel=1e-3)
    up = (SO3(start.world_R_map) * tilt).act(np.array([0.0, 0.0, 1.0]))
    assert np.hypot(up[0], up[1]) < 1e-3
    np.testing.assert_allclose(start.keyframes.gyro_bias[0], GYRO_BIAS, atol=1e-4)
    np.testing.assert_allclose(start.keyframes.acc_bias[0], ACC_BIAS, atol=1e-2)
    np.testing.assert_allclose(
        np.linalg.norm(start.keyframes.velocity, axis=1), np.linalg.norm(velocities, axis=1), atol=5e-3
    )


def test_misuse_is_named():
    """Arrays that do not fit together are refused with both sizes."""
    window, poses, *_ = visual_window(np.random.default_rng(5))
    with pytest.raises(sb.WindowError, match="imu has 11 entries"):
        sb.InertialWindow(window.keyframes, window.imu[:-1])
    with pytest.raises(sb.WindowError, match=r"velocity has shape \(2, 3\), expected \(13, 3\)"):
        sb.Keyframes(poses, np.zeros((2, 3)), np.zeros((13, 3)), np.zeros((13, 3)), np.zeros(13, bool))
    mono = sb.Camera.pinhole(CAMERA.body_T_cam, 450.0, 460.0, 370.0, 240.0)
    with pytest.raises(sb.WindowError, match="baseline is None"):
        sb.Visual(mono, np.zeros((1, 3)), [0], [0], np.zeros((1, 2)), np.zeros(1))
    priors = sb.PosePriors.isotropic([13], poses[:1], 0.1, 0.1)
    with pytest.raises(sb.WindowError, match="names keyframe 13"):
        sb.InertialWindow(window.keyframes, window.imu, pose_priors=priors)
    with pytest.raises(graphopt.errors.OptionError, match="num_free"):
        window.with_free(14)
    with pytest.raises(graphopt.errors.OptionError, match="max_rounds"):
        InertialOptions(max_rounds=0)
