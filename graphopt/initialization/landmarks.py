"""Points placed from the poses that measured them: the mean over their edges.

Only edges that fix a point from one pose take part (range, bearing and single-image edges do not).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphopt.geometry import SE2, SE3
from graphopt.graph import Graph
from graphopt.initialization.relative_poses import parameter_values

Array = Any


def _depth_point(uvd: Array, camera: Array) -> Array:
    """Point in the camera's frame from pixel and depth; camera: offset pose (7), fx, fy, cx, cy."""
    fx, fy, cx, cy = (camera[:, 7 + k] for k in range(4))
    return np.stack([(uvd[:, 0] - cx) / fx, (uvd[:, 1] - cy) / fy, np.ones(len(uvd))], axis=1) * uvd[:, 2:3]


# tag -> function (pose estimate, measurement, *parameters) -> point in the world
POINT_FROM_POSE: dict[str, Callable[..., Array]] = {
    "EDGE_SE2_XY": lambda pose, z: SE2(pose).act(z),
    "EDGE_SE2_POINTXY_OFFSET": lambda pose, z, offset: (SE2(pose) * SE2(offset)).act(z),
    "EDGE_SE3_TRACKXYZ": lambda pose, z, offset: (SE3(pose) * SE3(offset)).act(z),
    "EDGE_PROJECT_DEPTH": lambda pose, z, camera: (SE3(pose) * SE3(camera[:, :7])).act(
        _depth_point(z, camera)
    ),
}


def place_landmarks(graph: Graph, known: set[int]) -> set[int]:
    """Set the estimate of every point that a known pose measured; ids of the points that were placed.

    `known` are ids of poses whose estimates can be trusted. Fixed points keep their estimates.
    """
    placed: set[int] = set()
    trusted = np.array(sorted(known), dtype=np.int64)
    sums: dict[str, tuple[Array, Array]] = {}
    for edge_set in graph.edge_sets:
        function = POINT_FROM_POSE.get(edge_set.type.tag)
        if function is None or len(edge_set.vertices) == 0:
            continue
        ids = np.asarray(edge_set.vertices)
        use = np.isin(ids[:, 0], trusted)
        if not use.any():
            continue
        _, rows = graph.find_vertices(ids.ravel())
        rows = rows.reshape(-1, 2)[use]
        pose_set = graph.vertex_set(edge_set.type.vertices[0])
        point_set = graph.vertex_set(edge_set.type.vertices[1])
        parameters = [values[use] for values in parameter_values(graph, edge_set)]
        points = function(
            np.asarray(pose_set.estimate)[rows[:, 0]], np.asarray(edge_set.measurement)[use], *parameters
        )
        shape = np.asarray(point_set.estimate).shape
        total, count = sums.setdefault(point_set.type.tag, (np.zeros(shape), np.zeros(len(point_set.ids))))
        np.add.at(total, rows[:, 1], points)
        np.add.at(count, rows[:, 1], 1.0)
    for tag, (total, count) in sums.items():
        point_set = graph.vertex_set(tag)
        rows = np.flatnonzero((count > 0) & ~np.asarray(point_set.fixed))
        point_set.estimate[rows] = total[rows] / count[rows, None]
        placed.update(np.asarray(point_set.ids)[rows].tolist())
    return placed
