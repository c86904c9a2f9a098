"""Poses whose roll and pitch an IMU knows: position and the turn about the vertical are free.

    VertexPose4DoF   world_T_body, z of the world up;   t <- t + dt,   R <- Exp(0, 0, yaw) R
    Edge4DoF         measured^-1 (first^-1 second), as EdgeSE3

For pose graphs after a loop closure (Qin, Li, Shen: VINS-Mono, TRO 2018, section VIII; ORB-SLAM3's
`OptimizeEssentialGraph4DoF`). g2o has no such types.
"""

from __future__ import annotations

from typing import Any

from graphopt.geometry import SE3, SO3, concatenate, stack
from graphopt.types.base import VertexType
from graphopt.types.define import define_edge
from graphopt.types.registry import register
from graphopt.types.slam3d import ISOMETRY_FILE, minimal

Array = Any


def oplus_4dof(storage: Array, delta: Array) -> Array:
    """Add to the position, turn about the world's z from the left."""
    yaw = delta[..., 3][()]
    turn = SO3.exp(stack(0.0 * yaw, 0.0 * yaw, yaw))
    return concatenate(storage[..., :3] + delta[..., :3], (turn * SO3(storage[..., 3:])).storage)


def edge_4dof(first: SE3, second: SE3, measured: SE3) -> Array:
    """measured^-1 (first^-1 second)."""
    return minimal(measured.between(first.between(second)))


VertexPose4DoF = register(
    VertexType(
        "VertexPose4DoF",
        "VERTEX_VI_POSE_4DOF",
        7,
        4,
        oplus_4dof,
        SE3,
        SE3.identity_storage,
        ISOMETRY_FILE,
        pose=SE3,
        place=lambda pose, storage: pose.storage,
        role="pose",
        doc="Pose whose position and heading are free: x, y, z, qx, qy, qz, qw; the world's z is up.",
    )
)
Edge4DoF = define_edge(
    "Edge4DoF",
    "EDGE_VI_4DOF",
    (VertexPose4DoF, VertexPose4DoF),
    6,
    edge_4dof,
    SE3,
    measurement=ISOMETRY_FILE,
    relative_pose=lambda z: z,
)
