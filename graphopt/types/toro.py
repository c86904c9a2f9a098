"""Layouts of TORO's tags (VERTEX2, EDGE2, VERTEX3, EDGE3), which some .g2o files hold.

    VERTEX2  id  x y theta
    EDGE2    i j x y theta   I_xx I_xy I_yy I_tt I_xt I_yt
    VERTEX3  id  x y z roll pitch yaw
    EDGE3    i j x y z roll pitch yaw   upper triangle of the 6 x 6 information

Rotation: R = Rz(yaw) Ry(pitch) Rx(roll). The information of EDGE3 is of the angles; g2o's error has the
quaternion's vector part, which is half of a small angle: rows and columns of the rotation are doubled.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphopt.types.files import (
    EdgeFile,
    VertexFile,
    identity_matrices,
    matrix_to_triangle,
    triangle_to_matrix,
)

Array = Any

_TRIANGLE2 = [0, 1, 4, 2, 5, 3]  # position in a line of I_xx I_xy I_xt I_yy I_yt I_tt
_INVERSE2 = np.argsort(_TRIANGLE2)
_SCALE3 = np.array([1.0, 1.0, 1.0, 2.0, 2.0, 2.0])


def pose_from_euler(tokens: Array) -> Array:
    """(n, 6) x y z roll pitch yaw -> (n, 7) x y z qx qy qz qw with qw >= 0."""
    half = 0.5 * tokens[:, 3:6]
    (sr, sp, sy), (cr, cp, cy) = np.sin(half).T, np.cos(half).T
    q = np.stack(
        [
            sr * cp * cy - cr * sp * sy,
            cr * sp * cy + sr * cp * sy,
            cr * cp * sy - sr * sp * cy,
            cr * cp * cy + sr * sp * sy,
        ],
        axis=-1,
    )
    q *= np.where(q[:, 3:] < 0.0, -1.0, 1.0)
    return np.concatenate([tokens[:, :3], q], axis=-1)


def euler_from_pose(storage: Array) -> Array:
    """(n, 7) x y z qx qy qz qw -> (n, 6) x y z roll pitch yaw."""
    x, y, z, w = np.asanyarray(storage)[:, 3:7].T
    roll = np.arctan2(2.0 * (w * x + y * z), 1.0 - 2.0 * (x * x + y * y))
    pitch = np.arcsin(np.clip(2.0 * (w * y - z * x), -1.0, 1.0))
    yaw = np.arctan2(2.0 * (w * z + x * y), 1.0 - 2.0 * (y * y + z * z))
    return np.concatenate([np.asanyarray(storage)[:, :3], np.stack([roll, pitch, yaw], axis=-1)], axis=-1)


def _decode_edge2(tokens: Array) -> tuple[Array, Array]:
    return tokens[:, :3].copy(), triangle_to_matrix(tokens[:, 3:][:, _TRIANGLE2], 3)


def _encode_edge2(measurement: Array, information: Array) -> Array:
    return np.concatenate([measurement, matrix_to_triangle(information)[:, _INVERSE2]], axis=-1)


def _decode_edge3(tokens: Array) -> tuple[Array, Array]:
    information = triangle_to_matrix(tokens[:, 6:], 6) * np.outer(_SCALE3, _SCALE3)
    return pose_from_euler(tokens[:, :6]), information


def _encode_edge3(measurement: Array, information: Array) -> Array:
    return np.concatenate(
        [euler_from_pose(measurement), matrix_to_triangle(information / np.outer(_SCALE3, _SCALE3))], axis=-1
    )


VERTEX3 = VertexFile(6, pose_from_euler, euler_from_pose)
EDGE2 = EdgeFile(9, _decode_edge2, _encode_edge2)
EDGE3 = EdgeFile(
    27,
    _decode_edge3,
    _encode_edge3,
    (
        EdgeFile(
            6,
            lambda tokens: (pose_from_euler(tokens), identity_matrices(len(tokens), 6)),
            lambda measurement, information: euler_from_pose(measurement),
        ),
    ),
)
