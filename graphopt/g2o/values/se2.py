"""`SE2`: planar poses as values, with g2o's methods."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graphopt.g2o.values import scalar
from graphopt.g2o.values.isometries import Isometry2d
from graphopt.g2o.values.rotations import Rotation2d


class SE2:
    """Pose of the plane: x, y, theta. `SE2(x, y, theta)`, of (x, y, theta), an Isometry2d, or a copy.

    The constructor keeps the angle as given; products and inverses normalise it to [-pi, pi).
    """

    __slots__ = ("_v",)

    def __init__(self, *args: Any) -> None:
        if not args:
            self._v = (0.0, 0.0, 0.0)
        elif len(args) == 3:
            self._v = (float(args[0]), float(args[1]), float(args[2]))
        elif len(args) == 2:
            x, y = scalar.floats(args[1], 2, "translation")
            self._v = (x, y, Rotation2d(args[0]).angle())
        elif len(args) == 1:
            value = args[0]
            if isinstance(value, SE2):
                self._v = value._v
            else:
                value = value._storage() if isinstance(value, Isometry2d) else value
                self._v = tuple(scalar.floats(value, 3, "SE2"))
        else:
            raise TypeError("SE2 takes (), (x, y, theta), a vector of 3 numbers, an Isometry2d or a copy.")

    def __repr__(self) -> str:
        return "SE2({!r}, {!r}, {!r})".format(*self._v)

    def _storage(self) -> tuple[float, ...]:
        return self._v

    @classmethod
    def _from_storage(cls, s: list[float]) -> SE2:
        pose = cls.__new__(cls)
        pose._v = (s[0], s[1], s[2])
        return pose

    def _matrix(self) -> np.ndarray:
        return Isometry2d._from_storage(list(self._v))._m

    def translation(self) -> np.ndarray:
        """(2,) x, y."""
        return np.array(self._v[:2])

    position = translation

    @property
    def t(self) -> np.ndarray:
        """(2,) x, y."""
        return self.translation()

    def rotation(self) -> Rotation2d:
        """Rotation by theta."""
        return Rotation2d(self._v[2])

    @property
    def R(self) -> np.ndarray:
        """(2, 2) rotation matrix."""
        return self.rotation().matrix()

    def angle(self) -> float:
        """Theta [rad]."""
        return self._v[2]

    def set_translation(self, translation: Any) -> None:
        """Replace x, y."""
        x, y = scalar.floats(translation, 2, "translation")
        self._v = (x, y, self._v[2])

    def set_rotation(self, rotation: Any) -> None:
        """Replace theta: a Rotation2d, an angle, or a (2, 2) matrix."""
        self._v = (*self._v[:2], Rotation2d(rotation).angle())

    def from_vector(self, vector: Any) -> None:
        """Become (x, y, theta)."""
        self._v = tuple(scalar.floats(vector, 3, "SE2"))

    def vector(self) -> np.ndarray:
        """(3,) x, y, theta."""
        return np.array(self._v)

    to_vector = vector

    def to_isometry(self) -> Isometry2d:
        """The same as an Isometry2d."""
        return Isometry2d._from_storage(list(self._v))

    Isometry2 = Isometry2d = isometry = to_isometry

    def inverse(self) -> SE2:
        """Inverse pose."""
        x, y, theta = self._v
        s, c = math.sin(theta), math.cos(theta)
        return SE2._from_storage([-(c * x + s * y), -(-s * x + c * y), _normalize_angle(-theta)])

    def __getitem__(self, i: int) -> float:
        return self._v[i]

    def __mul__(self, other: Any) -> Any:
        x, y, theta = self._v
        s, c = math.sin(theta), math.cos(theta)
        if isinstance(other, SE2):
            a, b, phi = other._v
            return SE2._from_storage([x + c * a - s * b, y + s * a + c * b, _normalize_angle(theta + phi)])
        a, b = scalar.floats(other, 2, "point")
        return np.array([x + c * a - s * b, y + s * a + c * b])

    def __imul__(self, other: SE2) -> SE2:
        self._v = (self * other)._v
        return self


def _normalize_angle(theta: float) -> float:
    """Angle in [-pi, pi), as g2o's `normalize_theta`."""
    result = math.fmod(theta + math.pi, 2.0 * math.pi)
    return result + math.pi if result <= 0.0 else result - math.pi
