"""Whole calls of `optimize` of any problem, with their phases.

    python benchmarks/calls.py venice-1778 GRAPH.g2o ... [--device vulkan] [--precision double] [--json FILE]
    python benchmarks/calls.py --process GRAPH.g2o     # and the first call of a process, warm disk cache

A PROBLEM is a graph file, or a published size of `graphopt.evaluate.datasets.published`. Kinds of calls and
how they are measured: `graphopt.reproduce.calls`. Phases are those of `Summary.seconds`, of the median call.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from harness import Report, graph_of, print_table

import graphopt
from graphopt.optimizer.summary import Summary
from graphopt.reproduce.calls import calls

PROBLEMS = ("bal/problem-49-7776-pre.txt.xz", "posegraph/M3500.g2o.xz")

PROCESS = """
import json, sys, time
start = time.perf_counter()
import graphopt
imported = time.perf_counter()
graph = graphopt.read(sys.argv[1])
again = graph.copy()
options = json.loads(sys.argv[2])
begin = time.perf_counter()
graphopt.optimize(graph, **options)
middle = time.perf_counter()
graphopt.optimize(again, **options)
print(json.dumps([imported - start, middle - begin, time.perf_counter() - middle]))
"""


def run(report: Report) -> None:
    """The default problems on the CPU, added to a record."""
    for name in PROBLEMS:
        measure(report, name, {"device": "cpu"}, repeats=5)


def measure(report: Report, name: str, options: dict[str, Any], repeats: int) -> None:
    """All kinds of calls of one problem: metrics, and a table of phases."""
    label = f"calls.{Path(name).name.split('.')[0]}.{options.get('precision', 'auto')}"
    rows = []
    for kind, seconds, summary, chi2 in calls(graph_of(name), options, repeats):
        note = json.dumps(_facts(summary, chi2))
        report.add(f"{label}.{kind.replace(' ', '_')}", seconds, "s", note=note)
        rows.append([kind, *_columns(seconds, summary, chi2)])
    columns = ["call", "ms", "iterations / trials", "chi2", "MB", "solver", "phases, ms"]
    print_table(f"{name} {options}", columns, rows)


def _facts(summary: Summary, chi2: float) -> dict[str, Any]:
    return {
        "iterations": len(summary.iterations),
        "trials": sum(iteration.trials for iteration in summary.iterations),
        "chi2": chi2,
        "memory_bytes": summary.memory_bytes,
        "linear_solver": summary.linear_solver,
        "schur": summary.schur,
        "device": summary.device_name,
        "seconds": dict(summary.seconds),
    }


def _columns(seconds: float, summary: Summary, chi2: float) -> list[str]:
    facts = _facts(summary, chi2)
    phases = ", ".join(
        f"{phase} {1e3 * value:.1f}" for phase, value in facts["seconds"].items() if value >= 2e-4
    )
    return [
        f"{1e3 * seconds:.1f}",
        f"{facts['iterations']} / {facts['trials']}",
        f"{chi2:.9g}",
        f"{facts['memory_bytes'] / 1e6:.0f}",
        f"{summary.linear_solver} {summary.schur}",
        phases,
    ]


def measure_process(report: Report, name: str, options: dict[str, Any]) -> None:
    """Import, first call and second call in a fresh process; the disk cache is warm from a process before."""
    path = Path("build") / "first_call.npz"
    path.parent.mkdir(exist_ok=True)
    graphopt.write(graph_of(name), path)
    command = [sys.executable, "-c", PROCESS, str(path), json.dumps(options)]
    runs = [json.loads(subprocess.run(command, check=True, capture_output=True).stdout) for _ in range(4)]
    imported, first, second = np.median(runs[1:], axis=0).tolist()
    label = f"process.{Path(name).name.split('.')[0]}"
    for key, value in (("import", imported), ("first", first), ("second", second)):
        report.add(f"{label}.{key}", value, "s")
    print(
        f"{name}, a new process: import {1e3 * imported:.0f} ms, first call {1e3 * first:.0f}, "
        f"a copy {1e3 * second:.0f}"
    )


def main() -> None:
    """Print a table per problem and precision."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("problems", nargs="+", metavar="PROBLEM")
    parser.add_argument("--device", default="vulkan")
    parser.add_argument("--precision", action="append", choices=("double", "mixed"))
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--process", action="store_true", help="the first call of a process, too")
    parser.add_argument("--json", type=Path, help="write the record here")
    arguments = parser.parse_args()
    report = Report()
    for name in arguments.problems:
        for precision in arguments.precision or ("double",):
            measure(report, name, {"device": arguments.device, "precision": precision}, arguments.repeats)
        if arguments.process:
            measure_process(report, name, {"device": arguments.device})
        if arguments.json is not None:
            report.save(arguments.json)


if __name__ == "__main__":
    main()
