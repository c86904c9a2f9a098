"""One class per vertex type of the registry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from graphopt.g2o.elements.base import INVALID_ID
from graphopt.g2o.elements.vertices import OptimizableGraph_Vertex
from graphopt.g2o.engine.storage import vertex_pool
from graphopt.g2o.values import scalar
from graphopt.g2o.values.cameras import SBACam, VertexIntrinsicsEstimate, inverse_turn_derivative
from graphopt.g2o.values.isometries import Isometry3d
from graphopt.g2o.values.poses import SE3Quat, Sim3
from graphopt.g2o.values.se2 import SE2
from graphopt.types import VertexType, registry

# -------------------------------------------------------------------- classes of the registry


def _value_methods(value: Any) -> dict[str, Callable[..., Any]]:
    """Conversions for estimates that are objects."""

    def from_storage(self: Any, storage: np.ndarray) -> Any:
        return value._from_storage(storage.tolist())

    def to_storage(self: Any, given: Any) -> Any:
        return given._storage() if type(given) is value else value(given)._storage()

    return {"_from_storage": from_storage, "_to_storage": to_storage}


def _minimal_pose(self: Any) -> np.ndarray:
    """(6,) x, y, z, qx, qy, qz with qw >= 0."""
    s = self._chunk.estimate[self._row]
    return s[:6] * np.where(np.arange(6) < 3, 1.0, np.copysign(1.0, s[6]))


def _set_minimal_pose(self: Any, estimate: Any) -> bool:
    numbers = np.asarray(estimate, np.float64).ravel()
    if len(numbers) != 6:
        return False
    squared = float(numbers[3:] @ numbers[3:])
    quaternion = [*numbers[3:], np.sqrt(max(0.0, 1.0 - squared))]
    self._chunk.estimate[self._row, :7] = [*numbers[:3], *scalar.normalized(quaternion)]
    return True


_POSE_DATA: dict[str, Any] = {
    "get_minimal_estimate_data": _minimal_pose,
    "set_minimal_estimate_data": _set_minimal_pose,
    "minimal_estimate_dimension": lambda self: 6,
}


def make_vertex_class(
    kind: VertexType,
    members: dict[str, Any],
    doc: str = "",
    base: type[OptimizableGraph_Vertex] = OptimizableGraph_Vertex,
) -> type[OptimizableGraph_Vertex]:
    """The class of a vertex type."""
    namespace = {
        "__slots__": (),
        "__module__": __name__,
        "_type": kind,
        "_pool": vertex_pool(kind),
        **members,
    }
    namespace["__doc__"] = doc or f"`{kind.tag}`: {kind.doc or f'{kind.storage_dim} numbers.'}"
    return type(kind.name, (base,), namespace)


def _named(name: str, members: dict[str, Any], doc: str, base: Any = OptimizableGraph_Vertex) -> Any:
    return make_vertex_class(registry.vertex_type(name), members, doc, base)


VertexSE2 = _named("VertexSE2", _value_methods(SE2), "`VERTEX_SE2`: planar pose, estimate `SE2`.")
VertexPointXY = _named("VertexPointXY", {}, "`VERTEX_XY`: planar point, estimate (2,).")
VertexSE3 = _named(
    "VertexSE3",
    {**_value_methods(Isometry3d), **_POSE_DATA},
    "`VERTEX_SE3:QUAT`: pose, estimate `Isometry3d`; updates (translation, quaternion vector) on the right.",
)


def _isometry_numbers(self: Any) -> np.ndarray:
    """(7,) x, y, z and the quaternion that Eigen makes of the rotation matrix."""
    s = self._chunk.estimate[self._row].tolist()
    return np.array([*s[:3], *scalar.from_rows(scalar.to_rows(s[3:]))])


VertexSE3.get_estimate_data = _isometry_numbers
VertexPointXYZ = _named("VertexPointXYZ", {}, "`VERTEX_TRACKXYZ`: point, estimate (3,).")
VertexSE3Expmap = _named(
    "VertexSE3Expmap",
    {**_value_methods(SE3Quat), **_POSE_DATA},
    "`VERTEX_SE3:EXPMAP`: pose cam_T_world, estimate `SE3Quat`; updates exp(omega, upsilon) on the left.",
)
VertexOdomDifferentialParams = _named(
    "VertexOdomDifferentialParams",
    {},
    "`VERTEX_ODOM_DIFFERENTIAL`: wheel scales and distance, estimate (3,).",
)


def _four_intrinsics(self: Any) -> np.ndarray:
    """(4,) fx, fy, cx, cy."""
    return self._chunk.estimate[self._row, :4].copy()


def _set_four_intrinsics(self: Any, estimate: Any) -> bool:
    numbers = np.asarray(estimate, np.float64).ravel()
    if len(numbers) == 4:
        self._chunk.estimate[self._row, :4] = numbers
    return len(numbers) == 4


VertexIntrinsics = _named(
    "VertexIntrinsics",
    {
        **_value_methods(VertexIntrinsicsEstimate),
        "get_minimal_estimate_data": _four_intrinsics,
        "set_minimal_estimate_data": _set_four_intrinsics,
        "minimal_estimate_dimension": lambda self: 4,
    },
    "`VERTEX_INTRINSICS`: fx, fy, cx, cy, baseline; estimate `VertexIntrinsicsEstimate`.",
)
VertexCamBAL = _named("VertexCamBAL", {}, "Camera of the BAL format: angle-axis, translation, f, k1, k2.")


def _pose_numbers(self: Any) -> np.ndarray:
    """(7,) x, y, z, qx, qy, qz, qw."""
    return self._chunk.estimate[self._row, :7].copy()


VertexCam = _named(
    "VertexCam",
    {
        **_value_methods(SBACam),
        **_POSE_DATA,
        "get_estimate_data": _pose_numbers,
        "estimate_dimension": lambda self: 7,
    },
    "`VERTEX_CAM`: camera world_T_cam with intrinsics, estimate `SBACam`.",
)

_BaseSim3 = _named("VertexSim3Expmap", {}, "")


class VertexSim3Expmap(_BaseSim3):
    """`VERTEX_SIM3:EXPMAP`: similarity, estimate `Sim3`; updates exp(omega, upsilon, sigma) on the left.

    Two cameras (focal length and principle point, spelled as in g2o) belong to it; `fix_scale` holds the
    scale.
    """

    __slots__ = ()

    def _from_storage(self, storage: np.ndarray) -> Sim3:
        return Sim3._from_storage(storage.tolist())

    def set_estimate(self, et: Sim3) -> None:
        """Replace the estimate."""
        self._chunk.estimate[self._row, :8] = et._storage()

    def estimate_dimension(self) -> int:
        """8."""
        return 8

    def get_estimate_data(self) -> np.ndarray:
        """(8,) qx, qy, qz, qw, x, y, z, s."""
        return self.estimate().to_vector()

    def set_estimate_data(self, estimate: Any) -> bool:
        """Replace (qx, qy, qz, qw, x, y, z, s); False if the count is wrong."""
        numbers = np.asarray(estimate, np.float64).ravel()
        if len(numbers) != 8:
            return False
        self._chunk.estimate[self._row, :8] = numbers[[4, 5, 6, 0, 1, 2, 3, 7]]
        return True

    def minimal_estimate_dimension(self) -> int:
        """7."""
        return 7

    def get_minimal_estimate_data(self) -> np.ndarray:
        """(7,) tangent (omega, upsilon, sigma)."""
        return self.estimate().log()

    def set_minimal_estimate_data(self, estimate: Any) -> bool:
        """Replace the estimate by exp(omega, upsilon, sigma)."""
        numbers = np.asarray(estimate, np.float64).ravel()
        if len(numbers) == 7:
            self.set_estimate(Sim3(numbers))
        return len(numbers) == 7

    def cam_map1(self, point: Any) -> np.ndarray:
        """(2,) pixel of a normalised point in the first camera."""
        return self._focal(8) * scalar.floats(point, 2, "point") + self._center(8)

    def cam_map2(self, point: Any) -> np.ndarray:
        """(2,) pixel of a normalised point in the second camera."""
        return self._focal(12) * scalar.floats(point, 2, "point") + self._center(12)

    def _focal(self, at: int) -> np.ndarray:
        return self._chunk.estimate[self._row, at : at + 2]

    def _center(self, at: int) -> np.ndarray:
        return self._chunk.estimate[self._row, at + 2 : at + 4]

    @property
    def fix_scale(self) -> bool:
        """The scale is held at its value."""
        return bool(self._chunk.estimate[self._row, 16])

    @fix_scale.setter
    def fix_scale(self, value: bool) -> None:
        self._chunk.estimate[self._row, 16] = float(value)

    _fix_scale = fix_scale


def _camera_property(at: int, doc: str) -> property:
    def get(self: Any) -> np.ndarray:
        return self._chunk.estimate[self._row, at : at + 2]

    def put(self: Any, value: Any) -> None:
        self._chunk.estimate[self._row, at : at + 2] = scalar.floats(value, 2, doc)

    return property(get, put, doc=f"(2,) {doc}; live.")


for _prefix in ("", "_"):
    setattr(
        VertexSim3Expmap,
        f"{_prefix}focal_length1",
        _camera_property(8, "focal lengths of the first camera [px]"),
    )
    setattr(
        VertexSim3Expmap,
        f"{_prefix}principle_point1",
        _camera_property(10, "center of the first camera [px]"),
    )
    setattr(
        VertexSim3Expmap,
        f"{_prefix}focal_length2",
        _camera_property(12, "focal lengths of the second camera [px]"),
    )
    setattr(
        VertexSim3Expmap,
        f"{_prefix}principle_point2",
        _camera_property(14, "center of the second camera [px]"),
    )


_BaseSCam = _named("VertexSCam", _POSE_DATA, "", VertexSE3)


class VertexSCam(_BaseSCam):
    """Stereo camera pose world_T_cam, estimate `Isometry3d`.

    The intrinsics are the class's, set by `set_cam`.
    """

    __slots__ = ()
    _camera: ClassVar[tuple[float, ...]] = (0.0, 0.0, 0.0, 0.0, 0.0)
    transform_w2f = staticmethod(SBACam.transform_w2f)
    transform_f2w = staticmethod(SBACam.transform_f2w)
    dRidx, dRidy, dRidz = map(inverse_turn_derivative, range(3))

    def __init__(self, id: int = INVALID_ID) -> None:
        super().__init__(id)
        self._chunk.estimate[self._row, 7:] = VertexSCam._camera

    def _from_storage(self, storage: np.ndarray) -> Isometry3d:
        return Isometry3d._from_storage(storage.tolist())

    def set_estimate(self, et: Isometry3d) -> None:
        """Replace the pose."""
        pose = et if isinstance(et, Isometry3d) else Isometry3d(et)
        self._chunk.estimate[self._row] = (*pose._storage(), *VertexSCam._camera)

    def estimate_dimension(self) -> int:
        """7."""
        return 7

    get_estimate_data = _pose_numbers

    @staticmethod
    def set_cam(fx: float, fy: float, cx: float, cy: float, tx: float) -> None:
        """Set the intrinsics of all stereo cameras whose pose is set from now on (`set_all` for others)."""
        VertexSCam._camera = (float(fx), float(fy), float(cx), float(cy), float(tx))

    def set_all(self) -> None:
        """Take the class's present intrinsics."""
        self._chunk.estimate[self._row, 7:] = VertexSCam._camera

    set_transform = set_projection = set_dr = set_derivative = set_all

    def _camera_value(self) -> SBACam:
        self.set_all()
        return SBACam._from_storage(self._chunk.estimate[self._row].tolist())

    @property
    def w2n(self) -> np.ndarray:
        """(3, 4) world to camera."""
        return self._camera_value().w2n

    @property
    def w2i(self) -> np.ndarray:
        """(3, 4) world to image."""
        return self._camera_value().w2i

    @property
    def Kcam(self) -> np.ndarray:
        """(3, 3) camera matrix."""
        return self._camera_value().Kcam

    @property
    def dRdx(self) -> np.ndarray:
        """(3, 3) derivative of the world-to-camera rotation by the quaternion's x."""
        return self._camera_value().dRdx

    @property
    def dRdy(self) -> np.ndarray:
        """(3, 3) derivative of the world-to-camera rotation by the quaternion's y."""
        return self._camera_value().dRdy

    @property
    def dRdz(self) -> np.ndarray:
        """(3, 3) derivative of the world-to-camera rotation by the quaternion's z."""
        return self._camera_value().dRdz

    @property
    def baseline(self) -> float:
        """Stereo baseline [m]."""
        return VertexSCam._camera[4]

    def map_point(self, point: Any) -> np.ndarray:
        """(3,) left u, v and right u of a point in the world."""
        camera = self._camera_value()
        p = camera.inverse().map(point)
        fx, fy, cx, cy, baseline = camera._k
        return np.array([fx * p[0] / p[2] + cx, fy * p[1] / p[2] + cy, fx * (p[0] - baseline) / p[2] + cx])


VERTEX_CLASSES: dict[VertexType, type[OptimizableGraph_Vertex]] = {
    kind._type: kind
    for kind in (
        VertexSE2,
        VertexPointXY,
        VertexSE3,
        VertexPointXYZ,
        VertexSE3Expmap,
        VertexOdomDifferentialParams,
        VertexIntrinsics,
        VertexCamBAL,
        VertexCam,
        VertexSim3Expmap,
        VertexSCam,
    )
}
"""Vertex type -> class."""


def vertex_class(kind: VertexType) -> type[OptimizableGraph_Vertex]:
    """The class of a vertex type; made on first use for types that users registered."""
    if kind not in VERTEX_CLASSES:
        VERTEX_CLASSES[kind] = make_vertex_class(kind, {})
    return VERTEX_CLASSES[kind]
