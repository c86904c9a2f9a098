"""Where a device should factor the reduced system and where iterate: what `auto` takes, beside both.

    python benchmarks/direct_choice.py ladybug-969 trafalgar-257 PROBLEM.txt [--repeats N]

A PROBLEM is a graph file, or a published size that ../shared/tools/synthetic_bal.py makes. Per problem and
precision, for linear_solver auto, pcg and cholesky: milliseconds of the whole call (median of the repeats
after the first, and the first, which finds structure and queues), milliseconds of the steps, iterations,
trials, where it was factored and chi2; what the cost model expected of a trial; and regret: the median of
auto over the best one.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from statistics import median
from typing import Any

from device_whole import _graph

import graphopt
from graphopt.device import open_device
from graphopt.device.figures import device_figures
from graphopt.errors import GraphOptError
from graphopt.graph import Graph
from graphopt.solver.structure import Structure
from graphopt.solver.vulkan.plan.direct import factor_seconds, iterations_of
from graphopt.solver.vulkan.plan.problem import problem_size
from graphopt.solver.vulkan.plan.reduced import reduced_shape
from graphopt.solver.vulkan.plan.search import predict

SOLVERS = ("auto", "pcg", "cholesky")


def main() -> None:
    """Print a few lines per problem and precision."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("problems", nargs="+", metavar="PROBLEM")
    parser.add_argument("--device", default="vulkan")
    parser.add_argument("--precision", nargs="+", default=["double", "mixed"], choices=("double", "mixed"))
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    for name in args.problems:
        graph = _graph(name)
        for precision in args.precision:
            print(f"{Path(name).name} {precision}: {_expected(graph, args.device, precision)}", flush=True)
            medians = {solver: _measure(graph, solver, precision, args) for solver in SOLVERS}
            best = min(medians.values())
            print(f"  regret of auto {medians['auto'] / best:.2f}", flush=True)


def _expected(graph: Graph, device: str, precision: Any) -> str:
    """What the cost model says about a trial."""
    structure, opened = Structure(graph.select()), open_device(device)
    figures, size = device_figures(opened), problem_size(structure, precision)
    start = time.perf_counter()
    shape = reduced_shape(structure)
    spent = time.perf_counter() - start
    best = min(prediction.seconds["solve"] for prediction in predict(size, figures, precision)) / 20
    factor = factor_seconds(shape, figures, software=opened.info["kind"] == "cpu")
    return (
        f"{shape.rows} rows, {shape.diameter} levels (found in {1e3 * spent:.1f} ms), expected "
        f"{iterations_of(shape, precision):.0f} iterations of {1e6 * best:.1f} us, a factor in "
        f"{1e3 * factor:.2f} ms, {size.num_pairs:.2g} pairs"
    )


def _measure(graph: Graph, linear_solver: str, precision: str, args: argparse.Namespace) -> float:
    """Median milliseconds of the whole call; infinite where it does not fit."""
    times, summary = [], None
    for _ in range(args.repeats + 1):
        copied = graph.copy()
        start = time.perf_counter()
        try:
            summary = graphopt.optimize(
                copied, device=args.device, precision=precision, linear_solver=linear_solver
            )
        except GraphOptError as error:
            print(f"  {linear_solver:8} {error}")
            return float("inf")
        times.append(1e3 * (time.perf_counter() - start))
    assert summary is not None
    whole = median(times[1:] or times)
    where = f" on {summary.factorized_on}" if summary.factorized_on else ""
    print(
        f"  {linear_solver:8} {whole:8.1f} ms (first {times[0]:.1f}), solve "
        f"{1e3 * summary.seconds.get('solve', 0.0):.1f} ms; {summary.linear_solver}{where}, schur "
        f"{summary.schur}, {summary.precision}; {len(summary.iterations)} iterations, "
        f"{sum(iteration.trials for iteration in summary.iterations)} trials, chi2 {summary.final_chi2:.9g}; "
        f"{summary.memory_bytes / 2**20:.0f} MiB",
        flush=True,
    )
    return whole


if __name__ == "__main__":
    main()
