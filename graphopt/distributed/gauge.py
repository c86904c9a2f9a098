"""Which vertices of a graph that was read in parts to hold: those of `problem.gauge` for the whole of it.

1. Each rank has the connected parts of its own edges, and what holds each or not.
2. Parts of several ranks that have a kept vertex in common are one: ranks tell each other which kept vertices
   are in which of their parts.
3. Where nothing holds a part, its vertices of the largest dimension are candidates, and the first in g2o's
   order is held, if it is a pose. Only then the ranks have to know the ids of all vertices.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components as components_of

from graphopt._native import iteration_order
from graphopt.distributed.communicator import Communicator
from graphopt.graph import Graph
from graphopt.graph.components import connected_parts
from graphopt.types.poses import POSE_ROLES


@dataclass(frozen=True, eq=False)
class _Free:
    """A rank's free vertices that have edges."""

    ids: np.ndarray
    """(n,) int64."""
    part: np.ndarray
    """(n,) int64: connected part, by number of this rank and then of all."""
    dim: np.ndarray
    """(n,) tangent dimensions."""
    is_pose: np.ndarray
    is_kept: np.ndarray
    """(n,) bool: other ranks may have it, too."""


def gauge_of_parts(comm: Communicator, graph: Graph, ids: np.ndarray, order: np.ndarray) -> list[int]:
    """Ids of the vertices to hold. Collective.

    graph: this rank's, with all edges of the eliminated vertices that it has. ids, order: (n,) of the
    vertices that this rank has read, and their places in the file's order.
    """
    free, is_held = _of_rank(graph)
    if not any(comm.share(bool(free.is_pose.any()))):
        return []
    free, is_held = _of_all(comm, free, is_held)
    if is_held.all():
        return []
    largest = np.zeros(len(is_held), np.int64)
    np.maximum.at(largest, free.part, free.dim)
    largest = np.max(comm.share(largest), axis=0)
    chosen = np.flatnonzero(~is_held[free.part] & (free.dim == largest[free.part]))
    place = _places_of(comm, ids, order, free.ids[chosen])
    first = np.full(len(is_held), np.iinfo(np.int64).max)
    np.minimum.at(first, free.part[chosen], place)
    first = np.min(comm.share(first), axis=0)
    wins = (place == first[free.part[chosen]]) & free.is_pose[chosen]
    told = comm.share(free.ids[chosen[wins]])
    return np.unique(np.concatenate(told)).tolist()


def _places_of(comm: Communicator, ids: np.ndarray, order: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """(k,) places of some vertices where g2o looks at all of them one after the other."""
    told = comm.share((ids, order))
    every = np.concatenate([of_rank for of_rank, _ in told])
    every = every[np.argsort(np.concatenate([of_rank for _, of_rank in told]), kind="stable")]
    place = np.empty(len(every), np.int64)
    place[iteration_order(every)] = np.arange(len(every))
    by_id = np.argsort(every, kind="stable")
    return place[by_id[np.searchsorted(every, wanted, sorter=by_id)]]


def _of_rank(graph: Graph) -> tuple[_Free, np.ndarray]:
    """Free vertices by part of this rank; and (parts,) bool: something of this rank holds the part."""
    selection = graph.select()
    labels, is_held = connected_parts(selection, through_fixed=False)
    sets = selection.vertex_sets
    part = np.concatenate([np.empty(0, np.int64), *labels]).astype(np.int64)
    columns = (
        [vertices.ids for vertices in sets],
        [np.full(len(vertices), vertices.type.tangent_dim) for vertices in sets],
        [np.full(len(vertices), vertices.type.role in POSE_ROLES) for vertices in sets],
        [~vertices.marginalized for vertices in sets],
    )
    nothing = (np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, bool), np.empty(0, bool))
    ids, dim, is_pose, is_kept = (
        np.concatenate([empty, *column])[part >= 0] for empty, column in zip(nothing, columns, strict=True)
    )
    return _Free(ids, part[part >= 0], dim, is_pose, is_kept), is_held


def _of_all(comm: Communicator, free: _Free, is_held: np.ndarray) -> tuple[_Free, np.ndarray]:
    """The same by part of all ranks."""
    told = comm.share((free.ids[free.is_kept], free.part[free.is_kept], is_held))
    starts = np.cumsum([0, *(len(held) for _, _, held in told)])
    names, vertex = np.unique(np.concatenate([ids for ids, _, _ in told]), return_inverse=True)
    part = np.concatenate([of_rank + start for (_, of_rank, _), start in zip(told, starts, strict=False)])
    size = int(starts[-1]) + len(names)
    links = coo_array((np.ones(len(part)), (part, starts[-1] + vertex)), shape=(size, size))
    count, label = components_of(links, directed=False)
    held = np.zeros(count, bool)
    held[label[: starts[-1]][np.concatenate([of_rank for _, _, of_rank in told])]] = True
    own = label[starts[comm.rank] + free.part]
    return _Free(free.ids, own, free.dim, free.is_pose, free.is_kept), held
