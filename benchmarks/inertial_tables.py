"""Tables of the thesis on generated maps of its sequences, beside GTSAM on the same machine.

    python -m benchmarks.inertial_tables --table 5.9                     full-inertial BA, MH01 and room1
    python -m benchmarks.inertial_tables --table 5.9 --like outdoors6 --device vulkan
    python -m benchmarks.inertial_tables --table 4.1 --like MH01 --like V102 --gtsam
    python -m benchmarks.inertial_tables --table 5.6 --device vulkan     every solver configuration

    4.1    local-inertial BA: the last 25 keyframes with states, 10 iterations; 5.13: of every sequence
    5.6    full-inertial BA of one map by solver configuration; with --device cpu those of the CPU
    5.9    full-inertial BA of whole maps, 10 iterations

Maps are generated (`slam_bridge.generator`): sizes are those of table 5.8, start values have drifted. Timed
is the call, from arrays in a `Map` to arrays in it, with a `Window` that is new ("first") and one that has
the structure ("again"). GTSAM: `LevenbergMarquardtOptimizer` with as many iterations on the same factors;
making them from Python is not in its time. Without wrong matches and robust kernels, so that both have one
problem. `--json FILE` keeps everything. The error is that of positions.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import numpy as np

import slam_bridge as sb
from graphopt.errors import GraphOptError
from graphopt.solver.configurations import CONFIGURATIONS
from slam_bridge.exchange import VibProblem, truth_errors
from slam_bridge.exchange.solve import WINDOW
from slam_bridge.generator.problem import generate_problem
from slam_bridge.generator.sizes import SIZES
from slam_bridge.problems.local_inertial_ba import previous_keyframes
from slam_bridge.selection import Selection, select

TABLES = ("4.1", "5.6", "5.9", "5.13")


def options_of(device: str, **changes: Any) -> sb.SolveOptions:
    """Ten iterations, one round, nothing written."""
    options = sb.SolveOptions(
        device=device, iterations=10, rounds=1, function_tolerance=0.0, kernel=None, update=False
    )
    return options.with_changes(**changes)


def call(world: sb.Map, local: bool, options: sb.SolveOptions, window: sb.Window) -> sb.Result:
    """The problem that is timed."""
    if local:
        return sb.local_inertial_ba(world, world.keyframes.ids[-WINDOW:], options=options, window=window)
    return sb.full_inertial_ba(world, world.keyframes.ids[:1], options, window)


def selection_of(world: sb.Map, local: bool) -> Selection:
    """What `call` optimizes."""
    ids = world.keyframes.ids
    if not local:
        return select(world, ids[1:], ids[:1], inertial=ids)
    free = ids[-WINDOW:]
    before = previous_keyframes(world, free)
    others = np.union1d(world.covisible(free)[0], before)
    return select(world, free, others, inertial=np.union1d(free, before))


def timed(problem: VibProblem, local: bool, options: sb.SolveOptions, repeats: int) -> dict[str, Any]:
    """Seconds of the first call and of later ones, and how far the answer is from the truth."""
    world, window, seconds = problem.map, sb.Window(), []
    result: Any = None
    for _ in range(repeats + 1):
        start = time.perf_counter()
        result = call(world, local, options, window)
        seconds.append(time.perf_counter() - start)
    solved = world.snapshot()
    call(solved, local, options.with_changes(update=True), window)
    return {
        "first": seconds[0],
        "again": float(np.median(seconds[1:])),
        "phases": result.seconds,
        "iterations": len(result.summary.iterations),
        "chi2": [result.summary.initial_chi2, result.summary.final_chi2],
        "device": result.summary.device_name,
        "keyframes": len(result.keyframes),
        "points": len(result.landmarks),
        "observations": len(result.observations),
        **_errors(problem, solved),
    }


def _errors(problem: VibProblem, world: sb.Map) -> dict[str, float]:
    assert problem.truth is not None
    return {"error_mm": 1e3 * truth_errors(world, problem.truth)["position_m"]}


def gtsam_timed(problem: VibProblem, local: bool) -> dict[str, Any]:
    """The same by GTSAM."""
    from benchmarks.solvers.gtsam_inertial import solve

    chosen = selection_of(problem.map, local)
    run = solve(chosen, 10)
    world = problem.map.snapshot()
    world.keyframes["world_T_body"][world.keyframes.rows(chosen.keyframes)] = run.world_T_body
    return {
        "first": run.solve,
        "build_in_python": run.build,
        "iterations": run.iterations,
        "chi2": [run.error_before, run.error],
        "device": "GTSAM",
        **_errors(problem, world),
    }


def show(name: str, label: str, row: dict[str, Any]) -> None:
    """One line."""
    again = f"again {1e3 * row['again']:9.1f} ms" if "again" in row else " " * 18
    before, after = row["chi2"]
    print(
        f"{name:10s} {label:24s} first {1e3 * row['first']:9.1f} ms, {again}, {row['iterations']:2d} steps"
        f", chi2 {before:.4g} -> {after:.6g}, {row['error_mm']:.1f} mm on {row['device']}",
        flush=True,
    )


def rows_of(problem: VibProblem, arguments: argparse.Namespace) -> list[tuple[str, dict[str, Any]]]:
    """(label, numbers) of one map."""
    local = arguments.table in ("4.1", "5.13")
    found: list[tuple[str, dict[str, Any]]] = []
    if arguments.table == "5.6":
        for name, configuration in CONFIGURATIONS.items():
            if configuration.device != "cpu" and arguments.device == "cpu":
                continue
            device = "cpu" if configuration.device == "cpu" else arguments.device
            options = options_of(device, configuration=name)
            try:
                found.append((name, timed(problem, local, options, 1)))
            except GraphOptError as error:
                print(f"{name}: {error}")
    else:
        found.append(("graphopt", timed(problem, local, options_of(arguments.device), arguments.repeats)))
    if arguments.gtsam:
        try:
            found.append(("GTSAM", gtsam_timed(problem, local)))
        except ValueError as error:
            print(f"GTSAM: {error}")
    return found


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description="Visual-inertial tables.")
    parser.add_argument("--table", choices=TABLES, default="5.9")
    parser.add_argument("--like", action="append", default=[], help="sequences; all: every one of table 5.8")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--gtsam", action="store_true", help="beside GTSAM")
    parser.add_argument("--json", help="file for all numbers")
    arguments = parser.parse_args()
    default = ["MH01"] if arguments.table == "5.6" else ["MH01", "room1"]
    names = list(SIZES) if "all" in arguments.like else arguments.like or default
    everything: dict[str, Any] = {}
    for name in names:
        start = "window" if arguments.table in ("4.1", "5.13") else "odometry"
        problem = generate_problem(name, start=start, seed=arguments.seed, mismatches=0.0)
        for label, row in rows_of(problem, arguments):
            show(name, label, row)
            everything.setdefault(name, {})[label] = row
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(everything, file, indent=1)


if __name__ == "__main__":
    main()
