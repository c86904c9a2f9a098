"""Edge types for the tests of the compiler: written as a user writes them, with no other layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


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


def normalize_angle(theta):
    """Angle in [-pi, pi)."""
    return theta - 2 * np.pi * np.floor((theta + np.pi) / (2 * np.pi))


def quaternion_product(p, q):
    """Hamilton product, both x y z w."""
    px, py, pz, pw = (p[..., i] for i in range(4))
    qx, qy, qz, qw = (q[..., i] for i in range(4))
    return np.stack(
        [
            pw * qx + px * qw + py * qz - pz * qy,
            pw * qy + py * qw + pz * qx - px * qz,
            pw * qz + pz * qw + px * qy - py * qx,
            pw * qw - px * qx - py * qy - pz * qz,
        ],
        axis=-1,
    )


def conjugate(q):
    """Inverse of a unit quaternion."""
    return np.stack([-q[..., 0], -q[..., 1], -q[..., 2], q[..., 3]], axis=-1)


def rotate(q, v):
    """Vector v turned by the unit quaternion q."""
    t = 2.0 * np.cross(q[..., :3], v)
    return v + q[..., 3:4] * t + np.cross(q[..., :3], t)


def se2_oplus(pose, delta):
    """Add the rotated step to the translation, and the angle."""
    c, s = np.cos(pose[..., 2]), np.sin(pose[..., 2])
    x = pose[..., 0] + c * delta[..., 0] - s * delta[..., 1]
    y = pose[..., 1] + s * delta[..., 0] + c * delta[..., 1]
    return np.stack([x, y, normalize_angle(pose[..., 2] + delta[..., 2])], axis=-1)


def se3_oplus(pose, delta):
    """Right-multiplied: translation and the vector part of a unit quaternion."""
    v = delta[..., 3:]
    squared = np.sum(v * v, axis=-1)
    w = np.sqrt(np.where(squared < 1.0, 1.0 - squared, 0.0))
    step = np.concatenate([v, w[..., None]], axis=-1)
    turned = quaternion_product(pose[..., 3:], step)
    norm = np.sqrt(np.sum(turned * turned, axis=-1))
    return np.concatenate(
        [pose[..., :3] + rotate(pose[..., 3:], delta[..., :3]), turned / norm[..., None]], axis=-1
    )


VERTEX_SE2 = Vertex("VertexSE2", 3, 3, se2_oplus)
VERTEX_SE3 = Vertex("VertexSE3", 7, 6, se3_oplus)
VERTEX_XYZ = Vertex("VertexPointXYZ", 3, 3, lambda x, d: x + d)
VERTEX_CAMERA = Vertex("VertexCameraBAL", 9, 9, lambda x, d: x + d)
OFFSET = Vertex("ParameterOffset", 3, 0, None)


def se2_residual(a, b, measured):
    """Relative pose from a to b, minus the measurement, in the measurement's frame."""
    c, s = np.cos(a[..., 2]), np.sin(a[..., 2])
    dx, dy = b[..., 0] - a[..., 0], b[..., 1] - a[..., 1]
    x, y = c * dx + s * dy - measured[..., 0], -s * dx + c * dy - measured[..., 1]
    c, s = np.cos(measured[..., 2]), np.sin(measured[..., 2])
    angle = normalize_angle(b[..., 2] - a[..., 2] - measured[..., 2])
    return np.stack([c * x + s * y, -s * x + c * y, angle], axis=-1)


def se3_residual(a, b, measured):
    """Vector of inv(measured) inv(a) b: translation, vector part of the quaternion."""
    inverse_a = conjugate(a[..., 3:])
    relative_t = rotate(inverse_a, b[..., :3] - a[..., :3])
    relative_q = quaternion_product(inverse_a, b[..., 3:])
    inverse_z = conjugate(measured[..., 3:])
    t = rotate(inverse_z, relative_t - measured[..., :3])
    q = quaternion_product(inverse_z, relative_q)
    v = np.where(q[..., 3:4] < 0.0, -q[..., :3], q[..., :3])
    return np.concatenate([t, v], axis=-1)


def snavely_residual(camera, point, pixel):
    """Projection of the camera of Bundle Adjustment in the Large: rotation vector, translation, f, k1, k2."""
    w = camera[..., :3]
    squared = np.sum(w * w, axis=-1)
    small = squared < 1e-20
    theta = np.sqrt(np.where(small, 1.0, squared))
    sin_by_theta = np.where(small, 1.0, np.sin(theta) / theta)[..., None]
    versine = np.where(small, 0.5, (1.0 - np.cos(theta)) / (theta * theta))[..., None]
    turned = np.cross(w, point)
    p = point + sin_by_theta * turned + versine * np.cross(w, turned) + camera[..., 3:6]
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
