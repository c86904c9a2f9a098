"""One class per edge type of the registry, with what g2o's class of that name has besides.

A class whose number of vertices is not fixed (`EdgeSE2LotsOfXY`) gets its rows when `resize` says how many
there are.
"""

from __future__ import annotations

from functools import cache
from typing import Any, ClassVar

import numpy as np

from graphopt.cpu_kernels import kernels
from graphopt.errors import GraphError
from graphopt.g2o.elements.base import INVALID_ID
from graphopt.g2o.elements.edges import OptimizableGraph_Edge
from graphopt.g2o.elements.gicp import DEFAULT_MEASUREMENT, EdgeVVGicp
from graphopt.g2o.engine.storage import Pool, edge_pool, fast_setter
from graphopt.g2o.values import scalar
from graphopt.g2o.values.cameras import VelocityMeasurement
from graphopt.g2o.values.isometries import Isometry3d
from graphopt.g2o.values.poses import SE3Quat, Sim3
from graphopt.g2o.values.se2 import SE2
from graphopt.geometry import stack
from graphopt.types import EdgeType, VariadicEdgeType, icp, registry, sba
from graphopt.types.cache import per_type_cache
from graphopt.types.files import measurement_then_information, plain

_IDENTITY = {3: (0.0,) * 3, 7: (0.0,) * 6 + (1.0,), 8: (0.0,) * 6 + (1.0, 1.0)}


def _value_members(value: Any) -> dict[str, Any]:
    """Conversions for measurements that are objects."""

    def from_storage(self: Any, storage: np.ndarray) -> Any:
        return value._from_storage(storage.tolist())

    def to_storage(self: Any, given: Any) -> Any:
        return given._storage() if type(given) is value else value(given)._storage()

    return {"_from_storage": from_storage, "_to_storage": to_storage, "_value": value}


def _number_from_storage(self: Any, storage: np.ndarray) -> float:
    return float(storage[0])


_NUMBER = {"_from_storage": _number_from_storage}


def _image_members(count: int, point_at: int | None, camera_at: int) -> dict[str, Any]:
    """Members of the projection edges whose stored measurement is: pixel, [point], fx fy cx cy [bf]."""

    def measurement(self: Any) -> np.ndarray:
        return self._chunk.measurement[self._row, :count].copy()

    def set_measurement(self: Any, m: Any) -> None:
        self._chunk.measurement[self._row, :count] = scalar.floats(m, count, "measurement")

    def cam_project(self: Any, point_cam: Any, bf: float | None = None) -> np.ndarray:
        x, y, z = scalar.floats(point_cam, 3, "point")
        fx, fy, cx, cy = self._chunk.measurement[self._row, camera_at : camera_at + 4].tolist()
        u, v = x / z * fx + cx, y / z * fy + cy
        return np.array([u, v, u - (self.bf if bf is None else bf) / z] if count == 3 else [u, v])

    def is_depth_positive(self: Any) -> bool:
        pose = self._vertices[-1]
        _, _, tz, qx, qy, qz, qw = pose._chunk.estimate[pose._row].tolist()
        if point_at is not None:
            x, y, z = self._chunk.measurement[self._row, point_at : point_at + 3].tolist()
        else:
            point = self._vertices[0]
            x, y, z = point._chunk.estimate[point._row].tolist()
        depth = 2.0 * (qx * qz - qw * qy) * x + 2.0 * (qy * qz + qw * qx) * y
        return depth + (1.0 - 2.0 * (qx * qx + qy * qy)) * z + tz > 0.0

    members: dict[str, Any] = {
        "measurement": measurement,
        "set_measurement": fast_setter("measurement", 0, count)(set_measurement),
        "get_measurement_data": measurement,
        "measurement_dimension": lambda self: count,
        "cam_project": cam_project,
        "is_depth_positive": is_depth_positive,
        "isDepthPositive": is_depth_positive,
    }
    for offset, name in enumerate(("fx", "fy", "cx", "cy", "bf")[: 5 if count == 3 else 4]):
        members[name] = _camera_number(camera_at + offset, name)
    if point_at is not None:
        members["Xw"] = _point_property(point_at)
    return members


def _camera_number(at: int, name: str) -> property:
    def get(self: Any) -> float:
        return float(self._chunk.measurement[self._row, at])

    def put(self: Any, value: float) -> None:
        self._chunk.measurement[self._row, at] = value

    def put_single(self: Any, value: float) -> None:
        self._chunk.measurement[self._row, at] = np.float32(value)  # g2o computes with bf in single precision

    is_single = name == "bf"
    python = property(get, put_single if is_single else put, doc=f"{name} of the camera [px].")
    return kernels.fast_property(python, "measurement", at, single=is_single)


def _point_property(at: int) -> property:
    def get(self: Any) -> np.ndarray:
        return self._chunk.measurement[self._row, at : at + 3]

    def put(self: Any, value: Any) -> None:
        self._chunk.measurement[self._row, at : at + 3] = scalar.floats(value, 3, "Xw")

    python = property(get, put, doc="(3,) the point in the world; live.")
    return kernels.fast_property(python, "measurement", at, 3)


def _depth_in_first(self: Any) -> bool:
    """The point, mapped by the similarity, is in front of the camera."""
    return bool(self._vertices[1].estimate().map(self._vertices[0].estimate())[2] > 0.0)


def _depth_in_second(self: Any) -> bool:
    """The point, mapped by the inverse of the similarity, is in front of the camera."""
    return bool(self._vertices[1].estimate().inverse().map(self._vertices[0].estimate())[2] > 0.0)


_MEMBERS: dict[str, dict[str, Any]] = {
    "EdgeSim3ProjectXYZ": {"is_depth_positive": _depth_in_first},
    "EdgeInverseSim3ProjectXYZ": {"is_depth_positive": _depth_in_second},
    **dict.fromkeys(("EdgeSE2", "EdgeSE2Offset", "EdgeSE2Prior", "EdgeSE2SensorCalib"), _value_members(SE2)),
    **dict.fromkeys(("EdgeSE3", "EdgeSE3Offset", "EdgeSE3Prior"), _value_members(Isometry3d)),
    **dict.fromkeys(("EdgeSE3Expmap", "EdgeSBACam"), _value_members(SE3Quat)),
    "EdgeSim3": _value_members(Sim3),
    "EdgeSE2OdomDifferentialCalib": _value_members(VelocityMeasurement),
    **dict.fromkeys(("EdgeSE2PointXYBearing", "EdgeSBAScale"), _NUMBER),
    "EdgeSE3ProjectXYZ": _image_members(2, None, 2),
    "EdgeSE3ProjectXYZOnlyPose": _image_members(2, 2, 5),
    "EdgeStereoSE3ProjectXYZ": _image_members(3, None, 3),
    "EdgeStereoSE3ProjectXYZOnlyPose": _image_members(3, 3, 6),
}

_DEFAULTS: dict[str, tuple[float, ...]] = {
    # g2o's defaults: fx = fy = 1, cx = cy = 0.5
    "EdgeSE3ProjectXYZ": (0.0, 0.0, 1.0, 1.0, 0.5, 0.5),
    "EdgeSE3ProjectXYZOnlyPose": (0.0,) * 5 + (1.0, 1.0, 0.5, 0.5),
    "EdgeStereoSE3ProjectXYZ": (0.0, 0.0, 0.0, 1.0, 1.0, 0.5, 0.5, 0.0),
    "EdgeStereoSE3ProjectXYZOnlyPose": (0.0,) * 6 + (1.0, 1.0, 0.5, 0.5, 0.0),
    "EdgeVVGicp": DEFAULT_MEASUREMENT,
}


_WEIGHTS = {"EdgeSE3PointXYZDepth": (1.0, 1.0, 100.0), "EdgeSE3PointXYZDisparity": (1.0, 1.0, 1000.0)}
"""Diagonal of the information matrix that g2o's constructor sets, where it is not the identity."""


def default_measurement(kind: EdgeType) -> tuple[float, ...]:
    """Stored measurement of an edge that is given none."""
    identity = (0.0,) * kind.measurement_dim
    if _MEMBERS.get(kind.name, {}).get("_value") in (SE2, Isometry3d, SE3Quat, Sim3):
        identity = _IDENTITY[kind.measurement_dim]
    return _DEFAULTS.get(kind.name, identity)


_BASES = {"EdgeSE3Offset": "EdgeSE3"}
"""Edge types whose class in g2o derives from another one's."""

EDGE_CLASSES: dict[Any, type[OptimizableGraph_Edge]] = {icp.EdgeVVGicp: EdgeVVGicp}
"""Edge type -> class."""


@per_type_cache
def pool_of(kind: EdgeType) -> Pool:
    """Rows of an edge type."""
    return edge_pool(kind, default_measurement(kind), weights=_WEIGHTS.get(kind.name))


def make_edge_class(kind: EdgeType) -> type[OptimizableGraph_Edge]:
    """The class of an edge type with a fixed number of vertices."""
    between = ", ".join(vertex.name for vertex in kind.vertices)
    namespace = {
        "__slots__": (),
        "__module__": __name__,
        "_type": kind,
        "_pool": pool_of(kind),
        "_arity": len(kind.vertices),
        "_is_plain": not kind.parameters,
        **_MEMBERS.get(kind.name, {}),
    }
    about = f" {kind.doc}" if kind.doc else ""
    parameters = "".join(f" Parameter {i}: {parameter.name}." for i, parameter in enumerate(kind.parameters))
    namespace["__doc__"] = (
        f"`{kind.tag}`: edge of {between}; error of {kind.residual_dim} numbers.{parameters}{about}"
    )
    base: Any = OptimizableGraph_Edge
    if kind.name in _BASES:
        base = EDGE_CLASSES[registry.edge_type(_BASES[kind.name])]
    return type(kind.name, (base,), namespace)


class _VariadicEdge(OptimizableGraph_Edge):
    """Edge of one vertex and any number of others; call `resize(number of vertices)` first."""

    __slots__ = ("_current",)
    _variadic: ClassVar[VariadicEdgeType]
    _arity = 0

    def __init__(self, id: int = INVALID_ID) -> None:
        self._current = self._variadic.instantiate(2)
        super().__init__(id)

    @property
    def _pool(self) -> Pool:  # type: ignore[override]
        return pool_of(self._current)

    @property
    def _type(self) -> EdgeType:  # type: ignore[override]
        return self._current

    def resize(self, size: int) -> None:
        """Change the number of vertices; measurement and information start anew."""
        super().resize(size)
        if size != len(self._current.vertices):
            self._current = self._variadic.instantiate(size)
            level = self.level()
            self._chunk, self._row = self._pool.take()
            self.set_level(level)

    set_size = resize

    def set_dimension(self, dimension: int) -> None:
        """The length of the error follows from the number of vertices; anything else is refused."""
        if dimension != self.dimension():
            raise GraphError(
                f"{self!r}: set_dimension({dimension}), but with {len(self._vertices)} vertices "
                f"it is {self.dimension()}."
            )


def _variadic_class(kind: VariadicEdgeType) -> type[OptimizableGraph_Edge]:
    between = f"one {kind.first.name} and any number of {kind.rest.name}"
    doc = f"`{kind.tag}`: edge of {between}; call resize(n) first."
    members = {"__slots__": (), "__module__": __name__, "_variadic": kind, "__doc__": doc}
    return type(kind.name, (_VariadicEdge,), members)


# -------------------------------------------------------------------- edges without a fixed size


@cache
def vector_edge_type(residual_dim: int, measurement_dim: int) -> EdgeType:
    """Edge type that only says how long the numbers of a `VariableVectorXEdge` are."""
    return EdgeType(
        name="VariableVectorXEdge",
        tag=f"EDGE_VECTORX_{residual_dim}_{measurement_dim}",
        vertices=(),
        parameters=(),
        measurement_dim=measurement_dim,
        residual_dim=residual_dim,
        residual=lambda *arguments: None,
        jacobian=None,
        wrap_measurement=lambda storage: storage,
        file=measurement_then_information(plain(measurement_dim), residual_dim),
    )


@cache
def _vector_pool(residual_dim: int, measurement_dim: int) -> Pool:
    return edge_pool(vector_edge_type(residual_dim, measurement_dim), (0.0,) * measurement_dim, 64)


class VariableVectorXEdge(OptimizableGraph_Edge):
    """An edge of any number of vertices, with an error of any length, to be defined in Python.

    Call `set_dimension(length of the error)`, `resize(number of vertices)` and `set_measurement(vector)`,
    and override `compute_error()`: set `self.error` or return it. `linearize_oplus()` may set Jacobians with
    `set_jacobian(i, J)`; without it they are central differences.
    """

    __slots__ = ("_dimension",)
    _arity = 0
    _is_plain = True
    _pool = _vector_pool(0, 0)
    _error_is_python = True

    def __init__(self, id: int = INVALID_ID) -> None:
        super().__init__(id)
        self._dimension = -1

    @property
    def _type(self) -> EdgeType:  # type: ignore[override]
        return vector_edge_type(self._chunk.information.shape[1], self._chunk.measurement.shape[1])

    def _reshape(self, residual_dim: int, measurement_dim: int) -> None:
        old, row = self._chunk, self._row
        self._chunk, self._row = _vector_pool(residual_dim, measurement_dim).take()
        self._chunk.level[self._row] = old.level[row]
        if old.measurement.shape[1] == measurement_dim:
            self._chunk.measurement[self._row] = old.measurement[row]
        if old.information.shape[1] == residual_dim:
            self._chunk.information[self._row] = old.information[row]
        if self._graph is not None:
            self._graph._topology_changed()

    def dimension(self) -> int:
        """Length of the error, -1 until it is set."""
        return self._dimension

    rank = dimension

    def set_dimension(self, dimension: int) -> None:
        """Set the length of the error; the information matrix becomes the identity."""
        self._dimension = int(dimension)
        self._reshape(int(dimension), self._chunk.measurement.shape[1])

    def set_measurement(self, m: Any) -> None:
        """Replace the measurement, a vector of any length."""
        numbers = np.asarray(m, np.float64).ravel()
        if len(numbers) != self._chunk.measurement.shape[1]:
            self._reshape(self._chunk.information.shape[1], len(numbers))
        self._chunk.measurement[self._row] = numbers

    def compute_error(self) -> Any:
        """Override it."""
        raise GraphError(
            f"{type(self).__name__} does not define compute_error(); a VariableVectorXEdge needs it."
        )

    def linearize_oplus(self) -> None:
        """Central differences; override it to give your own Jacobians."""
        from graphopt.g2o.elements.numeric_jacobians import numeric_jacobians

        self._jacobians = numeric_jacobians(self)

    def create_vertex(self, i: int) -> Any:
        """An edge defined in Python takes vertices of any class; there is none to create."""
        raise GraphError(f"{self!r} takes vertices of any class; create vertex {i} yourself.")


def _edge_project_p2mc_right(point: Any, camera: Any, measured: Any) -> Any:
    """Pixel in the right camera - measured."""
    _, v, right = camera.project(point)
    return stack(right, v) - measured


EdgeProjectP2MCRight = make_edge_class(
    EdgeType(
        name="EdgeProjectP2MCRight",
        tag="EDGE_PROJECT_P2MC_RIGHT",
        vertices=sba.EdgeProjectP2MC.vertices,
        parameters=(),
        measurement_dim=2,
        residual_dim=2,
        residual=_edge_project_p2mc_right,
        jacobian=None,
        wrap_measurement=lambda storage: storage,
        file=measurement_then_information(plain(2), 2),
        doc="A point seen in the right camera of a stereo pair; no g2o file has it.",
    )
)


def edge_class(kind: Any) -> type[OptimizableGraph_Edge]:
    """The class of an edge type; made on first use for types that users registered."""
    if kind not in EDGE_CLASSES:
        EDGE_CLASSES[kind] = (
            _variadic_class(kind) if isinstance(kind, VariadicEdgeType) else make_edge_class(kind)
        )
    return EDGE_CLASSES[kind]


for _kind in registry.edge_types():
    edge_class(_kind)
