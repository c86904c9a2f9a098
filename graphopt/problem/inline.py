"""The same problem without computed values: the functions of their terms stand inside those of the edges.

Edges of one set are grouped by the terms of their values, then by which of their vertices coincide; each
group has a type of its own (`inlined_edge_type`, `merged_edge_type`). Values that follow from other values
are put in one after the other. H, b and chi2 are those of a residual written by hand.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphopt.errors import GraphError
from graphopt.graph import EdgeSet, Graph, Selection
from graphopt.graph.computed import without_values
from graphopt.graph.stencils import first_slots
from graphopt.problem.rewrite import (
    EdgeCopy,
    Rewrite,
    Rewriter,
    Rewritten,
    Sources,
    edge_set_of,
    select_all,
)
from graphopt.types.base import EdgeType
from graphopt.types.computed import ComputedVertexType, inlined_edge_type
from graphopt.types.merged import merged_edge_type

MOST_SLOTS = 64
"""Vertices of one inlined edge: all pairs of them have blocks in H."""


@dataclass
class _Edges:
    """Edges of one type."""

    type: EdgeType
    vertices: np.ndarray
    sources: Sources

    def taken(self, rows: np.ndarray) -> _Edges:
        return _Edges(
            self.type, self.vertices[rows], tuple((source, at[rows]) for source, at in self.sources)
        )


class _Terms:
    """The terms of all values of one type, by value."""

    def __init__(self, kind: ComputedVertexType, sets: list[EdgeSet], first_id: np.ndarray):
        self.kind = kind
        self.ids = first_id
        """(n,) int64 vertex ids of the values, ascending."""
        self.sets = sets
        owner = np.concatenate([np.searchsorted(self.ids, set_.look("vertices")[:, 0]) for set_ in sets])
        number = np.repeat(np.arange(len(sets)), [len(set_) for set_ in sets])
        row = np.concatenate([np.arange(len(set_)) for set_ in sets])
        order = np.lexsort((row, number, owner))
        self.number, self.row = number[order], row[order]
        self.first = np.searchsorted(owner[order], np.arange(len(self.ids) + 1))

    def of(self, ids: np.ndarray) -> list[tuple[np.ndarray, tuple[int, ...], np.ndarray]]:
        """Groups of values with terms of the same types: (places in ids, sets of the terms, their rows)."""
        at = np.searchsorted(self.ids, ids)
        counts = self.first[at + 1] - self.first[at]
        found = []
        for count in np.unique(counts).tolist():
            places = np.flatnonzero(counts == count)
            terms = self.first[at[places]][:, None] + np.arange(count)
            kinds, member = np.unique(self.number[terms], axis=0, return_inverse=True)
            for k, kind in enumerate(kinds.tolist()):
                here = member.reshape(-1) == k
                found.append((places[here], tuple(kind), self.row[terms[here]]))
        return found


def _make(graph: Graph, selection: Selection) -> Rewritten:
    """A graph of the selected edges without computed values, which shares the vertices of `graph`.

    Raises `GraphError` where an edge names a value that has no term, or would have more than `MOST_SLOTS`
    vertices.
    """
    refuse_missing_values(graph, selection)
    if graph.convolutions:
        raise GraphError("Sums over a grid (add_convolution) cannot be inlined; use computed='materialize'.")
    made = Graph()
    for vertex_set in graph.vertex_sets:
        if not isinstance(vertex_set.type, ComputedVertexType):
            made.adopt(vertex_set)
    made.parameter_sets.extend(graph.parameter_sets)
    terms = _terms_by_type(graph)
    finished: dict[EdgeType, list[_Edges]] = {}
    for chosen in selection.edges:
        edges = _Edges(
            chosen.edge_set.type,
            chosen.edge_set.look("vertices")[chosen.rows],
            ((chosen.edge_set, chosen.rows),),
        )
        for without in _without_values(edges, terms):
            finished.setdefault(without.type, []).append(without)
    copies: list[EdgeCopy] = []
    for kind, parts in finished.items():
        edge_set, its_copies = _joined(kind, parts)
        made.adopt(edge_set)
        copies += its_copies
    found = _with_fixed(select_all(made, selection), selection)
    return Rewritten(made, found, (), copies, has_values_inlined=True)


INLINED_VALUES = Rewriter(lambda graph, selection: graph.has_computed(), _make)


def with_values_inlined(graph: Graph, selection: Selection) -> Rewrite:
    """The problem of a selection without computed values, once these were computed."""
    if graph.has_computed():
        graph.compute()
    return Rewrite(graph, selection).apply(INLINED_VALUES)


def refuse_missing_values(graph: Graph, selection: Selection) -> None:
    """`GraphError` where a selected edge names a value without terms."""
    missing = without_values(graph)
    for edges in selection.edges:
        for slot, number in enumerate(edges.vertex_sets):
            if number in missing:
                wrong = missing[number][edges.vertex_rows[:, slot]]
                if wrong.any():
                    kind = selection.vertex_sets[number]
                    value = int(kind.ids[edges.vertex_rows[np.argmax(wrong), slot]])
                    raise GraphError(
                        f"{edges.edge_set.type.tag} names value {value} of {kind.type.tag}, "
                        "which has no terms: its stencil leaves the grid or is masked out. Mask such edges."
                    )


def _with_fixed(found: Selection, selection: Selection) -> Selection:
    """Hold what `selection` holds beside the graph's own flags."""
    fixed = {
        id(vertex_set): mask for vertex_set, mask in zip(selection.vertex_sets, selection.fixed, strict=True)
    }
    places = [
        (number, int(row))
        for number, vertex_set in enumerate(found.vertex_sets)
        for row in np.flatnonzero(fixed[id(vertex_set)] & ~vertex_set.fixed)
    ]
    return found.with_fixed(places) if places else found


def _terms_by_type(graph: Graph) -> dict[ComputedVertexType, _Terms]:
    by_type: dict[ComputedVertexType, list[EdgeSet]] = {}
    for definition in graph.definitions():
        kind = definition.type.vertices[0]
        assert isinstance(kind, ComputedVertexType)
        by_type.setdefault(kind, []).append(definition)
    return {kind: _Terms(kind, sets, np.sort(graph.vertex_set(kind).ids)) for kind, sets in by_type.items()}


def _without_values(edges: _Edges, terms: dict[ComputedVertexType, _Terms]) -> list[_Edges]:
    """The same edges, of types that name no computed value and no vertex twice."""
    waiting, finished = [edges], []
    while waiting:
        edge_set = waiting.pop()
        slot = next(
            (k for k, v in enumerate(edge_set.type.vertices) if isinstance(v, ComputedVertexType)), None
        )
        if slot is None:
            finished += _merged(edge_set)
            continue
        kind = edge_set.type.vertices[slot]
        assert isinstance(kind, ComputedVertexType)
        for places, numbers, rows in terms[kind].of(edge_set.vertices[:, slot]):
            waiting.append(
                _put_in(edge_set.taken(places), slot, [terms[kind].sets[n] for n in numbers], rows)
            )
    return finished


def _put_in(edges: _Edges, slot: int, sets: list[EdgeSet], rows: np.ndarray) -> _Edges:
    """Terms in place of one slot; rows (m, number of terms): where they are in their sets."""
    spread: list[tuple[EdgeType, ...] | None] = [None] * len(edges.type.vertices)
    spread[slot] = tuple(set_.type for set_ in sets)
    num_slots = len(spread) - 1 + sum(set_.arity - 1 for set_ in sets)
    if num_slots > MOST_SLOTS:
        raise GraphError(
            f"{edges.type.tag} would have {num_slots} vertices with the terms of its values inlined, at most "
            f"{MOST_SLOTS} are taken. Use computed='materialize'."
        )
    inputs = [set_.look("vertices")[rows[:, k], 1:] for k, set_ in enumerate(sets)]
    own = edges.vertices
    return _Edges(
        inlined_edge_type(edges.type, tuple(spread)),
        np.concatenate([own[:, :slot], *inputs, own[:, slot + 1 :]], axis=1),
        (*edges.sources, *((set_, rows[:, k]) for k, set_ in enumerate(sets))),
    )


def _merged(edges: _Edges) -> list[_Edges]:
    """Edges by which of their vertices coincide."""
    ids = edges.vertices
    patterns, member = np.unique(first_slots(ids), axis=0, return_inverse=True)
    found = []
    for k, first in enumerate(patterns):
        kept = np.unique(first)
        part = edges.taken(np.flatnonzero(member.reshape(-1) == k))
        part.type = merged_edge_type(part.type, tuple(np.searchsorted(kept, first).tolist()))
        part.vertices = np.ascontiguousarray(part.vertices[:, kept])
        found.append(part)
    return found


def _joined(kind: EdgeType, parts: list[_Edges]) -> tuple[EdgeSet, list[EdgeCopy]]:
    """An edge set of these, in the order in which its edges were added."""
    sequences = [part.sources[0][0].look("sequence")[part.sources[0][1]] for part in parts]
    order = np.argsort(np.concatenate(sequences), kind="stable")
    row = np.empty(len(order), np.int64)  # in the set, of each edge of the parts
    row[order] = np.arange(len(order))
    rows = np.split(row, np.cumsum([len(sequence) for sequence in sequences])[:-1])
    vertices = np.concatenate([part.vertices for part in parts])[order]
    return edge_set_of(kind, vertices, [(at, part.sources) for at, part in zip(rows, parts, strict=True)])
