"""Pose graphs: time from the loaded file to convergence, and time per iteration.

*To target* is the time until chi2 is within 0.1 % of the best known, analysis and ordering included, by the
same rule for every solver. gtsam's 3D factors measure rotations in another chart, so that its minimum is not
g2o's: there its target is 0.1 % above the best of its own objective. *Own stop* is the time of one whole call
with the library's own convergence tests; g2o has none.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import problems
from harness import Report, milliseconds, print_table
from problems import Answer
from solvers import g2opy_driver, graphopt_driver, gtsam_driver

REPEATS = 5
G2O_LIMIT = {"sphere2500": 12, "victoriaPark-full": 60}
GTSAM_LIMIT = 30


@dataclass
class Result:
    """Times of one solver on one problem [s]; None where it does not get there."""

    name: str
    to_target: float | None = None
    own_stop: float | None = None
    per_iteration: float | None = None
    iterations: int = 0
    chi2: float | None = None


def run(report: Report, names: Iterable[str] = tuple(problems.POSE_GRAPHS)) -> None:
    """Measure all solvers on all problems, add the metrics, and print one table per problem."""
    for name in names:
        results = [measure_graphopt(name), *measure_g2opy(name), *measure_gtsam(name)]
        _record(report, name, results)
        _print(name, results)


def measure_graphopt(name: str) -> Result:
    """Measure `method="auto"`; a first untimed run compiles what is compiled once."""
    path = problems.unpacked(problems.POSE_GRAPHS[name])
    graphopt_driver.solve(path)
    runs = [graphopt_driver.solve(path) for _ in range(REPEATS)]
    traces = [graphopt_driver.trace(path) for _ in range(REPEATS)]
    result = Result("graphopt auto", own_stop=statistics.median(run.seconds for run in runs))
    result.to_target = _median_to_target(name, traces)
    result.iterations = runs[0].iterations
    result.per_iteration = _per_iteration(traces)
    result.chi2 = problems.chi2(path, runs[0].estimates)
    return result


def measure_g2opy(name: str) -> list[Result]:
    """Measure g2o's three algorithms with just the iterations that the target needs."""
    path = problems.unpacked(problems.POSE_GRAPHS[name])
    target, limit = _target(name), G2O_LIMIT.get(name, 40)
    results = []
    for algorithm in g2opy_driver.ALGORITHMS:
        result = Result(f"g2opy {algorithm}")
        needed = g2opy_driver.iterations_to(path, algorithm, target, limit)
        repeats = REPEATS if needed else 1
        runs = [g2opy_driver.solve(path, algorithm, needed or limit) for _ in range(repeats)]
        seconds = statistics.median(run.seconds for run in runs)
        result.iterations = runs[0].iterations
        result.chi2 = problems.chi2(path, runs[0].estimates)
        result.to_target = seconds if needed and result.chi2 <= target else None
        result.per_iteration = _g2o_per_iteration(path, algorithm)
        results.append(result)
    return results


def measure_gtsam(name: str) -> list[Result]:
    """Measure gtsam's LM and Gauss-Newton, to the target and to its own stop."""
    path = problems.unpacked(problems.POSE_GRAPHS[name])
    results = []
    for algorithm in ("lm", "gn"):
        result = Result(f"gtsam {algorithm}")
        try:
            runs = [gtsam_driver.solve(path, algorithm) for _ in range(REPEATS)]
        except gtsam_driver.Unsupported as reason:
            print(f"{name}: {reason}; left out.")
            return results
        traces = [gtsam_driver.trace(path, algorithm, runs[0].iterations) for _ in range(REPEATS)]
        result.own_stop = statistics.median(run.seconds for run in runs)
        result.iterations = runs[0].iterations
        result.chi2 = problems.chi2(path, runs[0].estimates)
        result.to_target = _median_to_target(name, traces) or _median_to_own_optimum(traces)
        result.per_iteration = _per_iteration(traces)
        results.append(result)
    return results


def _target(name: str) -> float:
    return problems.TARGET * problems.BEST_CHI2[name]


def _median_to_target(name: str, traces: list[list[Answer]]) -> float | None:
    """Median over the traces of the first time at which chi2 meets the target; None if a trace never does."""
    path = problems.unpacked(problems.POSE_GRAPHS[name])
    first = next(
        (
            index
            for index, answer in enumerate(traces[0])
            if problems.chi2(path, answer.estimates) <= _target(name)
        ),
        None,
    )
    if first is None:
        return None
    return statistics.median(trace[min(first, len(trace) - 1)].seconds for trace in traces)


def _median_to_own_optimum(traces: list[list[Answer]]) -> float:
    """Median over the traces of the first time within 0.1 % of the solver's own best objective."""
    objectives = [answer.objective for answer in traces[0] if answer.objective is not None]
    first = next(i for i, value in enumerate(objectives) if value <= problems.TARGET * min(objectives))
    return statistics.median(trace[first].seconds for trace in traces)


def _per_iteration(traces: list[list[Answer]]) -> float | None:
    """Median time of an iteration after the first, which carries the analysis."""
    steps = [
        later.seconds - earlier.seconds for trace in traces for earlier, later in itertools.pairwise(trace)
    ]
    return statistics.median(steps) if steps else None


def _g2o_per_iteration(path: problems.Path, algorithm: str) -> float:
    """Time of one more iteration: the difference of a longer and a shorter run, analysis cancels."""
    solve: Callable[[int], float] = lambda n: g2opy_driver.solve(path, algorithm, n).seconds  # noqa: E731
    return (solve(4) - solve(1)) / 3.0


def _record(report: Report, name: str, results: list[Result]) -> None:
    for result in results:
        key = f"pose_graph.{name}.{result.name.replace(' ', '_')}"
        for field in ("to_target", "own_stop", "per_iteration"):
            value = getattr(result, field)
            if value is not None:
                report.add(f"{key}.{field}", value, "s")
        if result.chi2 is not None:
            report.add(f"{key}.chi2", result.chi2, "")
    ours, *others = results
    best = min((other.to_target for other in others if other.to_target is not None), default=None)
    if ours.to_target is not None and best is not None:
        report.add(f"pose_graph.{name}.speedup", best / ours.to_target, "x", "higher")


def _print(name: str, results: list[Result]) -> None:
    best = min((result.to_target for result in results[1:] if result.to_target is not None), default=None)
    title = f"{name}: chi2 target {_target(name):.6g}"
    if best is not None and results[0].to_target is not None:
        title += f", graphopt is {best / results[0].to_target:.2f} times as fast as the fastest other"
    rows = [
        [
            result.name,
            milliseconds(result.to_target),
            milliseconds(result.own_stop),
            milliseconds(result.per_iteration),
            str(result.iterations),
            "-" if result.chi2 is None else f"{result.chi2:.8g}",
        ]
        for result in results
    ]
    print_table(title, ["solver", "to target", "own stop", "per iteration", "iterations", "chi2"], rows)
