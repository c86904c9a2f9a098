"""Points behind the cameras that are said to see them.

A projection maps a point behind a pinhole camera to a pixel as well, mirrored. g2o counts such edges like all
others, and so does chi2 here; nothing real is seen there, so whoever optimizes should know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from graphopt.graph.selection import EdgeSelection

if TYPE_CHECKING:
    from graphopt.graph.graph import Graph


def edges_behind(graph: Graph, part: EdgeSelection) -> np.ndarray:
    """Rows of the edges of a selection whose point has no positive depth; none for other than images."""
    kind = part.edge_set.type
    posed = [slot for slot, vertex in enumerate(kind.vertices) if vertex.pose is not None]
    points = [slot for slot, vertex in enumerate(kind.vertices) if vertex.role == "point"]
    if kind.view_axis == 0.0 or len(posed) != 1 or len(points) != 1:
        return part.rows[:0]
    vertex_sets, vertex_rows, _, _ = graph.edge_places(part.edge_set, part.rows)

    def estimates(slot: int) -> np.ndarray:
        return graph.vertex_sets[vertex_sets[slot]].estimate[vertex_rows[:, slot]]

    pose_of = kind.vertices[posed[0]].pose
    assert pose_of is not None
    point_cam = pose_of(estimates(posed[0])).inverse_act(estimates(points[0])[:, :3])
    return part.rows[~(kind.view_axis * np.asarray(point_cam)[:, 2] > 0.0)]
