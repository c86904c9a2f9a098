"""The ray on which an image sees a point, from the edge's residual alone.

For any central camera, with any distortion, the pixel depends on the direction from the camera's centre c to
the point only. So with a residual of two numbers, at a point x at distance d along the unit ray r,

    J r = 0                     J = d residual / d x,  H = J' Omega J of rank 2
    J(x + s r) = J(x) d / (d + s)

H at x and at x + s r gives r, the sign and size of d, and c = x - d r. Gauss-Newton steps of least norm bring
any start x in front of the camera onto the ray on which the residual is 0. No edge type needs a formula of
its own.

The start is the median of the points that the camera sees: in front of it, as most of them are. A ray that
does not come out consistent (J(x - s r) must fit as well) is marked as unknown.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphopt.cpu_kernels import kernels
from graphopt.solver.landmark_problem import LandmarkProblem, PointEdges, solve_positive
from graphopt.solver.structure import EdgeGroup, Structure

_NEWTON_STEPS = 8
_CONVERGED = 1e-6  # last Newton step relative to the distance
_ARRIVED = 1e-9  # largest Newton step relative to the spread of the points
_PROBE = 1e-3  # s relative to the spread of the points
_SAMPLES = 31  # points per camera whose median is the start
_CONSISTENT = 0.05  # relative difference of the distances that s and -s give


@dataclass(frozen=True, eq=False)
class Rays:
    """One ray per edge."""

    centre: np.ndarray
    """(m, 3) the camera's centre."""
    direction: np.ndarray
    """(m, 3) unit vector from the centre to the front."""
    distance: np.ndarray
    """(m,) from the centre to the start: what is usual for this camera."""
    known: np.ndarray
    """(m,) bool; the other numbers are 0 where False."""


def viewing_rays(structure: Structure, edges: PointEdges, starts: np.ndarray, spread: float) -> Rays:
    """Rays of some edges with residuals of two numbers; `starts` (m, 3) lie in front of the cameras."""
    count = len(edges.rows)
    own = PointEdges(edges.group, edges.rows, edges.slot, np.arange(count))
    problem = LandmarkProblem(structure, [own], starts, robust=False)
    step = np.zeros((count, 3))
    for _ in range(_NEWTON_STEPS):
        step = _least_step(*problem.linearize())
        problem.points += step
        if np.abs(step).max(initial=0.0) <= _ARRIVED * spread:
            break
    H, _ = problem.linearize()
    x = problem.points.copy()
    ray = _null_direction(H)
    probe = _PROBE * spread
    size = _size(H)
    farther = size / _size_at(problem, x + probe * ray)
    nearer = size / _size_at(problem, x - probe * ray)
    with np.errstate(divide="ignore", invalid="ignore"):
        distance = 2.0 * probe / (farther - nearer)  # signed along `ray`
        known = np.abs(farther + nearer - 2.0) <= _CONSISTENT * np.abs(farther - nearer)
        known &= np.isfinite(distance)
        known &= np.linalg.norm(step, axis=1) <= _CONVERGED * np.abs(distance)
    distance = np.where(known, distance, 0.0)[:, None]
    ray = np.where(known[:, None], ray, 0.0)
    x = np.where(known[:, None], x, 0.0)
    return Rays(x - distance * ray, np.sign(distance) * ray, np.abs(distance[:, 0]), known)


def usual_places(structure: Structure, edges: PointEdges, points: np.ndarray) -> np.ndarray:
    """(m, 3) for each of the edges: the median of some points that the same camera sees.

    The camera is the other vertex of the edge; of several, the slot with the most different ones (a pose
    rather than shared intrinsics). `points` (n, 3) are the estimates of the landmarks' vertex set.
    """
    group, slot = edges.group, edges.slot
    others = [k for k in range(group.vertex_rows.shape[1]) if k != slot]
    found = [_by_row(structure, group, k) for k in others]
    chosen = int(np.argmax([len(keys) for *_, keys in found]))
    order, first, key_of, keys = found[chosen]
    begin, count = first[:-1].astype(np.int64), np.diff(first).astype(np.int64)
    mine, camera = np.unique(
        np.searchsorted(keys, key_of[group.vertex_rows[edges.rows, others[chosen]]]), return_inverse=True
    )
    picked = begin[mine, None] + count[mine, None] * np.arange(_SAMPLES) // _SAMPLES
    return np.median(points[group.vertex_rows[order[picked], slot]], axis=1)[camera]


def _by_row(
    structure: Structure, group: EdgeGroup, slot: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Edges by the vertex of a slot: order, first of each vertex, key of each row, and keys that occur."""
    blocks = structure.vertex_blocks[group.vertex_sets[slot]]
    if bool((blocks >= 0).all()):  # all in the order that the block solver has made
        found = structure.sorted_edges(group, slot)
        return found.order, found.first, blocks, found.blocks
    numbers = np.arange(len(blocks))
    order, first, keys = kernels.sort_by_key(group.vertex_rows, slot, numbers, len(blocks))
    return order, first, numbers, keys


def _least_step(H: np.ndarray, b: np.ndarray) -> np.ndarray:
    """(m, 3) pseudo-inverse of H times b, for H of rank 2; zero where there is none."""
    size = np.trace(H, axis1=1, axis2=2)
    usable = np.isfinite(size) & (size > 0.0) & np.isfinite(b).all(axis=1)
    H = np.where(usable[:, None, None], H, np.eye(3))
    lifted = H + 1e-9 * np.where(usable, size, 1.0)[:, None, None] * np.eye(3)
    return solve_positive(lifted, np.where(usable[:, None], b, 0.0))


def _null_direction(H: np.ndarray) -> np.ndarray:
    """(m, 3) unit vectors: the kernel of each H of rank 2, the largest column of its adjugate."""
    crossed = np.cross(H[:, [1, 2, 0]], H[:, [2, 0, 1]])
    size = np.linalg.norm(crossed, axis=2)
    best = np.argmax(np.nan_to_num(size), axis=1)
    rows = np.arange(len(H))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.nan_to_num(crossed[rows, best] / size[rows, best][:, None])


def _size(H: np.ndarray) -> np.ndarray:
    """(m,) a norm of J."""
    return np.sqrt(np.trace(H, axis1=1, axis2=2))


def _size_at(problem: LandmarkProblem, points: np.ndarray) -> np.ndarray:
    problem.points[:] = points
    return _size(problem.linearize()[0])
