"""How far the cost model's pick is from the best: all schedules of eight problems, predicted and measured.

    python benchmarks/schedules.py [--device vulkan:0] [--precision double|mixed] [PROBLEM ...]

A PROBLEM is a graph file, or one of the generated ones: ba-small, ba-large, ba-robust (with a robust kernel),
sphere, manhattan, landmarks (two edge sets, so up to 25 combinations of what is stored), calibration (one
vertex in a million edges), undistorted (the same with an expensive residual). Times are the device's own,
medians, of one Levenberg-Marquardt iteration with 20 iterations of conjugate gradients. The pick is also
measured with another choice of what is merged.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from long_graphs import shared_calibration

from graphopt import datasets
from graphopt.cli.measure_schedules import measure_schedules
from graphopt.device import VulkanDevice, open_device
from graphopt.device.figures import device_figures
from graphopt.graph import Graph
from graphopt.io import read
from graphopt.solver.gauge import choose_gauge
from graphopt.solver.structure import Structure
from graphopt.solver.vulkan.plan.choice import COMFORTABLE_SHARE, choose_precision, device_memory
from graphopt.solver.vulkan.plan.problem import problem_size
from graphopt.solver.vulkan.plan.search import cheapest, other_summations, predict

GENERATED = {
    "ba-small": lambda: datasets.ba(cameras=20, points=2000, camera="bal"),
    "ba-large": lambda: datasets.ba(cameras=400, points=60000, camera="bal"),
    "ba-robust": lambda: robust(datasets.ba(cameras=400, points=60000, camera="bal")),
    "sphere": lambda: datasets.sphere(),
    "manhattan": lambda: datasets.manhattan(),
    "landmarks": lambda: landmarks(),
    "calibration": lambda: shared_calibration(),
    "undistorted": lambda: shared_calibration(undistorts=True),
}


def robust(graph: Graph) -> Graph:
    """The graph with Huber's kernel on all edges: products need the whole residual, or its stored weight."""
    for edges in graph.edge_sets:
        edges.kernel = 1
        edges.kernel_width = 2.0
    return graph


def landmarks(num_poses: int = 20000, num_points: int = 8000, seed: int = 0) -> Graph:
    """A drive through a plane that sees points beside the way, 12 from each pose; points are eliminated."""
    rng = np.random.default_rng(seed)
    angle = np.cumsum(0.05 * rng.normal(size=num_poses))
    way = np.cumsum(np.stack([np.cos(angle), np.sin(angle)], axis=1), axis=0)
    poses = np.concatenate([way, angle[:, None]], axis=1)
    places = way[np.arange(num_points) * num_poses // num_points]
    points = places + 6.0 * rng.normal(size=places.shape)
    graph = Graph()
    start = poses + 0.01 * rng.normal(size=poses.shape)
    graph.add_vertices("VERTEX_SE2", np.arange(num_poses), start)
    ids = num_poses + np.arange(num_points)
    graph.add_vertices("VERTEX_XY", ids, points + 0.1 * rng.normal(size=points.shape), marginalized=True)
    ends = np.stack([np.arange(num_poses - 1), np.arange(1, num_poses)], axis=1)
    steps = np.concatenate([local(poses[:-1], way[1:]), np.diff(angle)[:, None]], axis=1)
    graph.add_edges("EDGE_SE2", ends, steps)
    pose = np.repeat(np.arange(num_poses), 12)
    point = (pose * num_points // num_poses + rng.integers(-20, 20, size=len(pose))) % num_points
    graph.add_edges("EDGE_SE2_XY", np.stack([pose, ids[point]], axis=1), local(poses[pose], points[point]))
    return graph


def local(poses: np.ndarray, points: np.ndarray) -> np.ndarray:
    """(n, 2) points in the frames of (n, 3) poses."""
    c, s = np.cos(poses[:, 2]), np.sin(poses[:, 2])
    x, y = (points - poses[:, :2]).T
    return np.stack([c * x + s * y, c * y - s * x], axis=1)


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
    structure = structure_of(graph)
    size, figures = problem_size(structure, precision), device_figures(device)
    predictions = predict(size, figures, precision)
    pick = cheapest(predictions, COMFORTABLE_SHARE * device_memory(device))
    predictions += other_summations(size, figures, precision, pick)
    measured = measure_schedules(graph, structure, device, precision, predictions)
    best = min(schedule.total for schedule in measured)
    print(f"{Path(name).name}: {structure.num_edges} edges, {structure.dim} unknowns")
    for schedule in measured:
        told = schedule.prediction
        mark = "*" if told is pick else " "
        print(
            f"{mark} {told.name:48} {told.summation:30} predicted {1e3 * told.total:9.3f} ms   "
            f"measured {1e3 * schedule.total:9.3f} ms   {schedule.total / best:5.2f} x best"
        )
    ratio = next(schedule.total for schedule in measured if schedule.prediction is pick) / best
    print(f"  pick / best: {ratio:.2f}\n")
    return ratio


def structure_of(graph: Graph) -> Structure:
    """Structure of a graph with a gauge."""
    selection = graph.select()
    held = choose_gauge(graph, selection)
    return Structure(selection.with_fixed(held) if held else selection)


if __name__ == "__main__":
    main()
