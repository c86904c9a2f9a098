"""A smooth motion known in closed form, its IMU samples and a stereo rig that sees landmarks."""

import numpy as np

import slam_bridge as sb
from graphopt.geometry import SE3, SO3

GRAVITY = np.array([0.0, 0.0, -9.81])


def position(t):
    """(n, 3) [m], with its first and second derivative."""
    w = np.array([0.9, 0.7, 1.3])
    size = np.array([2.0, 1.5, 0.4])
    angle = np.asarray(t)[:, None] * w + [0.0, 0.5, 1.0]
    return size * np.sin(angle), size * w * np.cos(angle), -size * w**2 * np.sin(angle)


def rotation(t):
    """SO3 (n, 4): Exp(z yaw) Exp(x roll)."""
    t = np.asarray(t)
    zero = np.zeros_like(t)
    yaw = SO3.exp(np.stack([zero, zero, 0.8 * np.sin(0.6 * t)], axis=-1))
    return yaw * SO3.exp(np.stack([0.5 * np.sin(1.1 * t), zero, zero], axis=-1))


def turn_rate(t):
    """(n, 3) turn rate in the body's frame [rad/s]."""
    t = np.asarray(t)
    zero = np.zeros_like(t)
    roll = SO3.exp(np.stack([0.5 * np.sin(1.1 * t), zero, zero], axis=-1))
    yaw_rate = np.stack([zero, zero, 0.48 * np.cos(0.6 * t)], axis=-1)
    return roll.inverse().act(yaw_rate) + np.stack([0.55 * np.cos(1.1 * t), zero, zero], axis=-1)


def poses_and_velocities(t):
    """world_T_body (n, 7) and velocity (n, 3)."""
    p, v, _ = position(t)
    return np.asarray(SE3.from_parts(p, rotation(t).storage).storage), v


def samples(duration, rate=200.0, gyro_bias=(0.0,) * 3, acc_bias=(0.0,) * 3):
    """Noise-free samples from 0 to duration [s]."""
    t = np.arange(round(duration * rate) + 1) / rate
    acc = rotation(t).inverse().act(position(t)[2] - GRAVITY)
    return sb.ImuSamples.from_seconds(t, turn_rate(t) + gyro_bias, acc + acc_bias)


def with_noise(clean, noise, rng):
    """White noise of these densities on every sample."""
    spread = 1.0 / np.sqrt(clean.steps.mean())
    return sb.ImuSamples(
        clean.stamps,
        clean.gyro + noise.gyro_density * spread * rng.normal(size=clean.gyro.shape),
        clean.acc + noise.acc_density * spread * rng.normal(size=clean.acc.shape),
    )


def residual(measured, first, second, gyro_bias=(0.0,) * 3, acc_bias=(0.0,) * 3, gravity=GRAVITY):
    """(9,) residual of EdgeInertial between two states (pose, velocity)."""
    from graphopt.types.inertial import EdgeInertial

    biases = np.asarray(gyro_bias, float), np.asarray(acc_bias, float)
    return EdgeInertial.error((*first, *biases, *second), (), measured.measurement(gravity))


CAMERA = sb.Camera.pinhole(
    np.array([0.05, -0.02, 0.01, *SO3.exp(np.array([-1.5, 0.1, 0.2])).storage]),
    450.0,
    460.0,
    370.0,
    240.0,
    0.11,
)


def observe(world_T_body, points, camera=CAMERA):
    """(keyframe, point, pixel (o, 2), right (o,)) of all points between 1 m and 20 m and near the axis."""
    found = []
    for k, pose in enumerate(world_T_body):
        x, y, z = (SE3(pose) * SE3(camera.body_T_cam)).inverse_act(points).T
        seen = np.flatnonzero((z > 1.0) & (z < 20.0) & (np.abs(x) < z) & (np.abs(y) < z))
        local = np.stack([x, y, z], axis=1)[seen]
        right = camera.right_column(local) if camera.baseline else np.full(len(seen), np.nan)
        found.append((np.full(len(seen), k), seen, camera.project(local), right))
    return tuple(np.concatenate(part) for part in zip(*found, strict=True))
