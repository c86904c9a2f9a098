"""Poses of one frame in plain numbers: `graphopt.geometry` is for arrays of any shape, and ten times slower.

pose (7,)        x, y, z, qx, qy, qz, qw
numbers (12,)    translation, then the rotation matrix row by row: the form in which poses are optimized
"""

from __future__ import annotations

import math

import numpy as np


def rotation_matrix(quaternion: np.ndarray) -> np.ndarray:
    """(3, 3) of a unit quaternion (4,) x, y, z, w."""
    x, y, z, w = quaternion.tolist()
    return np.array(
        [
            [1.0 - 2.0 * (y * y + z * z), 2.0 * (x * y - z * w), 2.0 * (x * z + y * w)],
            [2.0 * (x * y + z * w), 1.0 - 2.0 * (x * x + z * z), 2.0 * (y * z - x * w)],
            [2.0 * (x * z - y * w), 2.0 * (y * z + x * w), 1.0 - 2.0 * (x * x + y * y)],
        ]
    )


def unit_quaternion(rotation: list[float]) -> list[float]:
    """Unit quaternion x, y, z, w >= 0 of a rotation matrix, nine numbers row by row.

    The largest component comes from the diagonal, the others by division with it (Shepperd 1978).
    """
    a, b, c, d, e, f, g, h, i = rotation
    sums = (1.0 + a - e - i, 1.0 - a + e - i, 1.0 - a - e + i, 1.0 + a + e + i)
    largest = max(range(4), key=sums.__getitem__)
    x, y, z, w = (
        (sums[0], b + d, c + g, h - f),
        (b + d, sums[1], f + h, c - g),
        (c + g, f + h, sums[2], d - b),
        (h - f, c - g, d - b, sums[3]),
    )[largest]
    length = math.copysign(math.sqrt(x * x + y * y + z * z + w * w), w)
    return [x / length, y / length, z / length, w / length]


def pose_of(numbers: np.ndarray) -> np.ndarray:
    """Pose (7,) of (12,) numbers, with a unit quaternion."""
    return np.array([*numbers[:3].tolist(), *unit_quaternion(numbers[3:].tolist())])
