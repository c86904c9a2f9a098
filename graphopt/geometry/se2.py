"""Rigid motions of the plane.

storage  x, y, theta          (x, y) [any length unit], theta in (-pi, pi] [rad]
tangent  vx, vy, omega

exp(v, omega) = (V v, omega),   V = [ s -c ; c s ],  s = sin(omega) / omega,  c = (1 - cos(omega)) / omega
"""

from __future__ import annotations

import numpy as np

from graphopt.geometry.arrays import Array, components, matrix, normalize_angle, stack
from graphopt.geometry.group import LieGroup
from graphopt.geometry.so2 import SO2
from graphopt.geometry.so3 import exp_coefficients


def _sinc_pair(angle: Array) -> tuple[Array, Array]:
    """(sin(a) / a, (1 - cos(a)) / a) with their limits and finite derivatives at zero."""
    sinc, cosc, _ = exp_coefficients(angle * angle)
    return sinc, cosc * angle


class SE2(LieGroup):
    """Rigid motion of the plane, storage (..., 3): x, y, theta [rad]."""

    __slots__ = ()
    storage_dim = 3
    tangent_dim = 3
    identity_storage = (0.0, 0.0, 0.0)

    @property
    def translation(self) -> Array:
        """Translation (..., 2)."""
        return self.storage[..., :2]

    @property
    def angle(self) -> Array:
        """Heading theta [rad], shape (...)."""
        return components(self.storage)[2]

    @property
    def rotation(self) -> SO2:
        """Rotation part."""
        return SO2(self.storage[..., 2:])

    def compose(self, other: SE2) -> SE2:
        """Group product; the angle is wrapped into (-pi, pi]."""
        x, y, theta = components(self.storage)
        dx, dy = components(self.rotation.act(other.translation))
        return SE2(stack(x + dx, y + dy, normalize_angle(theta + other.angle)))

    def inverse(self) -> SE2:
        """Inverse motion."""
        x, y, theta = components(self.storage)
        cos, sin = np.cos(theta), np.sin(theta)
        return SE2(stack(-(cos * x + sin * y), sin * x - cos * y, normalize_angle(-theta)))

    def act(self, point: Array) -> Array:
        """Transform points (..., 2)."""
        return self.rotation.act(point) + self.translation

    def between(self, other: SE2) -> SE2:
        """`inverse() * other`: rotate the difference of the translations back."""
        x, y = components(self.inverse_act(other.translation))
        return SE2(stack(x, y, normalize_angle(normalize_angle(-self.angle) + other.angle)))

    def inverse_act(self, point: Array) -> Array:
        """`inverse() * point`."""
        dx, dy = components(point - self.translation)
        cos, sin = np.cos(self.angle), np.sin(self.angle)
        return stack(cos * dx + sin * dy, cos * dy - sin * dx)

    @classmethod
    def exp(cls, tangent: Array) -> SE2:
        """Exponential of (vx, vy, omega)."""
        vx, vy, omega = components(tangent)
        sinc, cosc = _sinc_pair(omega)
        return cls(stack(sinc * vx - cosc * vy, cosc * vx + sinc * vy, normalize_angle(omega)))

    def log(self) -> Array:
        """Tangent (..., 3) whose exponential this is, |omega| <= pi."""
        x, y, theta = components(self.storage)
        omega = normalize_angle(theta)
        sinc, cosc = _sinc_pair(omega)
        determinant = sinc * sinc + cosc * cosc
        return stack((sinc * x + cosc * y) / determinant, (sinc * y - cosc * x) / determinant, omega)

    def adjoint(self) -> Array:
        """Adjoint (..., 3, 3): a * exp(d) = exp(adjoint d) * a."""
        x, y, theta = components(self.storage)
        cos, sin = np.cos(theta), np.sin(theta)
        zero = 0.0 * x
        return matrix([[cos, -sin, y], [sin, cos, -x], [zero, zero, zero + 1.0]])

    def to_matrix(self) -> Array:
        """Homogeneous matrix (..., 3, 3)."""
        x, y, theta = components(self.storage)
        cos, sin = np.cos(theta), np.sin(theta)
        zero = 0.0 * x
        return matrix([[cos, -sin, x], [sin, cos, y], [zero, zero, zero + 1.0]])

    @classmethod
    def from_matrix(cls, m: Array) -> SE2:
        """Element of a homogeneous matrix (..., 3, 3)."""
        return cls(stack(m[..., 0, 2][()], m[..., 1, 2][()], np.arctan2(m[..., 1, 0][()], m[..., 0, 0][()])))

    def normalize(self) -> SE2:
        """Wrap the angle into (-pi, pi]."""
        x, y, theta = components(self.storage)
        return SE2(stack(x, y, normalize_angle(theta)))
