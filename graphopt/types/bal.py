"""Bundle Adjustment in the Large: Snavely's camera with 9 numbers (Agarwal et al., ECCV 2010).

    point_cam = rotate(angle_axis, point) + t,   p = -(x, y) / z,   pixel = f (1 + k1 |p|^2 + k2 |p|^4) p

The residual is pixel - measured, as in the examples of g2o and Ceres. All 9 numbers are updated by addition.
g2o has these types in an example and no tags for them.
"""

from __future__ import annotations

from typing import Any

from graphopt.geometry import SE3, SO3, components, concatenate
from graphopt.geometry.cameras import project_snavely
from graphopt.types.base import VertexType
from graphopt.types.define import add, define_edge
from graphopt.types.files import plain
from graphopt.types.g2o_maps import rotate_by_angle_axis
from graphopt.types.registry import register
from graphopt.types.slam3d import VertexPointXYZ

Array = Any


class BalCamera:
    """Storage (..., 9): angle-axis (3), translation (3), f, k1, k2."""

    __slots__ = ("storage",)

    def __init__(self, storage: Array) -> None:
        self.storage = storage

    def project(self, point: Array) -> Array:
        """Pixel of a point of the world."""
        return project_snavely(self.storage[..., 6:9], self.in_camera(point))

    def in_camera(self, point: Array) -> Array:
        """Point of the world in the camera's frame."""
        return rotate_by_angle_axis(self.storage[..., :3], point) + self.storage[..., 3:6]


def pose_of_camera(storage: Array) -> SE3:
    """world_T_cam of cameras (..., 9)."""
    quaternion = SO3.exp(storage[..., :3]).storage
    return SE3.from_parts(storage[..., 3:6], quaternion).inverse()


def placed_camera(world_T_cam: SE3, storage: Array) -> Array:
    """Cameras (..., 9) with other poses."""
    cam_T_world = world_T_cam.inverse()
    angle_axis = SO3(cam_T_world.quaternion).log()
    return concatenate(angle_axis, cam_T_world.translation, storage[..., 6:])


VertexCamBAL = register(
    VertexType(
        "VertexCamBAL",
        "VERTEX_CAM_BAL",
        9,
        9,
        add,
        BalCamera,
        (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0),
        plain(9),
        ("VertexCameraBAL",),
        doc="Camera: angle-axis (3) [rad], translation (3), f, k1, k2.",
        role="camera",
        pose=pose_of_camera,
        place=placed_camera,
    )
)


def edge_observation_bal(camera: BalCamera, point: Array, measured: Array) -> Array:
    """Pixel - measured."""
    return camera.project(point) - measured


EdgeObservationBAL = define_edge(
    "EdgeObservationBAL",
    "EDGE_OBSERVATION_BAL",
    (VertexCamBAL, VertexPointXYZ),
    2,
    edge_observation_bal,
    sees=lambda camera, point, measured: components(camera.in_camera(point))[2] < 0.0,
)
