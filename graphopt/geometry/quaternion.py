"""Unit quaternions as arrays (..., 4) in the order x, y, z, w.

q = (u, w),  |q| = 1          R(q) v = v + 2 w (u x v) + 2 u x (u x v)
q and -q are the same rotation; `canonical` picks the one with w >= 0, as g2o does.
"""

from __future__ import annotations

import numpy as np

from graphopt.geometry.arrays import Array, components, cross, dot, matrix, safe_sqrt, scale, stack, where

_FEW_DIGITS = 1e-3
_SHORTEST = 1e-6


def multiply(a: Array, b: Array) -> Array:
    """Hamilton product."""
    ax, ay, az, aw = components(a)
    bx, by, bz, bw = components(b)
    return stack(
        aw * bx + ax * bw + ay * bz - az * by,
        aw * by - ax * bz + ay * bw + az * bx,
        aw * bz + ax * by - ay * bx + az * bw,
        aw * bw - ax * bx - ay * by - az * bz,
    )


def conjugate(q: Array) -> Array:
    """Inverse of a unit quaternion."""
    x, y, z, w = components(q)
    return stack(-x, -y, -z, w)


def rotate(q: Array, v: Array) -> Array:
    """Rotate a vector (..., 3) by a unit quaternion."""
    x, y, z, w = components(q)
    u = stack(x, y, z)
    twice = scale(2.0, cross(u, v))
    return v + scale(w, twice) + cross(u, twice)


def normalize(q: Array) -> Array:
    """Scale to unit length."""
    return scale(1.0 / np.sqrt(dot(q, q)), q)


def has_direction(q: np.ndarray) -> np.ndarray:
    """(...) bool: a rotation can be made of quaternions (..., 4); not of zero, NaN or infinity."""
    with np.errstate(over="ignore", invalid="ignore"):
        squared = np.einsum("...i,...i->...", q, q)
    return (squared >= _SHORTEST**2) & np.isfinite(squared)


def nearly_unit(q: np.ndarray) -> np.ndarray:
    """Quaternions (..., 4) of unit length, but for rounding in files.

    Lengths within 1e-3 of 1 come from writing few digits and are left as they are, as g2o 2.x does: its
    answers (chi2 of a solution to 5e-6) depend on these digits. Zero becomes the identity.
    """
    length = np.linalg.norm(q, axis=-1, keepdims=True)
    scaled = q / np.where(np.abs(length - 1.0) < _FEW_DIGITS, 1.0, np.where(length > 0.0, length, 1.0))
    return np.where(length > 0.0, scaled, [0.0, 0.0, 0.0, 1.0])


def stay_as_they_are(q: np.ndarray) -> bool:
    """`nearly_unit` changes none of these quaternions (..., 4), of which all are finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        squared = np.einsum("...i,...i->...", q, q)
    return bool((np.abs(squared - 1.0) < _FEW_DIGITS).all())  # lengths within half of that


def canonical(q: Array) -> Array:
    """Pick the representative with w >= 0."""
    w = components(q)[3]
    return scale(where(w < 0.0, -1.0, 1.0), q)


def to_matrix(q: Array) -> Array:
    """Rotation matrix (..., 3, 3) of a unit quaternion."""
    x, y, z, w = components(q)
    xx, yy, zz = 2.0 * x * x, 2.0 * y * y, 2.0 * z * z
    xy, xz, yz = 2.0 * x * y, 2.0 * x * z, 2.0 * y * z
    wx, wy, wz = 2.0 * w * x, 2.0 * w * y, 2.0 * w * z
    return matrix(
        [
            [1.0 - (yy + zz), xy - wz, xz + wy],
            [xy + wz, 1.0 - (xx + zz), yz - wx],
            [xz - wy, yz + wx, 1.0 - (xx + yy)],
        ]
    )


def from_matrix(r: Array) -> Array:
    """Convert a rotation matrix; w >= 0. Divides by the largest of the components (Shepperd 1978)."""
    (a, b, c), (d, e, f), (g, h, i) = (tuple(r[..., row, col][()] for col in range(3)) for row in range(3))
    squares = (
        1.0 + a - e - i,
        1.0 - a + e - i,
        1.0 - a - e + i,
        1.0 + a + e + i,
    )  # 4 x^2, 4 y^2, 4 z^2, 4 w^2
    candidates = (
        stack(squares[0], b + d, c + g, h - f),
        stack(b + d, squares[1], f + h, c - g),
        stack(c + g, f + h, squares[2], d - b),
        stack(h - f, c - g, d - b, squares[3]),
    )
    best, best_square = candidates[3], squares[3]
    for candidate, square in zip(candidates[:3], squares[:3], strict=True):
        larger = square > best_square
        best = stack(
            *(
                where(larger, new, old)
                for new, old in zip(components(candidate), components(best), strict=True)
            )
        )
        best_square = where(larger, square, best_square)
    return canonical(normalize(best))


def from_vector_part(v: Array) -> Array:
    """Quaternion (v, sqrt(1 - |v|^2)); the identity where |v| > 1, as g2o's `fromCompactQuaternion`."""
    x, y, z = components(v)
    w_squared = 1.0 - (x * x + y * y + z * z)
    outside = w_squared < 0.0
    w = where(outside, 1.0, safe_sqrt(w_squared))
    keep = where(outside, 0.0, 1.0)
    return stack(keep * x, keep * y, keep * z, w)


def vector_part(q: Array) -> Array:
    """Vector part of the canonical quaternion, about half the rotation vector (`toCompactQuaternion`)."""
    x, y, z, _ = components(canonical(q))
    return stack(x, y, z)
