"""Rigid motions of space as g2o's Isometry3: a translation and a 3x3 matrix.

A matrix built from a quaternion with few digits is not quite orthogonal,

    R(s q) = s^2 R(q) + (1 - s^2) I,        |q| = 1

and stays so under products. The inverse is (R^T, -R^T t) all the same. Where R is orthogonal, everything here
equals `SE3` to rounding.

Quaternion of a matrix, as Eigen computes it: with N_w = 1 + trace(R),

    w = sqrt(N_w) / 2,   u = vee(R - R^T) / (4 w),   then scaled to unit length

where trace(R) > 0. Elsewhere half a turn D = diag(+-1) about the axis of R's largest diagonal entry makes the
trace positive: that formula gives the quaternion of R D, and the product with the half turn's quaternion
brings it back. D is the identity where trace(R) > 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import graphopt.geometry.quaternion as quaternion
from graphopt.geometry.arrays import Array, components, concatenate, dot, matrix, matvec, scale, stack, where
from graphopt.geometry.se3 import SE3


class SE3Matrix(SE3):
    """Rigid motion of space that computes with a matrix; has all of `SE3`, whose storage it is made from."""

    __slots__ = ("_matrix", "_translation")

    def __init__(self, storage: Array) -> None:
        pose = SE3(storage)
        self._translation = pose.translation
        self._matrix = quaternion.to_matrix(pose.quaternion)

    @classmethod
    def of(cls, translation: Array, rotation_matrix: Array) -> SE3Matrix:
        """Join a translation (..., 3) and a matrix (..., 3, 3)."""
        pose = object.__new__(cls)
        pose._translation, pose._matrix = translation, rotation_matrix
        return pose

    @classmethod
    def from_numbers(cls, numbers: Array) -> SE3Matrix:
        """Read (..., 12): translation, then the matrix row by row."""
        return cls.of(numbers[..., :3], numbers[..., 3:12].reshape((*numbers.shape[:-1], 3, 3)))

    @property
    def numbers(self) -> Array:
        """(..., 12): translation, then the matrix row by row."""
        return concatenate(self._translation, *(self._matrix[..., i, :] for i in range(3)))

    @property
    def storage(self) -> Array:
        """Storage of `SE3` (..., 7), with a unit quaternion, w >= 0."""
        return concatenate(self._translation, self.quaternion)

    @property
    def translation(self) -> Array:
        """Translation (..., 3)."""
        return self._translation

    @property
    def rotation_matrix(self) -> Array:
        """Matrix (..., 3, 3)."""
        return self._matrix

    @property
    def quaternion(self) -> Array:
        """Unit quaternion (..., 4), w >= 0."""
        return HalfTurn(self._matrix).quaternion(self._matrix)

    @property
    def rotation(self) -> Any:
        """Rotation part, of unit length."""
        return SE3(self.storage).rotation

    @classmethod
    def from_parts(cls, translation: Array, q: Array) -> SE3Matrix:
        """Join a translation (..., 3) and a quaternion (..., 4)."""
        return cls.of(translation, quaternion.to_matrix(q))

    def compose(self, other: SE3) -> SE3Matrix:
        """Group product."""
        second = _as_matrix(other)
        return SE3Matrix.of(self.act(second.translation), self._matrix @ second._matrix)

    def inverse(self) -> SE3Matrix:
        """Inverse motion, with the transpose for the inverse matrix."""
        transposed = np.swapaxes(self._matrix, -1, -2)
        return SE3Matrix.of(-matvec(transposed, self._translation), transposed)

    def act(self, point: Array) -> Array:
        """Transform points (..., 3)."""
        return matvec(self._matrix, point) + self._translation

    def between(self, other: SE3) -> SE3Matrix:
        """`inverse() * other`: rotate the difference of the translations back."""
        second = _as_matrix(other)
        transposed = np.swapaxes(self._matrix, -1, -2)
        return SE3Matrix.of(self.inverse_act(second.translation), transposed @ second._matrix)

    def inverse_act(self, point: Array) -> Array:
        """`inverse() * point`."""
        return matvec(np.swapaxes(self._matrix, -1, -2), point - self._translation)

    def normalize(self) -> SE3Matrix:
        """Nearest to it with a rotation matrix made of a unit quaternion."""
        return SE3Matrix(self.storage)

    def __mul__(self, other: Any) -> Any:
        return self.compose(other) if isinstance(other, SE3) else self.act(other)

    def __repr__(self) -> str:
        return f"SE3Matrix.from_numbers({self.numbers!r})"


def _as_matrix(pose: SE3) -> SE3Matrix:
    return pose if isinstance(pose, SE3Matrix) else SE3Matrix(pose.storage)


class HalfTurn:
    """The half turn D, or identity, that makes the trace of a rotation matrix positive.

    D is the product of a half turn about x (or none) and one about y (or none): both make one about z.
    """

    def __init__(self, rotation_matrix: Array) -> None:
        a, e, i = (rotation_matrix[..., k, k][()] for k in range(3))
        none, mostly_x, mostly_y = a + e + i > 0.0, a > np.maximum(e, i), e > i
        about_x = where(none, 0.0, where(mostly_x, 1.0, where(mostly_y, 0.0, 1.0)))
        about_y = where(none, 0.0, where(mostly_x, 0.0, 1.0))
        self._about_x, self._about_y = about_x > 0.5, about_y > 0.5
        x, y = 1.0 - 2.0 * about_y, 1.0 - 2.0 * about_x
        self.signs: tuple[Array, Array, Array] = (x, y, x * y)
        """Diagonal of D."""

    def turned(self, rotation_matrix: Array) -> tuple[Array, Array, Array, Array]:
        """(vee(R D - (R D)^T), 1 + trace(R D)): a quaternion of R D, about 4 w long."""
        m = scale_columns(rotation_matrix, *self.signs)
        return *components(vee(m)), 1.0 + m[..., 0, 0][()] + m[..., 1, 1][()] + m[..., 2, 2][()]

    def back(self, x: Array, y: Array, z: Array, w: Array) -> tuple[Array, Array, Array, Array]:
        """Undo the half turn: components of R's quaternion, of either sign, from those of R D's."""
        turn = self._about_y
        x, y, z, w = where(turn, z, x), where(turn, -w, y), where(turn, -x, z), where(turn, y, w)
        turn = self._about_x
        return where(turn, -w, x), where(turn, -z, y), where(turn, y, z), where(turn, x, w)

    def quaternion(self, rotation_matrix: Array) -> Array:
        """Unit quaternion (..., 4) of this R, w >= 0."""
        q = stack(*self.back(*self.turned(rotation_matrix)))
        factor = where(components(q)[3] < 0.0, -1.0, 1.0) / np.sqrt(dot(q, q))
        return scale(factor, q)


def scale_columns(m: Array, *factors: Array) -> Array:
    """Multiply the columns of (..., 3, 3) by one factor each."""
    return matrix([[m[..., i, j][()] * factors[j] for j in range(3)] for i in range(3)])


def vee(m: Array) -> Array:
    """Vector v with [v] = M - M^T. (..., 3, 3) -> (..., 3)."""
    return stack(
        m[..., 2, 1][()] - m[..., 1, 2][()],
        m[..., 0, 2][()] - m[..., 2, 0][()],
        m[..., 1, 0][()] - m[..., 0, 1][()],
    )


class QuaternionDerivative:
    """Derivative of a matrix' quaternion, vector part with w >= 0, while the matrix turns.

    The quaternion is the one before it is scaled to unit length, as in g2o's `compute_dq_dR`.
    """

    def __init__(self, rotation_matrix: Array) -> None:
        self._turn = HalfTurn(rotation_matrix)
        x, y, z, squared = self._turn.turned(rotation_matrix)  # 4 w u, 4 w^2
        negative = self._turn.back(x, y, z, squared)[3] < 0.0
        half = 1.0 / np.sqrt(squared)
        self._factors = tuple(where(negative, -half, half) * sign for sign in self._turn.signs)
        self._vector = tuple(part * (0.5 / squared) for part in (x, y, z))  # u / (2 w)

    def turning(self, left: Array, right: Array) -> Array:
        """Derivative (..., 3, 3) by d of the vector part of L R(d) R', where L R' is the matrix.

        R(d) = I + 2 [d]. With A = L, B = R' D and the turned quaternion (u, w):

            du = (K - u c^T / (2 w)) d / (2 w),   dw = c d / (4 w)

        where K d = vee(A [d] B), c d = trace(A [d] B). The factor 1 / (2 w) is put into B.
        """
        b = scale_columns(right, *self._factors)
        rows = [components(left[..., i, :]) for i in range(3)]
        columns = [components(b[..., :, j]) for j in range(3)]
        k = []
        for i, j in ((2, 1), (0, 2), (1, 0)):  # (A [d] B)_ij = (b_j x a_i) d
            plus, minus = _cross(columns[j], rows[i]), _cross(columns[i], rows[j])
            k.append([p - m for p, m in zip(plus, minus, strict=True)])
        c = [-x for x in components(vee(b @ left))]  # trace(A [d] B) = trace([d] B A)
        du = [[k[i][j] - self._vector[i] * c[j] for j in range(3)] for i in range(3)]
        back = [self._turn.back(du[0][j], du[1][j], du[2][j], 0.5 * c[j]) for j in range(3)]
        return matrix([[back[j][i] for j in range(3)] for i in range(3)])


def _cross(a: tuple[Array, ...], b: tuple[Array, ...]) -> tuple[Array, ...]:
    return (a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0])
