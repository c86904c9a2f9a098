"""Whole optimizations on a device, from the graph in memory to the answer, beside what others reached.

    python benchmarks/device_whole.py final-961 venice-1778 PROBLEM.txt [--precision mixed] [--schur implicit]

A PROBLEM is a graph file, or a published size that ../shared/tools/synthetic_bal.py makes. Per problem:
seconds of the second of two runs (the first one compiles), by phase; iterations; chi2; and when chi2 was
within 1 % and 0.1 % of the best that any run here reached, set-up included.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from device_resident import graph_of
from vulkan_peers import MEASURED_TOTALS

import graphopt
from graphopt.graph import Graph
from graphopt.io import read
from graphopt.optimizer.summary import Summary


@dataclass(frozen=True)
class Run:
    """One optimization."""

    precision: str
    summary: Summary

    def seconds_to(self, chi2: float) -> float | None:
        """From the call until chi2 was this low; None: never."""
        iterations = self.summary.iterations
        spent = self.summary.seconds["total"] - sum(iteration.seconds for iteration in iterations)
        for iteration in iterations:
            spent += iteration.seconds
            if iteration.chi2 <= chi2:
                return spent
        return None


def main() -> None:
    """Print one line per problem and precision."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("problems", nargs="+", metavar="PROBLEM")
    parser.add_argument("--device", default="vulkan")
    parser.add_argument("--precision", action="append", choices=("double", "mixed"))
    parser.add_argument("--linear-solver", default="auto")
    parser.add_argument("--schur", default="auto")
    parser.add_argument("--iterations", type=int, default=50)
    args = parser.parse_args()
    for name in args.problems:
        runs = [_run(name, precision, args) for precision in args.precision or ("double", "mixed")]
        best = min(run.summary.final_chi2 for run in runs)
        print(f"{Path(name).name}: best chi2 {best:.8g}")
        for run in runs:
            _print(run, best)
        if name in MEASURED_TOTALS:
            print(f"  others, optimization only: {MEASURED_TOTALS[name]}")


def _run(name: str, precision: str, args: argparse.Namespace) -> Run:
    """The second of two runs."""
    for _ in range(2):
        summary = graphopt.optimize(
            _graph(name),
            max_iterations=args.iterations,
            device=args.device,
            precision=precision,
            linear_solver=args.linear_solver,
            schur=args.schur,
        )
    return Run(precision, summary)


def _graph(name: str) -> Graph:
    return read(name) if Path(name).exists() else graph_of(name)


def _print(run: Run, best: float) -> None:
    summary = run.summary
    phases = ", ".join(f"{k} {1e3 * v:.0f}" for k, v in summary.seconds.items() if v >= 5e-4)
    reached = [run.seconds_to(best * (1.0 + share)) for share in (0.01, 0.001)]
    when = ["never" if seconds is None else f"{seconds:.3f} s" for seconds in reached]
    print(
        f"  {run.precision:6} {summary.linear_solver}, schur {summary.schur}: "
        f"{len(summary.iterations)} iterations, chi2 {summary.final_chi2:.8g}; "
        f"to 1 % {when[0]}, to 0.1 % {when[1]}; ms: {phases}; "
        f"{summary.memory_bytes / 2**20:.0f} MiB; {summary.termination.name}"
    )


if __name__ == "__main__":
    main()
