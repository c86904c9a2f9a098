"""g2opy 2.3.0 on BAL's cameras and points, as far as the binding goes.

It has no BAL camera, so its problem is a smaller one: poses with 6 instead of 9 parameters, focal length and
distortion fixed at the file's values (the measurements are undistorted beforehand). Its time per iteration is
therefore a lower bound of what g2o needs for the whole problem.
"""

from __future__ import annotations

import time
from pathlib import Path

import g2opy
import numpy as np

NUM_UNDISTORT_STEPS = 20


def load(path: Path) -> g2opy.SparseOptimizer:
    """Build the graph: marginalized points, Schur complement with Eigen's sparse Cholesky, LM."""
    header, *rest = path.read_text().split("\n", 1)
    num_cameras, num_points, num_observations = (int(word) for word in header.split())
    numbers = np.array(rest[0].split(), dtype=float)
    table = numbers[: 4 * num_observations].reshape(-1, 4)
    cameras = numbers[4 * num_observations :][: 9 * num_cameras].reshape(-1, 9)
    points = numbers[4 * num_observations + 9 * num_cameras :][: 3 * num_points].reshape(-1, 3)

    solver = g2opy.BlockSolverSE3(g2opy.LinearSolverEigenSE3())
    optimizer = g2opy.SparseOptimizer()
    optimizer.set_algorithm(g2opy.OptimizationAlgorithmLevenberg(solver))
    _add_cameras(optimizer, cameras)
    _add_points(optimizer, points, num_cameras)
    _add_observations(optimizer, table, cameras, num_cameras)
    return optimizer


def seconds_per_iteration(path: Path, num_iterations: int) -> float:
    """Return the time of one LM iteration: analysis cancels in the difference of two runs."""
    return (_solve(path, 2 * num_iterations) - _solve(path, num_iterations)) / num_iterations


def _solve(path: Path, num_iterations: int) -> float:
    optimizer = load(path)
    optimizer.initialize_optimization()
    started = time.perf_counter()
    done = optimizer.optimize(num_iterations)
    if done != num_iterations:
        raise RuntimeError(f"g2opy did {done} of {num_iterations} iterations.")
    return time.perf_counter() - started


def _add_cameras(optimizer: g2opy.SparseOptimizer, cameras: np.ndarray) -> None:
    from scipy.spatial.transform import Rotation

    flip = np.diag([1.0, -1.0, -1.0])  # BAL looks along -z, g2o along +z with image y downwards
    for number, camera in enumerate(cameras):
        parameter = g2opy.CameraParameters(camera[6], np.zeros(2), 0.0)
        parameter.set_id(number)
        optimizer.add_parameter(parameter)
        vertex = g2opy.VertexSE3Expmap()
        vertex.set_id(number)
        rotation = flip @ Rotation.from_rotvec(camera[:3]).as_matrix()
        vertex.set_estimate(g2opy.SE3Quat(rotation, flip @ camera[3:6]))
        vertex.set_fixed(number == 0)
        optimizer.add_vertex(vertex)


def _add_points(optimizer: g2opy.SparseOptimizer, points: np.ndarray, offset: int) -> None:
    for number, point in enumerate(points):
        vertex = g2opy.VertexPointXYZ()
        vertex.set_id(offset + number)
        vertex.set_estimate(point)
        vertex.set_marginalized(True)
        optimizer.add_vertex(vertex)


def _add_observations(
    optimizer: g2opy.SparseOptimizer, table: np.ndarray, cameras: np.ndarray, offset: int
) -> None:
    camera, point = table[:, 0].astype(int), table[:, 1].astype(int)
    pixels = _undistort(table[:, 2:], cameras[camera, 6:]) * [1.0, -1.0]
    for seen_by, seen, pixel in zip(camera.tolist(), point.tolist(), pixels, strict=True):
        edge = g2opy.EdgeProjectXYZ2UV()
        edge.set_vertex(0, optimizer.vertex(offset + seen))
        edge.set_vertex(1, optimizer.vertex(seen_by))
        edge.set_measurement(pixel)
        edge.set_information(np.eye(2))
        edge.set_parameter_id(0, seen_by)
        optimizer.add_edge(edge)


def _undistort(pixels: np.ndarray, intrinsics: np.ndarray) -> np.ndarray:
    """Invert f (1 + k1 r^2 + k2 r^4) q by fixed-point iteration; returns f q [px]."""
    focal, k1, k2 = (intrinsics[:, [column]] for column in range(3))
    distorted = pixels / focal
    ray = distorted
    for _ in range(NUM_UNDISTORT_STEPS):
        squared = (ray**2).sum(axis=1, keepdims=True)
        ray = distorted / (1.0 + k1 * squared + k2 * squared**2)
    return focal * ray
