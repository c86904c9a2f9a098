"""Rotations of the plane. Storage: angle [rad]. Tangent: angle."""

from __future__ import annotations

import numpy as np

from graphopt.geometry.arrays import Array, components, matrix, normalize_angle, stack
from graphopt.geometry.group import LieGroup


class SO2(LieGroup):
    """Rotation of the plane, storage (..., 1): angle in (-pi, pi] [rad]."""

    __slots__ = ()
    storage_dim = 1
    tangent_dim = 1
    identity_storage = (0.0,)

    @property
    def angle(self) -> Array:
        """Angle [rad], shape (...)."""
        return components(self.storage)[0]

    def compose(self, other: SO2) -> SO2:
        """Sum of the angles."""
        return SO2(stack(normalize_angle(self.angle + other.angle)))

    def inverse(self) -> SO2:
        """Opposite angle."""
        return SO2(stack(normalize_angle(-self.angle)))

    def act(self, point: Array) -> Array:
        """Rotate points (..., 2)."""
        x, y = components(point)
        cos, sin = np.cos(self.angle), np.sin(self.angle)
        return stack(cos * x - sin * y, sin * x + cos * y)

    @classmethod
    def exp(cls, tangent: Array) -> SO2:
        """Rotation by an angle."""
        return cls(stack(normalize_angle(components(tangent)[0])))

    def log(self) -> Array:
        """Angle in (-pi, pi], shape (..., 1)."""
        return stack(normalize_angle(self.angle))

    def adjoint(self) -> Array:
        """Identity: the group is commutative. Shape (..., 1, 1)."""
        return matrix([[0.0 * self.angle + 1.0]])

    def to_matrix(self) -> Array:
        """Rotation matrix (..., 2, 2)."""
        cos, sin = np.cos(self.angle), np.sin(self.angle)
        return matrix([[cos, -sin], [sin, cos]])

    @classmethod
    def from_matrix(cls, m: Array) -> SO2:
        """Element of a rotation matrix (..., 2, 2)."""
        return cls(stack(np.arctan2(m[..., 1, 0][()], m[..., 0, 0][()])))

    def normalize(self) -> SO2:
        """Wrap the angle into (-pi, pi]."""
        return SO2(stack(normalize_angle(self.angle)))
