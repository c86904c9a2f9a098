"""What the edges of a graph say about the relative pose of two vertices.

A pose here is `world_T_body`, whatever a vertex type stores (`VertexType.pose`), and an edge of two poses
measures `i_T_j`, the pose of vertex j in the frame of vertex i (`EdgeType.relative_pose`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from graphopt.geometry import SE2, SE3, Sim3, quaternion
from graphopt.graph.graph import Graph

Array = Any
Pose = Any
"""SE2, SE3 or Sim3."""

_STEP = 1e-4  # [m], [rad] by which `part_rows` moves a vertex


@dataclass
class PoseGraph:
    """The poses of one vertex type and the edges between them."""

    group: type[SE2] | type[SE3] | type[Sim3]
    """What the poses are."""
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
        """Number of vertices of this type."""
        return len(self.vertex_set.ids)

    @property
    def poses(self) -> Pose:
        """(n,) present world_T_body."""
        return self.vertex_set.type.pose(np.asarray(self.vertex_set.estimate))

    def set_poses(self, rows: Array, poses: Pose) -> None:
        """Change the poses of some rows; what else their estimates hold stays."""
        estimate = self.vertex_set.estimate
        estimate[rows] = self.vertex_set.type.place(poses, estimate[rows])


def parameter_values(graph: Graph, edge_set: Any) -> list[Array]:
    """Parameters of each edge: one (m, storage_dim) array per parameter slot."""
    values = []
    for slot, parameter_type in enumerate(edge_set.type.parameters):
        parameter_set = graph.parameter_set(parameter_type)
        order = np.argsort(parameter_set.ids, kind="stable")
        rows = order[np.searchsorted(parameter_set.ids[order], edge_set.parameters[:, slot])]
        values.append(np.asarray(parameter_set.values)[rows])
    return values


def part_rows(kind: Any, parameters: list[Array], measurement: Array) -> tuple[Array, Array]:
    """Entries of the error that moving, and turning, the second vertex changes: (residual_dim,) bool each.

    Found by trying where the error is zero: a translation changes entries of the translation only, a rotation
    perhaps both. The order differs: VertexSE3 has the translation first, the EXPMAP types the rotation, a
    similarity has its scale besides. `parameters` and `measurement` are those of one edge.
    """
    first = np.array(kind.vertices[0].identity)
    second = kind.predicted(1, (first, np.array(kind.vertices[1].identity)), tuple(parameters), measurement)
    pose = kind.vertices[1].pose(second)
    here = kind.error((first, second), tuple(parameters), measurement)

    def touched(moved: list[Pose]) -> Array:
        stored = (kind.vertices[1].place(storage, second) for storage in moved)
        errors = [kind.error((first, storage), tuple(parameters), measurement) for storage in stored]
        return (np.abs(np.array(errors) - here) > 1e-3 * _STEP).any(axis=0)

    return touched(_translated(pose)), touched(_turned(pose))


def _translated(pose: Pose) -> list[Pose]:
    """The pose, moved a little along each axis."""
    dim = 2 if isinstance(pose, SE2) else 3
    steps = _STEP * np.eye(dim, len(pose.storage))
    return [type(pose)(pose.storage + step) for step in steps]


def _turned(pose: Pose) -> list[Pose]:
    """The pose, turned a little about each axis."""
    if isinstance(pose, SE2):
        return [SE2(pose.storage + _STEP * np.eye(3)[2])]
    turned = []
    for step in np.eye(3):
        storage = np.array(pose.storage, float)
        storage[3:7] = quaternion.multiply(storage[3:7], quaternion.from_vector_part(_STEP * step))
        turned.append(type(pose)(storage))
    return turned


def _weights(information: Array, parts: tuple[Array, Array]) -> Array:
    """Mean information of translation and rotation, (m, 2), never zero."""
    diagonal = np.diagonal(information, axis1=1, axis2=2)
    translation, rotation = parts
    both = [diagonal[:, mask] for mask in (translation, rotation & ~translation)]
    means = np.stack(
        [values.mean(axis=1) if values.size else np.ones(len(values)) for values in both], axis=1
    )
    floor = 1e-12 * max(1.0, float(means.max(initial=0.0)))
    return np.maximum(means, floor)


def pose_graphs(graph: Graph) -> list[PoseGraph]:
    """One `PoseGraph` for each vertex type of this graph that has poses which can be set."""
    return [
        _pose_graph(graph, each_vertex_set)
        for each_vertex_set in graph.vertex_sets
        if len(each_vertex_set)
        and each_vertex_set.type.pose is not None
        and each_vertex_set.type.place is not None
    ]


def relative_of(graph: Graph, edge_set: Any) -> tuple[Array, Pose, Array]:
    """Rows (m, 2) of the vertices of edges between two poses, i_T_j (m,), mean information (m, 2)."""
    kind = edge_set.type
    _, rows = graph.find_vertices(np.asarray(edge_set.vertices).ravel())
    parameters, measurement = parameter_values(graph, edge_set), np.asarray(edge_set.measurement)
    wrapped = [parameter.wrap(values) for parameter, values in zip(kind.parameters, parameters, strict=True)]
    motion = kind.relative_pose(*wrapped, kind.wrap_measurement(measurement))
    parts = part_rows(kind, [values[0] for values in parameters], measurement[0])
    return rows.reshape(-1, 2), motion, _weights(np.asarray(edge_set.information), parts)


def _pose_graph(graph: Graph, vertex_set: Any) -> PoseGraph:
    group = type(vertex_set.type.pose(np.array(vertex_set.type.identity)))
    first, second, relative, weight = [], [], [], []
    for edge_set in graph.edge_sets:
        kind = edge_set.type
        if kind.relative_pose is None or not len(edge_set) or kind.vertices != (vertex_set.type,) * 2:
            continue
        ends, motion, information = relative_of(graph, edge_set)
        first.append(ends[:, 0])
        second.append(ends[:, 1])
        relative.append(motion.storage)
        weight.append(information)
    return PoseGraph(
        group,
        vertex_set,
        np.concatenate([np.empty(0, np.int64), *first]).astype(np.int64),
        np.concatenate([np.empty(0, np.int64), *second]).astype(np.int64),
        group(np.concatenate([np.empty((0, group.storage_dim)), *relative])),
        np.concatenate([np.empty((0, 2)), *weight]),
    )
