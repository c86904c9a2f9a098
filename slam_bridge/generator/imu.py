"""Samples that an IMU on a trajectory would give.

gyro = omega + b_g + n_g,     acc = R' (a - g) + b_a + n_a
n per sample: density / sqrt(dt);   the biases walk by density sqrt(dt) per sample
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphopt.geometry import SO3
from slam_bridge.generator.trajectory import Motion
from slam_bridge.imu import GRAVITY, ImuNoise, ImuSamples

START_BIAS = (2e-3, 2e-2)
"""Standard deviation of the biases at the begin [rad/s, m/s^2]."""


@dataclass(frozen=True, eq=False)
class SimulatedImu:
    """Samples and the biases that are in them."""

    samples: ImuSamples
    gyro_bias: np.ndarray
    """(n, 3) [rad/s]."""
    acc_bias: np.ndarray
    """(n, 3) [m/s^2]."""


def perfect_imu(motion: Motion) -> ImuSamples:
    """Samples without noise and biases."""
    rotation = SO3(motion.world_T_body[:, 3:])
    force = rotation.inverse().act(motion.acceleration - GRAVITY)
    return ImuSamples(motion.stamps, motion.rate, np.asarray(force))


def simulate_imu(
    motion: Motion,
    noise: ImuNoise | None,
    generator: np.random.Generator,
) -> SimulatedImu:
    """Samples at the motion's stamps, which are evenly spaced. noise None: a perfect sensor."""
    clean = perfect_imu(motion)
    zero = np.zeros((len(clean), 3))
    if noise is None:
        return SimulatedImu(clean, zero, zero)
    step = float(np.median(clean.steps))
    biases = [
        _walk(generator, len(clean), first, density * np.sqrt(step))
        for first, density in zip(START_BIAS, (noise.gyro_bias_density, noise.acc_bias_density), strict=True)
    ]
    white = [
        generator.standard_normal((len(clean), 3)) * density / np.sqrt(step)
        for density in (noise.gyro_density, noise.acc_density)
    ]
    noisy = ImuSamples(clean.stamps, clean.gyro + biases[0] + white[0], clean.acc + biases[1] + white[1])
    return SimulatedImu(noisy, *biases)


def _walk(generator: np.random.Generator, count: int, first: float, step: float) -> np.ndarray:
    """(count, 3) random walk."""
    steps = step * generator.standard_normal((count, 3))
    steps[0] = first * generator.standard_normal(3)
    return np.cumsum(steps, axis=0)
