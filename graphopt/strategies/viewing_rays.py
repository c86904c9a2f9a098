"""The ray on which an image sees a point, from the edge's residual alone.

For any central camera, with any distortion, the pixel depends on the direction from the camera's centre c to
the point only. So with a residual of two numbers, at a point x at distance d along the unit ray r,

    J r = 0                     J = d residual / d x,  H = J' Omega J of rank 2
    J(x + s r) = J(x) d / (d + s)

H at x and at x + s r gives r, the sign and size of d, and c = x - d r. Gauss-Newton steps of least norm bring
any start x in front of the camera onto the ray on which the residual is 0. No edge type needs a formula of
its own.

The start is the median of the points that the camera sees: in front of it, as most of them are. A ray that
does not come out consistent (J(x - s r) must fit as well) is marked as unknown. All threads do this natively
(`native/src/edges/rays.cpp`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphopt.cpu_kernels import kernels
from graphopt.problem.structure import EdgeGroup, Structure
from graphopt.strategies.landmark_problem import PointEdges, native_edges

_SAMPLES = 127  # points per camera whose median is the start


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
    """Rays of some edges with residuals of two numbers; `starts` (m, 3) lie in front of the cameras.

    spread: of the points, which the probes' length is measured against.
    """
    own = PointEdges(edges.group, edges.rows, edges.slot, np.arange(len(edges.rows)))
    points = np.array(starts, np.float64, order="C")
    native = native_edges(structure, own, points, len(points), robust=False)
    return Rays(*kernels.viewing_rays(native, points, spread))


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
