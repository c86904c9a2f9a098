"""Values of cameras, ICP and odometry: `SBACam`, `EdgeGICP`, `VelocityMeasurement` and so on."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graphopt.errors import ShapeError
from graphopt.g2o.values import scalar
from graphopt.g2o.values.poses import SE3Quat
from graphopt.g2o.values.rotations import Quaternion


def inverse_turn_derivative(axis: int) -> np.ndarray:
    """(3, 3) derivative of an inverse rotation by a number of its quaternion, x, y or z, at zero: -2 [e]."""
    matrix = np.zeros((3, 3))
    i, j = (axis + 1) % 3, (axis + 2) % 3
    matrix[i, j], matrix[j, i] = 2.0, -2.0
    return matrix


class SBACam(SE3Quat):
    """Camera pose world_T_cam with pinhole intrinsics and stereo baseline.

    `SBACam(Quaternion, t)`, `SBACam(SE3Quat)`.
    """

    __slots__ = ("_k",)

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._k = args[0]._k if args and isinstance(args[0], SBACam) else (1.0, 1.0, 0.5, 0.5, 0.0)

    def _storage(self) -> tuple[float, ...]:
        return (*self._s, *self._k)

    @classmethod
    def _from_storage(cls, s: Any) -> SBACam:
        camera = SBACam.__new__(SBACam)
        camera._s, camera._k = tuple(s[:7]), tuple(s[7:12])
        return camera

    def set_cam(self, fx: float, fy: float, cx: float, cy: float, tx: float) -> None:
        """Set focal lengths, principal point [px] and baseline [m]."""
        self._k = (float(fx), float(fy), float(cx), float(cy), float(tx))

    @property
    def Kcam(self) -> np.ndarray:
        """(3, 3) camera matrix."""
        fx, fy, cx, cy, _ = self._k
        return np.array([[fx, 0.0, cx], [0.0, fy, cy], [0.0, 0.0, 1.0]])

    cam = Kcam

    @property
    def baseline(self) -> float:
        """Stereo baseline [m]."""
        return self._k[4]

    @property
    def w2n(self) -> np.ndarray:
        """(3, 4) world to camera."""
        return self.inverse()._matrix()[:3]

    @property
    def w2i(self) -> np.ndarray:
        """(3, 4) world to image."""
        return self.Kcam @ self.w2n

    def set_transform(self) -> None:
        """Kept for programs that call it: `w2n` always follows the pose."""

    def set_projection(self) -> None:
        """Kept for programs that call it: `w2i` always follows pose and camera."""

    def set_dr(self) -> None:
        """Kept for programs that call it: `dRdx` and so on always follow the pose."""

    set_derivative = set_dr

    def _derivative(self, axis: int) -> np.ndarray:
        return inverse_turn_derivative(axis) @ self.R.T

    @property
    def dRdx(self) -> np.ndarray:
        """(3, 3) derivative of the world-to-camera rotation by the quaternion's x."""
        return self._derivative(0)

    @property
    def dRdy(self) -> np.ndarray:
        """(3, 3) derivative of the world-to-camera rotation by the quaternion's y."""
        return self._derivative(1)

    @property
    def dRdz(self) -> np.ndarray:
        """(3, 3) derivative of the world-to-camera rotation by the quaternion's z."""
        return self._derivative(2)

    @staticmethod
    def transform_w2f(m: np.ndarray, trans: Any, qrot: Quaternion) -> np.ndarray:
        """Fill `m` (3, 4) with the transform from the world into a frame at `trans` with rotation `qrot`."""
        rotation = qrot.matrix().T
        m[:, :3], m[:, 3] = rotation, -rotation @ np.array(scalar.floats(trans, 3, "translation"))
        return m

    @staticmethod
    def transform_f2w(m: np.ndarray, trans: Any, qrot: Quaternion) -> np.ndarray:
        """Fill `m` (3, 4) with the transform from a frame at `trans` with rotation `qrot` into the world."""
        m[:, :3], m[:, 3] = qrot.matrix(), scalar.floats(trans, 3, "translation")
        return m

    def update(self, update: Any) -> None:
        """Add (translation, quaternion's vector part), as `VertexCam`'s oplus."""
        v = scalar.floats(update, 6, "update")
        w = math.sqrt(max(0.0, 1.0 - v[3] ** 2 - v[4] ** 2 - v[5] ** 2))
        q = scalar.normalized(scalar.product(self._s[3:], (v[3], v[4], v[5], w)))
        self._s = (self._s[0] + v[0], self._s[1] + v[1], self._s[2] + v[2], *q)


class VertexIntrinsicsEstimate:
    """fx, fy, cx, cy and baseline; also read like an array, as which older bindings return it."""

    __slots__ = ("values",)

    def __init__(self, values: Any = (1.0, 1.0, 0.5, 0.5, 0.1)) -> None:
        self.values = np.array(scalar.floats(values, 5, "intrinsics"))

    def _storage(self) -> np.ndarray:
        return self.values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.values, dtype)

    def __len__(self) -> int:
        return 5

    def __getitem__(self, i: Any) -> Any:
        return self.values[i]

    @classmethod
    def _from_storage(cls, s: Any) -> VertexIntrinsicsEstimate:
        return cls(s)


class EdgeGICP:
    """Two points with normals, the measurement of `EdgeVVGicp`."""

    __slots__ = ("R0", "R1", "_normal0", "_normal1", "_pos0", "_pos1")

    def __init__(self) -> None:
        self._pos0, self._pos1 = np.zeros(3), np.zeros(3)
        self._normal0, self._normal1 = np.array([0.0, 0.0, 1.0]), np.array([0.0, 0.0, 1.0])
        self.R0, self.R1 = np.eye(3), np.eye(3)

    def _storage(self) -> np.ndarray:
        return np.concatenate([self._pos0, self._normal0, self._pos1, self._normal1])

    @classmethod
    def _from_storage(cls, s: Any) -> EdgeGICP:
        edge = cls()
        edge._pos0[:], edge._normal0[:], edge._pos1[:], edge._normal1[:] = s[:3], s[3:6], s[6:9], s[9:12]
        edge.make_rot0()
        edge.make_rot1()
        return edge

    def make_rot0(self) -> None:
        """Set R0 from normal0."""
        self.R0 = _normal_frame(self._normal0)

    def make_rot1(self) -> None:
        """Set R1 from normal1."""
        self.R1 = _normal_frame(self._normal1)

    def prec0(self, e: float) -> np.ndarray:
        """(3, 3) precision of the plane at pos0: 1 along the normal, e across."""
        self.make_rot0()
        return self.R0.T @ np.diag([e, e, 1.0]) @ self.R0

    def prec1(self, e: float) -> np.ndarray:
        """(3, 3) precision of the plane at pos1."""
        self.make_rot1()
        return self.R1.T @ np.diag([e, e, 1.0]) @ self.R1

    def cov0(self, e: float) -> np.ndarray:
        """(3, 3) covariance of the plane at pos0: e along the normal, 1 across."""
        self.make_rot0()
        return self.R0.T @ np.diag([1.0, 1.0, e]) @ self.R0

    def cov1(self, e: float) -> np.ndarray:
        """(3, 3) covariance of the plane at pos1."""
        self.make_rot1()
        return self.R1.T @ np.diag([1.0, 1.0, e]) @ self.R1


def _vector_property(name: str) -> property:
    def get(self: Any) -> np.ndarray:
        return getattr(self, name)

    def put(self: Any, value: Any) -> None:
        getattr(self, name)[:] = scalar.floats(value, 3, name.strip("_"))

    return property(get, put, doc=f"(3,) {name.strip('_')}.")


for _name in ("pos0", "pos1", "normal0", "normal1"):
    setattr(EdgeGICP, _name, _vector_property(f"_{_name}"))


def _normal_frame(normal: np.ndarray) -> np.ndarray:
    """Rotation whose rows are x, y and the normal; y is the world's y without its part along the normal."""
    y = np.array([0.0, 1.0, 0.0]) - normal[1] * normal
    y /= np.linalg.norm(y)
    return np.stack([np.cross(normal, y), y, normal])


class VelocityMeasurement:
    """Wheel velocities [m/s] over dt [s]."""

    __slots__ = ("_v",)

    def __init__(self, vl: float = 0.0, vr: float = 0.0, dt: float = 0.0) -> None:
        self._v = [float(vl), float(vr), float(dt)]

    def _storage(self) -> list[float]:
        return self._v

    @classmethod
    def _from_storage(cls, s: Any) -> VelocityMeasurement:
        return cls(*s)

    def vl(self) -> float:
        """Left wheel [m/s]."""
        return self._v[0]

    def vr(self) -> float:
        """Right wheel [m/s]."""
        return self._v[1]

    def dt(self) -> float:
        """Time [s]."""
        return self._v[2]

    def set_vl(self, value: float) -> None:
        """Set the left wheel [m/s]."""
        self._v[0] = float(value)

    def set_vr(self, value: float) -> None:
        """Set the right wheel [m/s]."""
        self._v[1] = float(value)

    def set_dt(self, value: float) -> None:
        """Set the time [s]."""
        self._v[2] = float(value)

    def measurement(self) -> np.ndarray:
        """(2,) vl, vr."""
        return np.array(self._v[:2])


class MotionMeasurement:
    """A planar motion x, y, theta over dt [s].

    `MotionMeasurement(x, y, theta, dt)` or `((x, y, theta), dt)`.
    """

    __slots__ = ("_v",)

    def __init__(self, *args: Any, **named: Any) -> None:
        if named:
            args = scalar.arguments(
                args, named, "m x", "dt" if "m" in named or len(args) == 1 else "y", "theta", "dt"
            )
        if not args:
            self._v = [0.0, 0.0, 0.0, 0.0]
        elif len(args) == 2:
            self._v = [*scalar.floats(args[0], 3, "motion"), float(args[1])]
        elif len(args) == 4:
            self._v = [float(argument) for argument in args]
        else:
            raise ShapeError(
                f"MotionMeasurement of {len(args)} arguments, expected (x, y, theta, dt) or (vector, dt)."
            )

    def x(self) -> float:
        """Forward [m]."""
        return self._v[0]

    def y(self) -> float:
        """Left [m]."""
        return self._v[1]

    def theta(self) -> float:
        """Turn [rad]."""
        return self._v[2]

    def dt(self) -> float:
        """Time [s]."""
        return self._v[3]

    def set_x(self, value: float) -> None:
        """Set x [m]."""
        self._v[0] = float(value)

    def set_y(self, value: float) -> None:
        """Set y [m]."""
        self._v[1] = float(value)

    def set_theta(self, value: float) -> None:
        """Set theta [rad]."""
        self._v[2] = float(value)

    def set_dt(self, value: float) -> None:
        """Set the time [s]."""
        self._v[3] = float(value)

    def measurement(self) -> np.ndarray:
        """(3,) x, y, theta."""
        return np.array(self._v[:3])


class OdomConvert:
    """Between planar motions and wheel velocities."""

    @staticmethod
    def to_velocity(motion: MotionMeasurement) -> VelocityMeasurement:
        """Wheel velocities of a robot whose wheels are 1 m apart."""
        x, y, theta, dt = motion._v
        if abs(theta) > 1e-7:
            translation = math.hypot(x, y)
            radius = translation / (2.0 * math.sin(theta / 2.0))
            w = theta / dt
            return VelocityMeasurement((2.0 * radius * w - w) / 2.0, w + (2.0 * radius * w - w) / 2.0, dt)
        return VelocityMeasurement(math.hypot(x, y) / dt, math.hypot(x, y) / dt, dt)

    @staticmethod
    def to_motion(velocity: VelocityMeasurement, wheel_distance: float) -> MotionMeasurement:
        """Motion of a robot with these wheel velocities."""
        vl, vr, dt = velocity._v
        if abs(vr - vl) > 1e-7:
            radius = wheel_distance * 0.5 * (vl + vr) / (vr - vl)
            theta = (vr - vl) / wheel_distance * dt
            s, c = math.sin(theta), math.cos(theta)
            return MotionMeasurement(s * radius, -c * radius + radius, theta, dt)
        return MotionMeasurement(0.5 * (vl + vr) * dt, 0.0, 0.0, dt)

    convert_to_velocity = to_velocity
    convert_to_motion = to_motion


class StereoCameraParameters:
    """Focal length, principal point and baseline of a stereo camera."""

    __slots__ = ("baseline", "focal_length", "principle_point")

    def __init__(self) -> None:
        self.focal_length = 1.0
        self.principle_point = np.zeros(2)
        self.baseline = 0.5


__all__ = [
    "EdgeGICP",
    "MotionMeasurement",
    "OdomConvert",
    "Quaternion",
    "SBACam",
    "StereoCameraParameters",
    "VelocityMeasurement",
    "VertexIntrinsicsEstimate",
]
