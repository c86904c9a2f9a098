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


GYRO_BIAS, ACC_BIAS = np.array([0.03, -0.02, 0.04]), np.array([0.15, -0.1, 0.2])
NOISE = sb.ImuNoise(gyro_density=1e-3, acc_density=1e-2)
TIMES = 0.25 * np.arange(13)


def perturbed(rng, poses, turn=0.02, shift=0.05):
    """Poses moved at random [rad, m]."""
    n = len(poses)
    tangent = np.concatenate([turn * rng.normal(size=(n, 3)), shift * rng.normal(size=(n, 3))], axis=1)
    return np.asarray((SE3(poses) * SE3.exp(tangent)).storage)


def walking_samples(duration, rng, noise, rate=200.0):
    """Samples with white noise and walking biases (n, 6), which start at their sigmas' draw."""
    clean = samples(duration, rate)
    n, dt = len(clean), 1.0 / rate
    walk = np.repeat([noise.gyro_bias_density, noise.acc_bias_density], 3) * np.sqrt(dt)
    bias = np.cumsum(walk * rng.normal(size=(n, 6)), axis=0)
    bias += np.concatenate([GYRO_BIAS, ACC_BIAS])
    white = np.repeat([noise.gyro_density, noise.acc_density], 3) / np.sqrt(dt) * rng.normal(size=(n, 6))
    moved = np.concatenate([clean.gyro, clean.acc], axis=1) + bias + white
    return sb.ImuSamples(clean.stamps, moved[:, :3], moved[:, 3:]), bias


def simulated_map(
    rng,
    times=TIMES,
    count=150,
    stereo=True,
    pixels=0.0,
    imu=None,
    rate=1000.0,
    rule="midpoint",
):
    """Map of true states, landmarks and observations with this noise [px], and what it was made from.

    imu: samples; None: exact ones with constant biases. Returns the map and the true points (m, 3).
    """
    camera = CAMERA if stereo else sb.Camera.pinhole(CAMERA.body_T_cam, *CAMERA.intrinsics)
    poses, velocities = poses_and_velocities(times)
    points = rng.uniform([-8.0, 4.0, -4.0], [8.0, 12.0, 4.0], (count, 3))
    keyframe, point, pixel, right = observe(poses, points, camera)
    pixel = pixel + pixels * rng.normal(size=pixel.shape)
    right = right + pixels * rng.normal(size=right.shape)
    stamps = np.rint(times * 1e9).astype(np.int64)
    exact = samples(times[-1], rate, GYRO_BIAS, ACC_BIAS) if imu is None else imu
    world = sb.Map(camera)
    frames = world.add_keyframes(stamps, poses, velocities, GYRO_BIAS, ACC_BIAS)
    seen = np.bincount(point, minlength=count) >= 3
    number = np.cumsum(seen) - 1
    landmarks = world.add_landmarks(points[seen], frames[0])
    kept = seen[point]
    world.add_observations(
        frames[keyframe[kept]],
        landmarks[number[point[kept]]],
        pixel[kept],
        right=right[kept],
        sigma=pixels if pixels else 1.0,
    )
    factors = sb.preintegrate_intervals(exact, stamps, NOISE, rule=rule)
    world.add_imu(frames[:-1], frames[1:], factors)
    return world, points[seen]


def disturb(world, rng, turn=0.02, shift=0.05, speed=0.2, points=0.1, zero_biases=True, fixed=()):
    """Move all states of a map at random, but for those of fixed keyframes."""
    free = ~np.isin(world.keyframes.ids, fixed)
    frames = world.keyframes
    frames["world_T_body"][free] = perturbed(rng, frames["world_T_body"][free], turn, shift)
    frames["velocity"][free] += speed * rng.normal(size=(free.sum(), 3))
    if zero_biases:
        frames["gyro_bias"][free] = 0.0
        frames["acc_bias"][free] = 0.0
    world.landmarks["position"][:] += points * rng.normal(size=world.landmarks["position"].shape)


def rotation_errors(first, second):
    """(n,) angles between poses [rad]."""
    return np.linalg.norm((SE3(first).rotation.inverse() * SE3(second).rotation).log(), axis=1)
