"""Optimizations that hold single components of vertices: the same problem in types that have only the others.

Vertices of one type are split by which components they hold, edges by the types of their vertices
(`problem.subset_types`); the block solvers see an ordinary graph. It is made for one optimization, and its
estimates are brought back into the user's graph.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from graphopt.graph import EdgeSet, Graph, Selection, VertexSet
from graphopt.graph.columns import Columns
from graphopt.graph.selection import EdgeSelection
from graphopt.problem.subset_types import subset_edge_type, subset_vertex_type
from graphopt.types.base import VertexType

_EDGE_COLUMNS = ("sequence", "vertices", "measurement", "information", "kernel", "kernel_width", "parameters")


def brought_up_to_date(
    bring: Callable[[], object], users: Callable[[Any], object] | None
) -> Callable[[Any], object] | None:
    """The user's callback, called after `bring`, unless it does not look at the graph."""
    if users is None or not getattr(users, "looks_at_graph", True):
        return users

    def told(iteration: Any) -> object:
        bring()
        return users(iteration)

    return told


@dataclass
class Problem:
    """What is optimized: the user's graph, or one without the held components."""

    graph: Graph
    selection: Selection
    parts: list[tuple[VertexSet, VertexSet, np.ndarray]] = field(default_factory=list)
    """(set of `graph`, the user's set, (n,) rows in that)."""

    def callback(self, users: Callable[[Any], object] | None) -> Callable[[Any], object] | None:
        """The user's callback, which finds the present estimates in the user's graph."""
        return brought_up_to_date(self.bring_back, users) if self.parts else users

    def bring_back(self) -> None:
        """Write the estimates into the user's graph."""
        for part, whole, rows in self.parts:
            whole.estimate[rows] = part.estimate


def without_held(graph: Graph, selection: Selection) -> Problem:
    """The problem of a selection; where no free vertex holds a component that is the graph itself."""
    if not any(
        vertex_set.held is not None and vertex_set.held[selection.free(number)].any()
        for number, vertex_set in enumerate(selection.vertex_sets)
    ):
        return Problem(graph, selection)
    return _Split(graph, selection).problem


class _Split:
    """Makes the graph of a problem."""

    def __init__(self, graph: Graph, selection: Selection):
        other = Graph()
        self.problem = Problem(other, selection)
        self._patterns: list[np.ndarray] = []
        """Per vertex set (n,): which of its types a vertex gets."""
        self._types: list[list[VertexType]] = []
        self._free: list[list[tuple[int, ...] | None]] = []
        """Per vertex set and type the components that move; None: all."""
        other.parameter_sets.extend(graph.parameter_sets)
        for number in range(len(selection.vertex_sets)):
            self._split_vertices(selection, number)
        chosen = {}
        for edges in selection.edges:
            for edge_set in self._split_edges(edges):
                other.adopt(edge_set)
                chosen[edge_set] = np.arange(len(edge_set))
        self.problem.selection = other.select(edges=chosen) if selection.chosen_by_edges else other.select(-1)

    def _split_vertices(self, selection: Selection, number: int) -> None:
        whole = selection.vertex_sets[number]
        dim = whole.type.tangent_dim
        held = np.zeros((len(whole), dim), bool) if whole.held is None else whole.held
        fixed = selection.fixed[number] | held.all(axis=1)
        patterns, which = np.unique(held & ~fixed[:, None], axis=0, return_inverse=True)
        self._patterns.append(which.reshape(-1))
        free = [tuple(np.flatnonzero(~pattern).tolist()) for pattern in patterns]
        self._types.append([subset_vertex_type(whole.type, columns) for columns in free])
        self._free.append([None if len(columns) == dim else columns for columns in free])
        for pattern, kind in enumerate(self._types[-1]):
            rows = np.flatnonzero((self._patterns[-1] == pattern) & selection.active[number])
            if len(rows):
                names = ("sequence", "ids", "estimate", "marginalized")
                columns = {name: whole._columns[name][rows] for name in names}
                part = VertexSet(kind, Columns.holding({**columns, "fixed": fixed[rows]}))
                self.problem.graph.adopt(part)
                self.problem.parts.append((part, whole, rows))

    def _split_edges(self, edges: EdgeSelection) -> list[EdgeSet]:
        whole, found = edges.edge_set, []
        patterns = [
            self._patterns[vertex_set][edges.vertex_rows[:, k]]
            for k, vertex_set in enumerate(edges.vertex_sets)
        ]
        combinations, member = np.unique(np.stack(patterns, axis=1), axis=0, return_inverse=True)
        for number, combination in enumerate(combinations.tolist()):
            slots = list(zip(edges.vertex_sets, combination, strict=True))
            kinds = tuple(self._types[slot][pattern] for slot, pattern in slots)
            free = tuple(self._free[slot][pattern] for slot, pattern in slots)
            rows = edges.rows[member.reshape(-1) == number]
            columns = {name: whole._columns[name][rows] for name in _EDGE_COLUMNS}
            columns["level"] = np.zeros(len(rows), np.int32)
            found.append(EdgeSet(subset_edge_type(whole.type, kinds, free), Columns.holding(columns)))
        return found
