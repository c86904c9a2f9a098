"""What the order of landmarks is worth on a GPU: the same problem, its points numbered in three ways.

    python benchmarks/visiting_order.py [venice-1778] [--device vulkan] [--precision double]

Kernels over the edges of a landmark gather records of its cameras. Landmarks that are neighbours in memory
and see the same cameras share them in the caches of a multiprocessor. Points are numbered as the generator
does, at random, and by the first and the last camera that sees them. Per order: milliseconds of a later call.
"""

from __future__ import annotations

import argparse

import numpy as np
from calls import calls
from device_resident import graph_of_arrays, synthetic


def orders(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Per name the points (n,) in their order."""
    count, point, camera = len(arrays["points"]), arrays["point_index"], arrays["camera_index"]
    first, last = np.full(count, np.iinfo(np.int64).max), np.zeros(count, np.int64)
    np.minimum.at(first, point, camera)
    np.maximum.at(last, point, camera)
    return {
        "as generated": np.arange(count),
        "random": np.random.default_rng(0).permutation(count),
        "by cameras": np.lexsort((last, first)),
    }


def renumbered(arrays: dict[str, np.ndarray], order: np.ndarray) -> dict[str, np.ndarray]:
    """The same problem with its points in this order, and the edges by point."""
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    points = place[arrays["point_index"]]
    edges = np.lexsort((arrays["camera_index"], points))
    return {
        "cameras": arrays["cameras"],
        "points": arrays["points"][order],
        "camera_index": arrays["camera_index"][edges],
        "point_index": points[edges],
        "observations": arrays["observations"][edges],
    }


def main() -> None:
    """Print one line per order."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name", nargs="?", default="venice-1778")
    parser.add_argument("--device", default="vulkan")
    parser.add_argument("--precision", default="double", choices=("double", "mixed"))
    asked = parser.parse_args()
    tool = synthetic()
    arrays = tool.make(*tool.PUBLISHED[asked.name], 1)
    for name, order in orders(arrays).items():
        graph = graph_of_arrays(renumbered(arrays, order))
        done = calls(graph, 4, device=asked.device, precision=asked.precision)
        solving = 1e3 * done.summary.seconds["solve"]
        print(
            f"{asked.name}, {asked.precision}, points {name}: {done.later:.1f} ms, of which solving "
            f"{solving:.1f}; chi2 {done.summary.final_chi2:.8g}, {len(done.summary.iterations)} iterations",
            flush=True,
        )


if __name__ == "__main__":
    main()
