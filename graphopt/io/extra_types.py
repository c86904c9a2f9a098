"""Types that files need and g2o does not have.

    EDGE_BEARING_RANGE_SE2_XY   GTSAM's BR lines: angle and distance from a 2-D pose to a point
    VERTEX_CAMERA_<MODEL>       intrinsics of a camera that several images share
    EDGE_PROJECT_<MODEL>        pixel of a point: pose cam_T_world (VERTEX_SE3:EXPMAP), point, intrinsics
    EDGE_PROJECT_<MODEL>_RIG    the same of a camera on a rig: pose rig_T_world, point, intrinsics, and as
                                parameter rig_T_cam (PARAMS_SE3OFFSET)

MODEL is one of COLMAP's camera models, or LIBMV: f cx cy k1 k2 k3 p1 p2 with OpenCV's distortion. As COLMAP
does by default, the update of the intrinsics moves focal lengths and distortion and leaves the principal
point, which is badly determined, where it is. `projection_types` makes the types of other choices; their tags
end in _F, _C, _D for the focal lengths, the principal point, the distortion that move. `define` makes them
for a file that has them.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from graphopt.geometry import SE3, SO3
from graphopt.geometry.arrays import Array, components, concatenate, normalize_angle, stack, where
from graphopt.geometry.cameras import CAMERA_MODELS, CameraModel, perspective, radial_tangential
from graphopt.plugins import entry_points_of
from graphopt.types import EdgeType, VertexType, edge_type, registry, vertex_type
from graphopt.types.poses import stored_pose

POSE_TAG = "VERTEX_SE3:EXPMAP"
POINT_TAG = "VERTEX_TRACKXYZ"
SENSOR_TAG = "VERTEX_SENSOR_SE3"
FRAME_TAG = "VERTEX_FRAME_SE3"
COLMAP_MODELS = tuple(name for name, model in CAMERA_MODELS.items() if model.colmap_id is not None)
"""COLMAP's models that have a projection here."""


@edge_type(tag="EDGE_BEARING_RANGE_SE2_XY", vertices=("VERTEX_SE2", "VERTEX_XY"), measurement_dim=2)
def EdgeBearingRange(pose, point, measurement):
    """Bearing [rad] and range of a point in the frame of a 2-D pose."""
    x, y = components(pose.inverse().act(point))
    bearing, distance = components(measurement)
    return stack(normalize_angle(np.arctan2(y, x) - bearing), np.sqrt(x * x + y * y) - distance)


_AHEAD = CameraModel("LIBMV", (), lambda parameters, point: point)
"""Stands for models that are none of COLMAP's."""


def project_libmv(parameters: Array, point: Array) -> Array:
    """Blender's camera: parameters f, cx, cy, k1, k2, k3, p1, p2."""
    f, cx, cy, k1, k2, k3, p1, p2 = components(parameters)
    x, y = components(radial_tangential(perspective(point), k1, k2, p1, p2, k3))
    return stack(f * x + cx, f * y + cy)


class Refined(NamedTuple):
    """Which intrinsics an optimization moves. The defaults are COLMAP's."""

    focal_length: bool = True
    principal_point: bool = False
    distortion: bool = True

    def moves(self, parameter: str) -> bool:
        """Whether a parameter such as "fx", "cy" or "k1" moves."""
        if parameter.startswith("f"):
            return self.focal_length
        if parameter in ("w", "h"):  # the image's size
            return False
        return self.principal_point if parameter in ("cx", "cy") else self.distortion


AS_COLMAP = Refined()


class ProjectionTypes(NamedTuple):
    """Types of the intrinsics of one camera model and of its observations."""

    camera: VertexType
    edge: EdgeType
    rig_edge: EdgeType
    """Of observations from a place on a rig."""


def _suffix(refined: Refined) -> str:
    """What stands behind the model in the tags; nothing for the default."""
    if refined == AS_COLMAP:
        return ""
    letters = zip(refined, ("F", "C", "D"), strict=True)
    return "_" + "".join(letter for moves, letter in letters if moves)


def _define_camera(model: str, parameter_names: tuple[str, ...], refined: Refined = AS_COLMAP) -> VertexType:
    moving = [i for i, name in enumerate(parameter_names) if refined.moves(name)]
    moving = moving or list(range(len(parameter_names)))  # such cameras are fixed

    def oplus(intrinsics: Array, delta: Array) -> Array:
        """Move what is refined."""
        parts, steps = list(components(intrinsics)), components(delta)
        for i, step in zip(moving, steps, strict=True):
            parts[i] = parts[i] + step
        return stack(*parts)

    identity = [1.0 if name[0] in "fwh" or name in ("beta", "omega") else 0.0 for name in parameter_names]
    define = vertex_type(
        tag=f"VERTEX_CAMERA_{model}{_suffix(refined)}",
        tangent_dim=len(moving),
        storage_dim=len(parameter_names),
        identity=identity,
        name=f"VertexCamera{model.title().replace('_', '')}{_suffix(refined)}",
    )
    return define(oplus)


def _sees(model: str, in_camera: Callable[..., Array]) -> Callable[..., Array] | None:
    """`EdgeType.sees`; a fisheye may see behind itself. in_camera: arguments of an edge -> point (..., 3)."""
    if "FISHEYE" in model or not CAMERA_MODELS.get(model, _AHEAD).sees_ahead:
        return None
    return lambda *arguments: components(in_camera(*arguments))[2] > 0.0


Shown = Callable[[Array, Array], Array]
"""(intrinsics, point in the camera's frame) -> whether an observation counts."""


def _residual_of(
    project: Callable[[Array, Array], Array],
    point: Array,
    intrinsics: Array,
    pixel: Array,
    shown: Shown | None,
) -> Array:
    """Projected minus measured pixel; nothing of points that are not shown, as COLMAP has it."""
    if shown is None:
        return project(intrinsics, point) - pixel
    x, y, z = components(point)
    is_shown = shown(intrinsics, point)
    seen = stack(where(is_shown, x, 0.0), where(is_shown, y, 0.0), where(is_shown, z, 1.0))
    u, v = components(project(intrinsics, seen) - pixel)
    return stack(where(is_shown, u, 0.0), where(is_shown, v, 0.0))


def _is_ahead(intrinsics: Array, point: Array) -> Array:
    return components(point)[2] > np.finfo(float).eps


def _shown(model: str, hides: bool) -> Shown | None:
    """What COLMAP's adjustment counts of a model; None: everything."""
    known = CAMERA_MODELS.get(model, _AHEAD)
    if not hides:
        return None
    return _is_ahead if known.sees_ahead else known.has_image


def _define_projection(
    model: str,
    project: Callable[[Array, Array], Array],
    camera: VertexType,
    suffix: str = "",
    hides: bool = False,
) -> EdgeType:
    shown = _shown(model, hides)

    def residual(cam_T_world, point_world: Array, intrinsics: Array, pixel: Array) -> Array:
        """Projected minus measured pixel."""
        return _residual_of(project, cam_T_world.act(point_world), intrinsics, pixel, shown)

    define = edge_type(
        tag=f"EDGE_PROJECT_{model}{suffix}",
        vertices=(_pose(hides), POINT_TAG, camera),
        measurement_dim=2,
        name=f"EdgeProject{model.title().replace('_', '')}{suffix}",
        sees=_sees(model, lambda cam_T_world, point_world, *rest: cam_T_world.act(point_world)),
    )
    return define(residual)


def _define_rig_projection(
    model: str,
    project: Callable[[Array, Array], Array],
    camera: VertexType,
    suffix: str = "",
    hides: bool = False,
) -> EdgeType:
    shown = _shown(model, hides)

    def in_camera(rig_T_world, point_world: Array, intrinsics: Array, rig_T_cam, pixel: Array) -> Array:
        return rig_T_cam.inverse_act(rig_T_world.act(point_world))

    def residual(rig_T_world, point_world: Array, intrinsics: Array, rig_T_cam, pixel: Array) -> Array:
        """Projected minus measured pixel."""
        point = in_camera(rig_T_world, point_world, intrinsics, rig_T_cam, pixel)
        return _residual_of(project, point, intrinsics, pixel, shown)

    define = edge_type(
        tag=f"EDGE_PROJECT_{model}_RIG{suffix}",
        vertices=(_pose(hides), POINT_TAG, camera),
        parameters=("PARAMS_SE3OFFSET",),
        measurement_dim=2,
        name=f"EdgeProject{model.title().replace('_', '')}Rig{suffix}",
        sees=_sees(model, in_camera),
    )
    return define(residual)


def _as_defined(model: str, refined: Refined, hides: bool) -> tuple[Refined, bool]:
    """What types there are: the default's where nothing is refined."""
    known = CAMERA_MODELS[model]
    moves = any(refined.moves(name) for name in known.parameter_names)
    return refined if moves else AS_COLMAP, hides


def projection_types(model: str, refined: Refined = AS_COLMAP, hides: bool = False) -> ProjectionTypes:
    """Types of one of `COLMAP_MODELS`.

    Where nothing is refined, those of the default; the cameras are to be fixed then. hides: as in COLMAP's
    own adjustment, observations of points that are not ahead of the camera (z > 0) count nothing, and poses
    are of the type `frame_vertex`; the tags end in _AHEAD. Else such a point is mapped to where nothing was
    seen.
    """
    return _projection_types(model, *_as_defined(model, refined, hides))


@functools.cache
def _projection_types(model: str, refined: Refined, hides: bool) -> ProjectionTypes:
    known = CAMERA_MODELS[model]
    suffix = _suffix(refined)
    if hides:
        camera = _projection_types(model, refined, False).camera
    else:
        camera = _define_camera(model, known.parameter_names, refined)
    suffix += "_AHEAD" if hides else ""
    return ProjectionTypes(
        camera,
        _define_projection(model, known.project, camera, suffix, hides),
        _define_rig_projection(model, known.project, camera, suffix, hides),
    )


def free_rig_edge(model: str, refined: Refined = AS_COLMAP, hides: bool = False) -> EdgeType:
    """Observations from a place on a rig that is estimated, too: pose, point, intrinsics, sensor_T_rig.

    Made on first use, also by a file that has it (`define`). Tags: EDGE_PROJECT_<MODEL>_SENSOR,
    VERTEX_SENSOR_SE3.
    """
    return _free_rig_edge(model, *_as_defined(model, refined, hides))


@functools.cache
def _free_rig_edge(model: str, refined: Refined, hides: bool) -> EdgeType:
    project = CAMERA_MODELS[model].project
    shown = _shown(model, hides)

    def residual(rig_T_world, point_world: Array, intrinsics: Array, sensor_T_rig, pixel: Array) -> Array:
        """Projected minus measured pixel."""
        point = sensor_T_rig.act(rig_T_world.act(point_world))
        return _residual_of(project, point, intrinsics, pixel, shown)

    suffix = _suffix(refined) + ("_AHEAD" if hides else "")
    define = edge_type(
        tag=f"EDGE_PROJECT_{model}_SENSOR{suffix}",
        vertices=(_pose(hides), POINT_TAG, projection_types(model, refined).camera, sensor_vertex()),
        measurement_dim=2,
        name=f"EdgeProject{model.title().replace('_', '')}Sensor{suffix}",
        sees=_sees(
            model,
            lambda rig_T_world, point_world, intrinsics, sensor_T_rig, pixel: sensor_T_rig.act(
                rig_T_world.act(point_world)
            ),
        ),
    )
    return define(residual)


def _oplus_apart(storage: Array, delta: Array) -> Array:
    """Ceres' update of COLMAP's poses: R <- exp(omega) R, t <- t + v, for a delta (omega, v)."""
    turned = SO3.exp(delta[..., :3]) * SO3(storage[..., 3:7])
    return concatenate(storage[..., :3] + delta[..., 3:6], turned.storage)


@functools.cache
def sensor_vertex() -> VertexType:
    """Where a sensor is on its rig: sensor_T_rig."""
    define = vertex_type(
        tag=SENSOR_TAG, tangent_dim=6, storage_dim=7, wrap=SE3, identity=SE3.identity_storage, pose=None
    )
    return define(_oplus_apart)


@functools.cache
def frame_vertex() -> VertexType:
    """Pose of a frame, rig_T_world, with rotation and translation updated apart from each other."""
    define = vertex_type(
        tag=FRAME_TAG,
        name="VertexFrameSE3",
        tangent_dim=6,
        storage_dim=7,
        wrap=SE3,
        identity=SE3.identity_storage,
        role="camera_pose",
        **stored_pose(SE3, inverted=True),
    )
    return define(_oplus_apart)


def _pose(hides: bool) -> VertexType | str:
    return frame_vertex() if hides else POSE_TAG


_MADE = re.compile(
    f"(VERTEX_CAMERA|EDGE_PROJECT)_({'|'.join(sorted(COLMAP_MODELS, key=len, reverse=True))})"
    "(_RIG|_SENSOR)?(?:_(?=[FCD])(F?C?D?))?(_AHEAD)?"
)


def define(tag: str) -> bool:
    """Define the type of a tag that a file may have and that is made on first use; False: there is none.

    Those of installed packages are looked for, too (`registry.find`).
    """
    if tag in (SENSOR_TAG, FRAME_TAG):
        (sensor_vertex if tag == SENSOR_TAG else frame_vertex)()
        return True
    match = _MADE.fullmatch(tag)
    if match is None:
        return tag in entry_points_of(registry.ENTRY_POINTS) and registry.find(tag) is not None
    _, model, place, letters, ahead = match.groups()
    refined = AS_COLMAP if letters is None else Refined(*(letter in letters for letter in "FCD"))
    make = free_rig_edge if place == "_SENSOR" else projection_types
    make(model, refined, ahead is not None)
    return registry.find(tag) is not None


COMMON_MODELS = tuple(name for name in COLMAP_MODELS if (CAMERA_MODELS[name].colmap_id or 0) < 6)
"""Models whose types are defined at once; those of the others are made on first use."""
CAMERA_VERTEX: dict[str, VertexType] = {name: projection_types(name).camera for name in COMMON_MODELS}
"""Camera model -> type of its intrinsics."""
PROJECTION_EDGE: dict[str, EdgeType] = {name: projection_types(name).edge for name in COMMON_MODELS}
"""Camera model -> type of its observations."""
CAMERA_VERTEX["LIBMV"] = _define_camera("LIBMV", ("f", "cx", "cy", "k1", "k2", "k3", "p1", "p2"))
PROJECTION_EDGE["LIBMV"] = _define_projection("LIBMV", project_libmv, CAMERA_VERTEX["LIBMV"])
ALL = (
    EdgeBearingRange,
    *CAMERA_VERTEX.values(),
    *PROJECTION_EDGE.values(),
    *(projection_types(name).rig_edge for name in COMMON_MODELS),
)
"""What this module defines at once."""
