"""Whole calls of `optimize`, from arrays in memory to arrays in memory.

    python benchmarks/calls.py venice-1778 GRAPH.g2o ... [--device vulkan] [--precision double] [--json FILE]
    python benchmarks/calls.py --process GRAPH.g2o     # and the first call of a process, warm disk cache

A PROBLEM is a graph file, or a published size that ../shared/tools/synthetic_bal.py makes. Medians of calls
with defaults (method "auto", to convergence), the device busy before each, the garbage collector off:

    again        the same graph with its first estimates put back: the structure is known
    copy         `graph.copy()`: the same structure in another object
    other ids    other vertex ids, edges in another order: what a new set of photographs is

chi2 is recomputed on the CPU in float64. Phases are those of `Summary.seconds`, of the median call.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from harness import Report, print_table
from problems import graph_of, with_other_ids

import graphopt
from graphopt.graph import Graph
from graphopt.optimizer.summary import Summary

PROBLEMS = ("bal/problem-49-7776-pre.txt.xz", "posegraph/M3500.g2o.xz")
WARM_UP_SECONDS = 2.0
"""Of calls that are not timed: an idle device runs on low clocks and needs a second to leave them."""
KINDS = ("again", "copy", "other ids")

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
    graph = graph_of(name)
    unsolved = graph.copy()
    label = f"calls.{Path(name).name.split('.')[0]}.{options.get('precision', 'auto')}"
    new_graphs = {"copy": unsolved.copy, "other ids": _renumbered(unsolved)}
    first_seconds, _ = _timed(graph, options)
    report.add(f"{label}.first", first_seconds, "s", note="the first of its kind in this process")

    def known() -> Graph:
        for vertices, given in zip(graph.vertex_sets, unsolved.vertex_sets, strict=True):
            vertices.estimate[...] = given.estimate
        return graph

    rows = []
    for kind in KINDS:
        seconds, summary, chi2 = _median_call(new_graphs.get(kind, known), options, repeats)
        key = f"{label}.{kind.replace(' ', '_')}"
        report.add(key, seconds, "s", note=json.dumps(_facts(summary, chi2)))
        rows.append([kind, *_columns(seconds, summary, chi2)])
    columns = ["call", "ms", "iterations / trials", "chi2", "MB", "solver", "phases, ms"]
    print_table(f"{name} {options} (first of its kind {1e3 * first_seconds:.0f} ms)", columns, rows)


def _renumbered(graph: Graph) -> Callable[[], Graph]:
    seeds: Iterator[int] = iter(range(1, 1_000_000))
    return lambda: with_other_ids(graph, next(seeds))


def _median_call(
    make: Callable[[], Graph], options: dict[str, Any], repeats: int
) -> tuple[float, Summary, float]:
    """Seconds, summary and recomputed chi2 of the call with the median time."""
    warm = time.perf_counter() + WARM_UP_SECONDS
    while time.perf_counter() < warm:
        _timed(make(), options)
    calls = []
    for _ in range(repeats):
        graph = make()
        seconds, summary = _timed(graph, options)
        calls.append((seconds, summary, float(graph.chi2())))
    middle = statistics.median_low(call[0] for call in calls)
    return next(call for call in calls if call[0] == middle)


def _timed(graph: Graph, options: dict[str, Any]) -> tuple[float, Summary]:
    gc.collect()
    gc.disable()
    start = time.perf_counter()
    summary = graphopt.optimize(graph, **options)
    seconds = time.perf_counter() - start
    gc.enable()
    return seconds, summary


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
