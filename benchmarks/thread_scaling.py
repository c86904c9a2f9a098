"""How whole optimizations on the CPU scale with threads, and how much processes differ.

    python benchmarks/thread_scaling.py [--threads 1 2 4 8 16] [--processes 5] [--problems NAME ...]
    python benchmarks/thread_scaling.py --load [--threads 1 2] [--calls 10] [--problems NAME ...]

Every number of threads gets fresh processes, in turn, so that a busy moment of the machine hits all of them.
A process solves each problem `--runs` times after one run that is not counted; its time is the median. The
tables show the median of the processes, the fastest and the slowest, and the same of the seconds in linear
solvers, where processes were seen to differ three times. The last table is what empty parallel regions cost,
right after each other and after a pause in which workers fall asleep: `shares` never wait for a sleeping
thread, a team does.

With `--load` one process per number of threads stays and they take turns, call by call, beside nothing, four
copies of the same work, and matrix products of two threads at other priorities.

OpenMP and BLAS are told to use one thread: nothing measured calls them in a loop.
GRAPHOPT_NUM_THREADS is set.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time

import numpy as np
from harness import print_table

PROBLEMS = {
    "ba 60 x 3k": "graphopt.datasets.ba(60, 3000, seed=0)",
    "ba 300 x 40k": "graphopt.datasets.ba(300, 40000, seed=0)",
    "sphere 2500": "graphopt.datasets.sphere(50, 50, seed=0)",
    "manhattan 10k": "graphopt.datasets.manhattan(10000, seed=0)",
    "grid 40k": "graphopt.datasets.grid(200, 200, seed=0)",
}

CHILD = """
import gc, json, resource, sys, time
import graphopt, graphopt.evaluate.datasets
from graphopt.cpu_kernels import kernels
text, runs = sys.argv[1], int(sys.argv[2])
graph = eval(text)
result = {"edges": graph.num_edges, "whole": [], "solve": [], "linearize": [], "faults": [], "switches": []}
for run in range(runs + 1):
    copy = graph.copy()
    gc.collect(); gc.disable()
    before, start = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    summary = graphopt.optimize(copy, device="cpu", max_iterations=10)
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF)
    gc.enable()
    if run:
        result["whole"].append(seconds)
        for phase in ("solve", "linearize"):
            result[phase].append(summary.seconds[phase])
        result["faults"].append(after.ru_minflt - before.ru_minflt)
        result["switches"].append(after.ru_nivcsw - before.ru_nivcsw)
edges = result.pop("edges")
print(json.dumps({"edges": edges, **{key: sorted(value)[len(value) // 2] for key, value in result.items()}}))
"""

REGIONS = """
import json
from graphopt.cpu_kernels import kernels
rows = []
n = kernels.num_threads()
for name, is_team in (("shares", False), ("team", True)):
    for threads in sorted({min(2, n), min(4, n), n}):
        for pause in (0, 100, 5000):
            kernels.time_regions(threads, is_team, 0, 50)
            times = sorted(kernels.time_regions(threads, is_team, pause, 200))
            rows.append([name, threads, pause, times[100], times[190]])
print(json.dumps(rows))
"""

CALLS = """
import sys, time
import graphopt, graphopt.evaluate.datasets
graph = eval(sys.argv[1])
for line in sys.stdin:
    copy = graph.copy()
    start = time.perf_counter()
    graphopt.optimize(copy, device="cpu", max_iterations=7)
    print(time.perf_counter() - start, flush=True)
"""

COPY = """
import os, sys
import graphopt, graphopt.evaluate.datasets
graph = eval(sys.argv[1])
while os.getppid() > 1:
    graphopt.optimize(graph.copy(), device="cpu", max_iterations=7)
"""

PRODUCTS = """
import os, sys
import numpy as np
os.nice(int(sys.argv[1]))
matrix = np.ones((700, 700))
while os.getppid() > 1:
    matrix @ matrix
"""

# What runs beside the measured calls: script and argument of each program, "" for the problem's text.
LOADS = {
    "nothing": [],
    "4 copies": [(COPY, "")] * 4,
    "products, nice 0 10": [(PRODUCTS, nice) for nice in ("0", "10")],
    "products, nice 0 5 10 19": [(PRODUCTS, nice) for nice in ("0", "5", "10", "19")],
}


def in_process(script: str, threads: int, *arguments: str) -> dict | list:
    """What a fresh process prints."""
    environment = {**os.environ, "GRAPHOPT_NUM_THREADS": str(threads), "OMP_NUM_THREADS": "1"}
    environment["OPENBLAS_NUM_THREADS"] = "1"
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return json.loads(done.stdout.splitlines()[-1])


def spread(values: list[float]) -> str:
    """Median, smallest and largest, in milliseconds."""
    return f"{1e3 * float(np.median(values)):.1f} ({1e3 * min(values):.1f}-{1e3 * max(values):.1f})"


def print_problem(name: str, counts: list[int], processes: int, runs: int) -> None:
    """One table: a row per number of threads."""
    found: dict[int, list[dict]] = {count: [] for count in counts}
    for _ in range(processes):
        for count in counts:
            found[count].append(in_process(CHILD, count, PROBLEMS[name], str(runs)))
    base = float(np.median([run["whole"] for run in found[counts[0]]]))
    rows = []
    for count in counts:
        phases = {key: [run[key] for run in found[count]] for key in ("whole", "solve", "linearize")}
        rows.append(
            [
                str(count),
                *(spread(values) for values in phases.values()),
                f"{base / float(np.median(phases['whole'])):.2f}",
                f"{max(phases['solve']) / max(min(phases['solve']), 1e-9):.2f}",
                f"{np.median([run['faults'] for run in found[count]]):.0f}",
                f"{np.median([run['switches'] for run in found[count]]):.0f}",
            ]
        )
    header = [
        "threads",
        "whole ms",
        "solve ms",
        "linearize ms",
        "faster",
        "solve max/min",
        "faults",
        "switches",
    ]
    print_table(f"{name}: {found[counts[0]][0]['edges']:,} edges", header, rows)


def call_seconds(process: subprocess.Popen) -> float:
    """One call of a process that runs `CALLS`."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def print_loads(name: str, counts: list[int], calls: int) -> None:
    """One table: a row per load, a column per number of threads."""
    rows = []
    for load, programs in LOADS.items():
        started: list[subprocess.Popen] = []
        measured: dict[int, subprocess.Popen] = {}
        try:
            for count in counts:
                environment = {**os.environ, "GRAPHOPT_NUM_THREADS": str(count), "OMP_NUM_THREADS": "1"}
                environment["OPENBLAS_NUM_THREADS"] = "1"
                command = [sys.executable, "-c", CALLS, PROBLEMS[name]]
                pipe = subprocess.PIPE
                measured[count] = subprocess.Popen(
                    command, stdin=pipe, stdout=pipe, text=True, env=environment
                )
                started.append(measured[count])
                call_seconds(measured[count])
            environment = {**os.environ, "OPENBLAS_NUM_THREADS": "2", "GRAPHOPT_NUM_THREADS": "2"}
            for script, argument in programs:
                command = [sys.executable, "-c", script, argument or PROBLEMS[name]]
                started.append(subprocess.Popen(command, env=environment))
            time.sleep(2.0 if programs else 0.0)  # until they compute
            seconds: dict[int, list[float]] = {count: [] for count in counts}
            for _ in range(calls):
                for count, process in measured.items():
                    seconds[count].append(call_seconds(process))
        finally:
            for process in started:
                process.kill()
                process.wait()
        rows.append([load, *(spread(values) for values in seconds.values())])
    print_table(f"{name}: calls in ms", ["beside", *(f"{count} threads" for count in counts)], rows)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    cores = len(os.sched_getaffinity(0))
    parser.add_argument("--threads", type=int, nargs="*", default=[n for n in (1, 2, 4, 8, 16) if n <= cores])
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--problems", nargs="*", default=list(PROBLEMS), choices=list(PROBLEMS))
    parser.add_argument("--load", action="store_true", help="calls beside other programs")
    parser.add_argument("--calls", type=int, default=10, help="of each number of threads, with --load")
    asked = parser.parse_args()
    if asked.load:
        for name in asked.problems:
            print_loads(name, asked.threads, asked.calls)
        return
    for name in asked.problems:
        print_problem(name, asked.threads, asked.processes, asked.runs)
    rows = []
    for kind, threads, pause, median, slow in in_process(REGIONS, max(asked.threads)):
        rows.append([kind, str(threads), str(pause), f"{1e6 * median:.1f}", f"{1e6 * slow:.1f}"])
    print_table("empty regions", ["kind", "threads", "pause us", "median us", "95 % us"], rows)


if __name__ == "__main__":
    main()
