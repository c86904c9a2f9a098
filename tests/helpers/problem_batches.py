"""Batches of small problems of one structure, for `optimize_batch`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation

import graphopt
from graphopt import Graph

POSE, POINT, SEES = "VERTEX_SE3:EXPMAP", "VERTEX_XYZ", "EDGE_PROJECT_XYZ2UV:EXPMAP"
Made = tuple[Graph, dict[str, Any]]


def poses_of(rng: np.random.Generator, count: int, angle: float, length: float) -> np.ndarray:
    """(count, 7) translations and quaternions."""
    turned = Rotation.from_rotvec(rng.normal(0.0, angle, (count, 3)))
    return np.hstack([rng.normal(0.0, length, (count, 3)), turned.as_quat()])


def seen(cam_T_world: np.ndarray, points_world: np.ndarray) -> np.ndarray:
    """(..., 2) pixels of points (..., 3) by a camera of 500 px."""
    turned = Rotation.from_quat(cam_T_world[..., 3:].reshape(-1, 4))
    cam = turned.apply(points_world.reshape(-1, 3)).reshape(points_world.shape) + cam_T_world[..., :3]
    return 500.0 * cam[..., :2] / cam[..., 2:] + [320.0, 240.0]


def pnp(count: int, num_points: int, kernel: str | None = None) -> Made:
    """Poses of cameras that see known points."""
    rng = np.random.default_rng(1)
    graph = Graph()
    graph.add_parameters("PARAMS_CAMERAPARAMETERS", [0], [[500.0, 320.0, 240.0, 0.0]])
    graph.add_vertices(POSE, [0])
    ids = np.arange(1, num_points + 1)
    graph.add_vertices(POINT, ids, fixed=True)
    pairs = np.stack([ids, np.zeros_like(ids)], axis=1)
    graph.add_edges(SEES, pairs, parameters=[0], kernel=kernel, kernel_width=2.0)
    points = rng.uniform([-2.0, -2.0, 3.0], [2.0, 2.0, 8.0], (count, num_points, 3))
    truth = poses_of(rng, count, 0.1, 0.2)
    pixels = seen(np.repeat(truth[:, None], num_points, axis=1), points) + rng.normal(
        0.0, 1.0, (count, num_points, 2)
    )
    return graph, {"estimates": {POINT: points}, "measurements": {SEES: pixels}}


def triangulation(count: int) -> Made:
    """Points seen by four cameras that stand fixed."""
    rng = np.random.default_rng(2)
    graph = Graph()
    graph.add_parameters("PARAMS_CAMERAPARAMETERS", [0], [[500.0, 320.0, 240.0, 0.0]])
    cameras = poses_of(rng, 4, 0.05, 0.5)
    graph.add_vertices(POSE, range(1, 5), cameras, fixed=True)
    graph.add_vertices(POINT, [0], [0.0, 0.0, 4.0])
    graph.add_edges(SEES, [[0, k] for k in range(1, 5)], parameters=[0])
    points = rng.uniform([-1.0, -1.0, 3.0], [1.0, 1.0, 6.0], (count, 1, 3))
    many = np.broadcast_to(cameras, (count, 4, 7))
    pixels = seen(many, np.repeat(points, 4, axis=1)) + rng.normal(0.0, 0.5, (count, 4, 2))
    return graph, {"measurements": {SEES: pixels}}


def windows(count: int) -> Made:
    """Small bundle adjustments whose points are eliminated."""
    rng = np.random.default_rng(3)
    graph = Graph()
    graph.add_parameters("PARAMS_CAMERAPARAMETERS", [0], [[500.0, 320.0, 240.0, 0.0]])
    graph.add_vertices(POSE, range(4), fixed=[True, True, False, False])
    graph.add_vertices(POINT, range(10, 40), marginalized=True)
    graph.add_edges(SEES, [[p, c] for p in range(10, 40) for c in range(4)], parameters=[0])
    cameras = poses_of(rng, count * 4, 0.05, 0.4).reshape(count, 4, 7)
    points = rng.uniform([-2.0, -2.0, 3.0], [2.0, 2.0, 6.0], (count, 30, 3))
    pixels = seen(np.tile(cameras, (1, 30, 1)), np.repeat(points, 4, axis=1))
    start = cameras.copy()
    start[:, 2:, :3] += rng.normal(0.0, 0.02, (count, 2, 3))
    return graph, {
        "estimates": {POSE: start, POINT: points + rng.normal(0.0, 0.05, points.shape)},
        "measurements": {SEES: pixels + rng.normal(0.0, 0.5, pixels.shape)},
    }


def pose_graphs(count: int) -> Made:
    """Rings of 20 poses in the plane with chords and a full information matrix each."""
    rng = np.random.default_rng(4)
    graph = Graph()
    graph.add_vertices("VERTEX_SE2", range(20))
    pairs = [[k, (k + 1) % 20] for k in range(20)] + [[k, k + 5] for k in range(15)]
    graph.add_edges("EDGE_SE2", pairs)
    angle = 2.0 * np.pi * np.arange(20) / 20
    truth = np.stack([3.0 * np.sin(angle), -3.0 * np.cos(angle), angle], axis=1)
    a, b = truth[np.array(pairs)[:, 0]], truth[np.array(pairs)[:, 1]]
    c, s, d = np.cos(a[:, 2]), np.sin(a[:, 2]), b - a
    moved = np.stack([c * d[:, 0] + s * d[:, 1], c * d[:, 1] - s * d[:, 0], d[:, 2]], axis=1)
    root = rng.normal(0.0, 1.0, (count, len(pairs), 3, 3))
    return graph, {
        "estimates": {"VERTEX_SE2": truth + rng.normal(0.0, 0.1, (count, 20, 3))},
        "measurements": {"EDGE_SE2": moved + rng.normal(0.0, 0.02, (count, len(pairs), 3))},
        "information": {"EDGE_SE2": np.eye(3) + root @ root.swapaxes(-1, -2)},
    }


def own_residuals(count: int) -> Made:
    """A user's curve with a user's kernel width per point and a quaternion-free vertex of three numbers."""
    rng = np.random.default_rng(5)

    @graphopt.vertex_type(tag="VERTEX_BATCH_CURVE", tangent_dim=3)
    def curve(estimate: Any, delta: Any) -> Any:
        return estimate + delta

    @graphopt.edge_type(vertices=(curve,), measurement_dim=2, name="EdgeBatchCurve")
    def point(curve: Any, measurement: Any) -> Any:
        return [curve[0] * np.exp(-curve[1] * measurement[0]) + curve[2] - measurement[1]]

    graph = Graph()
    graph.add_vertices(curve, [0], [1.0, 1.0, 0.0])
    graph.add_edges(point, np.zeros((30, 1), int), np.zeros((30, 2)), kernel="Huber")
    x = np.linspace(0.0, 4.0, 30)
    true = rng.uniform([1.0, 0.5, -1.0], [3.0, 2.0, 1.0], (count, 3))
    y = true[:, :1] * np.exp(-true[:, 1:2] * x) + true[:, 2:] + rng.normal(0.0, 0.05, (count, 30))
    return graph, {
        "measurements": {point: np.stack([np.broadcast_to(x, y.shape), y], axis=2)},
        "kernel_widths": {point: rng.uniform(0.02, 0.2, (count, 30))},
    }


PROBLEMS: dict[str, Callable[[], Made]] = {
    "pnp": lambda: pnp(5, 100),
    "pnp, Huber": lambda: pnp(5, 20, "Huber"),
    "triangulation": lambda: triangulation(5),
    "windows": lambda: windows(3),
    "pose graphs": lambda: pose_graphs(4),
    "a user's residual": lambda: own_residuals(4),
}
"""Name -> template and the arrays of all problems."""
