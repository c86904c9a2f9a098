"""Device memory over time, pooled or on demand (thesis of Gopinath, figure 4.12).

    python -m benchmarks.allocation [--windows N]

Bundle adjustments of growing and shrinking windows, one after the other: milliseconds of each call, bytes
that are used and reserved then, and how many allocations of the driver that is.
"""

from __future__ import annotations

import argparse
import gc
import os
import time

import numpy as np

import graphopt
from graphopt import datasets
from graphopt.device import open_device


def main() -> None:
    """Print a line per window and strategy."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--windows", type=int, default=12, help="default: 12")
    windows = parser.parse_args().windows
    sizes = np.round(8 + 24 * np.abs(np.sin(np.arange(windows) * 1.3))).astype(int).tolist()
    graphs = [datasets.ba(cameras=size, points=60 * size, camera="bal") for size in sizes]
    for allocation in ("pooled", "on demand"):
        os.environ["GRAPHOPT_ALLOCATION"] = allocation
        device = open_device("vulkan")
        graphopt.optimize(graphs[0].copy(), "lm", 2, device="vulkan")  # kernels are there
        times = []
        for size, graph in zip(sizes, graphs, strict=True):
            own = graph.copy()
            start = time.perf_counter()
            graphopt.optimize(own, "lm", 5, device="vulkan")
            times.append(1e3 * (time.perf_counter() - start))
            found = device.memory_statistics()
            del own
            gc.collect()
            print(
                f"{allocation:10} {size:3} cameras: {times[-1]:7.1f} ms, {found['reserved'] / 1e6:7.1f} MB "
                f"reserved in {found['blocks']} blocks, {found['used'] / 1e6:.1f} MB used",
                flush=True,
            )
        print(f"{allocation:10} median {np.median(times):.1f} ms, sum {np.sum(times):.1f} ms")


if __name__ == "__main__":
    main()
