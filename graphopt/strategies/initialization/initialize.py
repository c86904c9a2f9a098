"""`initialize`: choose roots, set the poses, place the landmarks, say what could not be reached."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse import csgraph

from graphopt.errors import OptionError
from graphopt.geometry import Sim3
from graphopt.graph import Graph
from graphopt.graph.relative_poses import PoseGraph, pose_graphs
from graphopt.option_names import INITIALIZATIONS
from graphopt.strategies.initialization.chordal import chordal_poses
from graphopt.strategies.initialization.landmarks import place_landmarks
from graphopt.strategies.initialization.spanning_tree import chain_poses
from graphopt.suggestions import knows_its_options

Array = Any


@dataclass
class Initialization:
    """What `initialize` did."""

    method: str
    num_poses: int = 0
    """Poses that were given new estimates."""
    num_landmarks: int = 0
    """Points that were placed from poses."""
    roots: list[int] = field(default_factory=list)
    """Ids of the vertices whose estimates everything else was chained from."""
    untouched: list[int] = field(default_factory=list)
    """Ids of vertices that no usable edge reaches: they keep their estimates."""

    def __str__(self) -> str:
        text = f"{self.method}: {self.num_poses} poses and {self.num_landmarks} landmarks"
        text += f" from {len(self.roots)} root(s)"
        if self.untouched:
            text += f"; {len(self.untouched)} vertices keep their estimates (no usable edge reaches them)"
        return text


@knows_its_options
def initialize(graph: Graph, method: str = "chordal") -> Initialization:
    """Compute start values for the poses and landmarks of `graph`, in place.

    Poses are chained from the fixed vertices; a component without any keeps its vertex of lowest id where it
    is. Similarities (Sim3) have no chordal relaxation: "chordal" chains them along a tree.

    Raises:
        OptionError: unknown method.
    """
    if method not in INITIALIZATIONS:
        raise OptionError(f"method is '{method}', expected one of {', '.join(INITIALIZATIONS)}.")
    result = Initialization(method)
    known: set[int] = set()
    for pose_graph in pose_graphs(graph):
        known |= _initialize_poses(pose_graph, method, result)
    placed = place_landmarks(graph, known)
    result.num_landmarks = len(placed)
    for vertex_set in graph.vertex_sets:
        ids = np.asarray(vertex_set.ids)[~np.asarray(vertex_set.fixed)].tolist()
        result.untouched.extend(i for i in ids if i not in known and i not in placed)
    return result


def _initialize_poses(pose_graph: PoseGraph, method: str, result: Initialization) -> set[int]:
    """Set the estimates of one vertex type; ids of all its poses that are now trusted."""
    vertex_set, group = pose_graph.vertex_set, pose_graph.group
    ids, fixed = np.asarray(vertex_set.ids), np.asarray(vertex_set.fixed)
    roots, linked = _roots(pose_graph, ids, fixed)
    if method == "chordal" and group is not Sim3:
        free = np.flatnonzero(linked & ~np.isin(np.arange(len(ids)), roots))
        start = pose_graph.poses.to_matrix()
        matrices = chordal_poses(pose_graph, start, free) if len(free) else start
        storage = group.from_matrix(matrices).normalize().storage
    else:
        storage, _ = chain_poses(pose_graph, roots, method)
        free = np.flatnonzero(linked & ~np.isin(np.arange(len(ids)), roots))
    pose_graph.set_poses(free, group(storage[free]))
    result.num_poses += len(free)
    result.roots.extend(ids[roots].tolist())
    return set(ids[linked].tolist())


def _roots(pose_graph: PoseGraph, ids: Array, fixed: Array) -> tuple[Array, Array]:
    """Rows that stay where they are, and which rows (n,) bool belong to a component that has edges."""
    num = pose_graph.num_poses
    links = sp.coo_matrix(
        (np.ones(len(pose_graph.first)), (pose_graph.first, pose_graph.second)), shape=(num, num)
    )
    count, label = csgraph.connected_components(links, directed=False)
    linked = np.bincount(label, minlength=count)[label] > 1
    has_fixed = np.bincount(label, fixed, minlength=count) > 0
    order = np.argsort(ids, kind="stable")
    lowest = np.full(count, -1, np.int64)
    lowest[label[order[::-1]]] = order[::-1]
    chosen = lowest[~has_fixed]
    roots = np.concatenate([np.flatnonzero(fixed), chosen])
    return np.unique(roots[linked[roots] | fixed[roots]]), linked | fixed
