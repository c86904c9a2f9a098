"""Where a vertex is: its pose world_T_body as a value of SE2, SE3 or Sim3, and back.

    `VertexType.pose`    storage (..., storage_dim) -> world_T_body
    `VertexType.place`   (world_T_body, storage) -> storage with that pose; what else it holds stays

Everything that needs poses (pictures, trajectories, the gauge, start values) asks the type; no table by
names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypedDict

import numpy as np

from graphopt.errors import OptionError
from graphopt.geometry import SE2, SE3, Sim3

Array = Any
Pose = Any
"""SE2, SE3 or Sim3."""

ROLES = ("pose", "camera_pose", "similarity", "camera", "point", "")
"""What a vertex stands for.

pose           the place of a body, measured in metres and radians
camera_pose    the same of a camera, which pixels see
similarity     a pose with a scale
camera         a pose with more that is optimized, such as its focal length
point          a point of the map; its storage is its place
""             anything else (a velocity, a bias, coefficients)
"""
POSE_ROLES = ("pose", "camera_pose", "similarity")
"""Nothing but a pose: holding one such vertex takes exactly the freedom of the whole."""


def stored_pose(group: type[Any], *, inverted: bool = False, first: int = 0) -> dict[str, Any]:
    """`pose` and `place` of a type that stores a pose from number `first` on; `inverted`: as body_T_world."""
    part = slice(first, first + group.storage_dim)

    def pose(storage: Array) -> Pose:
        value = group(storage[..., part])
        return value.inverse() if inverted else value

    def place(world_T_body: Pose, storage: Array) -> Array:
        changed = np.array(storage)
        changed[..., part] = (world_T_body.inverse() if inverted else world_T_body).storage
        return changed

    return {"pose": pose, "place": place}


def in_space(pose: Pose) -> Array:
    """x y z qx qy qz qw (..., 7) of a pose: in the plane with z = 0, of a similarity without its scale."""
    storage = np.asarray(pose.storage, float)
    if isinstance(pose, SE2):
        x, y, theta = np.moveaxis(storage, -1, 0)
        zero = np.zeros_like(x)
        return np.stack([x, y, zero, zero, zero, np.sin(theta / 2), np.cos(theta / 2)], axis=-1)
    return storage[..., :7]


class PoseFields(TypedDict, total=False):
    """Keywords of `vertex_type` that say which pose an estimate is, and what the vertex stands for."""

    pose: Any
    place: Callable[[Any, Array], Array] | None
    role: str | None


def of_user(group: Any, pose: Any = None, place: Any = None, role: str | None = None) -> dict[str, Any]:
    """`pose`, `place` and `role` of a user's type from what the definition says.

    `group` is what its storage is as a whole, if that is SE2, SE3 or Sim3. `pose` is a function,
    "world_T_body", "body_T_world", or None for a value that is no pose.
    """
    if role is not None and role not in ROLES:
        raise OptionError(f"role is {role!r}, expected one of {', '.join(map(repr, ROLES))}.")
    if isinstance(pose, str):
        if pose not in ("world_T_body", "body_T_world") or not is_pose_group(group):
            raise OptionError(
                f"pose is {pose!r}, expected 'world_T_body' or 'body_T_world' for a type that is SE2, SE3 or "
                "Sim3, or a function storage -> world_T_body."
            )
        forms = stored_pose(group, inverted=pose == "body_T_world")
        default = "similarity" if group is Sim3 else "pose"
        return {**forms, "role": default if role is None else role}
    if pose is None:
        return {"role": role or ""}
    return {"pose": pose, "place": place, "role": "camera" if role is None else role}


def is_pose_group(group: object) -> bool:
    """SE2, SE3 or Sim3."""
    return group in (SE2, SE3, Sim3)
