"""Quaternions and rotation matrices of one pose in plain floats.

The array functions of `graphopt.geometry` cost microseconds per operation whatever the number of poses;
programs that build a graph object by object convert one pose at a time. Quaternions are tuples (x, y, z, w).
"""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

from graphopt.errors import ShapeError

Quad = tuple[float, float, float, float]


def floats(values: Any, count: int, what: str) -> list[float]:
    """`values` (any shape with `count` numbers) as Python floats."""
    try:
        array = values if type(values) is np.ndarray else np.asarray(values, np.float64)
        if array.size == count:
            flat = array.ravel().tolist()
            return flat if array.dtype.kind == "f" else [float(number) for number in flat]
    except (TypeError, ValueError) as error:
        raise ShapeError(f"{what}: {values!r} cannot be read as {count} numbers ({error}).") from None
    raise ShapeError(f"{what} has shape {array.shape}, expected {count} numbers.")


def arguments(given: tuple[Any, ...], named: dict[str, Any], *slots: str) -> tuple[Any, ...]:
    """`given` and what was passed by name, in order; each slot lists g2o's names of one argument."""
    result = list(given)
    for names in slots[len(given) :]:
        found = [name for name in names.split() if name in named]
        result += [named.pop(name) for name in found[:1]]
    if named:
        raise TypeError(f"unexpected keyword arguments: {', '.join(sorted(named))}.")
    return tuple(result)


def matrix(values: Any, shapes: tuple[tuple[int, int], ...], what: str) -> np.ndarray:
    """`values` as a float64 array of one of these shapes."""
    array = np.asarray(values, np.float64)
    if array.shape not in shapes:
        raise ShapeError(f"{what} has shape {array.shape}, expected {' or '.join(map(str, shapes))}.")
    return array


def product(a: Quad, b: Quad) -> Quad:
    """Hamilton product."""
    ax, ay, az, aw = a
    bx, by, bz, bw = b
    return (
        aw * bx + ax * bw + ay * bz - az * by,
        aw * by - ax * bz + ay * bw + az * bx,
        aw * bz + ax * by - ay * bx + az * bw,
        aw * bw - ax * bx - ay * by - az * bz,
    )


def rotate(q: Quad, v: Any) -> tuple[float, float, float]:
    """q v q^-1 for a unit quaternion."""
    x, y, z, w = q
    a, b, c = v
    u, s, t = 2.0 * (y * c - z * b), 2.0 * (z * a - x * c), 2.0 * (x * b - y * a)
    return a + w * u + y * t - z * s, b + w * s + z * u - x * t, c + w * t + x * s - y * u


def normalized(q: Any) -> Quad:
    """Unit length; the sign stays."""
    x, y, z, w = q
    norm = sqrt(x * x + y * y + z * z + w * w)
    return x / norm, y / norm, z / norm, w / norm


def canonical(q: Quad) -> Quad:
    """The representative with w >= 0."""
    x, y, z, w = q
    return (-x, -y, -z, -w) if w < 0.0 else q


def to_rows(q: Any) -> tuple[tuple[float, float, float], ...]:
    """Rotation matrix of a unit quaternion, row by row."""
    x, y, z, w = q
    tx, ty, tz = 2.0 * x, 2.0 * y, 2.0 * z
    wx, wy, wz = tx * w, ty * w, tz * w
    xx, xy, xz = tx * x, ty * x, tz * x
    yy, yz, zz = ty * y, tz * y, tz * z
    return (
        (1.0 - (yy + zz), xy - wz, xz + wy),
        (xy + wz, 1.0 - (xx + zz), yz - wx),
        (xz - wy, yz + wx, 1.0 - (xx + yy)),
    )


def from_rows(rows: Any) -> Quad:
    """Quaternion of a rotation matrix, as Eigen converts it (Shoemake 1987)."""
    m = rows
    trace = m[0][0] + m[1][1] + m[2][2]
    if trace > 0.0:
        root = sqrt(trace + 1.0)
        half = 0.5 / root
        return (
            (m[2][1] - m[1][2]) * half,
            (m[0][2] - m[2][0]) * half,
            (m[1][0] - m[0][1]) * half,
            0.5 * root,
        )
    i = 1 if m[1][1] > m[0][0] else 0
    if m[2][2] > m[i][i]:
        i = 2
    j, k = (i + 1) % 3, (i + 2) % 3
    root = sqrt(m[i][i] - m[j][j] - m[k][k] + 1.0)
    half = 0.5 / root
    q = [0.0, 0.0, 0.0, (m[k][j] - m[j][k]) * half]
    q[i] = 0.5 * root
    q[j] = (m[j][i] + m[i][j]) * half
    q[k] = (m[k][i] + m[i][k]) * half
    return q[0], q[1], q[2], q[3]
