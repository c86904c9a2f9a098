"""What a local-inertial window launches on a GPU, step by step: the device's time between barriers.

    python -m benchmarks.window_steps [--device vulkan] [--linear-solver auto] [--host]

Windows as in visual_inertial.py. Every step, which lies between two barriers, is timed; an empty step
takes about as long as a barrier and a timestamp. Printed are per submission its steps in order, with their
kernels (*: one workgroup) and microseconds (median). `--host` prints the calling thread's Python of windows
whose structure has changed (cProfile).
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import statistics
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import slam_bridge as sb
from benchmarks.visual_inertial import make_map, wait_for_kernels, windows_of
from graphopt.solver.vulkan.program import Command, Program, Running
from graphopt.types.inertial import EdgeInertialCombined

_MOST = 250
"""Steps of a program that are timed; it may have 256 timestamps."""


def label_of(name: str, argument: Any) -> str:
    """Of a command."""
    if name == "launch":
        kernel = getattr(argument.kernel, "name", None) or str(argument.kernel)
        return f"{kernel}{' *' if argument.groups == 1 else ''}"
    return name if name != "copy" else f"copy {argument[2]}"


def in_steps(commands: list[Command]) -> list[Command]:
    """The same commands with a phase of their own for each step."""
    found: list[Command] = []
    step: list[Command] = []
    number = 0

    def close() -> None:
        nonlocal number
        names = [label_of(*launch) for launch in step if launch[0] not in ("barrier", "phase")]
        if names and number < _MOST:
            found.append(("phase", f"{number:03d} {' | '.join(names)}"))
            number += 1
        found.extend(launch for launch in step if launch[0] != "phase")
        step.clear()

    for command in commands:
        step.append(command)
        if command[0] == "barrier":
            close()
    close()
    return found


@contextmanager
def steps_noted(times: dict[str, dict[str, list[float]]]) -> Iterator[None]:
    """Record programs in steps inside; times: seconds by program (its phases) and step."""
    recorded, wait = Program._recorded, Running.wait
    names: dict[int, str] = {}

    def noted_recorded(self: Program) -> Any:
        if not self._submissions:
            phases = [argument for name, argument in self._commands if name == "phase"]
            label = "+".join(dict.fromkeys(phases)) or "nothing"
            self._commands = in_steps(self._commands)
            found = recorded(self)
            names.update({id(program): label for _, program in found})
            return found
        return recorded(self)

    def noted_wait(self: Running, seconds: dict[str, float] | None = None) -> None:
        own: dict[str, float] = {}
        wait(self, own)
        for phases, program in self._submissions:
            label = names.get(id(program))
            if label is not None and own:
                for phase in phases:
                    times[label][phase].append(own.get(phase, 0.0))
        if seconds is not None:
            seconds["linear_solver"] = seconds.get("linear_solver", 0.0) + sum(own.values())

    Program._recorded, Running.wait = noted_recorded, noted_wait  # type: ignore[method-assign]
    try:
        yield
    finally:
        Program._recorded, Running.wait = recorded, wait  # type: ignore[method-assign]


def show_steps(world: sb.Map, options: sb.SolveOptions, count: int) -> None:
    """Print the steps of windows."""
    times: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    with steps_noted(times):
        list(windows_of(world, count, 25, options))
    for label, steps in times.items():
        medians = {step: statistics.median(found) for step, found in steps.items()}
        runs = max(len(found) for found in steps.values())
        print(f"{label}: {runs} times, {1e6 * sum(medians.values()):.1f} us in {len(steps)} steps")
        for step, median in medians.items():
            print(f"    {1e6 * median:8.1f} us  {step}")


def show_host(world: sb.Map, options: sb.SolveOptions, count: int) -> None:
    """Print what Python does in windows whose structure has changed."""
    profile = cProfile.Profile()
    profile.enable()
    list(windows_of(world, count, 25, options))
    profile.disable()
    stats = pstats.Stats(profile)
    print(f"{count} windows:")
    stats.sort_stats("cumulative").print_stats(90)
    stats.sort_stats("tottime").print_stats(50)


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="vulkan")
    parser.add_argument("--linear-solver", default="auto")
    parser.add_argument("--imu", default="auto", help="schedule of the IMU edges")
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--host", action="store_true", help="profile the host's Python")
    arguments = parser.parse_args()
    world = make_map(40, 3700, 26500)
    options = sb.SolveOptions(
        device=arguments.device,
        iterations=arguments.iterations,
        rounds=1,
        function_tolerance=0.0,
        update=False,
        confidence=0.999,
        linear_solver=arguments.linear_solver,
        schedule="auto" if arguments.imu == "auto" else {EdgeInertialCombined.tag: arguments.imu},
    )
    list(windows_of(world, 3, 25, options))
    wait_for_kernels()
    list(windows_of(world, 3, 25, options))
    (show_host if arguments.host else show_steps)(world, options, arguments.count)


if __name__ == "__main__":
    main()
