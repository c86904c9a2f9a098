"""Poses chained along a tree of edges.

Each vertex takes the pose of its parent times the relative pose of one edge. With the tree given as parent
pointers, all poses follow from O(log n) batched products by pointer jumping:

    T[v] <- T[parent[v]] T[v],   parent[v] <- parent[parent[v]]      until all parents are roots
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse import csgraph

from graphopt.graph.relative_poses import PoseGraph

Array = Any


def cheapest_edge_per_pair(
    first: Array, second: Array, cost: Array, num: int
) -> tuple[sp.csr_matrix, sp.csr_matrix]:
    """Symmetric (num, num) matrices: the cheapest cost of each vertex pair, and its edge number + 1."""
    low, high = np.minimum(first, second), np.maximum(first, second)
    order = np.lexsort((cost, high, low))
    low, high = low[order], high[order]
    keep = np.ones(len(order), bool)
    keep[1:] = (low[1:] != low[:-1]) | (high[1:] != high[:-1])
    low, high, edge = low[keep], high[keep], order[keep]
    rows, cols = np.concatenate([low, high]), np.concatenate([high, low])
    costs = sp.csr_matrix((np.tile(cost[edge], 2), (rows, cols)), shape=(num, num))
    edges = sp.csr_matrix((np.tile(edge + 1, 2), (rows, cols)), shape=(num, num))
    return costs, edges


def tree_parents(pose_graph: PoseGraph, roots: Array, method: str) -> tuple[Array, Array]:
    """Parents (n,) and connecting edges (n,) of a forest from `roots` (row numbers); -1 where there is none.

    "spanning-tree" has the fewest edges from a root to each vertex, as g2o's EstimatePropagator by default;
    "odometry" prefers edges between neighbouring ids (a minimum spanning tree of id distances).
    """
    num = pose_graph.num_poses
    ids = np.asarray(pose_graph.vertex_set.ids, dtype=np.float64)
    cost = np.ones(len(pose_graph.first))
    if method == "odometry":
        cost = np.abs(ids[pose_graph.first] - ids[pose_graph.second])
    costs, edges = cheapest_edge_per_pair(pose_graph.first, pose_graph.second, cost, num)
    # a virtual vertex `num` that is joined to every root makes one tree of the forest
    tiny = 0.5
    links = sp.csr_matrix(
        (np.full(len(roots), tiny), (np.full(len(roots), num), roots)), shape=(num + 1, num + 1)
    )
    costs = sp.csr_matrix(
        (costs.data, costs.indices, np.append(costs.indptr, costs.indptr[-1])), shape=(num + 1, num + 1)
    )
    joined = costs + links + links.T
    if method == "odometry":
        joined = csgraph.minimum_spanning_tree(joined)
    _, parent = csgraph.breadth_first_order(joined, num, directed=False, return_predecessors=True)
    parent = parent[:num].astype(np.int64)
    parent[(parent < 0) | (parent == num)] = -1
    has_parent = np.flatnonzero(parent >= 0)
    edge = np.full(num, -1, np.int64)
    edge[has_parent] = np.asarray(edges[parent[has_parent], has_parent]).ravel() - 1
    return parent, edge


def chain_poses(pose_graph: PoseGraph, roots: Array, method: str) -> tuple[Array, Array]:
    """Poses (n, storage_dim) chained from the roots, and which of them were reached (n,) bool."""
    group = pose_graph.group
    parent, edge = tree_parents(pose_graph, roots, method)
    pose = np.array(pose_graph.poses.storage)
    moved = np.flatnonzero(parent >= 0)
    backwards = pose_graph.first[edge[moved]] == moved
    relative = pose_graph.relative.storage[edge[moved]].copy()
    relative[backwards] = group(relative[backwards]).inverse().storage
    pose[moved] = relative
    while len(moved) > 0:
        pose[moved] = (group(pose[parent[moved]]) * group(pose[moved])).storage
        parent[moved] = parent[parent[moved]]
        moved = moved[parent[moved] >= 0]
    reached = edge >= 0
    reached[roots] = True
    return _normalized(group, pose), reached


def _normalized(group: Any, storage: Array) -> Array:
    return group(storage).normalize().storage
