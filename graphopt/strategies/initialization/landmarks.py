"""Points placed from the poses that measured them: the mean over their edges.

Only edges that fix a point from one pose take part (`EdgeType.predict`, with as many residuals as the point
has numbers): range, bearing and single-image edges do not.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphopt.graph import Graph
from graphopt.graph.relative_poses import parameter_values

Array = Any


def _fixes_a_point(kind: Any) -> bool:
    """An edge from a pose (slot 0) to a point (slot 1) that says where the point is."""
    if len(kind.vertices) != 2 or not kind.can_predict(1):
        return False
    pose, point = kind.vertices
    return pose.pose is not None and point.role == "point" and kind.residual_dim >= point.tangent_dim


def place_landmarks(graph: Graph, known: set[int]) -> set[int]:
    """Set the estimate of every point that a known pose measured; ids of the points that were placed.

    `known` are ids of poses whose estimates can be trusted. Fixed points keep their estimates.
    """
    placed: set[int] = set()
    trusted = np.array(sorted(known), dtype=np.int64)
    sums: dict[Any, tuple[Array, Array]] = {}
    for edge_set in graph.edge_sets:
        if not len(edge_set) or not _fixes_a_point(edge_set.type):
            continue
        ids = np.asarray(edge_set.vertices)
        use = np.isin(ids[:, 0], trusted)
        if not use.any():
            continue
        _, rows = graph.find_vertices(ids.ravel())
        rows = rows.reshape(-1, 2)[use]
        sets = [graph.vertex_set(kind) for kind in edge_set.type.vertices]
        estimates = tuple(np.asarray(set_.estimate)[rows[:, slot]] for slot, set_ in enumerate(sets))
        parameters = tuple(values[use] for values in parameter_values(graph, edge_set))
        points = edge_set.type.predicted(1, estimates, parameters, np.asarray(edge_set.measurement)[use])
        shape = np.asarray(sets[1].estimate).shape
        total, count = sums.setdefault(sets[1].type, (np.zeros(shape), np.zeros(len(sets[1].ids))))
        np.add.at(total, rows[:, 1], points)
        np.add.at(count, rows[:, 1], 1.0)
    for kind, (total, count) in sums.items():
        point_set = graph.vertex_set(kind)
        rows = np.flatnonzero((count > 0) & ~np.asarray(point_set.fixed))
        point_set.estimate[rows] = total[rows] / count[rows, None]
        placed.update(np.asarray(point_set.ids)[rows].tolist())
    return placed
