"""Rigid motions of space.

storage  x, y, z, qx, qy, qz, qw
tangent  omega, upsilon       rotation first, as g2o's SE3Quat

exp(omega, upsilon) = (R = exp(omega), t = V(omega) upsilon),   V: left Jacobian of SO(3), see so3.py
"""

from __future__ import annotations

import graphopt.geometry.quaternion as quaternion
from graphopt.geometry.arrays import Array, components, concatenate, matrix, skew
from graphopt.geometry.group import LieGroup
from graphopt.geometry.so3 import (
    SO3,
    inverse_left_jacobian_times,
    left_jacobian_times,
    quaternion_to_rotation_vector,
    rotation_vector_to_quaternion,
)


def block_matrix(top_left: Array, top_right: Array, bottom_left: Array, bottom_right: Array) -> Array:
    """Matrix (..., m, n) of four blocks."""
    rows = []
    for left, right in ((top_left, top_right), (bottom_left, bottom_right)):
        for i in range(left.shape[-2]):
            rows.append((*components(left[..., i, :]), *components(right[..., i, :])))
    return matrix(rows)


class SE3(LieGroup):
    """Rigid motion of space, storage (..., 7): x, y, z, qx, qy, qz, qw."""

    __slots__ = ()
    storage_dim = 7
    tangent_dim = 6
    identity_storage = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0)
    quaternions = (3,)

    @property
    def translation(self) -> Array:
        """Translation (..., 3)."""
        return self.storage[..., :3]

    @property
    def quaternion(self) -> Array:
        """Unit quaternion (..., 4): x, y, z, w."""
        return self.storage[..., 3:7]

    @property
    def rotation(self) -> SO3:
        """Rotation part."""
        return SO3(self.storage[..., 3:7])

    @classmethod
    def from_parts(cls, translation: Array, q: Array) -> SE3:
        """Join a translation (..., 3) and a unit quaternion (..., 4)."""
        return cls(concatenate(translation, q))

    def compose(self, other: SE3) -> SE3:
        """Group product."""
        return SE3.from_parts(
            self.act(other.translation), quaternion.multiply(self.quaternion, other.quaternion)
        )

    def inverse(self) -> SE3:
        """Inverse motion."""
        q = quaternion.conjugate(self.quaternion)
        return SE3.from_parts(-quaternion.rotate(q, self.translation), q)

    def act(self, point: Array) -> Array:
        """Transform points (..., 3)."""
        return quaternion.rotate(self.quaternion, point) + self.translation

    def between(self, other: SE3) -> SE3:
        """`inverse() * other`: rotate the difference of the translations back."""
        q = quaternion.multiply(quaternion.conjugate(self.quaternion), other.quaternion)
        return SE3.from_parts(self.inverse_act(other.translation), q)

    def inverse_act(self, point: Array) -> Array:
        """`inverse() * point`."""
        return quaternion.rotate(quaternion.conjugate(self.quaternion), point - self.translation)

    @classmethod
    def exp(cls, tangent: Array) -> SE3:
        """Exponential of (omega, upsilon), shape (..., 6)."""
        omega, upsilon = tangent[..., :3], tangent[..., 3:]
        return cls.from_parts(left_jacobian_times(omega, upsilon), rotation_vector_to_quaternion(omega))

    def log(self) -> Array:
        """Tangent (omega, upsilon) whose exponential this is, |omega| <= pi."""
        omega = quaternion_to_rotation_vector(self.quaternion)
        return concatenate(omega, inverse_left_jacobian_times(omega, self.translation))

    def adjoint(self) -> Array:
        """Adjoint (..., 6, 6) in the order (omega, upsilon): a * exp(d) = exp(adjoint d) * a."""
        r = quaternion.to_matrix(self.quaternion)
        return block_matrix(r, 0.0 * r, skew(self.translation) @ r, r)

    def to_matrix(self) -> Array:
        """Homogeneous matrix (..., 4, 4)."""
        r = quaternion.to_matrix(self.quaternion)
        x, y, z = components(self.translation)
        rows = [(*components(r[..., i, :]), t) for i, t in enumerate((x, y, z))]
        zero = 0.0 * x
        return matrix([*rows, (zero, zero, zero, zero + 1.0)])

    @classmethod
    def from_matrix(cls, m: Array) -> SE3:
        """Element of a homogeneous matrix (..., 4, 4)."""
        return cls.from_parts(m[..., :3, 3], quaternion.from_matrix(m[..., :3, :3]))

    def normalize(self) -> SE3:
        """Scale the quaternion to unit length, w >= 0."""
        return SE3.from_parts(self.translation, quaternion.canonical(quaternion.normalize(self.quaternion)))
