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

from graphopt.geometry import SE3
from graphopt.geometry.arrays import Array, components, normalize_angle, stack
from graphopt.geometry.cameras import CAMERA_MODELS, perspective, radial_tangential
from graphopt.types import EdgeType, VertexType, edge_type, registry, vertex_type
from graphopt.types.sba import oplus_expmap

POSE_TAG = "VERTEX_SE3:EXPMAP"
POINT_TAG = "VERTEX_TRACKXYZ"
SENSOR_TAG = "VERTEX_SENSOR_SE3"
COLMAP_MODELS = tuple(name for name, model in CAMERA_MODELS.items() if model.colmap_id is not None)
"""COLMAP's models that have a projection here."""


@edge_type(tag="EDGE_BEARING_RANGE_SE2_XY", vertices=("VERTEX_SE2", "VERTEX_XY"), measurement_dim=2)
def EdgeBearingRange(pose, point, measurement):
    """Bearing [rad] and range of a point in the frame of a 2-D pose."""
    x, y = components(pose.inverse().act(point))
    bearing, distance = components(measurement)
    return stack(normalize_angle(np.arctan2(y, x) - bearing), np.sqrt(x * x + y * y) - distance)


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

    def oplus(intrinsics: Array, delta: Array) -> Array:
        """Move what is refined."""
        parts, steps = list(components(intrinsics)), components(delta)
        for i, step in zip(moving, steps, strict=True):
            parts[i] = parts[i] + step
        return stack(*parts)

    identity = [1.0 if name.startswith("f") else 0.0 for name in parameter_names]
    define = vertex_type(
        tag=f"VERTEX_CAMERA_{model}{_suffix(refined)}",
        tangent_dim=len(moving),
        storage_dim=len(parameter_names),
        identity=identity,
        name=f"VertexCamera{model.title().replace('_', '')}{_suffix(refined)}",
    )
    return define(oplus)


def _define_projection(
    model: str, project: Callable[[Array, Array], Array], camera: VertexType, suffix: str = ""
) -> EdgeType:
    def residual(cam_T_world, point_world: Array, intrinsics: Array, pixel: Array) -> Array:
        """Projected minus measured pixel."""
        return project(intrinsics, cam_T_world.act(point_world)) - pixel

    def sees(cam_T_world, point_world: Array, *rest: Array) -> Array:
        return components(cam_T_world.act(point_world))[2] > 0.0

    define = edge_type(
        tag=f"EDGE_PROJECT_{model}{suffix}",
        vertices=(POSE_TAG, POINT_TAG, camera),
        measurement_dim=2,
        name=f"EdgeProject{model.title().replace('_', '')}{suffix}",
        sees=None if "FISHEYE" in model else sees,
    )
    return define(residual)


def _define_rig_projection(
    model: str, project: Callable[[Array, Array], Array], camera: VertexType, suffix: str = ""
) -> EdgeType:
    def residual(rig_T_world, point_world: Array, intrinsics: Array, rig_T_cam, pixel: Array) -> Array:
        """Projected minus measured pixel."""
        return project(intrinsics, rig_T_cam.inverse_act(rig_T_world.act(point_world))) - pixel

    def sees(rig_T_world, point_world: Array, intrinsics: Array, rig_T_cam, pixel: Array) -> Array:
        return components(rig_T_cam.inverse_act(rig_T_world.act(point_world)))[2] > 0.0

    define = edge_type(
        tag=f"EDGE_PROJECT_{model}_RIG{suffix}",
        vertices=(POSE_TAG, POINT_TAG, camera),
        parameters=("PARAMS_SE3OFFSET",),
        measurement_dim=2,
        name=f"EdgeProject{model.title().replace('_', '')}Rig{suffix}",
        sees=None if "FISHEYE" in model else sees,
    )
    return define(residual)


def projection_types(model: str, refined: Refined = AS_COLMAP) -> ProjectionTypes:
    """Types of one of `COLMAP_MODELS`.

    Where nothing is refined, those of the default; the cameras are to be fixed then.
    """
    moves = any(refined.moves(name) for name in CAMERA_MODELS[model].parameter_names)
    return _projection_types(model, refined if moves else AS_COLMAP)


@functools.cache
def _projection_types(model: str, refined: Refined) -> ProjectionTypes:
    known = CAMERA_MODELS[model]
    camera = _define_camera(model, known.parameter_names, refined)
    suffix = _suffix(refined)
    return ProjectionTypes(
        camera,
        _define_projection(model, known.project, camera, suffix),
        _define_rig_projection(model, known.project, camera, suffix),
    )


@functools.cache
def free_rig_edge(model: str, refined: Refined = AS_COLMAP) -> EdgeType:
    """Observations from a place on a rig that is estimated, too: pose, point, intrinsics, sensor_T_rig.

    Made on first use, also by a file that has it (`define`). Tags: EDGE_PROJECT_<MODEL>_SENSOR,
    VERTEX_SENSOR_SE3.
    """
    moves = any(refined.moves(name) for name in CAMERA_MODELS[model].parameter_names)
    project, refined = CAMERA_MODELS[model].project, refined if moves else AS_COLMAP

    def residual(rig_T_world, point_world: Array, intrinsics: Array, sensor_T_rig, pixel: Array) -> Array:
        """Projected minus measured pixel."""
        return project(intrinsics, sensor_T_rig.act(rig_T_world.act(point_world))) - pixel

    def sees(rig_T_world, point_world: Array, intrinsics: Array, sensor_T_rig, pixel: Array) -> Array:
        return components(sensor_T_rig.act(rig_T_world.act(point_world)))[2] > 0.0

    suffix = _suffix(refined)
    define = edge_type(
        tag=f"EDGE_PROJECT_{model}_SENSOR{suffix}",
        vertices=(POSE_TAG, POINT_TAG, projection_types(model, refined).camera, sensor_vertex()),
        measurement_dim=2,
        name=f"EdgeProject{model.title().replace('_', '')}Sensor{suffix}",
        sees=None if "FISHEYE" in model else sees,
    )
    return define(residual)


@functools.cache
def sensor_vertex() -> VertexType:
    """Where a sensor is on its rig: sensor_T_rig, updated as VERTEX_SE3:EXPMAP."""
    define = vertex_type(
        tag=SENSOR_TAG, tangent_dim=6, storage_dim=7, wrap=SE3, identity=SE3.identity_storage, pose=None
    )
    return define(oplus_expmap)


_MADE = re.compile(
    f"(VERTEX_CAMERA|EDGE_PROJECT)_({'|'.join(sorted(COLMAP_MODELS, key=len, reverse=True))})"
    "(_RIG|_SENSOR)?(?:_(F?C?D?))?"
)


def define(tag: str) -> bool:
    """Define the type of a tag that a file may have and that is made on first use; False: there is none."""
    if tag == SENSOR_TAG:
        sensor_vertex()
        return True
    found = _MADE.fullmatch(tag)
    if found is None:
        return False
    _, model, place, letters = found.groups()
    refined = AS_COLMAP if letters is None else Refined(*(letter in letters for letter in "FCD"))
    free_rig_edge(model, refined) if place == "_SENSOR" else projection_types(model, refined)
    return registry.find(tag) is not None


CAMERA_VERTEX: dict[str, VertexType] = {name: projection_types(name).camera for name in COLMAP_MODELS}
"""Camera model -> type of its intrinsics."""
PROJECTION_EDGE: dict[str, EdgeType] = {name: projection_types(name).edge for name in COLMAP_MODELS}
"""Camera model -> type of its observations."""
CAMERA_VERTEX["LIBMV"] = _define_camera("LIBMV", ("f", "cx", "cy", "k1", "k2", "k3", "p1", "p2"))
PROJECTION_EDGE["LIBMV"] = _define_projection("LIBMV", project_libmv, CAMERA_VERTEX["LIBMV"])
ALL = (
    EdgeBearingRange,
    *CAMERA_VERTEX.values(),
    *PROJECTION_EDGE.values(),
    *(projection_types(name).rig_edge for name in COLMAP_MODELS),
)
"""What this module defines at once."""
