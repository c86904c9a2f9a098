"""Helpers that work alike on float arrays of any batch shape and on arrays of symbolic scalars.

Vectors live in the last axis. A *component* `x[..., i]` is a float array (or float), or one symbolic scalar.
Formulas are written with components, because a component of a symbolic array is a plain expression, and
because a batch of floats is then handled without temporaries of matrix shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = Any
"""A float array, a float, or an array of symbolic scalars."""

_NUMERIC = (int, float, np.generic, np.ndarray)


def components(x: Array) -> tuple[Array, ...]:
    """Split the last axis: (..., n) -> n arrays of shape (...)."""
    if x.ndim == 1:
        return tuple(x)
    return tuple([x[..., i] for i in range(x.shape[-1])])


def stack(*parts: Array) -> Array:
    """Join scalars (or batches of them) along a new last axis; plain numbers are broadcast."""
    if _are_numbers(parts):  # as below, in a tenth of the time
        return np.array(parts)
    if _are_alike(parts):  # ... in a third
        joined = np.empty((*parts[0].shape, len(parts)))
        for i, part in enumerate(parts):
            joined[..., i] = part
        return joined
    if all(isinstance(part, _NUMERIC) for part in parts):
        return np.stack(np.broadcast_arrays(*parts), axis=-1)
    return np.stack(parts, axis=-1)


def _are_numbers(parts: tuple[Array, ...]) -> bool:
    """Floats, no arrays."""
    return all([isinstance(part, float) for part in parts])


def _are_alike(parts: tuple[Array, ...]) -> bool:
    """Float arrays of one shape."""
    first = parts[0]
    if type(first) is not np.ndarray or first.dtype != np.float64:
        return False
    shape = first.shape
    return all(
        [type(part) is np.ndarray and part.shape == shape and part.dtype == np.float64 for part in parts]
    )


def matrix(rows: Sequence[Sequence[Array]]) -> Array:
    """Assemble a (..., m, n) matrix from m rows of n components."""
    height, width = len(rows), len(rows[0])
    flat = stack(*(entry for row in rows for entry in row))
    return flat.reshape((*flat.shape[:-1], height, width))


def concatenate(*vectors: Array) -> Array:
    """Join vectors along their last axis."""
    return stack(*(part for vector in vectors for part in components(vector)))


def where(condition: Array, if_true: Array, if_false: Array) -> Array:
    """`numpy.where` that keeps scalars scalar."""
    chosen = np.where(condition, if_true, if_false)
    return chosen[()] if isinstance(chosen, np.ndarray) else chosen


def dot(a: Array, b: Array) -> Array:
    """Inner product over the last axis."""
    total = None
    for x, y in zip(components(a), components(b), strict=True):
        total = x * y if total is None else total + x * y
    return total


def norm(a: Array) -> Array:
    """Euclidean length over the last axis. Its derivative at zero is zero (instead of not a number)."""
    squared = dot(a, a)
    is_zero = squared <= 0.0
    return where(is_zero, 0.0, np.sqrt(where(is_zero, 1.0, squared)))


def cross(a: Array, b: Array) -> Array:
    """Vector product of (..., 3) and (..., 3)."""
    ax, ay, az = components(a)
    bx, by, bz = components(b)
    return stack(ay * bz - az * by, az * bx - ax * bz, ax * by - ay * bx)


def skew(a: Array) -> Array:
    """Matrix [a] of the vector product, [a] b = a x b. (..., 3) -> (..., 3, 3)."""
    x, y, z = components(a)
    zero = 0.0 * x
    return matrix([[zero, -z, y], [z, zero, -x], [-y, x, zero]])


def matvec(m: Array, v: Array) -> Array:
    """Product of (..., m, n) and (..., n)."""
    return (m @ v[..., None])[..., 0]


def scale(factor: Array, v: Array) -> Array:
    """Multiply a vector (..., n) by a scalar (...)."""
    return stack(*(factor * part for part in components(v)))


def normalize_angle(angle: Array) -> Array:
    """Wrap into (-pi, pi]; angles that lie there already are returned unchanged to the bit [rad]."""
    turns = np.floor((np.pi - angle) * (0.5 / np.pi))
    return angle + (2.0 * np.pi) * turns


def safe_sqrt(x: Array) -> Array:
    """Square root of max(x, 0), with a derivative of zero where x <= 0."""
    positive = x > 0.0
    return where(positive, np.sqrt(where(positive, x, 1.0)), 0.0)
