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
from pathlib import Path

import numpy as np

import slam_bridge as sb
from graphopt.types.inertial import EdgeInertialCombined
from slam_bridge.evaluation.windows import frame_calls, make_map, window_options, windows_of


def show_window(device: str, count: int, rounds: int, imu: str) -> None:
    """The window of 25 free and one fixed keyframe. imu: schedule of the IMU edges on a GPU."""
    world = make_map(40, 3700, 26500)
    schedule = "auto" if imu == "auto" else {EdgeInertialCombined.tag: imu}
    options = window_options(device, rounds, schedule=schedule)
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
    for name, (seconds, result) in frame_calls(count).items():
        times = 1e3 * np.array(seconds)
        phases = ", ".join(f"{phase} {1e3 * value:.3f}" for phase, value in result.seconds.items())
        print(f"{name}: median {np.median(times):.3f} ms, best {times.min():.3f} ({phases})")


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
