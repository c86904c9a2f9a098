"""g2opy 2.3.0, g2o's official Python binding: BlockSolverX, Eigen's sparse Cholesky, g2o's defaults."""

from __future__ import annotations

import time
from pathlib import Path

import g2opy
import numpy as np
from problems import Answer, Estimates

ALGORITHMS = {
    "lm": g2opy.OptimizationAlgorithmLevenberg,
    "gn": g2opy.OptimizationAlgorithmGaussNewton,
    "dogleg": g2opy.OptimizationAlgorithmDogleg,
}

STORAGE_OF_TYPE = {
    g2opy.VertexSE2: "VERTEX_SE2",
    g2opy.VertexPointXY: "VERTEX_XY",
    g2opy.VertexSE3: "VERTEX_SE3:QUAT",
    g2opy.VertexPointXYZ: "VERTEX_TRACKXYZ",
}


def load(path: Path, algorithm: str) -> g2opy.SparseOptimizer:
    """Read a file and fix the vertex with the smallest id, unless the file fixes one."""
    optimizer = g2opy.SparseOptimizer()
    optimizer.set_algorithm(ALGORITHMS[algorithm](g2opy.BlockSolverX(g2opy.LinearSolverEigenX())))
    if not optimizer.load(str(path)):
        raise RuntimeError(f"g2opy does not read {path}.")
    vertices = optimizer.vertices()
    if not any(vertex.fixed() for vertex in vertices.values()):
        poses = [i for i, vertex in vertices.items() if not isinstance(vertex, g2opy.VertexPointXY)]
        optimizer.vertex(min(poses)).set_fixed(True)
    return optimizer


def solve(path: Path, algorithm: str, num_iterations: int) -> Answer:
    """Optimize for `num_iterations`; g2o has no convergence test by default."""
    optimizer = load(path, algorithm)
    started = time.perf_counter()
    optimizer.initialize_optimization()
    done = optimizer.optimize(num_iterations)
    seconds = time.perf_counter() - started
    return Answer(estimates(optimizer), seconds, done)


def iterations_to(path: Path, algorithm: str, target: float, limit: int) -> int | None:
    """Return how many iterations bring chi2 to `target`, or None if `limit` of them do not."""
    optimizer = load(path, algorithm)
    optimizer.set_compute_batch_statistics(True)
    optimizer.initialize_optimization()
    optimizer.optimize(limit)
    for number, statistics in enumerate(optimizer.batch_statistics(), start=1):
        if 0.0 < statistics.chi2 <= target:
            return number
    return None


def estimates(optimizer: g2opy.SparseOptimizer) -> Estimates:
    """Return the estimates in g2o's storage order, by vertex tag."""
    collected: dict[str, tuple[list[int], list[np.ndarray]]] = {}
    for identifier, vertex in optimizer.vertices().items():
        ids, values = collected.setdefault(STORAGE_OF_TYPE[type(vertex)], ([], []))
        ids.append(identifier)
        values.append(np.asarray(vertex.get_estimate_data()).ravel())
    return {tag: (np.array(ids), np.array(values)) for tag, (ids, values) in collected.items()}
