"""One vertex in a million edges: every schedule with its sums in one workgroup, and cut into parts.

    python benchmarks/long_sums.py [--edges 1000000] [--device vulkan:0] [--precision mixed] [PROBLEM ...]

PROBLEM: calibration (bundle adjustment, all cameras share one calibration), undistorted (the same with an
expensive residual) or curve (three coefficients in all edges). Schedules with "+scatter" evaluate each edge
once, the others in every sum. Times are the device's own, medians, of one Levenberg-Marquardt iteration with
20 iterations of conjugate gradients, by phases, in milliseconds.
"""

from __future__ import annotations

import argparse
from unittest import mock

from long_graphs import curve_fit, shared_calibration
from schedules import structure_of

from graphopt.cli.measure_schedules import measure_schedules
from graphopt.device import VulkanDevice, open_device
from graphopt.device.figures import device_figures
from graphopt.device.protocol import Precision
from graphopt.graph import Graph
from graphopt.solver.vulkan.data import views as long_sums
from graphopt.solver.vulkan.plan.choice import choose_precision
from graphopt.solver.vulkan.plan.problem import problem_size
from graphopt.solver.vulkan.plan.search import predict

PROBLEMS = {
    "calibration": shared_calibration,
    "undistorted": lambda num_edges: shared_calibration(num_edges, undistorts=True),
    "curve": curve_fit,
}
CUT = {"LONG": long_sums.LONG, "LONG_BLOCK": long_sums.LONG_BLOCK}
UNCUT = dict.fromkeys(CUT, 1 << 62)


def main() -> None:
    """Print a table per problem."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("problems", nargs="*", metavar="PROBLEM", default=list(PROBLEMS))
    parser.add_argument("--edges", type=int, default=1_000_000)
    parser.add_argument("--device", default="vulkan")
    parser.add_argument("--precision", choices=("auto", "double", "mixed"), default="auto")
    args = parser.parse_args()
    device = open_device(args.device)
    assert isinstance(device, VulkanDevice)
    precision = choose_precision(device, args.precision)
    for name in args.problems:
        graph = PROBLEMS[name](args.edges)
        print(f"{name}, {args.edges} edges, {device.name}, {precision}")
        for title, limits in (("one workgroup", UNCUT), ("parts", CUT)):
            with mock.patch.multiple(long_sums, **limits):
                _print_schedules(graph, device, precision, title)


def _print_schedules(graph: Graph, device: VulkanDevice, precision: Precision, title: str) -> None:
    structure = structure_of(graph)
    predictions = predict(problem_size(structure, precision), device_figures(device), precision)
    chosen = [prediction for prediction in predictions if prediction.schur != "explicit"]
    for schedule in measure_schedules(graph, structure, device, precision, chosen):
        phases = "  ".join(f"{phase} {1e3 * seconds:9.3f}" for phase, seconds in schedule.seconds.items())
        print(f"  {title:14} {schedule.prediction.name:36} total {1e3 * schedule.total:9.3f}  {phases}")


if __name__ == "__main__":
    main()
