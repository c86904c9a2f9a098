"""Edge types for the tests of the compiler: written as a user writes them, without the registry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from graphopt.geometry import SE2, SE3, SO3, quaternion


@dataclass(frozen=True, eq=False)
class Vertex:
    """The attributes of a vertex or parameter type that the compiler reads."""

    name: str
    storage_dim: int
    tangent_dim: int
    oplus: Callable | None
    wrap: Callable | None = None


@dataclass(frozen=True, eq=False)
class Edge:
    """The attributes of an edge type that the compiler reads."""

    name: str
    vertices: tuple[Vertex, ...]
    measurement_dim: int
    residual_dim: int
    residual: Callable
    parameters: tuple[Vertex, ...] = ()
    jacobian: Callable | None = None
    wrap_measurement: Callable | None = None


def se2_oplus(pose, delta):
    """Right-multiplied: the rotated step is added to the translation, and the angle."""
    return (SE2(pose) * SE2(delta)).storage


def se3_oplus(pose, delta):
    """Right-multiplied: translation and the vector part of a unit quaternion."""
    step = quaternion.from_vector_part(delta[..., 3:])
    moved = SE3(pose) * SE3(np.concatenate([delta[..., :3], step], axis=-1))
    return np.concatenate([moved.translation, quaternion.normalize(moved.quaternion)], axis=-1)


VERTEX_SE2 = Vertex("VertexSE2", 3, 3, se2_oplus)
VERTEX_SE3 = Vertex("VertexSE3", 7, 6, se3_oplus)
VERTEX_XYZ = Vertex("VertexPointXYZ", 3, 3, lambda x, d: x + d)
VERTEX_CAMERA = Vertex("VertexCameraBAL", 9, 9, lambda x, d: x + d)
OFFSET = Vertex("ParameterOffset", 3, 0, None)


def se2_residual(a, b, measured):
    """Relative pose from a to b, minus the measurement, in the measurement's frame."""
    return (SE2(measured).inverse() * SE2(a).inverse() * SE2(b)).storage


def se3_residual(a, b, measured):
    """Vector of inv(measured) inv(a) b: translation, vector part of the quaternion."""
    error = SE3(measured).inverse() * SE3(a).inverse() * SE3(b)
    return np.concatenate([error.translation, quaternion.vector_part(error.quaternion)], axis=-1)


def snavely_residual(camera, point, pixel):
    """Projection of the camera of Bundle Adjustment in the Large: rotation vector, translation, f, k1, k2."""
    p = SO3.exp(camera[..., :3]).act(point) + camera[..., 3:6]
    x, y = -p[..., 0] / p[..., 2], -p[..., 1] / p[..., 2]
    r2 = x * x + y * y
    scale = camera[..., 6] * (1.0 + r2 * (camera[..., 7] + r2 * camera[..., 8]))
    return np.stack([scale * x, scale * y], axis=-1) - pixel


def range_residual(a, b, offset, distance):
    """Distance between a point and a point moved by a shared offset."""
    return np.linalg.norm(b + offset - a, axis=-1) - distance[..., 0]


EDGE_SE2 = Edge("EdgeSE2", (VERTEX_SE2, VERTEX_SE2), 3, 3, se2_residual)
EDGE_SE3 = Edge("EdgeSE3", (VERTEX_SE3, VERTEX_SE3), 7, 6, se3_residual)
EDGE_SNAVELY = Edge("EdgeSnavely", (VERTEX_CAMERA, VERTEX_XYZ), 2, 2, snavely_residual)
EDGE_RANGE = Edge("EdgeRange", (VERTEX_XYZ, VERTEX_XYZ), 1, 1, range_residual, (OFFSET,))
EDGE_PRIOR = Edge("EdgePrior", (VERTEX_SE2,), 3, 3, lambda pose, z: pose - z)
EDGE_THREE = Edge(
    "EdgeThree",
    (VERTEX_XYZ, VERTEX_SE2, VERTEX_XYZ),
    2,
    2,
    lambda p, s, q, z: (
        np.stack([p[..., 0] * s[..., 2] + q[..., 2], p[..., 1] * q[..., 1] - np.sin(s[..., 0])], -1) - z
    ),
)
EDGES = (EDGE_SE2, EDGE_SE3, EDGE_SNAVELY, EDGE_RANGE, EDGE_PRIOR, EDGE_THREE)


def huber(chi2, width):
    """Huber: rho and its derivative by chi2."""
    root = np.sqrt(np.where(chi2 > width * width, chi2, 1.0))
    inside = chi2 <= width * width
    return np.where(inside, chi2, 2 * root * width - width * width), np.where(inside, 1.0, width / root)


def random_storage(vertex: Vertex, count: int, rng: np.random.Generator) -> np.ndarray:
    """(count, storage_dim) values that make sense for the type."""
    x = rng.normal(size=(count, vertex.storage_dim))
    if vertex is VERTEX_SE3:
        x[:, 3:] /= np.linalg.norm(x[:, 3:], axis=1, keepdims=True)
    if vertex is VERTEX_CAMERA:
        x[:, 5] -= 10.0
        x[:, 6] += 500.0
        x[:, 7:] *= 1e-2
    return x


def random_measurement(edge: Edge, count: int, rng: np.random.Generator) -> np.ndarray:
    """(count, measurement_dim) values that make sense for the type."""
    return (
        random_storage(VERTEX_SE3, count, rng)
        if edge is EDGE_SE3
        else rng.normal(size=(count, edge.measurement_dim))
    )


def random_information(edge: Edge, count: int, rng: np.random.Generator, variant: str) -> np.ndarray:
    """(count, d, d) positive definite matrices of this variant."""
    d = edge.residual_dim
    if variant == "identity":
        return np.broadcast_to(np.eye(d), (count, d, d)).copy()
    if variant == "diagonal":
        return np.eye(d) * rng.uniform(0.5, 2.0, size=(count, 1, d))
    a = rng.normal(size=(count, d, d))
    return a @ a.transpose(0, 2, 1) + np.eye(d)
