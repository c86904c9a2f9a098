"""Poses as values: `SE3Quat`, `Sim3`.

Each holds the numbers that a vertex stores (`_storage()`, see `graphopt.types`). Everything that returns an
array or another value returns a copy, as in g2opy.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graphopt import geometry
from graphopt.errors import ShapeError
from graphopt.g2o.values import scalar
from graphopt.g2o.values.isometries import Isometry3d
from graphopt.g2o.values.rotations import Quaternion


class SE3Quat:
    """Pose of space as translation and unit quaternion with w >= 0.

    `SE3Quat(R, t)`, `(Quaternion, t)`, of 7 numbers x y z qx qy qz qw, of 6 numbers x y z qx qy qz, an
    Isometry3d, or a copy. Products with a point map it; `exp` and `log` use the order (omega, upsilon).
    """

    __slots__ = ("_s",)
    _s: Any

    def __init__(self, *args: Any, **named: Any) -> None:
        if named:
            args = scalar.arguments(args, named, "R q r v p other", "t")
        self._s = _se3_storage(args)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self._s)!r})"

    def _storage(self) -> tuple[float, ...]:
        return self._s

    @classmethod
    def _from_storage(cls, s: Any) -> SE3Quat:
        pose = SE3Quat.__new__(SE3Quat)
        pose._s = tuple(s)
        return pose

    def _matrix(self) -> np.ndarray:
        return Isometry3d._from_storage(self._s)._m

    def translation(self) -> np.ndarray:
        """(3,) translation."""
        return np.array(self._s[:3])

    position = translation

    @property
    def t(self) -> np.ndarray:
        """(3,) translation."""
        return self.translation()

    @property
    def R(self) -> np.ndarray:
        """(3, 3) rotation matrix."""
        return np.array(scalar.to_rows(self._s[3:]))

    def rotation(self) -> Quaternion:
        """Rotation."""
        return Quaternion._of(self._s[3:])

    orientation = Quaternion = rotation

    def rotation_matrix(self) -> np.ndarray:
        """(3, 3) rotation matrix."""
        return self.R

    def set_translation(self, t: Any) -> None:
        """Replace the translation."""
        self._s = (*scalar.floats(t, 3, "translation"), *self._s[3:])

    def set_rotation(self, q: Any) -> None:
        """Replace the rotation; the quaternion is kept as given."""
        self._s = (*self._s[:3], *Quaternion(q)._q)

    def normalize_rotation(self) -> None:
        """Unit quaternion with w >= 0."""
        self._s = (*self._s[:3], *scalar.normalized(scalar.canonical(self._s[3:])))

    def to_vector(self) -> np.ndarray:
        """(7,) x, y, z, qx, qy, qz, qw."""
        return np.array(self._s)

    vector = to_vector

    def from_vector(self, v: Any) -> None:
        """Become 7 numbers x, y, z, qx, qy, qz, qw, as they are."""
        self._s = tuple(scalar.floats(v, 7, "SE3Quat"))

    def to_minimal_vector(self) -> np.ndarray:
        """(6,) x, y, z, qx, qy, qz."""
        return np.array(self._s[:6])

    def from_minimal_vector(self, v: Any) -> None:
        """Become 6 numbers x, y, z, qx, qy, qz; w follows."""
        self._s = tuple(_minimal(scalar.floats(v, 6, "SE3Quat")))

    def matrix(self) -> np.ndarray:
        """(4, 4) homogeneous matrix."""
        return self._matrix()

    to_homogeneous_matrix = matrix

    def to_isometry3d(self) -> Isometry3d:
        """The same as an Isometry3d."""
        return Isometry3d._from_storage(self._s)

    Isometry3d = to_isometry3d

    def inverse(self) -> SE3Quat:
        """Inverse pose."""
        x, y, z, w = self._s[3:]
        q = (-x, -y, -z, w)
        a, b, c = scalar.rotate(q, self._s[:3])
        return SE3Quat._from_storage((-a, -b, -c, *q))

    def log(self) -> np.ndarray:
        """(6,) tangent (omega, upsilon)."""
        return geometry.SE3(np.array(self._s)).log()

    @staticmethod
    def exp(update: Any) -> SE3Quat:
        """Pose of a tangent (omega, upsilon)."""
        storage = geometry.SE3.exp(np.array(scalar.floats(update, 6, "update"))).storage.tolist()
        return SE3Quat._from_storage((*storage[:3], *scalar.normalized(scalar.canonical(tuple(storage[3:])))))

    def adj(self) -> np.ndarray:
        """(6, 6) adjoint in the order (omega, upsilon)."""
        return geometry.SE3(np.array(self._s)).adjoint()

    def map(self, xyz: Any) -> np.ndarray:
        """R xyz + t."""
        point = scalar.floats(xyz, 3, "point")
        a, b, c = scalar.rotate(self._s[3:], point)
        return np.array((a + self._s[0], b + self._s[1], c + self._s[2]))

    def __getitem__(self, i: int) -> float:
        return self._s[i]

    def __mul__(self, other: Any) -> Any:
        if not isinstance(other, SE3Quat):
            return self.map(other)
        a, b, c = scalar.rotate(self._s[3:], other._s[:3])
        q = scalar.normalized(scalar.canonical(scalar.product(self._s[3:], other._s[3:])))
        return SE3Quat._from_storage((a + self._s[0], b + self._s[1], c + self._s[2], *q))

    def __imul__(self, other: SE3Quat) -> SE3Quat:
        self._s = (self * other)._s
        return self


def _minimal(v: list[float]) -> list[float]:
    """Seven numbers of six, as g2o's `fromMinimalVector`."""
    w = 1.0 - v[3] * v[3] - v[4] * v[4] - v[5] * v[5]
    return [*v, math.sqrt(w)] if w > 0.0 else [*v[:3], -v[3], -v[4], -v[5], 0.0]


def _se3_storage(args: tuple[Any, ...]) -> tuple[float, ...]:
    if not args:
        return (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0)
    if len(args) == 2:
        q = Quaternion(args[0])._q
        return (*scalar.floats(args[1], 3, "translation"), *scalar.normalized(scalar.canonical(q)))
    if len(args) != 1:
        raise TypeError("SE3Quat takes (), (R, t), (Quaternion, t), 7 or 6 numbers, an Isometry3d or a copy.")
    (value,) = args
    if isinstance(value, (SE3Quat, Isometry3d)):
        return tuple(value._storage())
    numbers = np.asarray(value, np.float64).ravel().tolist()
    if len(numbers) == 6:
        return tuple(_minimal(numbers))
    if len(numbers) != 7:
        raise ShapeError(
            f"SE3Quat of {len(numbers)} numbers, expected 7 (x y z qx qy qz qw) or 6 (without qw)."
        )
    return (*numbers[:3], *scalar.normalized(scalar.canonical(tuple(numbers[3:]))))


class Sim3:
    """Similarity of space: point -> s R point + t.

    `Sim3(Quaternion, t, s)`, `(R, t, s)`, of a tangent of 7 numbers (omega, upsilon, sigma), or a copy.
    Indexing and vectors have the order qx qy qz qw x y z s.
    """

    __slots__ = ("_s",)
    _s: Any

    def __init__(self, *args: Any) -> None:
        if not args:
            self._s = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0)
        elif len(args) == 3:
            self._s = (
                *scalar.floats(args[1], 3, "translation"),
                *scalar.normalized(Quaternion(args[0])._q),
                float(args[2]),
            )
        elif len(args) == 1 and isinstance(args[0], Sim3):
            self._s = args[0]._s
        elif len(args) == 1:
            tangent = np.array(scalar.floats(args[0], 7, "Sim3"))
            self._s = tuple(geometry.Sim3.exp(tangent).storage.tolist())
        else:
            raise TypeError(
                "Sim3 takes (), (rotation, translation, scale), a tangent of 7 numbers, or a copy."
            )

    def __repr__(self) -> str:
        return f"Sim3({self.rotation()!r}, {list(self._s[:3])!r}, {self._s[7]!r})"

    def _storage(self) -> tuple[float, ...]:
        return self._s

    @classmethod
    def _from_storage(cls, s: Any) -> Sim3:
        similarity = cls.__new__(cls)
        similarity._s = tuple(s[:8])
        return similarity

    def rotation(self) -> Quaternion:
        """Rotation."""
        return Quaternion._of(self._s[3:7])

    def translation(self) -> np.ndarray:
        """(3,) translation."""
        return np.array(self._s[:3])

    def scale(self) -> float:
        """Scale."""
        return self._s[7]

    def normalize_rotation(self) -> None:
        """Unit quaternion with w >= 0."""
        self._s = (*self._s[:3], *scalar.normalized(scalar.canonical(self._s[3:7])), self._s[7])

    def to_vector(self) -> np.ndarray:
        """(8,) qx, qy, qz, qw, x, y, z, s."""
        return np.array((*self._s[3:7], *self._s[:3], self._s[7]))

    vector = to_vector

    def inverse(self) -> Sim3:
        """Inverse similarity."""
        x, y, z, w = self._s[3:7]
        q, s = (-x, -y, -z, w), 1.0 / self._s[7]
        a, b, c = scalar.rotate(q, self._s[:3])
        return Sim3._from_storage((-s * a, -s * b, -s * c, *q, s))

    def log(self) -> np.ndarray:
        """(7,) tangent (omega, upsilon, sigma)."""
        return geometry.Sim3(np.array(self._s)).log()

    @staticmethod
    def exp(update: Any) -> Sim3:
        """Similarity of a tangent (omega, upsilon, sigma)."""
        return Sim3(update)

    def map(self, xyz: Any) -> np.ndarray:
        """s R xyz + t."""
        a, b, c = scalar.rotate(self._s[3:7], scalar.floats(xyz, 3, "point"))
        s = self._s[7]
        return np.array((s * a + self._s[0], s * b + self._s[1], s * c + self._s[2]))

    def __getitem__(self, i: int) -> float:
        return float(self.to_vector()[i])

    def __mul__(self, other: Any) -> Any:
        if not isinstance(other, Sim3):
            return self.map(other)
        a, b, c = scalar.rotate(self._s[3:7], other._s[:3])
        s = self._s[7]
        q = scalar.product(self._s[3:7], other._s[3:7])
        return Sim3._from_storage(
            (s * a + self._s[0], s * b + self._s[1], s * c + self._s[2], *q, s * other._s[7])
        )

    def __imul__(self, other: Sim3) -> Sim3:
        self._s = (self * other)._s
        return self
