"""Noise on relative poses, and the poses that follow from chaining noisy measurements.

A measurement z_ij of the pose j seen from i is the true relative pose times a small motion:

    z_ij = inverse(T_i) T_j N,    N = (translation ~ N(0, sigma_t^2 I), rotation ~ N(0, sigma_r^2 I))

The information matrix belongs to g2o's error coordinates of the type. For SE(3) these are the translation and
the vector part of the quaternion, which is half the rotation vector: its variance is sigma_r^2 / 4.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from graphopt.geometry import SE2, SE3, SO3

Array = NDArray[np.float64]


def small_motions_3d(rng: np.random.Generator, count: int, translation: float, rotation: float) -> SE3:
    """Return `count` random motions: translations with `translation` [m], rotations with `rotation` [rad]."""
    shift = rng.normal(0.0, 1.0, (count, 3)) * translation
    turn = rng.normal(0.0, 1.0, (count, 3)) * rotation
    return SE3.from_parts(shift, SO3.exp(turn).storage)


def small_motions_2d(rng: np.random.Generator, count: int, translation: float, rotation: float) -> SE2:
    """Return `count` random planar motions: `translation` [m] per axis and `rotation` [rad]."""
    return SE2(rng.normal(0.0, 1.0, (count, 3)) * [translation, translation, rotation])


def information_3d(translation: float, rotation: float) -> Array:
    """Return the (6, 6) information of `small_motions_3d` in g2o's error; a sigma of 0 counts as 1."""
    sigma_t, sigma_r = translation or 1.0, 0.5 * (rotation or 2.0)
    return np.diag([sigma_t**-2] * 3 + [sigma_r**-2] * 3)


def information_2d(translation: float, rotation: float) -> Array:
    """Return the (3, 3) information of `small_motions_2d`; a sigma of 0 counts as 1."""
    sigma_t, sigma_r = translation or 1.0, rotation or 1.0
    return np.diag([sigma_t**-2, sigma_t**-2, sigma_r**-2])


def chain(first: Array, steps: SE2 | SE3) -> Array:
    """Return the poses (n + 1, storage_dim) that start at `first` and follow the n relative `steps`.

    Row k is first * step_0 * ... * step_(k-1), computed by doubling: after round r every row holds the
    product of its last 2^r steps, so that n steps need log2(n) products of whole arrays.
    """
    group = type(steps)
    products = np.concatenate([np.asarray(first)[None], steps.storage])
    reach = 1
    while reach < len(products):
        later = group(products[:-reach]) * group(products[reach:])
        products = np.concatenate([products[:reach], later.storage])
        reach *= 2
    return products
