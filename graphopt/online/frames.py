"""Vertices whose steps are taken in their own frame.

H of a relative pose depends on where both poses are if steps are taken in the world's frame, as g2o's
VertexSE2 does: a loop that turns half of the map makes its factor useless. In the frame of the pose a rigid
motion changes nothing. With R the rotation of a pose of angle theta,

    d_world = B d_body,   B = [R 0; 0 1],   so   H_body = B' H_world B,   cov_world = B cov_body B'.

Poses move by the exponential of a step, x exp(d), which agrees with their oplus to first order. Then a step
that turns many poses as one body keeps their relative poses, however large it is:
exp(xi) x = x exp(adjoint(x^-1) xi).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from graphopt.geometry import SE2, SE3, SE3Matrix, concatenate, normalize_angle, stack
from graphopt.geometry.arrays import Array
from graphopt.types.base import EdgeType, VertexType, working_edge_type, working_vertex_type
from graphopt.types.cache import per_type_cache
from graphopt.types.slam2d import VertexSE2
from graphopt.types.slam3d import VertexSE3


def _oplus_in_body(storage: Array, delta: Array) -> Array:
    x, y, theta = storage[..., 0], storage[..., 1], storage[..., 2]
    cos, sin = np.cos(theta), np.sin(theta)
    return stack(
        x + cos * delta[..., 0] - sin * delta[..., 1],
        y + sin * delta[..., 0] + cos * delta[..., 1],
        normalize_angle(theta + delta[..., 2]),
    )


@per_type_cache
def online_vertex_type(kind: VertexType) -> VertexType:
    """The type that a session computes with."""
    if kind is VertexSE2:
        return replace(kind, name="VertexSE2InBody", oplus=_oplus_in_body)
    return working_vertex_type(kind)


def _turn_in_plane(storage: Array, delta: Array) -> Array:
    return (SE2(storage) * SE2.exp(delta)).storage


def _turn_in_space(numbers: Array, delta: Array) -> Array:
    # the rotation part of delta is the vector part of a quaternion, half of a rotation vector
    step = SE3.exp(concatenate(2.0 * delta[..., 3:6], delta[..., :3]))
    step = SE3Matrix.from_parts(step.translation, step.quaternion)
    return (SE3Matrix.from_numbers(numbers) * step).numbers


_EXPONENTIALS = {VertexSE2: _turn_in_plane, VertexSE3: _turn_in_space}


@per_type_cache
def moving_vertex_type(kind: VertexType) -> VertexType:
    """The type whose oplus moves estimates of a session."""
    computed = online_vertex_type(kind)
    if kind not in _EXPONENTIALS:
        return computed
    return replace(computed, name=f"{computed.name}ByExponential", oplus=_EXPONENTIALS[kind])


@per_type_cache
def online_edge_type(kind: EdgeType) -> EdgeType:
    """The edge type between the types that a session computes with."""
    working = working_edge_type(kind)
    if VertexSE2 not in kind.vertices:
        return working
    vertices = tuple(
        online_vertex_type(vertex) if vertex is VertexSE2 else vertex for vertex in working.vertices
    )
    return replace(working, name=f"{kind.name}InBody", vertices=vertices, jacobian=None, made_by=None)


def world_of_body(kind: VertexType, estimates: np.ndarray) -> np.ndarray | None:
    """B (n, d, d) at estimates (n, storage_dim); None: the identity."""
    if kind is not VertexSE2:
        return None
    basis = np.zeros((len(estimates), 3, 3))
    cos, sin = np.cos(estimates[:, 2]), np.sin(estimates[:, 2])
    basis[:, 0, 0] = basis[:, 1, 1] = cos
    basis[:, 1, 0], basis[:, 0, 1] = sin, -sin
    basis[:, 2, 2] = 1.0
    return basis
