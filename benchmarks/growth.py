"""Time and memory per observation, from a thousand observations to tens of millions.

    python benchmarks/growth.py [--device vulkan] [--precision double] [--most 30000000] [--plot FILE.png]

Problems come from ../shared/tools/synthetic_bal.py, with tracks of six observations and a number of cameras
that grows with the square root of the problem's size. Per size: seconds of the second and third of three
calls (the faster one; the first one compiles and sets up), memory, and the exponent of both between
neighbouring sizes: 1 is linear growth. Memory is that of the device's buffers; on the CPU all of graph and
solver. On a device also the products with S that conjugate gradients took, and the time of a call per
observation and product: larger problems take more of them.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from calls import calls
from device_resident import graph_of_arrays, synthetic

from graphopt.device import open_device
from graphopt.graph import Graph
from graphopt.optimizer.summary import Summary
from graphopt.solver.vulkan.kernels.system import DampedSystem

SIZES = [1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000, 30_000_000]
TRACK = 6


def graph_of_size(observations: int) -> Graph:
    """Cameras that stay, points that are eliminated."""
    cameras = max(5, int(0.55 * np.sqrt(observations)))
    return graph_of_arrays(synthetic().make(cameras, observations // TRACK, observations, "photos", 1))


class Products:
    """Iterations of conjugate gradients on devices."""

    def __init__(self) -> None:
        self.count = 0
        solve = DampedSystem.solve

        def counted(system: DampedSystem, *arguments: Any, **named: Any) -> bool:
            solved = solve(system, *arguments, **named)
            self.count += 0 if system.outcome is None else system.outcome.iterations
            return solved

        DampedSystem.solve = counted  # type: ignore[method-assign]

    def of_call(self, graph: Graph, seconds: float, **options: Any) -> str:
        """Number in one more call, and what they take in one of so many seconds."""
        self.count = 0
        calls(graph, 0, **options)
        if not self.count:
            return ""
        each = 1e12 * seconds / graph.num_edges / self.count
        return f", {self.count} products, {each:.0f} ps per observation and product"


def main() -> None:
    """Print one line per size."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="double", choices=("double", "mixed"))
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--most", type=int, default=1_000_000, help="observations of the largest problem")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="write a picture")
    arguments = parser.parse_args()
    rows: list[tuple[int, float, float]] = []
    products = Products()
    for size in (each_size for each_size in SIZES if each_size <= arguments.most):
        graph = graph_of_size(size)
        count = graph.num_edges
        options = {
            "max_iterations": arguments.iterations,
            "device": arguments.device,
            "precision": arguments.precision,
        }
        found = calls(graph, 2, **options)
        (first, *later), summary = found.seconds, found.summary
        seconds, memory = min(later), memory_of(arguments.device, summary)
        rows.append((count, seconds, float(memory)))
        print(
            f"{count:>10,} observations: {1e3 * seconds:10.1f} ms (first {1e3 * first:9.1f}), "
            f"{1e9 * seconds / count:8.1f} ns each; {memory / 2**20:9.1f} MiB, "
            f"{memory / count:7.1f} bytes each; {len(summary.iterations)} iterations"
            f"{products.of_call(graph, seconds, **options)}, "
            f"{summary.linear_solver} {summary.schur} on {summary.device_name}{_exponents(rows)}",
            flush=True,
        )
    if arguments.plot:
        _plot(rows, arguments.plot)


def memory_of(device: str, summary: Summary) -> int:
    """Bytes; the solver of the last call is still there."""
    if device == "cpu":
        return summary.memory_bytes
    return open_device(device).memory_statistics()["used"]


def _exponents(rows: list[tuple[int, float, float]]) -> str:
    if len(rows) < 2:
        return ""
    step = np.diff(np.log(np.array(rows[-2:])), axis=0)[0]
    return f"; exponents: time {step[1] / step[0]:.2f}, memory {step[2] / step[0]:.2f}"


def _plot(rows: list[tuple[int, float, float]], path: Path) -> None:
    import matplotlib.pyplot as plt

    count, seconds, memory = np.array(rows).T
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.5))
    for axis, values, label in zip(axes, (1e9 * seconds, memory), ("ns", "bytes"), strict=True):
        axis.loglog(count, values / count, "o-")
        axis.set_xlabel("observations")
        axis.set_ylabel(f"{label} per observation")
        axis.grid(True, which="both", alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
