"""The problem with inequalities as one without: their edges become terms of an augmented Lagrangian.

The graph that is made shares vertices, parameters and edges with the user's; only the terms
(`types.inequality`) are its own. It is kept while nothing is added to or removed from the user's graph, so
that its block solver serves for all rounds and later calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from graphopt.graph import EdgeSet, Graph
from graphopt.graph.columns import Columns
from graphopt.graph.residuals import errors
from graphopt.types.inequality import augmented_edge_type

_COPIED = ("sequence", "vertices", "parameters")


@dataclass(frozen=True, eq=False)
class Terms:
    """The inequalities of one type, and their terms; m edges of r numbers."""

    source: EdgeSet
    made: EdgeSet

    def refresh(self) -> None:
        """Take the present measurements and levels."""
        self.made.measurement[:, : self.source.type.measurement_dim] = self.source.look("measurement")
        self.made.level[...] = self.source.look("level")

    def values(self, graph: Graph) -> np.ndarray:
        """(m, r) c(x) at the graph's present estimates."""
        return errors(graph, self.source, np.arange(len(self.source)))

    def set(self, shift: np.ndarray, penalty: np.ndarray) -> None:
        """m and rho of all terms, (m, r) each."""
        self.made.measurement[:, self.source.type.measurement_dim :] = shift
        diagonal = np.arange(penalty.shape[1])
        self.made.information[:, diagonal, diagonal] = penalty


@dataclass(frozen=True, eq=False)
class Augmented:
    """What `augmented` returns. It refers to sets of the user's graph, not to the graph, which keeps it."""

    graph: Graph
    terms: Sequence[Terms]
    shared: dict[int, EdgeSet]
    """`id` of an edge set of the user's graph -> the one with the same edges here."""


_kept: WeakKeyDictionary[Graph, tuple[int, Augmented]] = WeakKeyDictionary()


def augmented(graph: Graph) -> Augmented:
    """The graph without inequalities, with their terms."""
    kept = _kept.get(graph)
    if kept is None or kept[0] != graph.version:
        kept = _kept[graph] = graph.version, _made(graph)
    for terms in kept[1].terms:
        terms.refresh()
    return kept[1]


def _made(graph: Graph) -> Augmented:
    made, terms, shared = Graph(), [], {}
    for vertex_set in graph.vertex_sets:
        made.adopt(vertex_set)
    for parameter_set in graph.parameter_sets:
        made.adopt(parameter_set)
    for edge_set in graph.edge_sets:
        if not edge_set.type.inequality:
            twin = EdgeSet(edge_set.type, edge_set._columns)
        else:
            twin = _terms_of(edge_set)
            terms.append(Terms(edge_set, twin))
        shared[id(edge_set)] = twin
        made.adopt(twin)
    return Augmented(made, terms, shared)


def _terms_of(source: EdgeSet) -> EdgeSet:
    kind = augmented_edge_type(source.type)
    count, dim = len(source), kind.residual_dim
    columns = {name: source.look(name).copy() for name in _COPIED}
    return EdgeSet(
        kind,
        Columns.holding(
            {
                **columns,
                "measurement": np.zeros((count, kind.measurement_dim)),
                "information": np.tile(np.eye(dim), (count, 1, 1)),
                "kernel": np.zeros(count, np.int32),
                "kernel_width": np.ones(count),
                "level": source.look("level").copy(),
            }
        ),
    )
