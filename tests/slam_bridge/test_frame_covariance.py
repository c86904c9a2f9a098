"""Frames say how well they are known, refuse observations that are none, judge nothing before a step."""

from __future__ import annotations

import dataclasses
import threading

import numpy as np
import pytest
from simulation import ACC_BIAS, CAMERA, GYRO_BIAS, NOISE, poses_and_velocities, samples

import slam_bridge as sb
from graphopt.errors import OptionError, SolverError
from graphopt.geometry import SE3

STEREO = sb.Rig(CAMERA)
MONO = sb.Rig(sb.Camera.pinhole(CAMERA.body_T_cam, *CAMERA.intrinsics))
FISHEYES = sb.Rig(
    [
        sb.Camera(mounting, "kb8", [190.0, 191.0, 255.0, 257.0, 0.003, 0.0007, -0.002, 0.0002])
        for mounting in np.asarray(
            SE3.exp(np.array([[0.1, 0, 0, 0, 0, 0], [-0.1, 0, 0, 0, 3.0, 0.1]])).storage
        )
    ]
)
EXACT = sb.SolveOptions(device="cpu", rounds=1, kernel=None, confidence=0.999999)


def seen_from(rng, pose, rig, count=60, sigma=0.7):
    """Noisy pixels of landmarks around each camera's axis."""
    parts = []
    for number, camera in enumerate(rig):
        local = rng.uniform([-0.5, -0.5, 1.0], [0.5, 0.5, 1.5], (count, 3)) * rng.uniform(
            1.5, 6.0, (count, 1)
        )
        points = camera.in_world(pose, local)
        pixel = camera.project(local) + sigma * rng.normal(size=(count, 2))
        right = np.full(count, np.nan)
        if camera.baseline is not None:
            right = camera.right_column(local) + sigma * rng.normal(size=count)
        parts.append((points, pixel, np.full(count, number), right))
    points, pixel, camera, right = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return sb.FrameObservations.of(points, pixel, camera, right=right, sigma=sigma)


def update(found, true):
    """(6,) of the pose: position in the body's frame, half angles."""
    apart = SE3(found).inverse() * SE3(true)
    turn = np.asarray(apart.rotation.storage)
    return np.concatenate([np.asarray(apart.translation), turn[:3] * np.sign(turn[3])])


@pytest.mark.parametrize("rig", [STEREO, MONO, FISHEYES], ids=["stereo", "mono", "fisheyes"])
def test_the_error_of_a_pose_has_its_covariance(rig):
    """The mean of e' inv(C) e / 6 over 100 frames lies in its 99.9 % band."""
    rng, squares = np.random.default_rng(1), []
    for _ in range(100):
        pose = np.asarray(SE3.exp(rng.normal(size=6)).storage)
        result = sb.pose_optimization(rig, pose, seen_from(rng, pose, rig), EXACT)
        error = update(result.keyframes.world_T_body[0], pose)
        squares.append(error @ np.linalg.solve(result.covariance([0])["keyframe", 0], error) / 6)
    assert 0.81 < np.mean(squares) < 1.21


def test_a_covariance_is_of_its_own_frame():
    """Later frames in the same graph and the same arrays do not change what an earlier result says."""
    rng, pose = np.random.default_rng(2), np.array([0.0, 0, 0, 0, 0, 0, 1.0])
    seen, graph = seen_from(rng, pose, STEREO), sb.FrameGraph(STEREO)
    result = sb.pose_optimization(STEREO, pose, seen, EXACT, graph)
    expected = sb.pose_optimization(STEREO, pose, seen, EXACT).covariance([0])["keyframe", 0]
    seen.pixel[:], seen.points[:] = 0.0, 1.0
    sb.pose_optimization(STEREO, pose, seen_from(rng, pose, STEREO, 20), EXACT, graph)
    np.testing.assert_allclose(result.covariance([0])["keyframe", 0], expected, rtol=1e-9)
    with pytest.raises(OptionError, match="keyframe 1 was not free"):
        result.covariance([1])
    with pytest.raises(OptionError, match="landmark 0 was not free"):
        result.covariance(landmarks=[0])


def test_keyframes_and_relocalized_frames_have_covariances():
    """Under the id of the map; the same numbers."""
    pytest.importorskip("cv2")
    rng = np.random.default_rng(3)
    pose = np.asarray(SE3.exp(0.3 * rng.normal(size=6)).storage)
    seen, world = seen_from(rng, pose, STEREO), sb.Map(STEREO)
    keyframe = [world.add_keyframe(0, pose), world.add_keyframe(1, pose)][1]
    points = world.add_landmarks(seen.points)
    world.add_observations(keyframe, points, seen.pixel, right=seen.right, sigma=seen.sigma)
    of_map = sb.keyframe_pose_optimization(world, keyframe).covariance([keyframe])["keyframe", keyframe]
    of_frame = sb.relocalize(STEREO, seen, sb.SolveOptions(device="cpu", rounds=4)).covariance([0])[
        "keyframe", 0
    ]
    np.testing.assert_allclose(of_map, of_frame, rtol=0.02, atol=1e-9)


def test_points_on_one_ray_leave_directions_open():
    """Said when the covariance is asked for."""
    points = np.outer(np.linspace(2.0, 6.0, 9), CAMERA.in_world(np.eye(7)[6], np.array([0.0, 0.0, 1.0])))
    local = CAMERA.in_camera(np.eye(7)[6], points)
    seen = sb.FrameObservations.of(points - points[0] + points[0], MONO[0].project(local))
    result = sb.pose_optimization(MONO, np.eye(7)[6], seen, EXACT)
    with pytest.raises(SolverError, match="leave a direction open"):
        result.covariance([0])


def inertial_frame():
    """A state, the IMU measurement to the next, and what is seen there."""
    poses, velocities = poses_and_velocities(np.array([0.0, 0.1]))
    before = sb.FrameState(poses[0], velocities[0], GYRO_BIAS, ACC_BIAS)
    measured = sb.preintegrate(samples(0.1, 1000.0, GYRO_BIAS, ACC_BIAS), NOISE, GYRO_BIAS, ACC_BIAS)
    return before, measured, seen_from(np.random.default_rng(4), poses[1], STEREO)


def test_an_inertial_frame_has_the_covariance_of_its_state():
    """15 numbers: the inverse of what the next frame gets as prior."""
    before, measured, seen = inertial_frame()
    result = sb.pose_inertial_optimization(STEREO, None, before, measured, seen, owner=7)
    found = result.covariance([7])["keyframe", 7]
    np.testing.assert_allclose(found @ result.extra["prior"].information, np.eye(15), atol=1e-5)


@pytest.mark.parametrize("limit", ["stop", "time"])
@pytest.mark.parametrize("device", ["cpu", "vulkan"])
def test_nothing_is_judged_before_the_first_step(limit, device):
    """Frames as maps: refused, with the start as it was."""
    stop = threading.Event()
    stop.set()
    ended = {"stop": stop} if limit == "stop" else {"time_limit": 1e-9}
    options = sb.SolveOptions(device=device, rounds=4, **ended)
    before, measured, seen = inertial_frame()
    result = sb.pose_optimization(STEREO, before.world_T_body, seen, options)
    assert not result.is_usable and "before the first step" in result.refused
    np.testing.assert_array_equal(result.keyframes.world_T_body[0], before.world_T_body)
    with_imu = sb.pose_inertial_optimization(STEREO, None, before, measured, seen, options=options)
    assert not with_imu.is_usable and "before the first step" in with_imu.refused
    for answer in (result, with_imu):
        assert not answer.inliers.any() and not any(map(len, answer.rejected.values()))


def test_observations_that_are_none_are_refused():
    """As by a map: right columns without a pair, depths without a sigma, shapes."""
    before, _, seen = inertial_frame()
    plain = dataclasses.replace(seen, right=np.full(len(seen), np.nan))
    for rig, changes, message in (
        (MONO, {"right": seen.right}, "camera 0 has no baseline"),
        (STEREO, {"depth": np.full(len(seen), 3.0)}, "depth_sigma nan m, expected both > 0"),
        (STEREO, {"depth": -np.ones(len(seen)), "depth_sigma": np.ones(len(seen))}, r"depth is -1\.0 m"),
        (STEREO, {"covariance": np.tile(-np.eye(3), (len(seen), 1, 1))}, "covariance of point 0"),
    ):
        with pytest.raises(OptionError, match=message):
            sb.pose_optimization(rig, before.world_T_body, dataclasses.replace(plain, **changes))
    with pytest.raises(OptionError, match=r"points has shape \(4, 2\), expected \(n, 3\)"):
        sb.FrameObservations.of(np.ones((4, 2)), np.ones((4, 2)))


def test_states_that_are_none_and_graphs_of_other_rigs_are_refused():
    """Of which argument which part; equal cameras are one rig."""
    before, measured, seen = inertial_frame()

    def solved(**changes):
        arguments = {"rig": STEREO, "frame": None, "previous": before, "measured": measured, "seen": seen}
        return sb.pose_inertial_optimization(**{**arguments, **changes})

    for changes, message in (
        ({"previous": dataclasses.replace(before, velocity=np.zeros(2))}, r"previous\.velocity"),
        ({"frame": dataclasses.replace(before, gyro_bias=np.full(3, np.nan))}, r"frame\.gyro_bias"),
        ({"frame": dataclasses.replace(before, world_T_body=np.zeros(7))}, r"frame\.world_T_body.*length 0"),
        ({"measured": None}, "measured is None"),
        ({"gravity": 9.81}, r"gravity is 9\.81"),
        ({"graph": sb.InertialFrameGraph(MONO, False)}, "another rig"),
    ):
        with pytest.raises(OptionError, match=message):
            solved(**changes)
    with pytest.raises(OptionError, match=r"length 0\.0000"):
        sb.pose_optimization(STEREO, np.zeros(7), seen)
    again = sb.Camera(CAMERA.body_T_cam, "pinhole", CAMERA.intrinsics, CAMERA.baseline)
    assert solved(rig=again, graph=sb.InertialFrameGraph(STEREO, False)).is_usable
