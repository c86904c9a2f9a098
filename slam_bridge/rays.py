"""Points from pairs of rays, for every camera model.

    point = argmin sum |(I - d_k d_k') (point - c_k)|^2        midpoint of the rays c_k + s d_k

Rays are unit vectors; an error of a ray is an angle [rad], about sigma / focal length.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Triangulated:
    """Points of pairs of rays."""

    points: np.ndarray
    """(n, 3) in the frame of the centres."""
    parallax: np.ndarray
    """(n,) angle between the two rays [rad]."""
    error: np.ndarray
    """(n,) the larger angle between a ray and the direction to the point [rad]; infinite behind a camera."""


def triangulate(
    centre_a: np.ndarray, ray_a: np.ndarray, centre_b: np.ndarray, ray_b: np.ndarray
) -> Triangulated:
    """Nearest points of rays (n, 3) from centres (n, 3) or (3,), all in one frame."""
    between = np.broadcast_to(centre_b - centre_a, ray_a.shape)
    cosine = np.einsum("ni,ni->n", ray_a, ray_b)
    sine = np.linalg.norm(np.cross(ray_a, ray_b), axis=1)
    along_a, along_b = np.einsum("ni,ni->n", between, ray_a), np.einsum("ni,ni->n", between, ray_b)
    with np.errstate(divide="ignore", invalid="ignore"):
        depth_a = (along_a - cosine * along_b) / sine**2
        depth_b = (cosine * along_a - along_b) / sine**2
        first, second = centre_a + depth_a[:, None] * ray_a, centre_b + depth_b[:, None] * ray_b
        points = 0.5 * (first + second)
        error = np.maximum(angle_between(points - centre_a, ray_a), angle_between(points - centre_b, ray_b))
    ahead = (depth_a > 0.0) & (depth_b > 0.0) & np.isfinite(points).all(axis=1)
    return Triangulated(points, np.arctan2(sine, cosine), np.where(ahead, error, np.inf))


def angle_between(vector: np.ndarray, unit: np.ndarray) -> np.ndarray:
    """Angles (n,) [rad] between vectors and unit vectors (n, 3); exact for small ones."""
    across = np.linalg.norm(np.cross(vector, unit), axis=1)
    return np.arctan2(across, np.einsum("ni,ni->n", vector, unit))
