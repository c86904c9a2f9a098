"""Built-in edge types of every shape, random numbers for them, and unregistered types of a test's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphopt.types import bal, slam2d, slam3d
from graphopt.types.base import EdgeType, VertexType, unwrapped, working_edge_type, working_vertex_type
from graphopt.types.files import measurement_then_information, plain

VERTEX_SE2, VERTEX_XYZ = slam2d.VertexSE2, slam3d.VertexPointXYZ
VERTEX_SE3 = working_vertex_type(slam3d.VertexSE3)
EDGE_SE2, EDGE_SE3, EDGE_SNAVELY, EDGE_OFFSET, EDGE_PRIOR, EDGE_THREE = EDGES = tuple(
    map(
        working_edge_type,
        (
            slam2d.EdgeSE2,
            slam3d.EdgeSE3,
            bal.EdgeObservationBAL,
            slam2d.EdgeSE2PointXYOffset,
            slam2d.EdgeSE2Prior,
            slam2d.EdgeSE2TwoPointsXY,
        ),
    )
)


def own_edge(
    name: str, vertices: tuple[VertexType, ...], dim: int, residual: Callable, jacobian: Any = None
) -> EdgeType:
    """An edge type with as many measured numbers as errors."""
    file = measurement_then_information(plain(dim), dim)
    return EdgeType(name, name, vertices, (), dim, dim, residual, jacobian, unwrapped, file)


def random_storage(kind: Any, count: int, rng: np.random.Generator) -> np.ndarray:
    """(count, storage_dim) values that make sense for a vertex or parameter type."""
    if kind.name == VERTEX_SE3.name:
        return slam3d.VertexSE3.working.encode(_poses(count, rng))
    x = rng.normal(size=(count, kind.storage_dim))
    if kind is bal.VertexCamBAL:
        x[:, 5] -= 10.0
        x[:, 6] += 500.0
        x[:, 7:] *= 1e-2
    return x


def random_measurement(edge: EdgeType, count: int, rng: np.random.Generator) -> np.ndarray:
    """(count, measurement_dim) values that make sense for the type."""
    return _poses(count, rng) if edge is EDGE_SE3 else rng.normal(size=(count, edge.measurement_dim))


def _poses(count: int, rng: np.random.Generator) -> np.ndarray:
    x = rng.normal(size=(count, 7))
    x[:, 3:] /= np.linalg.norm(x[:, 3:], axis=1, keepdims=True)
    return x


def random_information(edge: EdgeType, count: int, rng: np.random.Generator, variant: str) -> np.ndarray:
    """(count, d, d) positive definite matrices of this variant."""
    d = edge.residual_dim
    if variant == "identity":
        return np.broadcast_to(np.eye(d), (count, d, d)).copy()
    if variant == "diagonal":
        return np.eye(d) * rng.uniform(0.5, 2.0, size=(count, 1, d))
    a = rng.normal(size=(count, d, d))
    return a @ a.transpose(0, 2, 1) + np.eye(d)
