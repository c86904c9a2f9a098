"""Rotations of space.

    storage  qx, qy, qz, qw       unit quaternion
    tangent  omega                rotation vector (axis times angle) [rad]

    exp(omega) = (sin(t/2)/t omega, cos(t/2)),  t = |omega|
    left Jacobian V(omega) = I + B [omega] + C [omega]^2,  B = (1 - cos t)/t^2,  C = (t - sin t)/t^3

The quotients are replaced by their series below |omega|^2 = 0.05, where these and their derivatives are exact
to rounding and the closed forms are not; so every derivative is finite at zero.
"""

from __future__ import annotations

import numpy as np

import graphopt.geometry.quaternion as quaternion
from graphopt.geometry.arrays import Array, components, dot, scale, skew, stack, where
from graphopt.geometry.group import LieGroup

_SERIES_BELOW = 0.05  # |omega|^2; the derivative of six terms is then exact to 4e-16


def polynomial(x: Array, *coefficients: float) -> Array:
    """Evaluate sum of coefficients[k] x^k by Horner's rule."""
    value: Array = coefficients[-1]
    for coefficient in reversed(coefficients[:-1]):
        value = coefficient + x * value
    return value


def exp_coefficients(angle_squared: Array) -> tuple[Array, Array, Array]:
    """(sin t)/t, (1 - cos t)/t^2 and (t - sin t)/t^3 from t^2."""
    small = angle_squared < _SERIES_BELOW
    safe = where(small, 1.0, angle_squared)
    angle = np.sqrt(safe)
    sin, half = np.sin(angle), np.sin(0.5 * angle)
    a = polynomial(angle_squared, 1.0, -1 / 6, 1 / 120, -1 / 5040, 1 / 362880, -1 / 39916800)
    b = polynomial(angle_squared, 1 / 2, -1 / 24, 1 / 720, -1 / 40320, 1 / 3628800, -1 / 479001600)
    c = polynomial(angle_squared, 1 / 6, -1 / 120, 1 / 5040, -1 / 362880, 1 / 39916800, -1 / 6227020800)
    return (
        where(small, a, sin / angle),
        where(small, b, 2.0 * half * half / safe),
        where(small, c, (angle - sin) / (angle * safe)),
    )


def left_jacobian_times(omega: Array, v: Array) -> Array:
    """V(omega) v."""
    _, b, c = exp_coefficients(dot(omega, omega))
    hat = skew(omega)
    once = (hat @ v[..., None])[..., 0]
    twice = (hat @ once[..., None])[..., 0]
    return v + scale(b, once) + scale(c, twice)


def inverse_left_jacobian_times(omega: Array, v: Array) -> Array:
    """Solve V(omega) x = v:  x = v - [omega] v / 2 + D [omega]^2 v,  D = (1 - t cot(t/2) / 2) / t^2."""
    squared = dot(omega, omega)
    small = squared < _SERIES_BELOW
    safe = where(small, 1.0, squared)
    half = 0.5 * np.sqrt(safe)
    series = polynomial(squared, 1 / 12, 1 / 720, 1 / 30240, 1 / 1209600, 1 / 47900160)
    d = where(small, series, (1.0 - half * np.cos(half) / np.sin(half)) / safe)
    hat = skew(omega)
    once = (hat @ v[..., None])[..., 0]
    twice = (hat @ once[..., None])[..., 0]
    return v - scale(0.5, once) + scale(d, twice)


def rotation_vector_to_quaternion(omega: Array) -> Array:
    """Convert a rotation vector (..., 3) to a unit quaternion."""
    x, y, z = components(omega)
    squared = 0.25 * (x * x + y * y + z * z)  # of half the angle
    small = squared < _SERIES_BELOW
    safe = where(small, 1.0, squared)
    half = np.sqrt(safe)
    series = polynomial(squared, 1.0, -1 / 6, 1 / 120, -1 / 5040, 1 / 362880, -1 / 39916800)
    sinc = 0.5 * where(small, series, np.sin(half) / half)
    cosine = polynomial(squared, 1.0, -1 / 2, 1 / 24, -1 / 720, 1 / 40320, -1 / 3628800, 1 / 479001600)
    return stack(sinc * x, sinc * y, sinc * z, where(small, cosine, np.cos(half)))


def quaternion_to_rotation_vector(q: Array) -> Array:
    """Rotation vector (..., 3) with angle <= pi of a unit quaternion."""
    x, y, z, w = components(quaternion.canonical(q))
    squared = x * x + y * y + z * z
    small = squared < 1e-6
    safe = where(small, 1.0, squared)
    length = np.sqrt(safe)
    w_safe = where(small, w, 1.0)
    ratio = squared / (w_safe * w_safe)
    series = polynomial(ratio, 2.0, -2 / 3, 2 / 5) / w_safe
    factor = where(small, series, 2.0 * np.arctan2(length, w) / length)
    return stack(factor * x, factor * y, factor * z)


class SO3(LieGroup):
    """Rotation of space, storage (..., 4): unit quaternion qx, qy, qz, qw."""

    __slots__ = ()
    storage_dim = 4
    tangent_dim = 3
    identity_storage = (0.0, 0.0, 0.0, 1.0)
    quaternions = (0,)

    @property
    def quaternion(self) -> Array:
        """Unit quaternion (..., 4): x, y, z, w."""
        return self.storage

    def compose(self, other: SO3) -> SO3:
        """Quaternion product."""
        return SO3(quaternion.multiply(self.storage, other.storage))

    def inverse(self) -> SO3:
        """Conjugate quaternion."""
        return SO3(quaternion.conjugate(self.storage))

    def act(self, point: Array) -> Array:
        """Rotate points (..., 3)."""
        return quaternion.rotate(self.storage, point)

    @classmethod
    def exp(cls, tangent: Array) -> SO3:
        """Rotation by a rotation vector (..., 3) [rad]."""
        return cls(rotation_vector_to_quaternion(tangent))

    def log(self) -> Array:
        """Rotation vector (..., 3) with angle <= pi [rad]."""
        return quaternion_to_rotation_vector(self.storage)

    def adjoint(self) -> Array:
        """Rotation matrix (..., 3, 3)."""
        return self.to_matrix()

    def to_matrix(self) -> Array:
        """Rotation matrix (..., 3, 3)."""
        return quaternion.to_matrix(self.storage)

    @classmethod
    def from_matrix(cls, m: Array) -> SO3:
        """Element of a rotation matrix (..., 3, 3)."""
        return cls(quaternion.from_matrix(m))

    def normalize(self) -> SO3:
        """Scale the quaternion to unit length, w >= 0."""
        return SO3(quaternion.canonical(quaternion.normalize(self.storage)))
