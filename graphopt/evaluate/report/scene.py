"""What of a graph can be drawn: positions of poses, points and cameras, and the edges between them.

A vertex is drawn where it is in the world, as its type says (`types.poses`): cameras at their centre.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from graphopt.errors import GraphError
from graphopt.geometry import SO3
from graphopt.types.poses import in_space

if TYPE_CHECKING:
    from graphopt.graph import Graph
    from graphopt.types import VertexType

Array = NDArray[np.float64]


def _places(vertex_type: VertexType, estimate: Array) -> Array | None:
    """(n, 2) or (n, 3) positions in the world, None for a type that has no place (`types.poses`)."""
    if vertex_type.pose is not None:
        return np.asarray(vertex_type.pose(estimate).translation)
    return estimate if vertex_type.role == "point" and estimate.shape[1] in (2, 3) else None


@dataclass(frozen=True)
class Scene:
    """Positions of a graph's vertices, and the edges as pairs of rows."""

    positions: Array
    """(n, 3) or (n, 2) [m]: poses first, then points."""
    num_poses: int
    is_ba: bool
    """More edges see points than join poses: drawn as a cloud with cameras, without the edges."""
    lines: NDArray[np.int64]
    """(m, 2): rows of `positions` that an edge of two vertices joins."""
    ids: NDArray[np.int64]
    """(n,) of the vertices."""
    orientations: Array
    """(num_poses, 4) quaternions x y z w of world_T_body."""
    is_camera: NDArray[np.bool_]
    """(num_poses,) poses of cameras, which look along their z or against it (`looks_along`)."""

    @property
    def dim(self) -> int:
        """2 for a plane, 3 for space."""
        return self.positions.shape[1]

    @property
    def poses(self) -> Array:
        """(num_poses, dim)."""
        return self.positions[: self.num_poses]

    @property
    def points(self) -> Array:
        """(n - num_poses, dim)."""
        return self.positions[self.num_poses :]

    @property
    def looks_along(self) -> float:
        """1 where most points that a camera sees have a positive z in its frame, -1 as in BAL's files."""
        ends = np.sort(self.lines, axis=1)
        seen = ends[(ends[:, 0] < self.num_poses) & (ends[:, 1] >= self.num_poses)]
        seen = seen[self.is_camera[seen[:, 0]]]
        if not len(seen):
            return 1.0
        away = self.positions[seen[:, 1]] - self.positions[seen[:, 0]]
        axis = np.asarray(SO3(self.orientations[seen[:, 0]]).act(np.tile([0.0, 0.0, 1.0], (len(seen), 1))))
        return 1.0 if np.median(np.einsum("ni,ni->n", away, axis)) >= 0.0 else -1.0


def scene(graph: Graph) -> Scene:
    """Return what can be drawn of `graph`; raises `GraphError` if that is nothing."""
    drawn = [
        (vertex_set.type.pose is None, places.shape[1], vertex_set.ids, places, vertex_set)
        for vertex_set in graph.vertex_sets
        if len(vertex_set)
        and (places := _places(vertex_set.type, np.asarray(vertex_set.estimate))) is not None
    ]
    if not drawn:
        there = ", ".join(vertex_set.type.tag for vertex_set in graph.vertex_sets) or "none"
        raise GraphError(
            f"The graph has no vertices with a place in the world; its types are: {there}. "
            'A type of your own has one if it is defined with pose=..., stored_as=... or role="point".'
        )
    drawn.sort(key=lambda entry: entry[0])
    dim = max(entry[1] for entry in drawn)
    padded = [np.pad(places, ((0, 0), (0, dim - places.shape[1]))) for *_, places, _ in drawn]
    ids = np.concatenate([entry[2] for entry in drawn])
    num_poses = sum(len(entry[2]) for entry in drawn if not entry[0])
    turns, cameras = [np.empty((0, 4))], [np.empty(0, bool)]
    for _, _, rows, _, vertices in drawn:
        if vertices.type.pose is not None:
            turns.append(in_space(vertices.type.pose(np.asarray(vertices.estimate)))[:, 3:])
            cameras.append(np.full(len(rows), vertices.type.role in ("camera", "camera_pose")))
    # Poses in the order of their ids: that is the order in which they were visited.
    order = np.concatenate([np.argsort(ids[:num_poses], kind="stable"), np.arange(num_poses, len(ids))])
    lines = _lines(graph, ids[order])
    is_ba = dim == 3 and int((lines >= num_poses).any(axis=1).sum()) > 4 * num_poses
    poses = order[:num_poses]
    return Scene(
        np.concatenate(padded)[order],
        num_poses,
        is_ba,
        lines,
        ids[order],
        np.concatenate(turns)[poses],
        np.concatenate(cameras)[poses],
    )


def _lines(graph: Graph, ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the edges between exactly two drawn vertices as rows of `ids`."""
    order = np.argsort(ids)
    lines = [np.empty((0, 2), np.int64)]
    for edge_set in graph.edge_sets:
        if edge_set.arity == 2 and len(edge_set):
            ends = np.asarray(edge_set.vertices)
            place = np.minimum(np.searchsorted(ids, ends, sorter=order), len(ids) - 1)
            rows = order[place]
            lines.append(rows[(ids[rows] == ends).all(axis=1)])
    return np.concatenate(lines)
