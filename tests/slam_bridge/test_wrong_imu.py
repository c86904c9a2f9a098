"""An IMU that goes wrong: the intervals are named, images keep the map right, nothing else is lost."""

from __future__ import annotations

import numpy as np
import pytest
from simulation import (
    ACC_BIAS,
    GYRO_BIAS,
    NOISE,
    TIMES,
    disturb,
    poses_and_velocities,
    samples,
    simulated_map,
)

import slam_bridge as sb
from graphopt.geometry import SE3


def clean(t, gyro, acc, rng):
    pass


def bias_jump(t, gyro, acc, rng):
    acc[t > 1.6] += [0.8, -0.5, 0.3]


def gyro_bias_jump(t, gyro, acc, rng):
    gyro[t > 1.6] += [0.05, -0.04, 0.03]


def burst(t, gyro, acc, rng):
    acc[(t > 1.55) & (t < 1.65)] += rng.normal(0.0, 40.0, 3)


def stuck(t, gyro, acc, rng):
    during = (t > 1.5) & (t < 1.75)
    acc[during], gyro[during] = acc[np.argmax(during)], 0.0


@pytest.mark.parametrize("seed", [404, 505])
@pytest.mark.parametrize("fault", [clean, bias_jump, gyro_bias_jump, burst, stuck])
def test_what_was_wrong_is_named(fault, seed):
    """Full-inertial bundle adjustment of three seconds, wrong from the seventh interval on (1.5 s)."""
    rng = np.random.default_rng(seed)
    exact = samples(TIMES[-1], 200.0, GYRO_BIAS, ACC_BIAS)
    t = 1e-9 * (exact.stamps - exact.stamps[0])
    spread = np.sqrt(200.0)
    gyro = exact.gyro + NOISE.gyro_density * spread * rng.normal(size=exact.gyro.shape)
    acc = exact.acc + NOISE.acc_density * spread * rng.normal(size=exact.acc.shape)
    fault(t, gyro, acc, rng)
    world, _ = simulated_map(rng, pixels=0.5, imu=sb.ImuSamples(exact.stamps, gyro, acc))
    disturb(world, rng)
    options = sb.SolveOptions(device="cpu", iterations=30, rounds=5, confidence=0.999)
    result = sb.full_inertial_ba(world, options=options)
    assert result.is_usable
    rejected = np.searchsorted(world.imu.ids, result.rejected["imu"]).tolist()
    if fault is clean:
        assert not rejected
    elif fault in (burst, stuck):
        assert rejected == [6]
    assert result.inliers.mean() > 0.99
    poses, _ = poses_and_velocities(TIMES)
    found = SE3(world.keyframes["world_T_body"])
    moved = np.asarray((SE3(found.storage[:1]).inverse() * found).storage)[:, :3]
    expected = np.asarray((SE3(poses[:1]).inverse() * SE3(poses)).storage)[:, :3]
    assert np.linalg.norm(moved - expected, axis=1).max() < 0.1
