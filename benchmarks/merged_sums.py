"""Sums of several edge sets by one kernel or by one each: every schedule both ways, and what "auto" takes.

    python benchmarks/merged_sums.py [--device vulkan:0] [--precision mixed] [--schedules NAME ...] [NAME ...]

The last names are problems: image (1024 x 1024 pixels, three edge sets with six views of them), image-small
(128 x 128), drive (20,000 poses and their points, five edge sets by type and robust kernel) or drive-small
(2,000). Times are the device's own, medians, of one Levenberg-Marquardt iteration with 20 iterations of
conjugate gradients, by phases, in milliseconds.
"""

from __future__ import annotations

import argparse

from merged_graphs import drive, image
from schedules import structure_of

from graphopt.cli.measure_schedules import measure_schedules
from graphopt.device import VulkanDevice, open_device
from graphopt.device.figures import device_figures
from graphopt.device.protocol import Precision
from graphopt.solver.vulkan.plan.choice import choose_precision
from graphopt.solver.vulkan.plan.problem import problem_size
from graphopt.solver.vulkan.plan.search import predict

PROBLEMS = {
    "image": lambda: image(),
    "image-small": lambda: image(128),
    "drive": lambda: drive(),
    "drive-small": lambda: drive(2000),
}


def main() -> None:
    """Print a table per problem."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("problems", nargs="*", metavar="PROBLEM", default=list(PROBLEMS))
    parser.add_argument("--device", default="vulkan")
    parser.add_argument("--precision", choices=("auto", "double", "mixed"), default="auto")
    parser.add_argument(
        "--schedules",
        nargs="+",
        choices=("blocks", "matrix-free", "jacobians"),
        default=["matrix-free", "jacobians"],
    )
    args = parser.parse_args()
    device = open_device(args.device)
    assert isinstance(device, VulkanDevice)
    precision = choose_precision(device, args.precision)
    print(f"{device.name}, {precision}: {device_figures(device)}\n")
    for name in args.problems:
        _problem(name, device, precision, args.schedules)


def _problem(name: str, device: VulkanDevice, precision: Precision, schedules: list[str]) -> None:
    graph = PROBLEMS[name]()
    structure = structure_of(graph)
    size, figures = problem_size(structure, precision), device_figures(device)
    print(f"{name}: {structure.num_edges} edges, {structure.dim} unknowns")
    for products in schedules:
        edges = dict.fromkeys(size.tags, products)
        (taken,) = predict(size, figures, precision, edges)
        print(f"  {products}: auto takes {taken.summation}")
        for way in ("separate", "merged"):
            pins = edges | dict.fromkeys(size.vertex_tags, way)
            for schedule in measure_schedules(
                graph, structure, device, precision, predict(size, figures, precision, pins)
            ):
                phases = "  ".join(f"{phase} {1e3 * time:8.3f}" for phase, time in schedule.seconds.items())
                told = f"predicted {1e3 * schedule.prediction.total:8.3f}"
                print(f"    {way:9} {told}  measured {1e3 * schedule.total:8.3f}  {phases}")
    print()


if __name__ == "__main__":
    main()
