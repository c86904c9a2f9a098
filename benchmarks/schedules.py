"""How far the cost model's pick is from the best: all schedules of five problems, predicted and measured.

    python benchmarks/schedules.py [--device vulkan:0] [--precision double|mixed] [PROBLEM ...]

A PROBLEM is a graph file, or one of the generated ones: ba-small, ba-large, sphere, torus, manhattan. Times
are the device's own, medians, of one Levenberg-Marquardt iteration with 20 iterations of conjugate gradients.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from graphopt import datasets
from graphopt.device import VulkanDevice, open_device
from graphopt.device.figures import device_figures
from graphopt.graph import Graph
from graphopt.io import read
from graphopt.solver.gauge import choose_gauge
from graphopt.solver.structure import Structure
from graphopt.solver.vulkan.cost import predict
from graphopt.solver.vulkan.measure import measure_schedules
from graphopt.solver.vulkan.schedule import choose_precision
from graphopt.solver.vulkan.sizes import problem_size

GENERATED = {
    "ba-small": lambda: datasets.ba(cameras=20, points=2000, camera="bal"),
    "ba-large": lambda: datasets.ba(cameras=400, points=60000, camera="bal"),
    "sphere": lambda: datasets.sphere(),
    "torus": lambda: datasets.torus(),
    "manhattan": lambda: datasets.manhattan(),
}


def main() -> None:
    """Print one table per problem, and the ratio of the pick to the best."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("problems", nargs="*", metavar="PROBLEM", default=list(GENERATED))
    parser.add_argument("--device", default="vulkan")
    parser.add_argument("--precision", choices=("auto", "double", "mixed"), default="auto")
    args = parser.parse_args()
    device = open_device(args.device)
    assert isinstance(device, VulkanDevice)
    precision = choose_precision(device, args.precision)
    print(f"{device.name}, {precision}: {device_figures(device)}\n")
    ratios = [_problem(name, device, precision) for name in args.problems]
    print(f"pick over best, worst of {len(ratios)} problems: {max(ratios):.2f}")


def _problem(name: str, device: VulkanDevice, precision: str) -> float:
    graph = GENERATED[name]() if name in GENERATED else read(name)
    structure = _structure(graph)
    predictions = predict(problem_size(structure, precision), device_figures(device), precision)
    measured = measure_schedules(graph, structure, device, precision, predictions)
    best = min(one.total for one in measured)
    print(f"{Path(name).name}: {structure.num_edges} edges, {structure.dim} unknowns")
    for one in measured:
        told = one.prediction
        print(
            f"  {told.name:24} predicted {1e3 * told.total:9.3f} ms   measured {1e3 * one.total:9.3f} ms"
            f"   {one.total / best:5.2f} x best"
        )
    ratio = measured[0].total / best
    print(f"  pick / best: {ratio:.2f}\n")
    return ratio


def _structure(graph: Graph) -> Structure:
    selection = graph.select()
    held = choose_gauge(graph, selection)
    return Structure(selection.with_fixed(held) if held else selection)


if __name__ == "__main__":
    main()
