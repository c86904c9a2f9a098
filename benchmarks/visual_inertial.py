"""Visual-inertial problems: a local-inertial window, poses of frames, full maps; windows in a row.

    python benchmarks/visual_inertial.py                      local window, frames, preintegration
    python benchmarks/visual_inertial.py --device vulkan      the window on a GPU
    python benchmarks/visual_inertial.py --device vulkan --imu gather      another evaluation of IMU edges
    python benchmarks/visual_inertial.py --windows 1000       so many windows in a row: worst, median, memory
    python benchmarks/visual_inertial.py --full 126,9403,42327   a whole map: keyframes, points, observations,
                                                              with the time of each iteration

Timed is the call, from arrays in a `Map` to arrays in it; the structure changes by one keyframe from call
to call, as in a SLAM program. On a GPU the first window builds the kernels; those after it count.
Sizes of the window are those of the thesis' discussion of local-inertial BA
(26 keyframes, 3,000 points, 20,000 stereo observations), of full maps those of its table 5.8. The motion is
synthetic.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import slam_bridge as sb
from graphopt.geometry import SE3, SO3
from graphopt.types.inertial import EdgeInertialCombined

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
    world.add_imu(ids[:-1], ids[1:], sb.preintegrate_intervals(imu, stamps, NOISE, [0.01] * 3, [0.05] * 3))
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


def show_window(device: str, count: int, rounds: int, imu: str) -> None:
    """The window of 25 free and one fixed keyframe. imu: schedule of the IMU edges on a GPU."""
    world = make_map(40, 3700, 26500)
    options = sb.SolveOptions(
        device=device,
        iterations=10,
        rounds=rounds,
        function_tolerance=0.0,
        update=False,
        confidence=0.999,
        schedule="auto" if imu == "auto" else {EdgeInertialCombined.tag: imu},
    )
    before = [1e3 * seconds for seconds, _ in windows_of(world, 3, 25, options)]
    if device != "cpu":
        print(f"the first windows {before[0]:.1f}, {before[1]:.1f}, {before[2]:.1f} ms")
    results = list(windows_of(world, count, 25, options))
    rows = [(seconds, result.seconds) for seconds, result in results[min(3, count - 1) :]]
    total = np.array([seconds for seconds, _ in rows])
    last_result = results[-1][1]
    print(
        f"local-inertial BA, {len(last_result.keyframes)} keyframes, {len(last_result.landmarks)} points, "
        f"{len(last_result.observations)} observations, {len(last_result.summary.iterations)} iterations on "
        f"{last_result.summary.device_name}: first {1e3 * results[0][0]:.1f} ms, "
        f"median {1e3 * np.median(total):.1f}, "
        f"best {1e3 * total.min():.1f}, "
        f"worst {1e3 * total.max():.1f} of {len(total)}"
    )
    phases = sorted({name for _, part in rows for name in part})
    for name in phases:
        print(f"    {name:14s} {1e3 * np.median([part.get(name, 0.0) for _, part in rows]):8.2f} ms")


def show_many(device: str, count: int, size: tuple[int, int, int]) -> None:
    """Many windows in a row, on one `Window`: time and memory, that of the device too."""
    world = make_map(*size)
    options = sb.SolveOptions(device=device, iterations=10, rounds=1, update=False, confidence=0.999)
    before, window, times = 0.0, sb.Window(), []
    for number, (seconds, result) in enumerate(windows_of(world, count, 25, options, window), 1):
        times.append(1e3 * seconds)
        if number % max(count // 10, 1) == 0:
            now = resident_memory()
            block = np.array(times[-max(count // 10, 1) :])
            print(
                f"    after {number:5d} windows: {now:.0f} MiB ({now - before:+.1f}), "
                f"{result.summary.memory_bytes / 2**20:.1f} MiB of the window's solver; "
                f"median of these {np.median(block):.1f} ms, worst {block.max():.1f}",
                flush=True,
            )
            before = now
    high = f"99 % {np.percentile(times, 99):.1f}, worst {np.max(times):.1f}"
    print(f"{len(times)} windows: median {np.median(times):.1f} ms, {high}")


def resident_memory() -> float:
    """MiB of this process in memory now; where the system does not say, the most so far."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0
    return pages * resource.getpagesize() / 2**20


def show_frames(count: int = 300) -> None:
    """Pose and pose-inertial optimization of single frames with 300 stereo observations, one thread."""
    from graphopt.cpu_kernels import kernels

    threads = kernels.num_threads()
    kernels.set_num_threads(1)
    rng = np.random.default_rng(0)
    rig = sb.Rig(CAMERA)
    t = np.array([0.0, 0.05, 0.1])
    poses, velocity, _ = motion(t)
    seen, second = (_observations(pose, rng) for pose in poses[1:])
    start = np.asarray((SE3(poses[1]) * SE3.exp(np.full(6, 0.01))).storage)
    graph = sb.FrameGraph(rig)
    _show(
        "pose optimization, 300 observations",
        lambda: sb.pose_optimization(rig, start, seen, graph=graph),
        count,
    )
    samples, biases = imu_samples(1.0, rng), (np.full(3, 0.01), np.full(3, 0.05))
    measured, further = (
        sb.preintegrate(samples.between(k * 50_000_000, (k + 1) * 50_000_000), NOISE, *biases)
        for k in range(2)
    )
    previous = sb.FrameState(poses[0], velocity[0], *biases)
    first = sb.pose_inertial_optimization(rig, None, previous, measured, seen)
    prior, state = first.extra["prior"], first.extra["state"]
    held = sb.InertialFrameGraph(rig, True)
    _show(
        "pose-inertial optimization with prior",
        lambda: sb.pose_inertial_optimization(rig, None, state, further, second, prior, graph=held),
        count,
    )
    kernels.set_num_threads(threads)


def _observations(world_T_body: np.ndarray, rng: np.random.Generator) -> sb.FrameObservations:
    """300 landmarks seen by a stereo camera from a pose (7,), a tenth of them wrong."""
    local = rng.uniform([-0.6, -0.4, 1.0], [0.6, 0.4, 1.0], (300, 3)) * rng.uniform(3.0, 9.0, (300, 1))
    points = np.asarray((SE3(world_T_body) * SE3(CAMERA.body_T_cam)).act(local))
    pixel = CAMERA.project(local) + rng.normal(size=(300, 2))
    right = CAMERA.right_column(local) + rng.normal(size=300)
    pixel[:30] += 50.0
    return sb.FrameObservations.of(points, pixel, right=right)


def _show(name: str, call: Any, count: int) -> None:
    times = []
    for _ in range(count):
        start = time.perf_counter()
        result = call()
        times.append(1e3 * (time.perf_counter() - start))
    phases = ", ".join(f"{phase} {1e3 * seconds:.3f}" for phase, seconds in result.seconds.items())
    print(f"{name}: median {np.median(times):.3f} ms, best {min(times):.3f} ({phases})")


def show_full(device: str, size: str, linear_solver: str) -> None:
    """Full-inertial BA of a whole map, 10 iterations."""
    keyframes, points, observations = (int(word) for word in size.split(","))
    world = make_map(keyframes, points, observations)
    options = sb.SolveOptions(
        device=device,
        iterations=10,
        rounds=1,
        update=False,
        function_tolerance=0.0,
        linear_solver=linear_solver,
    )
    window = sb.Window()
    for label in ("first", "again"):
        start = time.perf_counter()
        result = sb.full_inertial_ba(world, world.keyframes.ids[:1], options, window)
        seconds = time.perf_counter() - start
        phases = ", ".join(f"{name} {value:.3f}" for name, value in result.seconds.items())
        print(f"full-inertial BA {size}, {label}: {seconds:.3f} s on {result.summary.device_name} ({phases})")
        summary = result.summary
        each = ", ".join(f"{1e3 * step.seconds:.1f} ({step.trials})" for step in summary.iterations)
        print(
            f"    {summary.linear_solver} on {summary.factorized_on or 'no factor'}, {summary.precision}, "
            f"schur {summary.schur}; ms of each iteration (trials): {each}"
        )


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description="Visual-inertial problems.")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--count", type=int, default=30, help="windows of the first table")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--imu", default="auto", help="schedule of the IMU edges: gather, scatter, collect")
    parser.add_argument("--windows", type=int, default=0, help="so many windows in a row")
    parser.add_argument("--linear-solver", default="auto", help="of full maps")
    parser.add_argument(
        "--size", default="120,14400,96000", help="map of --windows: keyframes,points,observations"
    )
    parser.add_argument("--full", action="append", default=[], help="keyframes,points,observations")
    arguments = parser.parse_args()
    if arguments.full or arguments.windows:
        for size in arguments.full:
            show_full(arguments.device, size, arguments.linear_solver)
        if arguments.windows:
            keyframes, points, observations = (int(word) for word in arguments.size.split(","))
            show_many(arguments.device, arguments.windows, (keyframes, points, observations))
        return
    show_window(arguments.device, arguments.count, arguments.rounds, arguments.imu)
    show_frames()


if __name__ == "__main__":
    main()
