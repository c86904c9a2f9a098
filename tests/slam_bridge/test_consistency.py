"""Covariances mean what they say: the normalised squared error lies in its 99 % band over 50 seeds.

Noise is drawn with the densities that the factors are told: white, and walking biases, at 200 Hz.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chi2
from simulation import CAMERA, NOISE, disturb, poses_and_velocities, simulated_map, walking_samples

import slam_bridge as sb
from graphopt.geometry import SE3, SO3, quaternion

SEEDS = 50
OPTIONS = sb.SolveOptions(
    iterations=20, rounds=3, kernel=None, confidence=1 - 1e-12, function_tolerance=1e-10, device="cpu"
)


def assert_in_band(values, dim):
    """The mean of normalised squared errors of `dim` numbers each lies in the 99 % band of chi-square."""
    low, high = chi2.ppf([0.005, 0.995], dim * len(values)) / len(values)
    assert low < np.mean(values) < high, f"mean {np.mean(values):.2f}, expected {low:.2f} to {high:.2f}"


def error_of(pose, vectors, true_pose, true_vectors):
    """(15,) the update from the estimate to the truth."""
    change = np.asarray((SE3(pose).inverse() * SE3(true_pose)).storage)
    turn = np.asarray(quaternion.vector_part(change[3:]))
    return np.concatenate([change[:3], turn, *(b - a for a, b in zip(vectors, true_vectors, strict=True))])


def window(seed, count, points, pixels=0.5):
    """A disturbed map with noise everywhere but in the first keyframe, which is fixed; and true states."""
    rng = np.random.default_rng(seed)
    times = 0.25 * np.arange(count)
    imu, bias = walking_samples(times[-1], rng, NOISE)
    world, _ = simulated_map(rng, times, points, pixels=pixels, imu=imu)
    at = bias[np.rint(times * 200).astype(int)]
    poses, velocities = poses_and_velocities(times)
    frames = world.keyframes
    frames["gyro_bias"][:], frames["acc_bias"][:] = at[:, :3], at[:, 3:]
    frames["fixed"][0] = True
    disturb(world, rng, 0.005, 0.01, 0.05, 0.05, zero_biases=False, fixed=frames.ids[:1])
    return world, poses, (velocities, at[:, :3], at[:, 3:])


def errors_of_windows(seeds, count, points):
    """Normalised squared errors of the last keyframe's state."""
    found = []
    for seed in range(seeds):
        world, poses, vectors = window(seed, count, points)
        result = sb.full_inertial_ba(world, options=OPTIONS)
        assert result.is_usable
        last = int(world.keyframes.ids[-1])
        covariance = result.covariance([last])["keyframe", last]
        frames = world.keyframes
        mine = [frames[name][-1] for name in ("velocity", "gyro_bias", "acc_bias")]
        error = error_of(frames["world_T_body"][-1], mine, poses[-1], [vector[-1] for vector in vectors])
        found.append(error @ np.linalg.solve(covariance, error))
    return found


def test_windows():
    """Six keyframes, stereo and IMU: pose, velocity and biases of the last one."""
    assert_in_band(errors_of_windows(SEEDS, 6, 50), 15)


@pytest.mark.slow
def test_long_windows():
    """25 keyframes with 200 points."""
    assert_in_band(errors_of_windows(SEEDS, 25, 200), 15)


def test_chains_of_frames():
    """Eight frames in a row, each with the prior of the last: what the last prior says about the truth."""
    rig, found = sb.Rig(CAMERA), []
    graph = sb.InertialFrameGraph(rig, True)
    for seed in range(SEEDS):
        rng = np.random.default_rng(1000 + seed)
        times = 0.1 * np.arange(9)
        imu, bias = walking_samples(times[-1], rng, NOISE)
        poses, velocities = poses_and_velocities(times)
        at = bias[np.rint(times * 200).astype(int)]
        previous = sb.FrameState(poses[0], velocities[0], at[0, :3], at[0, 3:])
        prior = None
        for k in range(1, 9):
            local = rng.uniform([-0.6, -0.6, 1.0], [0.6, 0.6, 1.0], (30, 3)) * rng.uniform(2.0, 8.0, (30, 1))
            points = np.asarray((SE3(poses[k]) * SE3(CAMERA.body_T_cam)).act(local))
            pixel = CAMERA.project(local) + 0.5 * rng.normal(size=(30, 2))
            right = CAMERA.right_column(local) + 0.5 * rng.normal(size=30)
            seen = sb.FrameObservations.of(points, pixel, right=right, sigma=0.5)
            part = imu.between(round((k - 1) * 1e8), round(k * 1e8))
            measured = sb.preintegrate(part, NOISE, previous.gyro_bias, previous.acc_bias)
            result = sb.pose_inertial_optimization(
                rig, None, previous, measured, seen, prior, OPTIONS, graph if prior is not None else None
            )
            previous, prior = result.extra["state"], result.extra["prior"]
        truth = np.zeros((4, 7))
        truth[0] = poses[-1]
        truth[1:, :3] = velocities[-1], at[-1, :3], at[-1, 3:]
        found.append(prior.chi2(truth))
    assert_in_band(found, 15)


@pytest.mark.slow
def test_marginalized_windows():
    """Of six keyframes the first two are marginalized one after the other: the last state after that."""
    found = []
    for seed in range(SEEDS):
        world, poses, vectors = window(2000 + seed, 6, 30, pixels=0.2)
        ids = world.keyframes.ids.copy()
        sb.full_inertial_ba(world, options=OPTIONS)
        for id_ in ids[:2]:
            sb.marginalize(world, [id_])
            result = sb.full_inertial_ba(world, options=OPTIONS)
        last = int(ids[-1])
        covariance = result.covariance([last])["keyframe", last]
        frames = world.keyframes
        mine = [frames[name][-1] for name in ("velocity", "gyro_bias", "acc_bias")]
        error = error_of(frames["world_T_body"][-1], mine, poses[-1], [vector[-1] for vector in vectors])
        found.append(error @ np.linalg.solve(covariance, error))
    assert_in_band(found, 15)


def test_initialization():
    """Log of the scale and direction of gravity, with biases drawn from their priors."""
    scales, downs = [], []
    times = 0.25 * np.arange(13)
    stamps = np.rint(times * 1e9).astype(np.int64)
    poses, _ = poses_and_velocities(times)
    noise = sb.ImuNoise(1e-3, 1e-2, 1e-9, 1e-9)  # one pair of biases for all: no walk
    for seed in range(2 * SEEDS):
        rng = np.random.default_rng(7000 + seed)
        imu, bias = walking_samples(times[-1], rng, noise)
        drawn = np.concatenate([0.05 * rng.normal(size=3), 0.1 * rng.normal(size=3)])
        moved = np.concatenate([imu.gyro, imu.acc], axis=1) - bias + drawn
        clean = sb.ImuSamples(imu.stamps, moved[:, :3], moved[:, 3:])
        imu = sb.preintegrate_intervals(clean, stamps, noise)
        start = sb.initialize(poses, imu, gyro_bias_sigma=0.05, acc_bias_sigma=0.1, acc_scale_sigma=0.0)
        assert start.is_usable, start.refused
        scales.append((np.log(start.scale) / start.deviations["log_scale"]) ** 2)
        up = SO3(start.world_R_map).act(np.array([0.0, 0.0, 1.0]))
        downs.append((np.hypot(up[0], up[1]) / start.deviations["gravity"]) ** 2)
    assert_in_band(scales, 1)
    assert 0.5 < np.mean(downs) < 2.6  # two directions against the worse one's deviation: 1 to 2
