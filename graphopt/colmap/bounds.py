"""Bounds of an adjustment: focal lengths, distortion, any intrinsics, depths of points in their images.

COLMAP's mapper rejects cameras that came out wrong (`min_focal_length_ratio`, `max_focal_length_ratio`,
`max_extra_param`); here the same numbers are kept to while adjusting.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from graphopt.colmap.problem import Problem
from graphopt.errors import GraphError, OptionError, ShapeError
from graphopt.geometry.arrays import components
from graphopt.geometry.cameras import CAMERA_MODELS
from graphopt.graph import EdgeSet
from graphopt.io.extra_types import POINT_TAG, Refined, frame_vertex, sensor_vertex
from graphopt.types import edge_type
from graphopt.types.base import EdgeType

_NOT_DISTORTION = ("w", "h")
"""Names of parameters that are neither focal lengths, principal points nor distortion."""


@dataclass(frozen=True)
class Bounds:
    """What refined intrinsics and points keep to. None: no bound; constant intrinsics have none."""

    min_focal_length_ratio: float | None = None
    """Smallest focal length over the larger side of the image (0.1 in COLMAP's mapper)."""
    max_focal_length_ratio: float | None = None
    """Largest one (10 in COLMAP's mapper)."""
    max_extra_param: float | None = None
    """Largest absolute value of distortion parameters (1 in COLMAP's mapper)."""
    cameras: Mapping[int, tuple[Any, Any]] = field(default_factory=dict)
    """Camera id -> (lower, upper), a number for each of its parameters, infinite where there is no bound.
    They come in place of the others."""
    min_depth: float | None = None
    """Smallest depth of a point in each image that sees it, in units of the model. Not for cameras that see
    what is behind them."""

    def __post_init__(self) -> None:
        for name in ("min_focal_length_ratio", "max_focal_length_ratio", "max_extra_param", "min_depth"):
            value = getattr(self, name)
            if value is not None and not 0.0 <= value < np.inf:
                raise OptionError(f"{name} is {value!r}, must be a number >= 0.")
        low, high = self.min_focal_length_ratio, self.max_focal_length_ratio
        if low is not None and high is not None and low > high:
            raise OptionError(f"min_focal_length_ratio is {low}, above max_focal_length_ratio, {high}.")

    def of(self, model: str, size: int, refined: Refined) -> tuple[np.ndarray, np.ndarray]:
        """(lower, upper) of the parameters of a camera whose image's larger side is `size` [px]."""
        names = CAMERA_MODELS[model].parameter_names
        lower, upper = np.full(len(names), -np.inf), np.full(len(names), np.inf)
        for place, name in enumerate(names):
            if not refined.moves(name) or name in ("cx", "cy", *_NOT_DISTORTION):
                continue
            if name.startswith("f"):
                low, high = self.min_focal_length_ratio, self.max_focal_length_ratio
                lower[place] = -np.inf if low is None else low * size
                upper[place] = np.inf if high is None else high * size
            elif self.max_extra_param is not None:
                lower[place], upper[place] = -self.max_extra_param, self.max_extra_param
        return lower, upper


def bounds_of(bounds: Any) -> Bounds:
    """Themselves, or none; `OptionError` for anything else."""
    if bounds is not None and not isinstance(bounds, Bounds):
        raise OptionError(f"bounds are a {type(bounds).__name__}, expected graphopt.colmap.Bounds.")
    return bounds or Bounds()


def add_bounds(problem: Problem, bounds: Bounds, refined: Refined) -> None:
    """Bound the free cameras of a problem, and the depths of all observations with something free.

    Raises `OptionError` for a camera that the model does not have, or bounds that it cannot have.
    """
    graph, cameras = problem.graph, problem.model.cameras
    row_of = {camera.id: row for row, camera in enumerate(cameras)}
    missing = sorted(bounds.cameras.keys() - row_of.keys())
    if missing:
        raise OptionError(f"bounds name camera {missing[0]}, but the model has no such camera.")
    for vertices in graph.vertex_sets:
        if not vertices.type.tag.startswith("VERTEX_CAMERA_"):
            continue
        for vertex_id in vertices.ids[~vertices.fixed].tolist():
            camera = cameras[vertex_id - problem.first_camera]
            given = bounds.cameras.get(camera.id)
            chosen = (
                bounds.of(camera.model, max(camera.width, camera.height), refined) if given is None else given
            )
            try:
                graph.set_bounds([vertex_id], *chosen)
            except (GraphError, ShapeError) as error:
                raise OptionError(f"bounds of camera {camera.id}: {error}") from None
    if bounds.min_depth is not None:
        for edges in list(graph.edge_sets):
            if edges.type.tag.startswith("EDGE_PROJECT_") and len(edges):
                _add_depths(problem, edges, bounds.min_depth)


def _add_depths(problem: Problem, edges: EdgeSet, min_depth: float) -> None:
    camera = problem.model.cameras[int(edges.vertices[0, 2]) - problem.first_camera]
    if not CAMERA_MODELS[camera.model].sees_ahead:
        raise OptionError(
            f"camera {camera.id} is a {camera.model}, which sees what is behind it: leave min_depth out."
        )
    has_sensor = len(edges.type.vertices) == 4
    slots = [0, 1, 3] if has_sensor else [0, 1]
    kind = _depth_type(has_sensor, bool(edges.type.parameters))
    parameters = edges.parameters if edges.type.parameters else None
    problem.graph.add_edges(kind, edges.vertices[:, slots], [[min_depth]] * len(edges), parameters=parameters)


@functools.cache
def _depth_type(has_sensor: bool, has_offset: bool) -> EdgeType:
    """Depth of a point in an image, less the smallest one."""

    def of_sensor(rig_T_world, point_world, sensor_T_rig, smallest):
        return components(sensor_T_rig.act(rig_T_world.act(point_world)))[2] - smallest

    def of_offset(rig_T_world, point_world, rig_T_cam, smallest):
        return components(rig_T_cam.inverse_act(rig_T_world.act(point_world)))[2] - smallest

    def of_camera(cam_T_world, point_world, smallest):
        return components(cam_T_world.act(point_world))[2] - smallest

    define = edge_type(
        tag=f"EDGE_POINT_DEPTH{'_SENSOR' if has_sensor else '_RIG' if has_offset else ''}",
        vertices=(frame_vertex(), POINT_TAG, *((sensor_vertex(),) if has_sensor else ())),
        parameters=("PARAMS_SE3OFFSET",) if has_offset else (),
        measurement_dim=1,
        name=f"EdgePointDepth{'Sensor' if has_sensor else 'Rig' if has_offset else ''}",
        inequality=True,
    )
    return define(of_sensor if has_sensor else of_offset if has_offset else of_camera)
