"""Similarities of space: point -> s R point + t.

    storage  x, y, z, qx, qy, qz, qw, s
    tangent  omega, upsilon, sigma        as g2o's Sim3

    exp(omega, upsilon, sigma) = (s = e^sigma, R = exp(omega), t = W upsilon)
    W = integral over x in [0, 1] of e^(sigma x) exp(x [omega]) = A [omega] + B [omega]^2 + C I

With t = |omega|, I_n = integral of x^n e^(sigma x), h = 2 s sin(t/2)^2 (written so that little cancels):

    A = (sigma (s sin(t) - t C) + t h) / (t (t^2 + sigma^2))          = I_1 - t^2/6 I_3 + ...
    B = (t^2 C + sigma h - t s sin(t)) / (t^2 (t^2 + sigma^2))        = I_2/2 - t^2/24 I_4 + ...
    C = (s - 1) / sigma = I_0

Reference: H. Strasdat, Local Accuracy and Global Consistency for Efficient Visual SLAM, PhD thesis 2012,
appendix.
"""

from __future__ import annotations

import math

import numpy as np

import graphopt.geometry.quaternion as quaternion
from graphopt.geometry.arrays import Array, components, concatenate, dot, matrix, scale, skew, stack, where
from graphopt.geometry.group import LieGroup
from graphopt.geometry.so3 import (
    SO3,
    polynomial,
    quaternion_to_rotation_vector,
    rotation_vector_to_quaternion,
)

_SIGMA_SERIES_BELOW = 0.25
_ANGLE_SERIES_BELOW = 2.5e-3  # t^2


def exponential_moment(order: int, sigma: Array) -> Array:
    """I_n = integral over x in [0, 1] of x^n e^(sigma x), by its series where sigma is small."""
    small = sigma * sigma < _SIGMA_SERIES_BELOW**2
    safe = where(small, 1.0, sigma)
    series = polynomial(sigma, *(1.0 / (math.factorial(k) * (k + order + 1)) for k in range(12)))
    scale_factor = np.exp(safe)
    closed = (scale_factor - 1.0) / safe
    for n in range(1, order + 1):
        closed = (scale_factor - n * closed) / safe
    return where(small, series, closed)


def translation_coefficients(angle_squared: Array, sigma: Array) -> tuple[Array, Array, Array]:
    """Coefficients A, B, C of the matrix W."""
    moment = [exponential_moment(n, sigma) for n in range(9)]
    series_a = polynomial(
        angle_squared, moment[1], moment[3] * (-1 / 6), moment[5] * (1 / 120), moment[7] * (-1 / 5040)
    )
    series_b = polynomial(
        angle_squared, moment[2] * 0.5, moment[4] * (-1 / 24), moment[6] * (1 / 720), moment[8] * (-1 / 40320)
    )
    small = angle_squared < _ANGLE_SERIES_BELOW
    t2 = where(small, 1.0, angle_squared)
    t = np.sqrt(t2)
    s, half = np.exp(sigma), np.sin(0.5 * t)
    sin, h = s * np.sin(t), 2.0 * s * half * half
    denominator = t2 + sigma * sigma
    closed_a = (sigma * (sin - t * moment[0]) + t * h) / (t * denominator)
    closed_b = (t2 * moment[0] + sigma * h - t * sin) / (t2 * denominator)
    return where(small, series_a, closed_a), where(small, series_b, closed_b), moment[0]


def apply_w(omega: Array, v: Array, a: Array, b: Array, c: Array) -> Array:
    """Multiply v by A [omega] + B [omega]^2 + C I."""
    hat = skew(omega)
    once = (hat @ v[..., None])[..., 0]
    twice = (hat @ once[..., None])[..., 0]
    return scale(a, once) + scale(b, twice) + scale(c, v)


def apply_inverse_w(omega: Array, v: Array, a: Array, b: Array, c: Array) -> Array:
    """Solve (A [omega] + B [omega]^2 + C I) x = v in closed form; across omega W is a complex number."""
    t2 = dot(omega, omega)
    real = c - b * t2
    squared = real * real + a * a * t2
    return apply_w(omega, v, -a / squared, (a * a - b * real) / (c * squared), 1.0 / c)


class Sim3(LieGroup):
    """Similarity of space, storage (..., 8): x, y, z, qx, qy, qz, qw, scale."""

    __slots__ = ()
    storage_dim = 8
    tangent_dim = 7
    identity_storage = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0)
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

    @property
    def scale(self) -> Array:
        """Scale factor, shape (...)."""
        return components(self.storage)[7]

    @classmethod
    def from_parts(cls, translation: Array, q: Array, s: Array) -> Sim3:
        """Join a translation (..., 3), a unit quaternion (..., 4) and a scale (...)."""
        return cls(stack(*components(translation), *components(q), s))

    def compose(self, other: Sim3) -> Sim3:
        """Group product."""
        q = quaternion.multiply(self.quaternion, other.quaternion)
        return Sim3.from_parts(self.act(other.translation), q, self.scale * other.scale)

    def inverse(self) -> Sim3:
        """Inverse similarity."""
        q, s = quaternion.conjugate(self.quaternion), 1.0 / self.scale
        return Sim3.from_parts(scale(-s, quaternion.rotate(q, self.translation)), q, s)

    def act(self, point: Array) -> Array:
        """Transform points (..., 3)."""
        return scale(self.scale, quaternion.rotate(self.quaternion, point)) + self.translation

    @classmethod
    def exp(cls, tangent: Array) -> Sim3:
        """Exponential of (omega, upsilon, sigma), shape (..., 7)."""
        omega, upsilon, sigma = tangent[..., :3], tangent[..., 3:6], components(tangent)[6]
        w = translation_coefficients(dot(omega, omega), sigma)
        q = rotation_vector_to_quaternion(omega)
        return cls.from_parts(apply_w(omega, upsilon, *w), q, np.exp(sigma))

    def log(self) -> Array:
        """Tangent (omega, upsilon, sigma) whose exponential this is, |omega| <= pi."""
        omega, sigma = quaternion_to_rotation_vector(self.quaternion), np.log(self.scale)
        w = translation_coefficients(dot(omega, omega), sigma)
        return concatenate(omega, apply_inverse_w(omega, self.translation, *w), stack(sigma))

    def adjoint(self) -> Array:
        """Adjoint (..., 7, 7) in the order (omega, upsilon, sigma): a * exp(d) = exp(adjoint d) * a."""
        r = quaternion.to_matrix(self.quaternion)
        t_cross_r = skew(self.translation) @ r
        x, y, z = components(self.translation)
        zero = 0.0 * x
        rows = [(*components(r[..., i, :]), zero, zero, zero, zero) for i in range(3)]
        for i, t in enumerate((x, y, z)):
            scaled = tuple(self.scale * part for part in components(r[..., i, :]))
            rows.append((*components(t_cross_r[..., i, :]), *scaled, -t))
        return matrix([*rows, (zero,) * 6 + (zero + 1.0,)])

    def to_matrix(self) -> Array:
        """Homogeneous matrix (..., 4, 4) with s R in its top left corner."""
        r = quaternion.to_matrix(self.quaternion)
        x, y, z = components(self.translation)
        s, zero = self.scale, 0.0 * x
        rows = [(*(s * part for part in components(r[..., i, :])), t) for i, t in enumerate((x, y, z))]
        return matrix([*rows, (zero, zero, zero, zero + 1.0)])

    @classmethod
    def from_matrix(cls, m: Array) -> Sim3:
        """Element of a homogeneous matrix (..., 4, 4); the scale is the length of its first column."""
        column = m[..., :3, 0]
        s = np.sqrt(dot(column, column))
        rows = [[m[..., i, j][()] / s for j in range(3)] for i in range(3)]
        return cls.from_parts(m[..., :3, 3], quaternion.from_matrix(matrix(rows)), s)

    def normalize(self) -> Sim3:
        """Scale the quaternion to unit length, w >= 0."""
        q = quaternion.canonical(quaternion.normalize(self.quaternion))
        return Sim3.from_parts(self.translation, q, self.scale)
