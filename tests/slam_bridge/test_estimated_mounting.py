"""Mounting, intrinsics and time offset come out as pixels were made with, and so do covariances with them."""

from __future__ import annotations

import numpy as np
import pytest
from simulation import (
    ACC_BIAS,
    CAMERA,
    GYRO_BIAS,
    NOISE,
    disturb,
    poses_and_velocities,
    rotation_errors,
    samples,
    simulated_map,
    with_noise,
)

import slam_bridge as sb
from graphopt.errors import OptionError
from graphopt.geometry import SE3

OPTIONS = sb.SolveOptions(device="cpu", iterations=100, kernel=None, confidence=0.999999, rounds=1)
MOVED = SE3.exp(np.array([0.02, -0.01, 0.015, 0.005, -0.004, 0.003]))
TIMES = 0.2 * np.arange(20)


def seen_by(kind: str) -> sb.Map:
    """Exact observations by a rectified pair, or by a camera that measures depth."""
    world, _ = simulated_map(np.random.default_rng(5), times=TIMES, count=200)
    if kind == "rgbd":
        table = world.observations
        disparity = table["pixel"][:, 0] - table["right"]
        table["depth"][:] = CAMERA.intrinsics[0] * CAMERA.baseline / disparity
        table["depth_sigma"][:], table["right"][:] = 0.01, np.nan
    return world


@pytest.mark.parametrize("kind", ["stereo", "rgbd"])
def test_the_mounting_is_that_of_every_number_of_an_observation(kind):
    """Right columns and depths are seen from the mounting that is estimated, too."""
    world = seen_by(kind)
    disturb(world, np.random.default_rng(6), fixed=world.keyframes.ids[:1])
    wrong = np.asarray((SE3(CAMERA.body_T_cam) * MOVED).storage)
    world.rig = world.rig.with_camera(0, body_T_cam=wrong)
    result = sb.full_inertial_ba(world, options=OPTIONS, estimate="extrinsics")
    mounting = result.extra["calibration"][0][0]
    assert sum(result.chi2.values()) < 0.5
    np.testing.assert_allclose(mounting[:3], CAMERA.body_T_cam[:3], atol=2e-3)
    assert rotation_errors(mounting[None], CAMERA.body_T_cam[None])[0] < 1e-3


def test_a_pair_shows_its_time_offset():
    """Both columns move with the pixel's velocity."""
    world = seen_by("stereo")
    table = world.observations
    flow = np.random.default_rng(7).normal(scale=100.0, size=table["flow"].shape)
    table["flow"][:] = flow
    table["pixel"][:] += 0.004 * flow
    table["right"][:] += 0.004 * flow[:, 0]
    result = sb.full_inertial_ba(world, options=OPTIONS, estimate=("time_offset",))
    assert result.extra["calibration"][0][2] == pytest.approx(0.004, abs=1e-5)
    assert sum(result.chi2.values()) < 0.5


def test_what_nothing_shows_is_refused():
    """Intrinsics that pixels were rectified with; a time offset of pixels whose velocity is unknown."""
    world = seen_by("stereo")
    with pytest.raises(OptionError, match="whose intrinsics cannot be estimated"):
        sb.full_inertial_ba(world, options=OPTIONS, estimate=("extrinsics", "intrinsics"))
    with pytest.raises(OptionError, match="no observation has the velocity of its pixel"):
        sb.full_inertial_ba(world, options=OPTIONS, estimate=("time_offset",))


def update(found, true):
    """(6,) of a pose: position in its frame, half angles."""
    apart = SE3(found).inverse() * SE3(true)
    turn = np.asarray(apart.rotation.storage)
    return np.concatenate([np.asarray(apart.translation), turn[:3] * np.sign(turn[3])])


@pytest.mark.parametrize("estimate", [("extrinsics",), ("extrinsics", "intrinsics")])
def test_covariances_know_that_the_calibration_was_estimated(estimate):
    """Normalised squared errors of the last keyframe's pose and of the camera, over 25 maps: near 1."""
    times, squares, of_poses = 0.25 * np.arange(9), [], []
    poses = poses_and_velocities(times)[0]
    for seed in range(25):
        rng = np.random.default_rng(seed)
        imu = with_noise(samples(times[-1], 200.0, GYRO_BIAS, ACC_BIAS), NOISE, rng)
        world, _ = simulated_map(rng, times, 80, stereo=False, pixels=1.0, imu=imu)
        truth, last = world.rig[0], int(world.keyframes.ids[-1])
        wrong = np.asarray((SE3(truth.body_T_cam) * SE3.exp(0.02 * rng.normal(size=6))).storage)
        world.rig = world.rig.with_camera(0, body_T_cam=wrong)
        world.keyframes["fixed"][0] = True
        result = sb.full_inertial_ba(world, options=OPTIONS, estimate=estimate)
        covariance = result.covariance([last], cameras=[0])
        mounting, intrinsics, _ = result.extra["calibration"][0]
        error = update(mounting, truth.body_T_cam)
        if "intrinsics" in estimate:
            error = np.concatenate([error, truth.intrinsics - intrinsics])
        squares.append(error @ np.linalg.solve(covariance["camera", 0], error) / len(error))
        error = update(world.keyframes["world_T_body"][-1], poses[-1])
        of_poses.append(error @ np.linalg.solve(covariance["keyframe", last][:6, :6], error) / 6)
    assert 0.6 < np.mean(squares) < 1.5 and 0.6 < np.mean(of_poses) < 1.5
    with pytest.raises(OptionError, match="camera 1 took no part"):
        result.covariance(cameras=[1])


def test_a_window_that_is_kept_starts_from_the_rig():
    """Not from what an earlier call found."""
    world, window = seen_by("stereo"), sb.Window()
    wrong = np.asarray((SE3(CAMERA.body_T_cam) * MOVED).storage)
    world.rig = world.rig.with_camera(0, body_T_cam=wrong)
    once = OPTIONS.with_changes(update=False, iterations=5)
    found = sb.full_inertial_ba(world, options=once, window=window, estimate=("extrinsics",))
    assert not np.allclose(found.extra["calibration"][0][0], wrong, atol=1e-3)
    none = once.with_changes(iterations=0)
    again = sb.full_inertial_ba(world, options=none, window=window, estimate=("extrinsics",))
    np.testing.assert_allclose(again.extra["calibration"][0][0], wrong, atol=1e-12)
    assert window.num_built == 1
