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

from graphopt.geometry import quaternion
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
        q = HalfTurn(self._matrix).quaternion(self._matrix)
        return quaternion.canonical(quaternion.normalize(q))

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
    """The half turn D, or identity, that makes the trace of a rotation matrix positive."""

    def __init__(self, rotation_matrix: Array) -> None:
        a, e, i = (rotation_matrix[..., k, k][()] for k in range(3))
        self._none = a + e + i > 0.0
        self._about_x = a > np.maximum(e, i)
        self._about_y = e > i
        x = self._choose(1.0, 1.0, -1.0, -1.0)
        y = self._choose(1.0, -1.0, 1.0, -1.0)
        self.signs: tuple[Array, Array, Array] = (x, y, x * y)
        """Diagonal of D."""

    def _choose(self, none: Array, about_x: Array, about_y: Array, about_z: Array) -> Array:
        rest = where(self._about_x, about_x, where(self._about_y, about_y, about_z))
        return where(self._none, none, rest)

    def times(self, m: Array) -> Array:
        """M D, for matrices (..., 3, 3)."""
        return matrix([[m[..., i, j][()] * self.signs[j] for j in range(3)] for i in range(3)])

    def turned_quaternion(self, rotation_matrix: Array) -> tuple[Array, Array, Array, Array]:
        """Components of R D's quaternion, w > 0, for this R; its length is 1 only if R is orthogonal."""
        m = self.times(rotation_matrix)
        trace = m[..., 0, 0][()] + m[..., 1, 1][()] + m[..., 2, 2][()]
        w = 0.5 * np.sqrt(1.0 + trace)
        x, y, z = components(scale(0.25 / w, vee(m)))
        return x, y, z, w

    def back(self, x: Array, y: Array, z: Array, w: Array) -> tuple[Array, Array, Array, Array]:
        """Components of q for those of q (0, 0, 0, 1), q (1, 0, 0, 0), ...: undo the half turn."""
        return (
            self._choose(x, -w, z, -y),
            self._choose(y, -z, -w, x),
            self._choose(z, y, -x, -w),
            self._choose(w, x, y, z),
        )

    def quaternion(self, rotation_matrix: Array) -> Array:
        """Quaternion (..., 4) of this R, of either sign and not quite of unit length."""
        return stack(*self.back(*self.turned_quaternion(rotation_matrix)))


def vee(m: Array) -> Array:
    """Vector v with [v] = M - M^T. (..., 3, 3) -> (..., 3)."""
    return stack(
        m[..., 2, 1][()] - m[..., 1, 2][()],
        m[..., 0, 2][()] - m[..., 2, 0][()],
        m[..., 1, 0][()] - m[..., 0, 1][()],
    )


def quaternion_error(rotation_matrix: Array) -> Array:
    """Vector part (..., 3) of a matrix' unit quaternion with w >= 0."""
    q = HalfTurn(rotation_matrix).quaternion(rotation_matrix)
    x, y, z, w = components(q)
    factor = where(w < 0.0, -1.0, 1.0) / np.sqrt(dot(q, q))
    return scale(factor, stack(x, y, z))


class QuaternionDerivative:
    """Derivative of a matrix' quaternion, vector part with w >= 0, while the matrix turns.

    The quaternion is the one before it is scaled to unit length, as in g2o's `compute_dq_dR`.
    """

    def __init__(self, rotation_matrix: Array) -> None:
        self._turn = HalfTurn(rotation_matrix)
        x, y, z, w = self._turn.turned_quaternion(rotation_matrix)
        sign = where(self._turn.back(x, y, z, w)[3] > 0.0, 1.0, -1.0)
        self._vector = stack(x, y, z)
        self._half = 0.5 / w
        self._sign = sign

    def turning(self, left: Array, right: Array) -> Array:
        """Derivative (..., 3, 3) by d of the vector part of L R(d) R', where L R' is the matrix.

        R(d) = I + 2 [d]. With A = L, B = R' D and the turned quaternion (u, w):

            du = (K - u c^T / (2 w)) d / (2 w),   dw = c d / (4 w)

        where K d = vee(A [d] B), c d = trace(A [d] B).
        """
        b = self._turn.times(right)
        rows = [components(left[..., i, :]) for i in range(3)]
        columns = [components(b[..., :, j]) for j in range(3)]
        products = {
            (i, j): _cross(columns[j], rows[i]) for i in range(3) for j in range(3) if i != j
        }  # (A [d] B)_ij = (b_j x a_i) . d
        k = [
            [p - q for p, q in zip(products[i, j], products[j, i], strict=True)]
            for i, j in ((2, 1), (0, 2), (1, 0))
        ]
        c = [-x for x in components(vee(b @ left))]  # trace(A [d] B) = c . d
        h = self._half
        slope = [h * x for x in c]
        signed = h * self._sign
        vector = components(self._vector)
        du = [[signed * (k[i][j] - vector[i] * slope[j]) for j in range(3)] for i in range(3)]
        dw = [0.5 * signed * x for x in c]
        back = [self._turn.back(du[0][j], du[1][j], du[2][j], dw[j]) for j in range(3)]
        return matrix([[back[j][i] for j in range(3)] for i in range(3)])


def _cross(a: tuple[Array, ...], b: tuple[Array, ...]) -> tuple[Array, ...]:
    return (a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0])
