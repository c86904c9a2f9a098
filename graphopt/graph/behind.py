"""Points behind the cameras that are said to see them.

A projection maps a point behind a pinhole camera to a pixel as well, mirrored. g2o counts such edges like all
others, and so does chi2 here; nothing real is seen there, so whoever optimizes should know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from graphopt.cpu_kernels import kernels
from graphopt.graph.selection import EdgeSelection

if TYPE_CHECKING:
    from graphopt.graph.graph import Graph
    from graphopt.graph.sets import VertexSet
    from graphopt.types.base import EdgeType


def edges_behind(graph: Graph, part: EdgeSelection) -> np.ndarray:
    """Rows of the edges of a selection whose point has no positive depth; none for other than images.

    The depth v (R' (x - t))_z of x, for a camera world_T_cam = (R, t) that looks along v Z, is linear in x:
    n'x + d with n = v R e_z and d = -n't. So these are made once per camera, and one pass over the edges
    looks at the points.
    """
    kind = part.edge_set.type
    posed = [slot for slot, vertex in enumerate(kind.vertices) if vertex.pose is not None]
    points = [slot for slot, vertex in enumerate(kind.vertices) if vertex.role == "point"]
    if kind.view_axis == 0.0 or len(posed) != 1 or len(points) != 1:
        return part.rows[:0]
    cameras = graph.vertex_sets[part.vertex_sets[posed[0]]]
    used = np.zeros(len(cameras), bool)
    kernels.mark(part.vertex_rows, posed[0], used)
    planes = _image_planes(kind, cameras, posed[0], np.flatnonzero(used))
    estimate = np.ascontiguousarray(graph.vertex_sets[part.vertex_sets[points[0]]].estimate)
    behind = kernels.not_in_front(part.vertex_rows, posed[0], points[0], planes, estimate)
    return part.rows[behind]


def _image_planes(kind: EdgeType, cameras: VertexSet, slot: int, rows: np.ndarray) -> np.ndarray:
    """(n, 4) numbers whose product with (x, y, z, 1) is the depth, but for a scale; 0 but for `rows`."""
    pose_of = kind.vertices[slot].pose
    assert pose_of is not None
    world_T_cam = pose_of(cameras.estimate[rows])
    axis = np.asarray(world_T_cam.rotation.act(np.tile([0.0, 0.0, kind.view_axis], (len(rows), 1))))
    planes = np.zeros((len(cameras), 4))
    planes[rows, :3] = axis
    planes[rows, 3] = -(axis * np.asarray(world_T_cam.translation)).sum(axis=1)
    return planes
