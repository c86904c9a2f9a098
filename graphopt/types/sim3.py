"""g2o's `sim3`: pose graphs with scale.

VertexSim3Expmap holds cam_S_world and is updated from the left with g2o's exponential:
S <- exp(omega, upsilon, sigma) S; sigma is ignored if the scale is fixed.

    stored   x, y, z, qx, qy, qz, qw, scale, fx1, fy1, cx1, cy1, fx2, fy2, cx2, cy2, fix_scale (0 or 1)
    g2opy    qx qy qz qw x y z scale
    C++ g2o  logarithm (7) of the inverse, fx1 fy1 cx1 cy1        EDGE_SIM3: logarithm (7) of the inverse
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from graphopt.geometry import Sim3, components, concatenate, stack
from graphopt.types.base import VertexType
from graphopt.types.define import define_edge
from graphopt.types.files import (
    EdgeFile,
    VertexFile,
    matrix_to_triangle,
    measurement_then_information,
    triangle_size,
    triangle_to_matrix,
)
from graphopt.types.g2o_maps import sim3_exp, sim3_log
from graphopt.types.poses import stored_pose
from graphopt.types.registry import register
from graphopt.types.slam3d import VertexPointXYZ

Array = Any


class Sim3Camera:
    """Similarity of a vertex with the intrinsics of the cameras on both sides; storage (..., 17)."""

    __slots__ = ("storage",)
    quaternions = Sim3.quaternions

    def __init__(self, storage: Array) -> None:
        self.storage = storage

    @property
    def similarity(self) -> Sim3:
        """cam_S_world."""
        return Sim3(self.storage[..., :8])

    def pixel(self, point_cam: Array, camera: int) -> Array:
        """Pixel of a point in the frame of camera 1 or 2."""
        x, y, z = components(point_cam)
        start = 4 + 4 * camera
        fx, fy, cx, cy = components(self.storage[..., start : start + 4])
        return stack(fx * x / z + cx, fy * y / z + cy)


def oplus_sim3(storage: Array, delta: Array) -> Array:
    """Multiply by g2o's exp from the left; the scale stays where fix_scale is 1."""
    parts, fix_scale = components(delta), components(storage)[16]
    step = stack(*parts[:6], (1.0 - fix_scale) * parts[6])
    return concatenate((sim3_exp(step) * Sim3(storage[..., :8])).storage, storage[..., 8:])


_DEFAULTS = np.array([*Sim3.identity_storage, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0])
_NO_ROTATION = np.array([0.0, 0.0, 0.0, 1.0])
_TO_FILE = [3, 4, 5, 6, 0, 1, 2, 7]  # stored numbers in the order of g2opy
_FROM_FILE = [4, 5, 6, 0, 1, 2, 3, 7]


def _decode_similarity(tokens: Array) -> Array:
    storage = np.asanyarray(tokens)[:, _FROM_FILE].copy()
    length = np.linalg.norm(storage[:, 3:7], axis=-1, keepdims=True)
    storage[:, 3:7] = np.where(
        length > 0.0, storage[:, 3:7] / np.where(length > 0.0, length, 1.0), _NO_ROTATION
    )
    return storage


def _encode_similarity(storage: Array) -> Array:
    return np.asanyarray(storage)[:, _TO_FILE]


def _decode_logarithm(tokens: Array) -> Array:
    return sim3_exp(np.asanyarray(tokens)).inverse().storage


def _encode_logarithm(storage: Array) -> Array:
    return sim3_log(Sim3(np.asanyarray(storage)).inverse())


def _vertex_from(similarity: Array) -> Array:
    return np.concatenate([similarity, np.tile(_DEFAULTS[8:], (len(similarity), 1))], axis=-1)


def _logarithm_vertex(num_tokens: int) -> VertexFile:
    """Logarithm of the inverse, then the first num_tokens - 7 numbers behind the similarity."""
    end = num_tokens + 1

    def decode(tokens: Array) -> Array:
        storage = _vertex_from(_decode_logarithm(tokens[:, :7]))
        storage[:, 8:end] = tokens[:, 7:]
        return storage

    def encode(storage: Array) -> Array:
        return np.concatenate([_encode_logarithm(storage[:, :8]), storage[:, 8:end]], axis=-1)

    return VertexFile(num_tokens, decode, encode, rounds=True)


LOGARITHM_VERTEX_FILE = replace(_logarithm_vertex(11), alternatives=(_logarithm_vertex(16),))
"""C++ g2o's layout of VERTEX_SIM3:EXPMAP (`types_seven_dof_expmap.cpp`); the longer line, which it reads too,
keeps the second camera and the flag."""


def _fisheye_vertex() -> VertexFile:
    """ORB-SLAM3's line with two Kannala-Brandt cameras: logarithm of the inverse, 8 parameters each."""
    pinholes = _logarithm_vertex(15)
    kept = [*range(11), *range(15, 19)]

    def encode(storage: Array) -> Array:
        tokens = np.zeros((len(storage), 23))
        tokens[:, kept] = pinholes.encode(storage)
        return tokens

    return VertexFile(
        23,
        lambda tokens: pinholes.decode(np.asanyarray(tokens)[:, kept]),
        encode,
        rounds=True,
        loses="the distortion of the two fisheye cameras is not kept (k1 to k4 each; edges that project see "
        "pinhole cameras, EDGE_SIM3:EXPMAP needs none)",
    )


VertexSim3Expmap = register(
    VertexType(
        "VertexSim3Expmap",
        "VERTEX_SIM3:EXPMAP",
        17,
        7,
        oplus_sim3,
        Sim3Camera,
        tuple(_DEFAULTS.tolist()),
        VertexFile(
            8,
            lambda tokens: _vertex_from(_decode_similarity(tokens)),
            lambda storage: _encode_similarity(np.asanyarray(storage)[:, :8]),
            (
                _logarithm_vertex(11),
                _logarithm_vertex(15),
                _logarithm_vertex(16),
                VertexFile(
                    17,
                    lambda tokens: np.concatenate(
                        [_decode_similarity(tokens[:, :8]), tokens[:, 8:]], axis=-1
                    ),
                    lambda storage: np.concatenate(
                        [_encode_similarity(storage[:, :8]), storage[:, 8:]], axis=-1
                    ),
                ),
                _fisheye_vertex(),
            ),
        ),
        ("VERTEX_SIM3_EXPMAP",),
        doc="Similarity cam_S_world with the intrinsics of two cameras and a flag that fixes the scale.",
        role="similarity",
        **stored_pose(Sim3, inverted=True),
    )
)

_SIMILARITY_FILE = VertexFile(8, _decode_similarity, _encode_similarity)


LOGARITHM_EDGE_FILE = EdgeFile(
    7 + triangle_size(7),
    lambda tokens: (_decode_logarithm(tokens[:, :7]), triangle_to_matrix(tokens[:, 7:], 7)),
    lambda values, information: np.concatenate(
        [_encode_logarithm(values), matrix_to_triangle(information)], axis=-1
    ),
)
"""C++ g2o's layout of EDGE_SIM3:EXPMAP: logarithm of the inverse, information."""


def _edge_file() -> EdgeFile:
    standard = measurement_then_information(_SIMILARITY_FILE, 7)
    alternatives = (LOGARITHM_EDGE_FILE, *standard.alternatives)
    return EdgeFile(standard.num_tokens, standard.decode, standard.encode, alternatives)


def edge_sim3(first: Sim3Camera, second: Sim3Camera, measured: Sim3) -> Array:
    """log(measured first second^-1), with g2o's logarithm."""
    return sim3_log(measured * first.similarity * second.similarity.inverse())


def edge_sim3_project(point: Array, camera: Sim3Camera, measured: Array) -> Array:
    """Measured - pixel in camera 1."""
    return measured - camera.pixel(camera.similarity * point, 1)


def edge_inverse_sim3_project(point: Array, camera: Sim3Camera, measured: Array) -> Array:
    """Measured - pixel in camera 2, through the inverse similarity."""
    return measured - camera.pixel(camera.similarity.inverse() * point, 2)


EdgeSim3 = define_edge(
    "EdgeSim3",
    "EDGE_SIM3:EXPMAP",
    (VertexSim3Expmap, VertexSim3Expmap),
    7,
    edge_sim3,
    Sim3,
    measurement_dim=8,
    file=_edge_file(),
    aliases=("EDGE_SIM3_EXPMAP",),
    relative_pose=lambda z: z.inverse(),
    measure=lambda first, second: second.similarity * first.similarity.inverse(),
)
EdgeSim3ProjectXYZ = define_edge(
    "EdgeSim3ProjectXYZ",
    "EDGE_PROJECT_SIM3_XYZ:EXPMAP",
    (VertexPointXYZ, VertexSim3Expmap),
    2,
    edge_sim3_project,
    sees=lambda point, camera, measured: components(camera.similarity * point)[2] > 0.0,
)
EdgeInverseSim3ProjectXYZ = define_edge(
    "EdgeInverseSim3ProjectXYZ",
    "EDGE_PROJECT_INVERSE_SIM3_XYZ:EXPMAP",
    (VertexPointXYZ, VertexSim3Expmap),
    2,
    edge_inverse_sim3_project,
    sees=lambda point, camera, measured: components(camera.similarity.inverse() * point)[2] > 0.0,
)
