"""The same object-by-object script with g2opy and graphopt.g2o: seconds to build, optimize and read back.

* pose-graph: 10,000 VertexSE3, 10,000 odometry and 5,000 loop EdgeSE3, 5 Levenberg iterations
* local-ba: 20 keyframes, 3,000 points, 20,000 EdgeStereoSE3ProjectXYZ with Huber kernels; 5 iterations,
  outliers to level 1, 10 iterations, as SLAM systems do it
* pose-only: one pose, 300 EdgeSE3ProjectXYZOnlyPose (g2opy cannot set up the stereo ones), four rounds of
  10 iterations with outliers taken out; the mean of 20 runs with new objects
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from graphopt.evaluate import optional

MODULES = {"graphopt": "graphopt.g2o", "g2opy": "g2opy"}
CAMERA = (500.0, 500.0, 320.0, 240.0, 50.0)  # fx fy cx cy [px], bf [px m]
PIXEL_SIGMA = 1.0
CHI2_STEREO, CHI2_MONO = 7.815, 5.991  # 95 % of chi2 with 3 and 2 degrees of freedom


def measure(case: str, device: str, solver: str = "graphopt") -> dict[str, Any]:
    """The entry of a case under a module: the second of two runs. Both run on the CPU."""
    module = optional.load(MODULES[solver])
    make, script = CASES[case]
    problem = make()
    script(module, problem)
    run = script(module, problem)
    chi2 = run.pop("chi2")
    return {"seconds": {"fresh": sum(run.values())}, "phases": run, "chi2": chi2, "device_name": device}


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


def _optimizer(g2o: Any, size: str) -> Any:
    optimizer = g2o.SparseOptimizer()
    solver = getattr(g2o, f"BlockSolver{size}")(getattr(g2o, f"LinearSolverEigen{size}")())
    optimizer.set_algorithm(g2o.OptimizationAlgorithmLevenberg(solver))
    return optimizer


Script = Callable[[Any, dict[str, Any]], dict[str, float]]
CASES: dict[str, tuple[Callable[[], dict[str, Any]], Script]] = {
    "pose-graph": (pose_graph_problem, pose_graph),
    "local-ba": (local_ba_problem, local_ba),
    "pose-only": (pose_only_problem, pose_only),
}
"""By name: what makes the problem, and the script."""
