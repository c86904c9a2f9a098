"""Units of `graphopt eval vib`: one problem under one configuration."""

from __future__ import annotations

import statistics
from typing import Any

from slam_bridge.exchange.solve import solve_problem
from slam_bridge.options import SolveOptions
from slam_bridge.vib import read_vib


def evaluate(
    name: str, path: str, configuration: str, problem: str, options: dict[str, Any], runs: int
) -> dict[str, Any]:
    """The entry of one file: sizes, chi2, seconds of the median run, errors against the truth."""
    chosen = SolveOptions(**options, configuration=None if configuration == "auto" else configuration)
    done = [solve_problem(read_vib(path), problem, chosen) for _ in range(runs)]
    seconds = [run.result.seconds["total"] for run in done]
    solved = done[seconds.index(statistics.median_low(seconds))]
    result = solved.result
    summary = result.summary.to_dict()
    return {
        "problem": name,
        "solver": configuration,
        "kind": problem,
        "keyframes": len(result.keyframes),
        "points": len(result.landmarks),
        "observations": len(result.observations),
        "initial_chi2": result.summary.initial_chi2,
        "chi2": result.summary.final_chi2,
        "iterations": len(result.summary.iterations),
        "rounds": result.rounds,
        "seconds": min(seconds) if runs < 3 else statistics.median_low(seconds),
        "seconds_of_runs": seconds,
        "phases": result.seconds,
        "memory_bytes": result.summary.memory_bytes,
        **{key: summary[key] for key in ("linear_solver", "schur", "device", "precision", "termination")},
        "truth": solved.truth,
        "truth_before": solved.truth_before,
    }
