"""Real graphs on a Vulkan device beside the CPU: chi2 after every iteration, gradient, two runs.

    python benchmarks/vulkan_truth.py FILE_OR_FOLDER ... [--device 0] [--iterations 5] [--max-mb 20]

For every graph and both ways kernels reach memory (64-bit addresses; storage buffers): the largest relative
difference of chi2 from the CPU's over the iterations, the ratio of the gradients' norms at the end, and
whether a second run gave the same bits. The default is a factorization, whose answer does not depend on where
it stops.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np

from graphopt import io
from graphopt.device import VulkanDevice
from graphopt.errors import GraphOptError
from graphopt.optimizer import optimize
from graphopt.solver.registry import SolverOptions, create_block_solver
from graphopt.solver.structure import Structure

SUFFIXES = (".g2o", ".graph", ".txt", ".xz", ".out", ".bin")
MASKS = {"address": "", "storage": "buffer_address"}


def files_of(names: list[str], max_bytes: float) -> list[Path]:
    """The graphs that are meant, folders with everything below them."""
    found: list[Path] = []
    for name in names:
        path = Path(name)
        found += [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.suffix in SUFFIXES)
    return [path for path in found if path.stat().st_size <= max_bytes]


def run(path: Path, device: str, iterations: int, linear_solver: str):
    """chi2 after every iteration, norm of the gradient at the end, seconds."""
    graph = io.read(path)
    start = time.perf_counter()
    summary = optimize(graph, "lm", iterations, device=device, linear_solver=linear_solver)
    seconds = time.perf_counter() - start
    solver = create_block_solver(graph, Structure(graph.select()), SolverOptions())
    solver.linearize()
    gradient = float(np.linalg.norm(solver.b))
    return np.array([iteration.chi2 for iteration in summary.iterations]), gradient, seconds, graph.num_edges


def compare(path: Path, device: str, iterations: int, linear_solver: str) -> None:
    """One line per access variant."""
    expected, gradient, cpu_seconds, num_edges = run(path, "cpu", iterations, linear_solver)
    for access, mask in MASKS.items():
        os.environ["GRAPHOPT_MASK_FEATURES"] = mask
        actual, other, seconds, _ = run(path, device, iterations, linear_solver)
        again = run(path, device, iterations, linear_solver)[0]
        length = min(len(expected), len(actual))
        difference = np.max(
            np.abs(actual[:length] - expected[:length]) / np.maximum(expected[:length], 1e-300)
        )
        same_length = (
            "" if len(expected) == len(actual) else f" ({len(expected)} and {len(actual)} iterations)"
        )
        print(
            f"{path.name[:34]:34s} {num_edges:8d} edges {access:8s} chi2 {difference:8.1e}{same_length}   "
            f"gradient {other / max(gradient, 1e-300):8.6f}   "
            f"{'same bits' if np.array_equal(actual, again) else 'OTHER BITS'}   cpu {cpu_seconds:6.2f} s   "
            f"vulkan {seconds:6.2f} s",
            flush=True,
        )


def main() -> None:
    """Parse and run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+")
    parser.add_argument("--device", default="")
    parser.add_argument("--iterations", type=int, default=5)
    parser.add_argument("--max-mb", type=float, default=20.0)
    parser.add_argument("--linear-solver", default="cholesky")
    arguments = parser.parse_args()
    name = f"vulkan:{arguments.device}" if arguments.device else "vulkan"
    device = VulkanDevice(arguments.device or None)
    print(f"# {device.name}, {device.info['driver_info']}")
    for path in files_of(arguments.files, 1e6 * arguments.max_mb):
        try:
            compare(path, name, arguments.iterations, arguments.linear_solver)
        except GraphOptError as error:
            print(f"{path.name[:34]:34s} {error}"[:200], flush=True)


if __name__ == "__main__":
    main()
