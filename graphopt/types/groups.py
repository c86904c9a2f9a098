"""Vertex types from groups, in one line.

    Point = graphopt.group_type("Point", 3)
    Pose = graphopt.group_type("Pose", SE3, side="left")
    Camera = graphopt.group_type("Camera", cam_T_world=SE3, calibration=3)

oplus is x exp(delta), or exp(delta) x from the left; a residual sees the group element (of R^n: the array).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import graphopt.types.registry as registry
from graphopt.errors import OptionError, ShapeError
from graphopt.geometry import Sim3
from graphopt.geometry.group import LieGroup
from graphopt.geometry.product import VectorGroup, product_group, vector_group
from graphopt.types.base import VertexType, unwrapped
from graphopt.types.decorators import default_tag
from graphopt.types.files import VertexFile, plain
from graphopt.types.identity import home_of_caller
from graphopt.types.poses import is_pose_group, of_user, stored_pose

Array = Any
SIDES = ("right", "left")


def group_type(
    name: str,
    group: type[LieGroup] | int | None = None,
    *,
    tag: str | None = None,
    side: str = "right",
    identity: Sequence[float] | None = None,
    aliases: Sequence[str] = (),
    stored_as: Any = "auto",
    role: str | None = None,
    **parts: type[LieGroup] | int,
) -> VertexType:
    """Register and return the vertex type of a group, of R^n, or of the product of `parts`.

    `side`: where oplus multiplies with exp(delta). `identity`: estimate of a vertex that is given none,
    by default the group's neutral element. The tag defaults to `VERTEX_` and the name in capitals.

    `stored_as`: where a vertex is, for pictures, trajectories, the gauge and start values. "auto": of SE2,
    SE3 and Sim3 "world_T_body", what is stored; of parts the first that is one of these and is called
    `world_T_...` or `..._T_world`. Else "world_T_body", "body_T_world", a function storage -> world_T_body,
    or None. `role`: one of `types.poses.ROLES`, such as "point" for points of a map.
    """
    if (group is None) == (not parts):
        raise OptionError(
            f"{name}: pass one group, one number, or named parts: group_type({name!r}, pose=SE3, bias=3)."
        )
    if side not in SIDES:
        raise OptionError(f"{name}: side is {side!r}, expected one of {', '.join(SIDES)}.")
    if parts:
        made: type[LieGroup] = product_group(name, **parts)
    else:
        made = vector_group(group) if isinstance(group, int) else group  # type: ignore[assignment]
    if not (isinstance(made, type) and issubclass(made, LieGroup)):
        raise OptionError(f"{name}: {group!r} is no group; use SO2, SE2, SO3, SE3, Sim3, a number or parts.")
    start = made.identity_storage if identity is None else tuple(float(x) for x in identity)
    if len(start) != made.storage_dim:
        raise ShapeError(f"{name}: identity has {len(start)} numbers, expected {made.storage_dim}.")
    kind = VertexType(
        name,
        tag or default_tag(name, "VERTEX"),
        made.storage_dim,
        made.tangent_dim,
        _oplus(made, side),
        unwrapped if issubclass(made, VectorGroup) else made,
        start,
        _file(made),
        tuple(aliases),
        doc=(made.__doc__ or "").strip(),
        home=home_of_caller(name),
        **_place_of(made, stored_as, role, parts),
    )
    return registry.register(kind)


def _place_of(group: type[Any], pose: Any, role: str | None, parts: dict[str, Any]) -> dict[str, Any]:
    """`pose`, `place` and `role` of the type."""
    whole = group if is_pose_group(group) else None
    if pose != "auto":
        return of_user(whole, pose, None, role)
    if whole is not None:
        return of_user(whole, "world_T_body", None, role)
    first = 0
    for name, part in parts.items():
        if is_pose_group(part) and (name.startswith("world_T_") or name.endswith("_T_world")):
            forms = stored_pose(part, inverted=name.endswith("_T_world"), first=first)
            alone = "similarity" if part is Sim3 else "pose"
            default = alone if len(parts) == 1 else "camera"
            return {**forms, "role": default if role is None else role}
        first += part if isinstance(part, int) else part.storage_dim
    return of_user(None, None, None, role)


def _file(group: type[Any]) -> VertexFile:
    """The stored numbers in order; rounded quaternions of a file become unit quaternions."""
    layout = plain(group.storage_dim)
    if issubclass(group, VectorGroup):
        return layout
    return VertexFile(layout.num_tokens, lambda tokens: group(tokens).normalize().storage, layout.encode)


def _oplus(group: type[Any], side: str) -> Callable[[Array, Array], Array]:
    if issubclass(group, VectorGroup):
        return np.add

    def right(storage: Array, delta: Array) -> Array:
        return group(storage).compose(group.exp(delta)).storage

    def left(storage: Array, delta: Array) -> Array:
        return group.exp(delta).compose(group(storage)).storage

    return right if side == "right" else left
