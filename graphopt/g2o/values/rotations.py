"""Rotations as values: `Quaternion`, `AngleAxis`, `Rotation2d`.

Everything that returns an array returns a copy, as in g2opy. Where g2opy wants a float64 array of an exact
shape, any sequence of that many numbers is taken.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graphopt.errors import ShapeError
from graphopt.g2o.values import scalar


class Quaternion:
    """Quaternion w + x i + y j + z k.

    `Quaternion(w, x, y, z)`, of an array (w, x, y, z), a rotation matrix, or a copy; `coeffs()` has w last.
    """

    __slots__ = ("_q",)

    def __init__(self, *args: Any, w: Any = None, x: Any = None, y: Any = None, z: Any = None) -> None:
        if w is not None:
            args = (w, x, y, z)
        self._q: scalar.Quad = _quaternion(args)

    @classmethod
    def _of(cls, q: Any) -> Quaternion:
        rotation = cls.__new__(cls)
        rotation._q = tuple(q)
        return rotation

    def __repr__(self) -> str:
        return "Quaternion(w={3!r}, x={0!r}, y={1!r}, z={2!r})".format(*self._q)

    @staticmethod
    def identity() -> Quaternion:
        """The rotation that does nothing."""
        return Quaternion()

    @staticmethod
    def from_two_vectors(a: Any, b: Any) -> Quaternion:
        """The shortest rotation that turns the direction of `a` into that of `b`."""
        first, second = (np.array(scalar.floats(vector, 3, "vector")) for vector in (a, b))
        first, second = first / np.linalg.norm(first), second / np.linalg.norm(second)
        c = float(first @ second)
        if c < -1.0 + 1e-12:
            axis = np.linalg.svd(np.stack([first, second]))[2][2]
            half = (1.0 + max(c, -1.0)) * 0.5
            return Quaternion._of((*(axis * math.sqrt(1.0 - half)).tolist(), math.sqrt(half)))
        s = math.sqrt((1.0 + c) * 2.0)
        return Quaternion._of((*(np.cross(first, second) / s).tolist(), 0.5 * s))

    def x(self) -> float:
        """Coefficient of i."""
        return self._q[0]

    def y(self) -> float:
        """Coefficient of j."""
        return self._q[1]

    def z(self) -> float:
        """Coefficient of k."""
        return self._q[2]

    def w(self) -> float:
        """Scalar part."""
        return self._q[3]

    def vec(self) -> np.ndarray:
        """(3,) x, y, z."""
        return np.array(self._q[:3])

    def coeffs(self) -> np.ndarray:
        """(4,) x, y, z, w."""
        return np.array(self._q)

    def norm(self) -> float:
        """Length."""
        return math.sqrt(self.squared_norm())

    def squared_norm(self) -> float:
        """Squared length."""
        return sum(component * component for component in self._q)

    def normalize(self) -> None:
        """Scale to unit length."""
        self._q = scalar.normalized(self._q)

    def normalized(self) -> Quaternion:
        """The same of unit length."""
        return Quaternion._of(scalar.normalized(self._q))

    def conjugate(self) -> Quaternion:
        """Negated vector part."""
        x, y, z, w = self._q
        return Quaternion._of((-x, -y, -z, w))

    def inverse(self) -> Quaternion:
        """Multiplicative inverse."""
        x, y, z, w = self._q
        n = self.squared_norm()
        return Quaternion._of((-x / n, -y / n, -z / n, w / n))

    def dot(self, other: Quaternion) -> float:
        """Sum of the products of coefficients."""
        return sum(a * b for a, b in zip(self._q, other._q, strict=True))

    def angular_distance(self, other: Quaternion) -> float:
        """Angle of the rotation from one to the other, in [0, pi]."""
        x, y, z, w = (self * other.conjugate())._q
        return 2.0 * math.atan2(math.sqrt(x * x + y * y + z * z), abs(w))

    def slerp(self, t: float, other: Quaternion) -> Quaternion:
        """Spherical interpolation: self at t = 0, other at t = 1."""
        d = self.dot(other)
        absolute = abs(d)
        if absolute >= 1.0 - np.finfo(float).eps:
            first, second = 1.0 - t, t
        else:
            theta = math.acos(absolute)
            first, second = (
                math.sin((1.0 - t) * theta) / math.sin(theta),
                math.sin(t * theta) / math.sin(theta),
            )
        second = -second if d < 0.0 else second
        return Quaternion._of(first * a + second * b for a, b in zip(self._q, other._q, strict=True))

    def set_identity(self) -> None:
        """Become the identity."""
        self._q = (0.0, 0.0, 0.0, 1.0)

    def matrix(self) -> np.ndarray:
        """(3, 3) rotation matrix."""
        return np.array(scalar.to_rows(self._q))

    rotation_matrix = to_rotation_matrix = matrix

    @property
    def R(self) -> np.ndarray:
        """(3, 3) rotation matrix."""
        return self.matrix()

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, Quaternion):
            return Quaternion._of(scalar.product(self._q, other._q))
        if isinstance(other, AngleAxis):
            return self * Quaternion(other)
        vector = scalar.floats(other, 3, "vector")
        return np.array(scalar.rotate(self._q, vector))

    def __imul__(self, other: Any) -> Quaternion:
        self._q = (self * other)._q
        return self


def _quaternion(args: tuple[Any, ...]) -> scalar.Quad:
    """Coefficients (x, y, z, w) from the constructor's arguments."""
    if not args:
        return 0.0, 0.0, 0.0, 1.0
    if len(args) == 4:
        w, x, y, z = args
        return float(x), float(y), float(z), float(w)
    if len(args) != 1:
        raise TypeError(
            "Quaternion takes (), (w, x, y, z) as numbers or as an array, a Quaternion, an AngleAxis or a "
            "(3, 3) matrix."
        )
    (value,) = args
    if isinstance(value, Quaternion):
        return value._q
    if isinstance(value, AngleAxis):
        return value._quad()
    array = np.asarray(value, np.float64)
    if array.shape == (3, 3):
        return scalar.from_rows(array.tolist())
    if array.ndim > 1 and max(array.shape) < array.size:
        raise ShapeError(f"Quaternion of an array of shape {array.shape}, expected (3, 3) or 4 numbers.")
    w, x, y, z = scalar.floats(array, 4, "Quaternion (w, x, y, z)")
    return x, y, z, w


class AngleAxis:
    """Rotation by an angle [rad] around a unit axis.

    `AngleAxis(angle, axis)`, of a Quaternion, a matrix, or a copy.
    """

    __slots__ = ("_angle", "_axis")

    def __init__(self, *args: Any) -> None:
        self._angle, self._axis = 0.0, (1.0, 0.0, 0.0)
        if len(args) == 2:
            self._angle = float(args[0])
            self._axis = tuple(scalar.floats(args[1], 3, "axis"))
        elif len(args) == 1:
            self._set(args[0])
        elif args:
            raise TypeError(
                "AngleAxis takes (), (angle, axis), an AngleAxis, a Quaternion or a (3, 3) matrix."
            )

    def _set(self, value: Any) -> None:
        if isinstance(value, AngleAxis):
            self._angle, self._axis = value._angle, value._axis
            return
        x, y, z, w = Quaternion(value)._q
        n = math.sqrt(x * x + y * y + z * z)
        self._angle = 2.0 * math.atan2(n, abs(w))
        n = -n if w < 0.0 else n
        self._axis = (x / n, y / n, z / n) if n != 0.0 else (1.0, 0.0, 0.0)

    def _quad(self) -> scalar.Quad:
        s = math.sin(0.5 * self._angle)
        x, y, z = self._axis
        return s * x, s * y, s * z, math.cos(0.5 * self._angle)

    def __repr__(self) -> str:
        return f"AngleAxis({self._angle!r}, {list(self._axis)!r})"

    @staticmethod
    def identity() -> AngleAxis:
        """No rotation."""
        return AngleAxis()

    def angle(self) -> float:
        """Angle [rad]."""
        return self._angle

    def axis(self) -> np.ndarray:
        """(3,) unit axis."""
        return np.array(self._axis)

    def inverse(self) -> AngleAxis:
        """The opposite angle."""
        return AngleAxis(-self._angle, self._axis)

    def from_rotation_matrix(self, matrix: Any) -> None:
        """Become the rotation of a (3, 3) matrix."""
        self._set(scalar.matrix(matrix, ((3, 3),), "rotation matrix"))

    def matrix(self) -> np.ndarray:
        """(3, 3) rotation matrix."""
        return np.array(scalar.to_rows(self._quad()))

    rotation_matrix = to_rotation_matrix = matrix

    @property
    def R(self) -> np.ndarray:
        """(3, 3) rotation matrix."""
        return self.matrix()

    ientity = identity  # as older bindings spell it

    def __mul__(self, other: Any) -> Any:
        return Quaternion(self) * (Quaternion(other) if isinstance(other, AngleAxis) else other)

    def __rmul__(self, other: Quaternion) -> Quaternion:
        return other * Quaternion(self)


class Rotation2d:
    """Rotation of the plane by an angle [rad], which is kept as given.

    `Rotation2d(angle)` or of a (2, 2) matrix.
    """

    __slots__ = ("_angle",)

    def __init__(self, value: Any = 0.0) -> None:
        if isinstance(value, Rotation2d):
            self._angle = value._angle
        elif np.ndim(value) == 0:
            self._angle = float(value)
        else:
            self.from_rotation_matrix(value)

    def __repr__(self) -> str:
        return f"Rotation2d({self._angle!r})"

    @staticmethod
    def identity() -> Rotation2d:
        """No rotation."""
        return Rotation2d()

    ientity = identity  # as g2opy spells it

    def angle(self) -> float:
        """Angle [rad] as given."""
        return self._angle

    def set_angle(self, angle: float) -> None:
        """Change the angle [rad]."""
        self._angle = float(angle)

    def smallest_angle(self) -> float:
        """Angle in [-pi, pi]."""
        angle = math.fmod(self._angle, 2.0 * math.pi)
        return (
            angle - 2.0 * math.pi if angle > math.pi else angle + 2.0 * math.pi if angle < -math.pi else angle
        )

    def smallest_positive_angle(self) -> float:
        """Angle in [0, 2 pi]."""
        angle = math.fmod(self._angle, 2.0 * math.pi)
        return angle + 2.0 * math.pi if angle < 0.0 else angle

    def inverse(self) -> Rotation2d:
        """The opposite angle."""
        return Rotation2d(-self._angle)

    def slerp(self, t: float, other: Rotation2d) -> Rotation2d:
        """Interpolation: self at t = 0, other at t = 1, the short way."""
        return Rotation2d(self._angle + t * Rotation2d(other._angle - self._angle).smallest_angle())

    def from_rotation_matrix(self, matrix: Any) -> None:
        """Become the rotation of a (2, 2) matrix."""
        rows = scalar.matrix(matrix, ((2, 2),), "rotation matrix")
        self._angle = math.atan2(rows[1, 0], rows[0, 0])

    def matrix(self) -> np.ndarray:
        """(2, 2) rotation matrix."""
        s, c = math.sin(self._angle), math.cos(self._angle)
        return np.array([[c, -s], [s, c]])

    rotation_matrix = to_rotation_matrix = matrix

    @property
    def R(self) -> np.ndarray:
        """(2, 2) rotation matrix."""
        return self.matrix()

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, Rotation2d):
            return Rotation2d(self._angle + other._angle)
        try:
            x, y = scalar.floats(other, 2, "point")
        except ShapeError:
            return NotImplemented
        s, c = math.sin(self._angle), math.cos(self._angle)
        return np.array([c * x - s * y, s * x + c * y])

    def __imul__(self, other: Rotation2d) -> Rotation2d:
        self._angle += other._angle
        return self


Rotation2D = Rotation2d
