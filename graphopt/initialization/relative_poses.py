"""What the edges of a graph say about the relative pose of two vertices.

A pose here is `world_T_body`, whatever a vertex type stores. Each known edge type is one row of a table that
gives `i_T_j`, the pose of vertex j in the frame of vertex i, from the measurement and the edge's parameters:

    right-multiplying types (VertexSE2, VertexSE3)     P = x           x_j = x_i z
    left-multiplying types (Expmap: x = body_T_world)  P = inverse(x)  x_j = z x_i
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphopt.geometry import SE2, SE3, Sim3
from graphopt.graph import Graph

Array = Any
Pose = Any
"""SE2, SE3 or Sim3."""


@dataclass(frozen=True)
class PoseFamily:
    """Vertex types whose estimates are poses of one group."""

    group: type[SE2] | type[SE3] | type[Sim3]
    vertex_tag: str
    inverted: bool
    """True where the vertex stores body_T_world."""
    rotation_first: bool
    """True where a tangent, and so an edge's information, begins with the rotation."""

    def pose(self, estimate: Array) -> Pose:
        """Estimates (n, storage_dim) as poses world_T_body; what follows (intrinsics) is ignored."""
        value = self.group(estimate[:, : self.group.storage_dim])
        return value.inverse() if self.inverted else value

    def estimate(self, pose: Pose) -> Array:
        """Poses world_T_body as the leading numbers of estimates (n, group.storage_dim)."""
        return (pose.inverse() if self.inverted else pose).storage


FAMILIES = (
    PoseFamily(SE2, "VERTEX_SE2", inverted=False, rotation_first=False),
    PoseFamily(SE3, "VERTEX_SE3:QUAT", inverted=False, rotation_first=False),
    PoseFamily(SE3, "VERTEX_SE3:EXPMAP", inverted=True, rotation_first=True),
    PoseFamily(Sim3, "VERTEX_SIM3:EXPMAP", inverted=True, rotation_first=True),
)


def _sensor_offsets(z: Pose, offset_i: Pose, offset_j: Pose) -> Pose:
    return offset_i * z * offset_j.inverse()


# tag -> (family's vertex tag, function (measurement, *parameters) -> i_T_j)
RELATIVE_POSE: dict[str, tuple[str, Callable[..., Pose]]] = {
    "EDGE_SE2": ("VERTEX_SE2", lambda z: SE2(z)),
    "EDGE_SE2_OFFSET": ("VERTEX_SE2", lambda z, a, b: _sensor_offsets(SE2(z), SE2(a), SE2(b))),
    "EDGE_SE3:QUAT": ("VERTEX_SE3:QUAT", lambda z: SE3(z)),
    "EDGE_SE3_OFFSET": ("VERTEX_SE3:QUAT", lambda z, a, b: _sensor_offsets(SE3(z), SE3(a), SE3(b))),
    "EDGE_SE3:EXPMAP": ("VERTEX_SE3:EXPMAP", lambda z: SE3(z).inverse()),
    "EDGE_SIM3:EXPMAP": ("VERTEX_SIM3:EXPMAP", lambda z: Sim3(z).inverse()),
}


@dataclass
class PoseGraph:
    """The poses of one family and the edges between them."""

    family: PoseFamily
    vertex_set: Any
    first: Array
    """(m,) row of vertex i in the vertex set."""
    second: Array
    """(m,) row of vertex j."""
    relative: Pose
    """(m,) i_T_j."""
    weight: Array
    """(m, 2) mean information of the translation and of the rotation part."""

    @property
    def num_poses(self) -> int:
        """Number of vertices of this family."""
        return len(self.vertex_set.ids)


def parameter_values(graph: Graph, edge_set: Any) -> list[Array]:
    """Parameters of each edge: one (m, storage_dim) array per parameter slot."""
    values = []
    for slot, parameter_type in enumerate(edge_set.type.parameters):
        parameter_set = graph.parameter_set(parameter_type)
        order = np.argsort(parameter_set.ids, kind="stable")
        rows = order[np.searchsorted(parameter_set.ids[order], edge_set.parameters[:, slot])]
        values.append(np.asarray(parameter_set.values)[rows])
    return values


def _weights(information: Array, family: PoseFamily) -> Array:
    """Mean information of translation and rotation, (m, 2), never zero; a scale has no part in it."""
    diagonal = np.diagonal(information, axis1=1, axis2=2)
    dim = 2 if family.group is SE2 else 3
    first, second = diagonal[:, :dim].mean(axis=1), diagonal[:, dim : 2 * dim].mean(axis=1)
    means = np.stack([second, first] if family.rotation_first else [first, second], axis=1)
    floor = 1e-12 * max(1.0, float(means.max(initial=0.0)))
    return np.maximum(means, floor)


def pose_graphs(graph: Graph) -> list[PoseGraph]:
    """One `PoseGraph` for each family that has vertices in this graph."""
    found = []
    for family in FAMILIES:
        vertex_set = next((s for s in graph.vertex_sets if s.type.tag == family.vertex_tag), None)
        if vertex_set is None or len(vertex_set.ids) == 0:
            continue
        first, second, relative, weight = [], [], [], []
        for edge_set in graph.edge_sets:
            row = RELATIVE_POSE.get(edge_set.type.tag)
            if row is None or row[0] != family.vertex_tag or len(edge_set.vertices) == 0:
                continue
            _, rows = graph.find_vertices(np.asarray(edge_set.vertices).ravel())
            pairs = rows.reshape(-1, 2)
            first.append(pairs[:, 0])
            second.append(pairs[:, 1])
            relative.append(
                row[1](np.asarray(edge_set.measurement), *parameter_values(graph, edge_set)).storage
            )
            weight.append(_weights(np.asarray(edge_set.information), family))
        storage_dim = family.group.storage_dim
        found.append(
            PoseGraph(
                family,
                vertex_set,
                np.concatenate([np.empty(0, np.int64), *first]).astype(np.int64),
                np.concatenate([np.empty(0, np.int64), *second]).astype(np.int64),
                family.group(np.concatenate([np.empty((0, storage_dim)), *relative])),
                np.concatenate([np.empty((0, 2)), *weight]),
            )
        )
    return found
