"""Optimizations in which single components of vertices are fixed: the same problem in the other components.

Vertices of one type are divided by which components are fixed, edges by the types of their vertices
(`problem.subset_types`); the block solvers see an ordinary graph.
"""

from __future__ import annotations

import math

import numpy as np

from graphopt.graph import EdgeSet, Graph, Selection
from graphopt.graph.gather import gathered
from graphopt.graph.selection import EdgeSelection
from graphopt.problem.rewrite import (
    EdgeCopy,
    Rewriter,
    Rewritten,
    VertexCopy,
    edge_set_of,
    select_all,
    vertex_copy,
)
from graphopt.problem.subset_types import subset_edge_type, subset_vertex_type
from graphopt.types.base import VertexType


def _applies(graph: Graph, selection: Selection) -> bool:
    """A free vertex has a fixed component."""
    return any(
        vertex_set.has_room_for_components and bool(vertex_set.look("held")[selection.free(number)].any())
        for number, vertex_set in enumerate(selection.vertex_sets)
    )


def _make(graph: Graph, selection: Selection) -> Rewritten:
    made = Graph()
    made.parameter_sets.extend(graph.parameter_sets)
    subsets = [_Subsets(selection, number) for number in range(len(selection.vertex_sets))]
    vertices = [copy for subset in subsets for copy in subset.copies(selection)]
    edges: list[EdgeCopy] = []
    for copy in vertices:
        made.adopt(copy.made)
    for selected in selection.edges:
        for edge_set, copies in _divided_edges(selected, subsets):
            made.adopt(edge_set)
            edges += copies
    return Rewritten(made, select_all(made, selection), vertices, edges)


FIXED_COMPONENTS = Rewriter(_applies, _make)


class _Subsets:
    """The vertices of one set by which of their components are free."""

    def __init__(self, selection: Selection, number: int):
        self._number, self._set = number, selection.vertex_sets[number]
        dim = self._set.type.tangent_dim
        held = np.zeros((len(self._set), dim), bool)
        if self._set.has_room_for_components:
            held = self._set.look("held")
        self._fixed = selection.fixed[number] | held.all(axis=1)
        held = held & ~self._fixed[:, None]
        patterns, pattern = held[:1], np.zeros(len(held), np.int64)
        if held.any():
            patterns, pattern = np.unique(held, axis=0, return_inverse=True)
        self.pattern: np.ndarray = pattern.reshape(-1)
        """(n,) number of each vertex's type."""
        free = [tuple(np.flatnonzero(~fixed).tolist()) for fixed in patterns]
        self.types: list[VertexType] = [subset_vertex_type(self._set.type, columns) for columns in free]
        self.free = [None if len(columns) == dim else columns for columns in free]
        """By type the components that move, None: all."""

    def copies(self, selection: Selection) -> list[VertexCopy]:
        """One vertex set per type that active vertices have."""
        found, source = [], self._set
        for pattern, kind in enumerate(self.types):
            rows = np.flatnonzero((self.pattern == pattern) & selection.active[self._number])
            if len(rows):
                columns = {name: source.look(name)[rows] for name in ("sequence", "ids", "marginalized")}
                found.append(vertex_copy(kind, source, rows, self._fixed[rows], **columns))
        return found


def _divided_edges(edges: EdgeSelection, subsets: list[_Subsets]) -> list[tuple[EdgeSet, list[EdgeCopy]]]:
    source, found = edges.edge_set, []
    combinations, member = _combinations(edges, subsets)
    for number, combination in enumerate(combinations.tolist()):
        slots = list(zip(edges.vertex_sets, combination, strict=True))
        kinds = tuple(subsets[slot].types[pattern] for slot, pattern in slots)
        free = tuple(subsets[slot].free[pattern] for slot, pattern in slots)
        rows = edges.rows if len(combinations) == 1 else edges.rows[member == number]
        kind = subset_edge_type(source.type, kinds, free)
        ids = gathered(source.look("vertices"), rows)
        found.append(edge_set_of(kind, ids, [(slice(None), ((source, rows),))]))
    return found


def _combinations(edges: EdgeSelection, subsets: list[_Subsets]) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of the types of vertices that edges have (k, arity), ascending, and which each has (m,)."""
    counts = [len(subsets[vertex_set].types) for vertex_set in edges.vertex_sets]
    key = np.zeros(len(edges.rows), np.int64)
    for slot, (vertex_set, count) in enumerate(zip(edges.vertex_sets, counts, strict=True)):
        if count > 1:
            key *= count
            key += subsets[vertex_set].pattern[edges.vertex_rows[:, slot]]
    total = math.prod(counts)
    if total <= len(key):
        present = np.flatnonzero(np.bincount(key, minlength=total))
        number = np.zeros(total, np.int64)
        number[present] = np.arange(len(present))
        member = number[key]
    else:
        present, member = np.unique(key, return_inverse=True)
    return np.stack(np.unravel_index(present, counts), axis=1), member
