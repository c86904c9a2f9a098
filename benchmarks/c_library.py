"""The C library on the CPU and on a Vulkan device: seconds of evaluation and of linear systems.

    python -m benchmarks.c_library [--device vulkan] [--iterations 5] [--problems NAME ...] [--prefix FOLDER]

Builds and installs the library first (needs cmake, Eigen, Vulkan headers), or takes the one installed in
`--prefix`. Each problem is exported, read by the library, and optimized once per device with
Levenberg-Marquardt, chi2 being compared; the first run on a device makes its pipelines, the second is timed.
"""

from __future__ import annotations

import argparse
import ctypes
import subprocess
import tempfile
from pathlib import Path

import graphopt
from benchmarks.harness import print_table
from graphopt.io.export import export_graph
from tests.helpers.c_library import Handle, Summary, load

PROBLEMS = {
    "ba 60 x 3k": "graphopt.datasets.ba(60, 3000, seed=0)",
    "ba 300 x 40k": "graphopt.datasets.ba(300, 40000, seed=0)",
    "sphere 2500": "graphopt.datasets.sphere(50, 50, seed=0)",
    "grid 40k": "graphopt.datasets.grid(200, 200, seed=0)",
}
ROOT = Path(__file__).resolve().parents[1]


def installed(folder: Path) -> Path:
    """Build and install the library into a folder."""
    build = folder / "work"
    for command in (
        ["cmake", "-S", str(ROOT / "native"), "-B", str(build), "-DGRAPHOPT_ARCH=native"],
        ["cmake", "--build", str(build), "--parallel"],
        ["cmake", "--install", str(build), "--prefix", str(folder)],
    ):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return folder


def solve(library: ctypes.CDLL, folder: Path, device: str, iterations: int) -> tuple[Summary, float]:
    """Summary of the second run and chi2 after it."""
    handle = Handle(library, folder / "types.txt")
    handle.done("graph_read", folder / "graph.txt")
    handle.optimize(max_num_iterations=1, device=device.encode())
    summary, chi2 = handle.optimize(max_num_iterations=iterations, device=device.encode())
    return summary, chi2[-1]


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="vulkan")
    parser.add_argument("--iterations", type=int, default=5)
    parser.add_argument("--problems", nargs="+", default=list(PROBLEMS), choices=list(PROBLEMS))
    parser.add_argument("--prefix", type=Path)
    args = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        library = load(args.prefix or installed(Path(scratch) / "prefix"))
        for name in args.problems:
            graph = eval(PROBLEMS[name])
            folder = Path(scratch) / name
            export_graph(graph, folder, "vulkan")
            for device in ("cpu", args.device):
                summary, chi2 = solve(library, folder, device, args.iterations)
                parts = (summary.seconds, summary.seconds_evaluating, summary.seconds_solving)
                where = summary.device.decode()
                rows.append([name, str(graph.num_edges), where, *(f"{x:.3f}" for x in parts), f"{chi2:.9g}"])
    columns = ["problem", "edges", "device", "seconds", "evaluating", "solving", "chi2"]
    print_table(f"libgraphopt {graphopt.__version__}, {args.iterations} iterations", columns, rows)


if __name__ == "__main__":
    main()
