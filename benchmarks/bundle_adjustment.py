"""Bundle adjustment: BAL problem-49-7776 (Ladybug), 49 cameras, 7,776 points, 31,843 observations.

Costs here are half of chi2, as Ceres and gtsam print them.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import problems
from harness import Report, milliseconds, print_table
from solvers import g2opy_bal, graphopt_driver, gtsam_bal

import graphopt

FILE = "bal/problem-49-7776-pre.txt.xz"
HALF_COST_TARGET = 13_345.0
REPEATS = 5
GTSAM_LIMIT = 50


def run(report: Report) -> None:
    """Measure graphopt, gtsam and g2opy, add the metrics, print one table."""
    path = problems.unpacked(FILE)
    to_target, per_iteration, half_cost = measure_graphopt()
    rows = [_row("graphopt auto", to_target, per_iteration)]
    report.add("bal.ladybug49.graphopt.per_iteration", per_iteration, "s")
    report.add("bal.ladybug49.graphopt.half_cost", half_cost, "px^2")
    if to_target is not None:
        report.add("bal.ladybug49.graphopt.to_target", to_target, "s")

    gtsam_to_target, gtsam_per_iteration, _ = gtsam_bal.trace(path, HALF_COST_TARGET, GTSAM_LIMIT)
    rows.append(_row("gtsam LM", gtsam_to_target, gtsam_per_iteration))
    report.add("bal.ladybug49.gtsam.per_iteration", gtsam_per_iteration, "s")
    if gtsam_to_target is not None:
        report.add("bal.ladybug49.gtsam.to_target", gtsam_to_target, "s")

    g2o_per_iteration = g2opy_bal.seconds_per_iteration(path, 5)
    rows.append(_row("g2opy LM (poses only, 6 parameters)", None, g2o_per_iteration))
    report.add("bal.ladybug49.g2opy_pose_only.per_iteration", g2o_per_iteration, "s")

    title = f"BAL problem-49-7776: half cost {HALF_COST_TARGET:g}; graphopt ends at {half_cost:.2f}"
    print_table(title, ["solver", "to target", "per iteration"], rows)


def measure_graphopt() -> tuple[float | None, float, float]:
    """Return (seconds to the target or None, seconds per iteration, half cost at the own stop)."""
    path = problems.unpacked(FILE)
    graphopt_driver.solve(path)
    reached, steps, half_cost = [], [], float("nan")
    for _ in range(REPEATS):
        graph = graphopt_driver.load(path)
        started = time.perf_counter()
        first: list[float] = []

        def note(iteration: Any, started: float = started, first: list[float] = first) -> None:
            if not first and 0.5 * iteration.chi2 <= HALF_COST_TARGET:
                first.append(time.perf_counter() - started)

        summary = graphopt.optimize(graph, callback=note)
        reached.extend(first)
        steps.extend(each_iteration.seconds for each_iteration in summary.iterations[1:])
        half_cost = 0.5 * float(graph.chi2(robust=False))
    to_target = statistics.median(reached) if len(reached) == REPEATS else None
    return to_target, statistics.median(steps), half_cost


def _row(name: str, to_target: float | None, per_iteration: float | None) -> list[str]:
    return [name, milliseconds(to_target), milliseconds(per_iteration)]
