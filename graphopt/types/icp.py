"""g2o's `icp`: generalized ICP and its stereo camera.

EDGE_V_V_GICP stores pos0, normal0, pos1, normal1 (12 numbers); the error uses the positions only. g2o 1.x
writes no information: it follows from normal0, R0' diag(e, e, 1) R0 with e = 0.01, where R0 turns the normal
to z (point-to-plane). The switch `pl_pl` of g2o's class, which recomputes the information at every
evaluation, is not in its files; `graphopt.g2o` has it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from graphopt.geometry import SE3, components, concatenate, stack
from graphopt.types.base import VertexType
from graphopt.types.define import define_edge
from graphopt.types.files import EdgeFile, measurement_then_information, plain
from graphopt.types.poses import stored_pose
from graphopt.types.registry import register
from graphopt.types.sba import SbaCamera, VertexCam
from graphopt.types.slam3d import VertexPointXYZ, VertexSE3, oplus_se3

Array = Any

_PLANE_PRECISION = 0.01


def plane_information(normals: Array, precision: float = _PLANE_PRECISION) -> Array:
    """(n, 3) unit normals -> (n, 3, 3): R' diag(e, e, 1) R, as g2o's `EdgeGICP::prec0`."""
    y = np.array([0.0, 1.0, 0.0]) - normals[:, 1:2] * normals
    length = np.linalg.norm(y, axis=-1, keepdims=True)
    y = y / np.where(length > 0.0, length, 1.0)
    rotation = np.stack([np.cross(normals, y), y, normals], axis=-2)
    return np.swapaxes(rotation, -1, -2) @ (np.array([precision, precision, 1.0])[:, None] * rotation)


def edge_v_v_gicp(first: SE3, second: SE3, measured: Array) -> Array:
    """first^-1 (second pos1) - pos0."""
    return first.inverse_act(second * measured[..., 6:9]) - measured[..., :3]


def _gicp_file() -> EdgeFile:
    standard = measurement_then_information(plain(12), 3)
    old = EdgeFile(
        12,
        lambda tokens: (np.array(tokens), plane_information(tokens[:, 3:6])),
        lambda values, information: np.array(values),
    )
    return replace(standard, alternatives=(old,))


EdgeVVGicp = define_edge(
    "EdgeVVGicp",
    "EDGE_V_V_GICP",
    (VertexSE3, VertexSE3),
    3,
    edge_v_v_gicp,
    measurement_dim=12,
    file=_gicp_file(),
)


def oplus_scam(storage: Array, delta: Array) -> Array:
    """As VertexSE3; the intrinsics stay."""
    return concatenate(oplus_se3(storage[..., :7], delta), storage[..., 7:])


VertexSCam = register(
    VertexType(
        "VertexSCam",
        "VERTEX_SCAM",
        12,
        6,
        oplus_scam,
        SbaCamera,
        VertexCam.identity,
        VertexCam.file,
        doc="Stereo camera world_T_cam (7), fx, fy, cx, cy, baseline. g2o has no tag for it.",
        role="camera_pose",
        **stored_pose(SE3),
    )
)


def edge_xyz_vsc(point: Array, camera: SbaCamera, measured: Array) -> Array:
    """(left pixel, right column) - measured."""
    return stack(*camera.project(point)) - measured


EdgeXyzVsc = define_edge(
    "EdgeXyzVsc",
    "EDGE_XYZ_VSC",
    (VertexPointXYZ, VertexSCam),
    3,
    edge_xyz_vsc,
    sees=lambda point, camera, measured: components(camera.pose.inverse_act(point))[2] > 0.0,
)
