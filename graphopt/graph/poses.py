"""Poses of a graph as world_T_body, whatever its vertex types store (`types.poses`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from graphopt.errors import GraphError
from graphopt.types.poses import in_space

if TYPE_CHECKING:
    from graphopt.graph.store import GraphStore


def poses_of_graph(graph: GraphStore) -> tuple[np.ndarray, np.ndarray]:
    """Ids (n,) ascending and poses (n, 7) x y z qx qy qz qw, world from body, of all vertices that have one.

    Planar poses lie in z = 0, similarities lose their scale. Raises `GraphError` if there are none.
    """
    found = [
        (vertex_set.ids, in_space(vertex_set.type.pose(np.asarray(vertex_set.estimate))))
        for vertex_set in graph.vertex_sets
        if vertex_set.type.pose is not None and len(vertex_set)
    ]
    if not found:
        there = ", ".join(vertex_set.type.tag for vertex_set in graph.vertex_sets) or "none"
        raise GraphError(
            f"The graph has no poses; its vertices are of type: {there}. A type of your own has poses if it "
            "is defined with them (graphopt.group_type(stored_as=...), graphopt.vertex_type(pose=...))."
        )
    ids, poses = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
    order = np.argsort(ids, kind="stable")
    return ids[order], poses[order]
