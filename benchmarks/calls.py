"""Whole calls of `optimize`, from arrays in memory to arrays in memory: the first, and later ones.

    python benchmarks/calls.py venice-1778 PROBLEM.txt [--device vulkan] [--precision double] [--best CHI2]
    python benchmarks/calls.py ladybug-969 --profile     # and which functions of Python take the time

A PROBLEM is a graph file, or a published size that ../shared/tools/synthetic_bal.py makes. The first call of
a graph sets up; later ones have other estimates of the same structure. Per precision: milliseconds of the
first call; the median of four later ones; that of later calls with the fewest iterations that end within
0.1 % of the best chi2 (--best, or the lowest that any call here ended at); the share of the time in which the
device was at work on recorded programs (copies of arrays to and from it are not counted); the phases of the
last call; iterations, trials, chi2.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from device_resident import graph_of

import graphopt
from graphopt.graph import Graph
from graphopt.io import read
from graphopt.optimizer.summary import Summary
from graphopt.solver.vulkan.program import Running

LATER = 4
WARM_UP_SECONDS = 0.3
"""Of later calls that are not timed: an idle device runs on low clocks."""
CLOSE = 1e-3
"""Above the best chi2, relatively: what counts as there."""


@dataclass(frozen=True)
class Calls:
    """Some calls from the same start."""

    seconds: list[float]
    busy: list[float]
    """Seconds in which the device was at work on programs."""
    summary: Summary
    """Of the last."""

    @property
    def later(self) -> float:
        """Median milliseconds of all but the first."""
        return 1e3 * float(np.median(self.seconds[1:]))

    @property
    def share(self) -> float:
        """Median share of the device's time, of all but the first, in percent."""
        return 100.0 * float(np.median(np.divide(self.busy[1:], self.seconds[1:])))


@contextmanager
def device_clock() -> Iterator[dict[str, float]]:
    """Seconds by phase of all programs that are waited for inside."""
    found: dict[str, float] = {}
    wait = Running.wait

    def noted(self: Running, seconds: dict[str, float] | None = None) -> None:
        own: dict[str, float] = {}
        wait(self, own)
        for name, value in own.items():
            found[name] = found.get(name, 0.0) + value
            if seconds is not None:
                seconds[name] = seconds.get(name, 0.0) + value

    Running.wait = noted
    try:
        yield found
    finally:
        Running.wait = wait


def calls(graph: Graph, later: int, **options: Any) -> Calls:
    """The first call and `later` ones, each from the same start, which the graph has again at the end."""
    start = [vertices.estimate.copy() for vertices in graph.vertex_sets]
    found = [_timed(graph, start, options)]
    warm = time.perf_counter() + WARM_UP_SECONDS
    while later and time.perf_counter() < warm:
        _timed(graph, start, options)
    found += [_timed(graph, start, options) for _ in range(later)]
    _restore(graph, start)
    return Calls([call[0] for call in found], [call[1] for call in found], found[-1][2])


def _timed(graph: Graph, start: list[np.ndarray], options: dict[str, Any]) -> tuple[float, float, Summary]:
    """Seconds of a call, of the device in it, and what it did."""
    _restore(graph, start)
    with device_clock() as clock:
        began = time.perf_counter()
        summary = graphopt.optimize(graph, **options)
        seconds = time.perf_counter() - began
    return seconds, sum(clock.values()), summary


def _restore(graph: Graph, start: list[np.ndarray]) -> None:
    for vertices, values in zip(graph.vertex_sets, start, strict=True):
        vertices.estimate[...] = values


def close_calls(graph: Graph, converged: Summary, best: float, **options: Any) -> Calls | None:
    """Calls with the fewest iterations that end within 0.1 % of `best`; None: the converged one is not."""
    bound = (1.0 + CLOSE) * best
    if converged.final_chi2 > bound:
        return None
    passed = [number for number, iteration in enumerate(converged.iterations, 1) if iteration.chi2 <= bound]
    for count in range(min(passed, default=1), len(converged.iterations)):
        result = calls(graph, 0, max_iterations=count, **options)
        if result.summary.final_chi2 <= bound:
            return calls(graph, LATER, max_iterations=count, **options)
    return calls(graph, LATER, **options)


def main() -> None:
    """Print one line per problem and precision."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("problems", nargs="+", metavar="PROBLEM")
    parser.add_argument("--device", default="vulkan")
    parser.add_argument("--precision", action="append", choices=("double", "mixed"))
    parser.add_argument("--best", type=float, default=np.inf, help="the best known chi2, of one PROBLEM")
    parser.add_argument("--schur", default="auto")
    parser.add_argument("--linear-solver", default="auto")
    parser.add_argument("--profile", action="store_true", help="one more call under cProfile")
    arguments = parser.parse_args()
    for name in arguments.problems:
        graph = read(name) if Path(name).exists() else graph_of(name)
        best = arguments.best
        for precision in arguments.precision or ("double", "mixed"):
            options = {
                "device": arguments.device,
                "precision": precision,
                "schur": arguments.schur,
                "linear_solver": arguments.linear_solver,
            }
            whole = calls(graph, LATER, **options)
            best = min(best, whole.summary.final_chi2)
            print(
                _line(
                    f"{Path(name).name} {precision}",
                    whole,
                    close_calls(graph, whole.summary, best, **options),
                ),
                flush=True,
            )
            if arguments.profile:
                profile = cProfile.Profile()
                profile.runcall(graphopt.optimize, graph, **options)
                pstats.Stats(profile).sort_stats("tottime").print_stats(30)


def _line(name: str, whole: Calls, close: Calls | None) -> str:
    summary = whole.summary
    phases = ", ".join(f"{k} {1e3 * v:.1f}" for k, v in summary.seconds.items() if v >= 2e-4)
    near = "not within 0.1 %"
    if close is not None:
        near = (
            f"to 0.1 % {close.later:.1f} ({len(close.summary.iterations)} iterations, "
            f"chi2 {close.summary.final_chi2:.8g}, busy {close.share:.0f} %)"
        )
    return (
        f"{name}: first {1e3 * whole.seconds[0]:.1f} ms, later {whole.later:.1f} (busy {whole.share:.0f} %), "
        f"{near}; {len(summary.iterations)} iterations, "
        f"{sum(iteration.trials for iteration in summary.iterations)} trials, chi2 {summary.final_chi2:.8g}, "
        f"{summary.linear_solver} {summary.schur} on {summary.device_name}; ms: {phases}"
    )


if __name__ == "__main__":
    main()
