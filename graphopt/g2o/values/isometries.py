"""`Isometry2d` and `Isometry3d`: rigid motions as homogeneous matrices.

Each knows the numbers that a vertex stores (`_storage()`, see `graphopt.types`). What returns an array
or another value returns a copy, as in g2opy.
"""

from __future__ import annotations

import math
from enum import Enum
from typing import Any

import numpy as np

from graphopt.errors import ShapeError
from graphopt.g2o.values import scalar
from graphopt.g2o.values.rotations import AngleAxis, Quaternion, Rotation2d


class TransformTraits(Enum):
    """What Eigen may assume about a transform; an isometry's inverse is the same for all."""

    Isometry = 1
    Affine = 2
    AffineCompact = 18
    Projective = 32


class _Isometry:
    """Rigid motion as a homogeneous matrix."""

    __slots__ = ("_m", "_s")
    _dim: int
    _s: list[float] | None

    def __init__(self, *args: Any, **named: Any) -> None:
        if named:
            args = scalar.arguments(args, named, "other R q", "t")
        n = self._dim
        self._s = None
        self._m = np.eye(n + 1)
        if len(args) == 1:
            value = args[0]
            if isinstance(value, _Isometry):
                self._m[...] = value._m
            elif hasattr(value, "_matrix"):  # SE2, SE3Quat
                self._m[...] = value._matrix()
            else:
                rows = scalar.matrix(value, ((n + 1, n + 1), (n, n + 1)), type(self).__name__)
                self._m[: len(rows)] = rows
        elif len(args) == 2:
            self.set_rotation(args[0])
            self.set_translation(args[1])
        elif args:
            raise TypeError(f"{type(self).__name__} takes (), a matrix, (rotation, translation) or a copy.")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._m.tolist()!r})"

    @classmethod
    def _of(cls, m: np.ndarray) -> Any:
        isometry = cls.__new__(cls)
        isometry._m, isometry._s = m, None
        return isometry

    @classmethod
    def identity(cls) -> Any:
        """The motion that does nothing."""
        return cls()

    def copy(self) -> Any:
        """The same motion as an object of its own."""
        return type(self)(self)

    def set_rotation(self, rotation: Any) -> None:
        """Replace the rotation."""
        raise NotImplementedError

    def set_identity(self) -> None:
        """Become the identity."""
        self._m, self._s = np.eye(self._dim + 1), None

    def matrix(self) -> np.ndarray:
        """Homogeneous matrix."""
        return self._m.copy()

    def rotation_matrix(self) -> np.ndarray:
        """Rotation matrix."""
        return self._m[: self._dim, : self._dim].copy()

    linear = rotation_matrix

    @property
    def R(self) -> np.ndarray:
        """Rotation matrix."""
        return self.rotation_matrix()

    def translation(self) -> np.ndarray:
        """Translation."""
        return self._m[: self._dim, self._dim].copy()

    position = translation

    @property
    def t(self) -> np.ndarray:
        """Translation."""
        return self.translation()

    def set_translation(self, translation: Any) -> None:
        """Replace the translation."""
        self._s = None
        self._m[: self._dim, self._dim] = scalar.floats(translation, self._dim, "translation")

    def make_affine(self) -> None:
        """Set the last row to 0, ..., 0, 1."""
        self._s = None
        self._m[self._dim] = 0.0
        self._m[self._dim, self._dim] = 1.0

    def rows(self) -> int:
        """Rows of the matrix without its last one."""
        return self._dim

    def cols(self) -> int:
        """Columns of the matrix."""
        return self._dim + 1

    def __call__(self, row: int, col: int) -> float:
        """One entry of the matrix."""
        return float(self._m[row, col])

    def inverse(self, traits: TransformTraits = TransformTraits.Isometry) -> Any:
        """Inverse motion; `traits` other than Isometry inverts the matrix as it is."""
        if traits is not TransformTraits.Isometry:
            return self._of(np.linalg.inv(self._m))
        n = self._dim
        m = np.eye(n + 1)
        rotation = self._m[:n, :n].T
        m[:n, :n] = rotation
        m[:n, n] = -rotation @ self._m[:n, n]
        return self._of(m)

    def __mul__(self, other: Any) -> Any:
        n = self._dim
        if type(other) is type(self) or isinstance(other, _Isometry):
            return self._of(self._m @ other._m)
        points = np.asarray(other, np.float64)
        if points.shape == (n,):
            return self._m[:n, :n] @ points + self._m[:n, n]
        if points.ndim == 2 and points.shape[0] == n:
            return self._m[:n, :n] @ points + self._m[:n, n:]
        raise ShapeError(
            f"{type(self).__name__} times an array of shape {points.shape}, expected ({n},) or ({n}, k)."
        )

    __matmul__ = __mul__


class Isometry3d(_Isometry):
    """Rigid motion of space.

    `Isometry3d(R, t)`, `(Quaternion, t)`, of a (4, 4) or (3, 4) matrix, or a copy.
    """

    __slots__ = ()
    _dim = 3

    def _storage(self) -> list[float]:
        if self._s is None:
            rows = self._m.tolist()
            x, y, z, w = scalar.canonical(scalar.normalized(scalar.from_rows(rows)))
            self._s = [rows[0][3], rows[1][3], rows[2][3], x, y, z, w]
        return self._s

    @classmethod
    def _from_storage(cls, s: list[float]) -> Isometry3d:
        a, b, c = scalar.to_rows(s[3:7])
        return cls._of(np.array(((*a, s[0]), (*b, s[1]), (*c, s[2]), (0.0, 0.0, 0.0, 1.0))))

    def rotation(self) -> Quaternion:
        """Rotation as a quaternion."""
        return Quaternion._of(scalar.from_rows(self._m.tolist()))

    orientation = Quaternion = rotation

    def set_rotation(self, rotation: Any) -> None:
        """Replace the rotation: a (3, 3) matrix, a Quaternion or an AngleAxis."""
        if isinstance(rotation, (Quaternion, AngleAxis)):
            rotation = rotation.matrix()
        self._s = None
        self._m[:3, :3] = scalar.matrix(rotation, ((3, 3),), "rotation matrix")


class Isometry2d(_Isometry):
    """Rigid motion of the plane. `Isometry2d(R, t)`, of a (3, 3) or (2, 3) matrix, or a copy."""

    __slots__ = ()
    _dim = 2

    def _storage(self) -> list[float]:
        return [float(self._m[0, 2]), float(self._m[1, 2]), math.atan2(self._m[1, 0], self._m[0, 0])]

    @classmethod
    def _from_storage(cls, s: list[float]) -> Isometry2d:
        sin, cos = math.sin(s[2]), math.cos(s[2])
        return cls._of(np.array(((cos, -sin, s[0]), (sin, cos, s[1]), (0.0, 0.0, 1.0))))

    def rotation(self) -> Quaternion:
        """Rotation as a quaternion around z."""
        half = 0.5 * math.atan2(self._m[1, 0], self._m[0, 0])
        return Quaternion._of((0.0, 0.0, math.sin(half), math.cos(half)))

    orientation = Quaternion = rotation

    def set_rotation(self, rotation: Any) -> None:
        """Replace the rotation: a (2, 2) matrix, a Rotation2d, or a Quaternion around z."""
        if isinstance(rotation, Quaternion):
            rotation = rotation.matrix()[:2, :2]
        elif isinstance(rotation, Rotation2d):
            rotation = rotation.matrix()
        self._s = None
        self._m[:2, :2] = scalar.matrix(rotation, ((2, 2),), "rotation matrix")
