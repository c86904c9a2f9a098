"""g2o's own exponential and logarithm where they are not the exact ones.

`SE3Quat::log` takes sin(t) for the angle t where |cos t| > 0.99999 (t < 0.0045 and t > pi - 0.0045);
`Sim3(Vector7)` and `Sim3::log` switch to first terms of series where t or sigma is small, and `Sim3::log` has
the sine there, too. These are not rounding: near a solution the error of an edge differs by 3e-6 relative.
Edge types need g2o's answers, so they use these functions; `geometry` has the exact ones.

Notation: t = |omega|, d = cos t = 1 - 2 |u|^2 and deltaR / 2 = 2 w u = sin(t) axis for the quaternion (u, w).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphopt.geometry import SE3, Sim3, quaternion
from graphopt.geometry.arrays import components, concatenate, dot, scale, skew, stack, where
from graphopt.geometry.sim3 import apply_inverse_w, apply_w, exponential_moment, translation_coefficients
from graphopt.geometry.so3 import exp_coefficients, polynomial, rotation_vector_to_quaternion

Array = Any

_EPSILON = 1e-5


def _rotation_vectors(q: Array) -> tuple[Array, Array, Array]:
    """(cos t, t axis where cos t <= 1 - 1e-5, sin(t) axis) of a unit quaternion."""
    x, y, z, w = components(quaternion.canonical(q))
    squared = x * x + y * y + z * z
    cosine = 1.0 - 2.0 * squared
    regular = cosine <= 1.0 - _EPSILON
    length = np.sqrt(where(regular, squared, 1.0))
    ratio = 2.0 * np.arctan2(length, where(regular, w, 0.5)) / length
    sine = 2.0 * w
    return cosine, stack(ratio * x, ratio * y, ratio * z), stack(sine * x, sine * y, sine * z)


def _choose(condition: Array, if_true: Array, if_false: Array) -> Array:
    """One of two vectors (..., 3)."""
    pairs = zip(components(if_true), components(if_false), strict=True)
    return stack(*(where(condition, first, second) for first, second in pairs))


def se3_log(pose: SE3) -> Array:
    """`SE3Quat::log`: (omega, upsilon)."""
    cosine, turn, sine_vector = _rotation_vectors(pose.quaternion)
    small = cosine * cosine > (1.0 - _EPSILON) * (1.0 - _EPSILON)
    omega = _choose(small, sine_vector, turn)
    squared = where(small, 1.0, dot(omega, omega))
    half = 0.5 * np.sqrt(squared)
    d = where(small, 1.0 / 12.0, (1.0 - half * np.cos(half) / np.sin(half)) / squared)
    hat = skew(omega)
    once = (hat @ pose.translation[..., None])[..., 0]
    twice = (hat @ once[..., None])[..., 0]
    return concatenate(omega, pose.translation - scale(0.5, once) + scale(d, twice))


def _sim3_coefficients(small_angle: Array, angle_squared: Array, sigma: Array) -> tuple[Array, Array, Array]:
    """g2o's A, B, C of W = A [omega] + B [omega]^2 + C I; the notation of `geometry.sim3`.

    Where g2o has first terms of series they are these; where it has quotients that cancel, their values.
    """
    small_sigma = np.abs(sigma) < _EPSILON
    general_a, general_b, general_c = translation_coefficients(angle_squared, sigma)
    _, no_scale_a, no_scale_b = exp_coefficients(angle_squared)
    a = where(
        small_sigma,
        where(small_angle, 0.5, no_scale_a),
        where(small_angle, exponential_moment(1, sigma), general_a),
    )
    b = where(
        small_sigma,
        where(small_angle, 1.0 / 6.0, no_scale_b),
        where(small_angle, 0.5 * exponential_moment(2, sigma), general_b),
    )
    return a, b, where(small_sigma, 1.0, general_c)


def sim3_exp(tangent: Array) -> Sim3:
    """`Sim3(Vector7)` from (omega, upsilon, sigma)."""
    omega, upsilon, sigma = tangent[..., :3], tangent[..., 3:6], components(tangent)[6]
    squared = dot(omega, omega)
    w = _sim3_coefficients(squared < _EPSILON * _EPSILON, squared, sigma)
    return Sim3.from_parts(apply_w(omega, upsilon, *w), rotation_vector_to_quaternion(omega), np.exp(sigma))


def sim3_log(similarity: Sim3) -> Array:
    """`Sim3::log`: (omega, upsilon, sigma)."""
    cosine, turn, sine_vector = _rotation_vectors(similarity.quaternion)
    small = cosine > 1.0 - _EPSILON
    omega = _choose(small, sine_vector, turn)
    sigma = np.log(similarity.scale)
    w = _sim3_coefficients(small, dot(omega, omega), sigma)
    return concatenate(omega, apply_inverse_w(omega, similarity.translation, *w), stack(sigma))


def rotate_by_angle_axis(angle_axis: Array, point: Array) -> Array:
    """Rotate points (..., 3) by a rotation vector (..., 3) (Rodrigues), as Ceres' `AngleAxisRotatePoint`."""
    squared = dot(angle_axis, angle_axis)
    small = squared < 1e-8
    safe = where(small, 1.0, squared)
    t = np.sqrt(safe)
    half = 2.0 * np.sin(0.5 * t) / t
    a = where(small, polynomial(squared, 1.0, -1.0 / 6.0), half * np.cos(0.5 * t))
    b = where(small, polynomial(squared, 0.5, -1.0 / 24.0), 0.5 * half * half)
    hat = skew(angle_axis)
    once = (hat @ point[..., None])[..., 0]
    twice = (hat @ once[..., None])[..., 0]
    return point + scale(a, once) + scale(b, twice)
