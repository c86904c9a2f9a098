"""A user's residuals on a model, as Python functions over its images, poses, cameras and points.

    @graphopt.colmap.residual("point", "point", measurement_dim=1)
    def distance(first, second, measured):
        return np.sqrt(((first - second) ** 2).sum(axis=-1, keepdims=True)) - measured

    graphopt.colmap.bundle_adjustment(reconstruction, residuals=[distance([(7, 12)], [[2.0]], sigma=0.01)])

Slots: "pose" is cam_T_world (SE3) of an image, also of one on a rig, "camera" the `Intrinsics` of a camera,
"image" both of an image (`View`), "point" a point (..., 3). They are named by COLMAP's ids. The function is
compiled like those of the library and runs on every device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from graphopt.colmap.options import LOSSES
from graphopt.errors import OptionError
from graphopt.geometry import SE3
from graphopt.geometry.arrays import Array
from graphopt.geometry.cameras import camera_model
from graphopt.io.extra_types import POINT_TAG, frame_vertex, sensor_vertex
from graphopt.types import EdgeType, VertexType, edge_type

if TYPE_CHECKING:
    from graphopt.colmap.problem import Problem

SLOTS = ("pose", "camera", "image", "point")


@dataclass(frozen=True)
class Intrinsics:
    """A camera in a residual."""

    model: str
    params: Array
    """(..., n) in COLMAP's order."""

    def project(self, point: Array) -> Array:
        """Pixel (..., 2) of a point (..., 3) of the camera's frame."""
        return camera_model(self.model).project(self.params, point)


@dataclass(frozen=True)
class View:
    """An image in a residual."""

    cam_T_world: SE3
    camera: Intrinsics

    def project(self, point_world: Array) -> Array:
        """Pixel (..., 2) of a point (..., 3) of the world."""
        return self.camera.project(self.cam_T_world.act(point_world))


@dataclass(frozen=True)
class Rows:
    """Residuals to be added: one function, and what it is taken of."""

    residual: Residual
    ids: np.ndarray
    measurements: np.ndarray
    information: Any
    loss: str
    loss_scale: float

    def add(self, problem: Problem) -> None:
        """Add them to the graph of a problem."""
        placed: dict[tuple[str, ...], list[tuple[int, list[int], list[int]]]] = {}
        for row, ids in enumerate(self.ids.tolist()):
            kinds: list[str] = []
            vertices: list[int] = []
            parameters: list[int] = []
            for slot, id_ in zip(self.residual.slots, ids, strict=True):
                _place(problem, slot, id_, kinds, vertices, parameters)
            placed.setdefault(tuple(kinds), []).append((row, vertices, parameters))
        for placed_kinds, rows in placed.items():
            chosen = [row for row, _, _ in rows]
            kind = self.residual.edge_of(placed_kinds, problem)
            information = self.information
            if isinstance(information, float):
                information = information * np.eye(kind.residual_dim)
            elif information is not None and information.ndim == 3:
                information = information[chosen]
            offsets = np.array([numbers for _, _, numbers in rows])
            problem.graph.add_edges(
                kind,
                np.array([vertices for _, vertices, _ in rows]),
                self.measurements[chosen],
                information,
                kernel=LOSSES[self.loss],
                kernel_width=self.loss_scale,
                parameters=offsets if offsets.size else None,
            )


def _place(
    problem: Problem, slot: str, id_: int, kinds: list[str], vertices: list[int], parameters: list[int]
) -> None:
    """Append the vertices and parameters of what is in a slot, and of which kind they are."""
    model, places = problem.model, problem.places
    if slot == "point":
        kinds.append("point")
        vertices.append(problem.first_point + _row("point", model.points.ids, id_))
        return
    cameras = np.array([camera.id for camera in model.cameras], np.int64)
    if slot == "camera":
        row = _row("camera", cameras, id_)
    else:
        image = _row("image", model.images.ids, id_)
        offset = int(places.offset[image])
        vertices.append(int(places.owner[image]))
        if offset < 0:
            kinds.append("pose")
        elif problem.graph.parameter_sets:
            kinds.append("pose on a constant place")
            parameters.append(offset)
        else:
            kinds.append("pose on a place")
            vertices.append(problem.first_sensor + offset)
        if slot == "pose":
            return
        row = _row("camera", cameras, int(model.images.camera_ids[image]))
    kinds.append(f"camera {model.cameras[row].model}")
    vertices.append(problem.first_camera + row)


def _row(what: str, ids: np.ndarray, id_: int) -> int:
    found = np.flatnonzero(ids == id_)
    if len(found) == 0:
        raise OptionError(f"a residual is of {what} {id_}, but the model has no such {what}.")
    return int(found[0])


@dataclass(frozen=True, eq=False)
class Residual:
    """A function of some slots and a measurement."""

    function: Callable[..., Array]
    slots: tuple[str, ...]
    measurement_dim: int
    _edges: dict[tuple[Any, ...], EdgeType] = field(default_factory=dict)

    def __call__(
        self,
        ids: Any,
        measurements: Any,
        *,
        sigma: Any = None,
        covariance: Any = None,
        loss: str = "TRIVIAL",
        loss_scale: float = 1.0,
    ) -> Rows:
        """Rows (n, slots) of COLMAP's ids with measurements (n, measurement_dim).

        sigma: standard deviation of all components; covariance: (r, r), or (n, r, r). loss: one of COLMAP's.
        """
        ids = np.atleast_2d(np.asarray(ids, np.int64))
        measurements = np.atleast_2d(np.asarray(measurements, float))
        if ids.shape[1:] != (len(self.slots),) or measurements.shape != (len(ids), self.measurement_dim):
            raise OptionError(
                f"ids are {ids.shape} and measurements {measurements.shape}, expected (n, {len(self.slots)}) "
                f"and (n, {self.measurement_dim})."
            )
        if loss not in LOSSES or not loss_scale > 0.0:
            known = ", ".join(LOSSES)
            raise OptionError(f"loss is '{loss}' of scale {loss_scale}, expected one of {known}, scale > 0.")
        if sigma is not None and (covariance is not None or not float(sigma) > 0.0):
            raise OptionError("give a sigma > 0, or a covariance.")
        information = None if covariance is None else np.linalg.inv(np.asarray(covariance, float))
        if sigma is not None:
            information = float(sigma) ** -2
        return Rows(self, ids, measurements, information, loss, loss_scale)

    def edge_of(self, kinds: tuple[str, ...], problem: Problem) -> EdgeType:
        """The edge type for slots of these kinds."""
        cameras = {
            vertices.type.tag: vertices.type
            for vertices in problem.graph.vertex_sets
            if vertices.type.tag.startswith("VERTEX_CAMERA_")
        }
        types: list[VertexType | str] = []
        for kind in kinds:
            if kind.startswith("camera "):
                name = kind.removeprefix("camera ")
                types.append(next(v for tag, v in cameras.items() if _model_of(tag) == name))
            else:
                types.append(POINT_TAG if kind == "point" else frame_vertex())
            if kind == "pose on a place":
                types.append(sensor_vertex())
        key = (kinds, *(str(kind) if isinstance(kind, str) else kind.tag for kind in types))
        if key not in self._edges:
            self._edges[key] = self._define(kinds, tuple(types), len(self._edges))
        return self._edges[key]

    def _define(self, kinds: tuple[str, ...], types: tuple[Any, ...], number: int) -> EdgeType:
        count, slots, function = len(types), self.slots, self.function

        def residual(*values: Any) -> Array:
            """The user's function of what its slots are made of."""
            vertices, parameters = list(values[:count]), list(values[count:-1])
            parts: list[Any] = []
            for kind in kinds:
                first = vertices.pop(0)
                if kind == "pose on a place":
                    first = vertices.pop(0) * first
                elif kind == "pose on a constant place":
                    first = parameters.pop(0).inverse() * first
                parts.append(Intrinsics(kind.removeprefix("camera "), first) if "camera " in kind else first)
            arguments: list[Any] = []
            for slot in slots:
                value = parts.pop(0)
                arguments.append(View(value, parts.pop(0)) if slot == "image" else value)
            return function(*arguments, values[-1])

        places = [kind for kind in kinds if kind == "pose on a constant place"]
        label = f"{function.__module__}.{function.__qualname__}".replace("<locals>", "local")
        define = edge_type(
            tag=f"EDGE_COLMAP_{label}_{number}".upper().replace(".", "_"),
            name=f"EdgeColmap{function.__name__.title().replace('_', '')}{number}",
            vertices=types,
            parameters=("PARAMS_SE3OFFSET",) * len(places),
            measurement_dim=self.measurement_dim,
        )
        return define(residual)


def _model_of(tag: str) -> str:
    """Camera model of the tag of intrinsics."""
    from graphopt.io.extra_types import COLMAP_MODELS

    name = tag.removeprefix("VERTEX_CAMERA_")
    return max((model for model in COLMAP_MODELS if name == model or name.startswith(f"{model}_")), key=len)


def residual(*slots: str, measurement_dim: int) -> Callable[[Callable[..., Array]], Residual]:
    """Make a function of these slots and a measurement (..., measurement_dim) a residual on models."""
    unknown = [slot for slot in slots if slot not in SLOTS]
    if unknown or not slots:
        raise OptionError(f"slots are {', '.join(slots)}, expected some of {', '.join(SLOTS)}.")
    return lambda function: Residual(function, tuple(slots), measurement_dim)


def has_any(rows: Rows | Sequence[Any]) -> bool:
    """Whether there are residuals of the user's."""
    return not isinstance(rows, Sequence) or len(rows) > 0


def add_residuals(problem: Problem, rows: Rows | Sequence[Any]) -> None:
    """Add what `bundle_adjustment` was given: a list, or one of them."""
    for each in rows if isinstance(rows, Iterable) else [rows]:
        if not isinstance(each, Rows):
            raise OptionError(
                f"a residual is a {type(each).__name__}, expected what a function decorated with "
                "graphopt.colmap.residual returns for ids and measurements."
            )
        each.add(problem)
