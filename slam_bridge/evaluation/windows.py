"""A local-inertial window that moves on by one keyframe per call, and single frames: what a SLAM waits for.

Timed is the call, from arrays in a `Map` to arrays in it; the structure changes from call to call. On a GPU
the first windows build the kernels; those after them count. Sizes are those of local-inertial bundle
adjustment in Gopinath (MSc thesis, SFU 2023): 26 keyframes, 3,000 points, 20,000 stereo observations. The
motion is synthetic.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import slam_bridge as sb
from graphopt.cpu_kernels import kernels
from graphopt.geometry import SE3, SO3

CAMERA = sb.Camera.pinhole(
    [0.0, 0, 0, *SO3.exp(np.array([-1.5, 0.1, 0.2])).storage], 450.0, 460.0, 370.0, 240.0, 0.11
)
NOISE = sb.ImuNoise()
STEP = 0.25  # [s] between keyframes


def motion(t: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Poses (n, 7), velocities (n, 3) and accelerations (n, 3) of a walk along x."""
    way = np.array([0.9, 0.7, 1.3])
    size = np.array([0.3, 0.5, 0.4])
    angle = t[:, None] * way
    position = size * np.sin(angle)
    position[:, 0] += 0.5 * t
    velocity = size * way * np.cos(angle)
    velocity[:, 0] += 0.5
    zero = np.zeros_like(t)
    rotation = SO3.exp(np.stack([0.1 * np.sin(1.1 * t), zero, 0.2 * np.sin(0.6 * t)], axis=-1))
    poses = np.concatenate([position, np.asarray(rotation.storage)], axis=1)
    return poses, velocity, -size * way**2 * np.sin(angle)


def imu_samples(duration: float, rng: np.random.Generator) -> sb.ImuSamples:
    """Samples with the data sheet's noise; turn rates from differences of the rotation."""
    t = np.arange(0.0, duration + 0.006, 0.005)
    poses, _, acceleration = motion(t)
    rotation = SO3(poses[:, 3:])
    ahead, behind = (SO3(motion(t + sign * 1e-5)[0][:, 3:]) for sign in (1.0, -1.0))
    gyro = np.asarray((behind.inverse() * ahead).log()) / 2e-5
    acc = np.asarray(rotation.inverse().act(acceleration - sb.GRAVITY))
    spread = np.sqrt(200.0)
    gyro += NOISE.gyro_density * spread * rng.normal(size=gyro.shape) + 0.01
    acc += NOISE.acc_density * spread * rng.normal(size=acc.shape) + 0.05
    return sb.ImuSamples.from_seconds(t, gyro, acc)


def make_map(keyframes: int, points: int, observations: int, seed: int = 0) -> sb.Map:
    """Map of keyframes on the walk, each landmark seen by neighbours in time, stereo, one pixel of noise."""
    rng = np.random.default_rng(seed)
    t = STEP * np.arange(keyframes)
    poses, velocity, _ = motion(t)
    stamps = np.rint(t * 1e9).astype(np.int64)
    per_point = max(2, round(observations / points))
    first = np.sort(rng.integers(0, max(keyframes - per_point, 1), points))
    frame = (first[:, None] + np.arange(per_point)).ravel()
    point = np.repeat(np.arange(points), per_point)
    inside = frame < keyframes
    frame, point = frame[inside], point[inside]
    middle = np.minimum(first + per_point // 2, keyframes - 1)
    local = rng.uniform([-0.6, -0.4, 1.0], [0.6, 0.4, 1.0], (points, 3)) * rng.uniform(3.0, 9.0, (points, 1))
    world_points = np.asarray((SE3(poses[middle]) * SE3(CAMERA.body_T_cam)).act(local))
    seen = CAMERA.in_camera(poses[frame], world_points[point])
    good = seen[:, 2] > 0.5
    frame, point, seen = frame[good], point[good], seen[good]
    pixel = CAMERA.project(seen) + rng.normal(size=(len(seen), 2))
    right = CAMERA.right_column(seen) + rng.normal(size=len(seen))
    world = sb.Map(CAMERA)
    tangent = np.concatenate(
        [0.002 * rng.normal(size=(keyframes, 3)), 0.01 * rng.normal(size=(keyframes, 3))], axis=1
    )
    start = np.asarray((SE3(poses) * SE3.exp(tangent)).storage)
    ids = world.add_keyframes(stamps, start, velocity + 0.02 * rng.normal(size=(keyframes, 3)), 0.01, 0.05)
    landmarks = world.add_landmarks(world_points + 0.03 * rng.normal(size=(points, 3)))
    order = np.argsort(frame, kind="stable")
    world.add_observations(ids[frame[order]], landmarks[point[order]], pixel[order], right=right[order])
    imu = imu_samples(t[-1], rng)
    measured = sb.preintegrate_intervals(imu, stamps, NOISE, [0.01] * 3, [0.05] * 3)
    world.add_imu(ids[:-1], ids[1:], [interval for interval in measured if interval is not None])
    return world


def windows_of(
    world: sb.Map, count: int, size: int, options: sb.SolveOptions, window: sb.Window | None = None
) -> Iterator[tuple[float, sb.Result]]:
    """Seconds and results of windows that move on by one keyframe each; the map itself is left as it was.

    One at a time: a result holds the arrays of its problem, for covariances.
    """
    window = window or sb.Window()
    ids = world.keyframes.ids
    last = len(ids) - size - 1
    for k in range(count):
        first = k % last + 1
        start = time.perf_counter()
        result = sb.local_inertial_ba(world, ids[first : first + size], (), options, window)
        yield time.perf_counter() - start, result


def measure(case: str, device: str, count: int) -> dict[str, Any]:
    """The entry of a case: "window", "frame" or "inertial-frame", the median of so many calls."""
    if case == "window":
        options = window_options(device)
        done = list(windows_of(make_map(40, 3700, 26500), count + 3, 25, options))[3:]
        last = done[-1][1].summary
        median = float(np.median([seconds for seconds, _ in done]))
        return {"seconds": {"fresh": median}, "chi2": last.final_chi2, "device_name": last.device_name}
    seconds, result = frame_calls(count)[case]
    median = {"fresh": float(np.median(seconds))}
    return {"seconds": median, "chi2": result.summary.final_chi2, "device_name": "CPU, one thread"}


def window_options(device: str, rounds: int = 1, **more: Any) -> sb.SolveOptions:
    """Ten iterations of a window, the map left as it was."""
    return sb.SolveOptions(
        device=device,
        iterations=10,
        rounds=rounds,
        function_tolerance=0.0,
        update=False,
        confidence=0.999,
        **more,
    )


def frame_calls(count: int) -> dict[str, tuple[list[float], Any]]:
    """Seconds of each call and the last result of frames with 300 stereo observations, on one thread."""
    threads = kernels.num_threads()
    kernels.set_num_threads(1)
    try:
        return {name: _called(call, count) for name, call in _frame_problems().items()}
    finally:
        kernels.set_num_threads(threads)


def _frame_problems() -> dict[str, Callable[[], Any]]:
    """Pose of a frame; pose, velocity and biases of the second of two frames, with the first one's prior."""
    rng = np.random.default_rng(0)
    rig = sb.Rig(CAMERA)
    t = np.array([0.0, 0.05, 0.1])
    poses, velocity, _ = motion(t)
    seen, second = (_observations(pose, rng) for pose in poses[1:])
    start = np.asarray((SE3(poses[1]) * SE3.exp(np.full(6, 0.01))).storage)
    graph = sb.FrameGraph(rig)
    samples, biases = imu_samples(1.0, rng), (np.full(3, 0.01), np.full(3, 0.05))
    measured, further = (
        sb.preintegrate(samples.between(k * 50_000_000, (k + 1) * 50_000_000), NOISE, *biases)
        for k in range(2)
    )
    previous = sb.FrameState(poses[0], velocity[0], *biases)
    first = sb.pose_inertial_optimization(rig, None, previous, measured, seen)
    prior, state = first.extra["prior"], first.extra["state"]
    held = sb.InertialFrameGraph(rig, True)
    return {
        "frame": lambda: sb.pose_optimization(rig, start, seen, graph=graph),
        "inertial-frame": lambda: sb.pose_inertial_optimization(
            rig, None, state, further, second, prior, graph=held
        ),
    }


def _called(call: Callable[[], Any], count: int) -> tuple[list[float], Any]:
    seconds, result = [], None
    for _ in range(count):
        start = time.perf_counter()
        result = call()
        seconds.append(time.perf_counter() - start)
    return seconds, result


def _observations(world_T_body: np.ndarray, rng: np.random.Generator) -> sb.FrameObservations:
    """300 landmarks seen by a stereo camera from a pose (7,), a tenth of them wrong."""
    local = rng.uniform([-0.6, -0.4, 1.0], [0.6, 0.4, 1.0], (300, 3)) * rng.uniform(3.0, 9.0, (300, 1))
    points = np.asarray((SE3(world_T_body) * SE3(CAMERA.body_T_cam)).act(local))
    pixel = CAMERA.project(local) + rng.normal(size=(300, 2))
    right = CAMERA.right_column(local) + rng.normal(size=300)
    pixel[:30] += 50.0
    return sb.FrameObservations.of(points, pixel, right=right)
