"""The same object-by-object scripts with g2opy and with graphopt.g2o.

Seconds to build, optimize and read back.

    python benchmarks/g2o_compat.py [--repeat 5] [--only pose-graph|local-ba|pose-only|build]

* pose-graph: 10,000 VertexSE3, 10,000 odometry and 5,000 loop EdgeSE3, 5 Levenberg iterations
* local-ba: 20 keyframes, 3,000 points, 20,000 EdgeStereoSE3ProjectXYZ with Huber kernels; 5 iterations,
  outliers to level 1, 10 iterations, as SLAM systems do it
* pose-only: one pose, 300 EdgeSE3ProjectXYZOnlyPose (g2opy cannot set up the stereo ones), four rounds of
  10 iterations with outliers taken out; the mean of 20 runs with new objects
* build: 20,000 VertexSE3 and 100,000 EdgeSE3, object by object; nothing is optimized

The modules run in turn, each time in a process of its own after one run to warm up; the table has medians
over `--repeat` turns. chi2 is printed so that the answers can be compared.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

PHASES = ("build", "optimize", "read")
CAMERA = (500.0, 500.0, 320.0, 240.0, 50.0)  # fx fy cx cy [px], bf [px m]
PIXEL_SIGMA = 1.0
CHI2_STEREO, CHI2_MONO = 7.815, 5.991  # 95 % of chi2 with 3 and 2 degrees of freedom


def main() -> None:
    """Run all, print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--only", choices=tuple(CASES))
    parser.add_argument("--worker", nargs=2, metavar=("MODULE", "CASE"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        print(json.dumps(_measure(*args.worker)))
        return
    print(f"{'case':12} {'module':13} {'build':>9} {'optimize':>9} {'read':>9} {'total ms':>9}  chi2")
    for case in [args.only] if args.only else list(CASES):
        _report(case, args.repeat)


def _report(case: str, repeat: int) -> None:
    runs: dict[str, list[dict[str, float]]] = {"g2opy": [], "graphopt.g2o": []}
    for _ in range(repeat):
        for module, times in runs.items():
            times.append(_in_process(module, case))
    for module, times in runs.items():
        values = [statistics.median(run[phase] for run in times) for phase in PHASES]
        values.append(statistics.median(map(_total, times)))
        cells = " ".join(f"{1e3 * value:9.2f}" for value in values)
        print(f"{case:12} {module:13} {cells}  {times[0]['chi2']:.9g}")
    ratios = sorted(_total(a) / _total(b) for a, b in zip(*runs.values(), strict=True))
    print(
        f"{case:12} {statistics.median(ratios):.2f} times faster ({ratios[0]:.2f} to {ratios[-1]:.2f})",
        flush=True,
    )


def _total(run: dict[str, float]) -> float:
    return sum(run[phase] for phase in PHASES)


def _in_process(module: str, case: str) -> dict[str, float]:
    command = [sys.executable, __file__, "--worker", module, case]
    return json.loads(
        subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1]
    )


def _measure(module: str, case: str) -> dict[str, float]:
    """The second of two runs."""
    g2o = importlib.import_module(module)
    problem = PROBLEMS[case]()
    CASES[case](g2o, problem)
    return CASES[case](g2o, problem)


class Clock:
    """Adds up seconds by phase."""

    def __init__(self) -> None:
        self.seconds = {"build": 0.0, "optimize": 0.0, "read": 0.0}
        self._last = time.perf_counter()

    def note(self, phase: str) -> None:
        """The time since the last note belongs to `phase`."""
        now = time.perf_counter()
        self.seconds[phase] += now - self._last
        self._last = now


# -------------------------------------------------------------------- pose graph


def pose_graph_problem() -> dict[str, Any]:
    """A spiral with loop closures to the winding before."""
    random = np.random.default_rng(0)
    count, per_winding = 10_000, 200
    angle = np.arange(count) * 2.0 * np.pi / per_winding
    radius = 10.0 + angle / (2.0 * np.pi)
    position = np.stack([radius * np.cos(angle), radius * np.sin(angle), 0.02 * angle], axis=1)
    rotation = np.stack([_rotation_z(turn + np.pi / 2) for turn in angle])
    pairs = [(i, i + 1) for i in range(count - 1)] + [
        (i, i + per_winding) for i in range(0, count - per_winding, 2)
    ]
    edges = []
    for i, j in pairs:
        turn = rotation[i].T @ rotation[j] @ _rotation_z(random.normal(0.0, 0.002))
        edges.append((i, j, turn, rotation[i].T @ (position[j] - position[i]) + random.normal(0.0, 0.01, 3)))
    start = position + np.cumsum(random.normal(0.0, 0.01, position.shape), axis=0)
    start[0] = position[0]
    return {"start": start, "rotation": rotation, "edges": edges}


def _rotation_z(angle: float) -> np.ndarray:
    s, c = np.sin(angle), np.cos(angle)
    return np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])


def pose_graph(g2o: Any, problem: dict[str, Any]) -> dict[str, float]:
    """Build, optimize and read a pose graph."""
    clock = Clock()
    optimizer = _optimizer(g2o, "SE3")
    for i, (rotation, position) in enumerate(zip(problem["rotation"], problem["start"], strict=True)):
        vertex = g2o.VertexSE3()
        vertex.set_id(i)
        vertex.set_estimate(g2o.Isometry3d(rotation, position.reshape(3, 1)))
        vertex.set_fixed(i == 0)
        optimizer.add_vertex(vertex)
    information = np.diag([1e4, 1e4, 1e4, 4e4, 4e4, 4e4])
    for i, j, rotation, translation in problem["edges"]:
        edge = g2o.EdgeSE3()
        edge.set_vertex(0, optimizer.vertex(i))
        edge.set_vertex(1, optimizer.vertex(j))
        edge.set_measurement(g2o.Isometry3d(rotation, translation.reshape(3, 1)))
        edge.set_information(information)
        optimizer.add_edge(edge)
    clock.note("build")
    optimizer.initialize_optimization()
    optimizer.optimize(5)
    chi2 = optimizer.active_chi2()
    clock.note("optimize")
    total = np.zeros(3)
    for i in range(len(problem["start"])):
        total += optimizer.vertex(i).estimate().translation()
    clock.note("read")
    return {**clock.seconds, "chi2": chi2}


# -------------------------------------------------------------------- bundle adjustment


def local_ba_problem() -> dict[str, Any]:
    """Keyframes on a line that look at points in front of them."""
    random = np.random.default_rng(1)
    position = np.stack([np.linspace(0.0, 4.0, 20), np.zeros(20), np.zeros(20)], axis=1)
    points = random.uniform([-4.0, -3.0, 6.0], [8.0, 3.0, 20.0], (3000, 3))
    observations = []
    while len(observations) < 20_000:
        k, p = int(random.integers(20)), int(random.integers(3000))
        observations.append((k, p, _stereo(points[p] - position[k], random)))
    for index in random.choice(len(observations), 600, replace=False):
        k, p, pixel = observations[index]
        observations[index] = (k, p, pixel + random.uniform(20.0, 60.0, 3))
    return {
        "position": position + random.normal(0.0, 0.02, position.shape) * (np.arange(20) > 1)[:, None],
        "points": points + random.normal(0.0, 0.1, points.shape),
        "observations": observations,
    }


def _stereo(point: np.ndarray, random: np.random.Generator) -> np.ndarray:
    fx, fy, cx, cy, bf = CAMERA
    u, v = fx * point[0] / point[2] + cx, fy * point[1] / point[2] + cy
    return np.array([u, v, u - bf / point[2]]) + random.normal(0.0, PIXEL_SIGMA, 3)


def local_ba(g2o: Any, problem: dict[str, Any]) -> dict[str, float]:
    """Local bundle adjustment as in stereo SLAM systems."""
    clock = Clock()
    optimizer = _optimizer(g2o, "SE3")
    _add_keyframes(g2o, optimizer, problem)
    edges = []
    delta, information = np.sqrt(CHI2_STEREO), np.eye(3) / PIXEL_SIGMA**2
    for k, p, pixel in problem["observations"]:
        edge = g2o.EdgeStereoSE3ProjectXYZ()
        edge.set_vertex(0, optimizer.vertex(1000 + p))
        edge.set_vertex(1, optimizer.vertex(k))
        edge.set_measurement(pixel)
        edge.set_information(information)
        edge.set_robust_kernel(g2o.RobustKernelHuber(delta))
        edge.fx, edge.fy, edge.cx, edge.cy, edge.bf = CAMERA
        optimizer.add_edge(edge)
        edges.append(edge)
    clock.note("build")
    optimizer.initialize_optimization()
    optimizer.optimize(5)
    for edge in edges:
        if edge.chi2() > CHI2_STEREO or not edge.is_depth_positive():
            edge.set_level(1)
    optimizer.initialize_optimization()
    optimizer.optimize(10)
    chi2 = optimizer.active_robust_chi2()
    clock.note("optimize")
    total = np.zeros(3)
    for p in range(len(problem["points"])):
        total += optimizer.vertex(1000 + p).estimate()
    for k in range(len(problem["position"])):
        total += optimizer.vertex(k).estimate().translation()
    clock.note("read")
    return {**clock.seconds, "chi2": chi2}


def _add_keyframes(g2o: Any, optimizer: Any, problem: dict[str, Any]) -> None:
    for k, position in enumerate(problem["position"]):
        vertex = g2o.VertexSE3Expmap()
        vertex.set_id(k)
        vertex.set_estimate(g2o.SE3Quat(np.eye(3), -position))
        vertex.set_fixed(k < 2)
        optimizer.add_vertex(vertex)
    for p, point in enumerate(problem["points"]):
        vertex = g2o.VertexPointXYZ()
        vertex.set_id(1000 + p)
        vertex.set_marginalized(True)
        vertex.set_estimate(point)
        optimizer.add_vertex(vertex)


def pose_only_problem() -> dict[str, Any]:
    """One frame with 300 stereo matches, a tenth of them wrong."""
    random = np.random.default_rng(2)
    points = random.uniform([-4.0, -3.0, 6.0], [4.0, 3.0, 20.0], (300, 3))
    pixels = [_stereo(point, random) for point in points]
    for index in range(0, 300, 10):
        pixels[index] = pixels[index] + random.uniform(20.0, 60.0, 3)
    return {"points": points, "pixels": pixels}


def pose_only(g2o: Any, problem: dict[str, Any]) -> dict[str, float]:
    """Pose of one frame, as ORB-SLAM's PoseOptimization; mean of 20."""
    clock = Clock()
    chi2 = 0.0
    for _ in range(20):
        chi2 = _pose_of_frame(g2o, problem, clock)
    return {**{name: value / 20 for name, value in clock.seconds.items()}, "chi2": chi2}


def _pose_of_frame(g2o: Any, problem: dict[str, Any], clock: Clock) -> float:
    optimizer = _optimizer(g2o, "SE3")
    start = g2o.SE3Quat(np.eye(3), np.array([0.05, -0.03, 0.08]))
    frame = g2o.VertexSE3Expmap()
    frame.set_id(0)
    frame.set_estimate(start)
    optimizer.add_vertex(frame)
    edges = []
    delta, information = np.sqrt(CHI2_MONO), np.eye(2) / PIXEL_SIGMA**2
    for point, pixel in zip(problem["points"], problem["pixels"], strict=True):
        edge = g2o.EdgeSE3ProjectXYZOnlyPose()
        edge.set_vertex(0, frame)
        edge.set_measurement(pixel[:2])
        edge.set_information(information)
        edge.set_robust_kernel(g2o.RobustKernelHuber(delta))
        edge.fx, edge.fy, edge.cx, edge.cy = CAMERA[:4]
        edge.Xw = point
        optimizer.add_edge(edge)
        edges.append(edge)
    clock.note("build")
    is_outlier = [False] * len(edges)
    for _ in range(4):
        frame.set_estimate(start)
        optimizer.initialize_optimization(0)
        optimizer.optimize(10)
        for index, edge in enumerate(edges):
            if is_outlier[index]:
                edge.compute_error()
            is_outlier[index] = edge.chi2() > CHI2_MONO
            edge.set_level(int(is_outlier[index]))
    chi2 = optimizer.active_robust_chi2()
    clock.note("optimize")
    frame.estimate().to_homogeneous_matrix()
    clock.note("read")
    return chi2


# -------------------------------------------------------------------- building


def build_problem() -> dict[str, Any]:
    """Poses of a random walk, each with edges to the next five."""
    random = np.random.default_rng(3)
    count = 20_000
    position = np.cumsum(random.normal(0.0, 1.0, (count, 3)), axis=0)
    pairs = [(i, (i + step) % count) for i in range(count) for step in range(1, 6)]
    return {"position": position, "pairs": pairs}


def build(g2o: Any, problem: dict[str, Any]) -> dict[str, float]:
    """Build a graph, and nothing else."""
    clock = Clock()
    optimizer = _optimizer(g2o, "SE3")
    rotation, position = np.eye(3), problem["position"]
    for i, place in enumerate(position):
        vertex = g2o.VertexSE3()
        vertex.set_id(i)
        vertex.set_estimate(g2o.Isometry3d(rotation, place.reshape(3, 1)))
        optimizer.add_vertex(vertex)
    information = np.eye(6)
    for i, j in problem["pairs"]:
        edge = g2o.EdgeSE3()
        edge.set_vertex(0, optimizer.vertex(i))
        edge.set_vertex(1, optimizer.vertex(j))
        edge.set_measurement(g2o.Isometry3d(rotation, (position[j] - position[i]).reshape(3, 1)))
        edge.set_information(information)
        optimizer.add_edge(edge)
    clock.note("build")
    return {**clock.seconds, "chi2": 0.0}


def _optimizer(g2o: Any, size: str) -> Any:
    optimizer = g2o.SparseOptimizer()
    solver = getattr(g2o, f"BlockSolver{size}")(getattr(g2o, f"LinearSolverEigen{size}")())
    optimizer.set_algorithm(g2o.OptimizationAlgorithmLevenberg(solver))
    return optimizer


CASES: dict[str, Callable[[Any, dict[str, Any]], dict[str, float]]] = {
    "pose-graph": pose_graph,
    "local-ba": local_ba,
    "pose-only": pose_only,
    "build": build,
}
PROBLEMS = {
    "pose-graph": pose_graph_problem,
    "local-ba": local_ba_problem,
    "pose-only": pose_only_problem,
    "build": build_problem,
}

if __name__ == "__main__":
    main()
