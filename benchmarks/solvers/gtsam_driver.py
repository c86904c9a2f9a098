"""gtsam 4.3.0: its Levenberg-Marquardt with its own defaults and METIS ordering, or Gauss-Newton.

The vertex that g2o would fix is held by a constrained prior. g2o's EDGE_SE2_XY becomes gtsam's factor with
the same error, `PoseToPointFactor2D`, where the wheel has it.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import gtsam
import numpy as np
from problems import Answer, Estimates


class Unsupported(Exception):
    """gtsam has no factor for an edge of the file."""


def load(path: Path) -> tuple[gtsam.NonlinearFactorGraph, gtsam.Values]:
    """Read a pose graph and hold its first pose."""
    text = path.read_text()
    if "EDGE_SE2_XY" in text:
        raise Unsupported("gtsam's wheel has no factor with the error of EDGE_SE2_XY")
    is_3d = "EDGE_SE3:QUAT" in text
    graph, start = gtsam.readG2o(str(path), is_3d)
    first = min(start.keys())
    if is_3d:
        hold = gtsam.noiseModel.Constrained.All(6)
        graph.add(gtsam.PriorFactorPose3(first, start.atPose3(first), hold))
    else:
        hold = gtsam.noiseModel.Constrained.All(3)
        graph.add(gtsam.PriorFactorPose2(first, start.atPose2(first), hold))
    return graph, start


def make_optimizer(algorithm: str, graph: gtsam.NonlinearFactorGraph, start: gtsam.Values) -> Any:
    """Build the optimizer; gtsam computes the ordering here."""
    parameters, kind = {
        "lm": (gtsam.LevenbergMarquardtParams, gtsam.LevenbergMarquardtOptimizer),
        "gn": (gtsam.GaussNewtonParams, gtsam.GaussNewtonOptimizer),
    }[algorithm]
    chosen = parameters()
    chosen.setOrderingType("METIS")
    return kind(graph, start, chosen)


def solve(path: Path, algorithm: str) -> Answer:
    """Optimize until gtsam's own convergence test stops it."""
    graph, start = load(path)
    started = time.perf_counter()
    optimizer = make_optimizer(algorithm, graph, start)
    values = optimizer.optimize()
    seconds = time.perf_counter() - started
    return Answer(estimates(values), seconds, optimizer.iterations())


def trace(path: Path, algorithm: str, limit: int) -> list[Answer]:
    """Return the estimates after each iteration, with the time spent until then."""
    graph, start = load(path)
    started = time.perf_counter()
    optimizer = make_optimizer(algorithm, graph, start)
    spent = time.perf_counter() - started
    answers = []
    for number in range(1, limit + 1):
        started = time.perf_counter()
        optimizer.iterate()
        spent += time.perf_counter() - started
        answers.append(Answer(estimates(optimizer.values()), spent, number, optimizer.error()))
    return answers


def estimates(values: gtsam.Values) -> Estimates:
    """Return the poses in g2o's storage order."""
    keys = np.array(sorted(values.keys()), dtype=np.int64)
    try:
        poses = [values.atPose2(key) for key in keys]
    except RuntimeError:
        matrices = np.array([values.atPose3(key).matrix() for key in keys])
        return {"VERTEX_SE3:QUAT": (keys, _storage(matrices))}
    return {"VERTEX_SE2": (keys, np.array([[pose.x(), pose.y(), pose.theta()] for pose in poses]))}


def _storage(matrices: np.ndarray) -> np.ndarray:
    from scipy.spatial.transform import Rotation

    quaternions = Rotation.from_matrix(matrices[:, :3, :3]).as_quat()
    return np.concatenate([matrices[:, :3, 3], quaternions], axis=-1)
