"""Where the time of the first solve in a process goes.

    python -m benchmarks.first_call [--device vulkan] [--poses 20] [--points 500] [--repeats 3] [--file GRAPH]

Runs fresh processes on the same problem, with the disk cache as it is and once more (so that it is warm). The
first table is what a user sees: importing graphopt, the first `optimize` and the second one on a copy. The
second takes the first call apart: importing what the solver needs, listing and opening the device (which
otherwise happens beside the imports). `--modules N` adds the N slowest imports.

Python finds bytecode of graphopt, as in an installation. In a source tree with PYTHONDONTWRITEBYTECODE, or
one that cannot be written, each process compiles it anew, which takes twice as long as all other imports.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import graphopt
from benchmarks.harness import print_table

CHILD = """
import json, sys, time
start = time.perf_counter()
seconds = {}
def note(name):
    global start
    now = time.perf_counter()
    seconds[name] = now - start
    start = time.perf_counter()
device, poses, points, path, parts = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:6]
import graphopt
note("import graphopt")
if path:
    graph = graphopt.read(path)
else:
    from graphopt.datasets import ba
    graph = ba(poses, points, seed=0)
graphs = [graph.copy() for _ in range(2)]
note("graph")
if parts:
    graphopt.optimize
    note("import the optimizer")
if parts and device != "cpu":
    import graphopt.device
    note("import graphopt.device")
    import graphopt.solver.vulkan.solver
    note("import the solver of the device")
    graphopt.device.list_devices()
    note("list devices")
    opened = graphopt.device.open_device(device)
    note("open the device")
summary = graphopt.optimize(graphs[0], device=device)
note("first optimize")
graphopt.optimize(graphs[1], device=device)
note("second optimize")
print(json.dumps(seconds))
"""


def with_bytecode(folder: str) -> None:
    """Compile graphopt into a folder that child processes take their bytecode from."""
    sys.pycache_prefix = os.environ["PYTHONPYCACHEPREFIX"] = folder
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # numpy's, where that has none
    compileall.compile_dir(Path(graphopt.__file__).parent, quiet=1)
    subprocess.run([sys.executable, "-c", "import numpy, graphopt.datasets"], check=True)


def measure(arguments: list[str]) -> dict[str, float]:
    """Seconds by phase of one fresh process."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD, *arguments], check=True, capture_output=True, text=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def slowest_imports(arguments: list[str], count: int) -> list[list[str]]:
    """Modules with the longest time of their own [ms]."""
    command = [sys.executable, "-X", "importtime", "-c", CHILD, *arguments]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stderr.splitlines()
    rows = []
    for line in lines:
        if line.startswith("import time:") and "self" not in line:
            own, total, name = line.removeprefix("import time:").split("|")
            rows.append((int(own), int(total), name.strip()))
    return [
        [name, f"{own / 1e3:.1f}", f"{total / 1e3:.1f}"]
        for own, total, name in sorted(rows)[: -count - 1 : -1]
    ]


def print_phases(title: str, arguments: list[str], repeats: int) -> None:
    """First a process with the cache as it is, then the medians of others."""
    first, runs = measure(arguments), [measure(arguments) for _ in range(repeats)]
    then = {name: float(np.median([run[name] for run in runs])) for name in first}
    rows = [[name, f"{1e3 * first[name]:.1f}", f"{1e3 * then[name]:.1f}"] for name in first]
    counted = [name for name in first if name not in ("graph", "second optimize")]
    sums = [1e3 * sum(times[name] for name in counted) for times in (first, then)]
    rows.append(["until the first result, without the graph", *(f"{sum_:.1f}" for sum_ in sums)])
    print_table(title, ["phase", "first ms", "then, median ms"], rows)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="vulkan")
    parser.add_argument("--poses", type=int, default=20)
    parser.add_argument("--points", type=int, default=500)
    parser.add_argument("--file", default="")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--modules", type=int, default=0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        with_bytecode(folder)
        report(asked)


def report(asked: argparse.Namespace) -> None:
    """Print the tables."""
    arguments = [asked.device, str(asked.poses), str(asked.points), asked.file]
    print_phases("fresh processes", [*arguments, ""], asked.repeats)
    print_phases("taken apart", [*arguments, "parts"], asked.repeats)
    if asked.modules:
        header = ["module", "own ms", "with what it imports"]
        print_table("slowest imports", header, slowest_imports([*arguments, "parts"], asked.modules))


if __name__ == "__main__":
    main()
