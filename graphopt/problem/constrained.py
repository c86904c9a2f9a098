"""The graph that is optimized where there are inequalities: their edges have places in H.

It shares everything with the user's graph; edges of inequalities are there as ones of `types.inequality`. It
is kept while nothing is added to or removed from the user's graph, so that its block solver serves for later
calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from graphopt.graph import EdgeSet, Graph
from graphopt.types.inequality import constraint_edge_type


@dataclass(frozen=True, eq=False)
class Constrained:
    """What `constrained` returns. It refers to sets of the user's graph, not to the graph, which keeps it."""

    graph: Graph
    sources: Sequence[EdgeSet]
    """The user's inequalities."""
    shared: dict[int, EdgeSet]
    """`id` of an edge set of the user's graph -> the one with the same edges here."""

    def edges(self, graph: Graph, edges: Any) -> Any:
        """The option `edges` of the user's graph for this one."""
        if edges is None:
            return None
        if isinstance(edges, dict):
            sets = (
                (each if isinstance(each, EdgeSet) else graph.edge_set(each), rows)
                for each, rows in edges.items()
            )
            return {self.shared[id(edge_set)]: rows for edge_set, rows in sets}
        rows_of: dict[EdgeSet, list[int]] = {}
        for edge in edges:
            rows_of.setdefault(self.shared[id(edge.edge_set)], []).append(edge.row)
        return rows_of

    def origin(self, sequence: int) -> tuple[EdgeSet, int]:
        """The user's inequality with this place in the order of the graph: edge set, row."""
        for source in self.sources:
            row = int(np.searchsorted(source.sequence, sequence))
            if row < len(source) and source.sequence[row] == sequence:
                return source, row
        raise AssertionError(sequence)  # pragma: no cover - every inequality is in a source


_kept: WeakKeyDictionary[Graph, tuple[int, Constrained]] = WeakKeyDictionary()


def has_inequalities(graph: Graph) -> bool:
    """There are edges of a type with `inequality`."""
    return any(edge_set.type.inequality and len(edge_set) for edge_set in graph.edge_sets)


def constrained(graph: Graph) -> Constrained:
    """The graph with its inequalities as constraints."""
    kept = _kept.get(graph)
    if kept is None or kept[0] != graph.version:
        kept = _kept[graph] = graph.version, _made(graph)
    return kept[1]


def _made(graph: Graph) -> Constrained:
    made, sources, shared = Graph(), [], {}
    for vertex_set in graph.vertex_sets:
        made.adopt(vertex_set)
    for parameter_set in graph.parameter_sets:
        made.adopt(parameter_set)
    for edge_set in graph.edge_sets:
        kind = edge_set.type
        if kind.inequality:
            sources.append(edge_set)
            kind = constraint_edge_type(kind)
        shared[id(edge_set)] = twin = EdgeSet(kind, edge_set.columns)
        made.adopt(twin)
    return Constrained(made, sources, shared)
