"""Optimizations on devices whose blocks have at most so many rows: larger vertices are taken apart.

The block solver gets an ordinary graph in which each piece of a vertex is a vertex (`split_types`), made
for one optimization; estimates are brought back into the user's. Chi2, H and b are those of the graph itself.
Which components of a vertex belong together follows from its traced oplus.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from graphopt.codegen.trace import trace_oplus
from graphopt.codegen.workspace import workspace
from graphopt.graph import EdgeSet, Graph, VertexSet
from graphopt.graph.columns import Columns
from graphopt.graph.selection import EdgeSelection
from graphopt.problem.held import Problem, brought_up_to_date
from graphopt.problem.split_types import Piece, piece_type, split_edge_type
from graphopt.symbolic.expr import topological
from graphopt.types.base import VertexType
from graphopt.types.cache import per_type_cache

LARGEST_BLOCK = 15
"""Rows of a block that kernels keep in registers; larger vertices are split, see `Device`."""
_EDGE_COLUMNS = ("sequence", "measurement", "information", "kernel", "kernel_width", "parameters")


@dataclass
class SplitProblem(Problem):
    """A problem whose larger vertices are in pieces."""

    whole: Problem | None = None
    pieces: list[tuple[VertexSet, VertexSet, tuple[int, ...]]] = field(default_factory=list)
    """(set of `graph`, set of the whole problem, components of its storage), row by row."""

    def callback(self, users: Callable[[Any], object] | None) -> Callable[[Any], object] | None:
        """The user's callback, which finds the present estimates in the user's graph."""
        return brought_up_to_date(self.bring_back, users)

    def bring_back(self) -> None:
        """Write the estimates into the user's graph."""
        for piece, whole, places in self.pieces:
            whole.estimate[:, list(places)] = piece.estimate
        assert self.whole is not None
        self.whole.bring_back()


def in_small_blocks(problem: Problem, largest: int = LARGEST_BLOCK) -> Problem:
    """The problem with no vertex of more than `largest` components, as far as oplus lets them be cut."""
    kinds = [vertex_set.type for vertex_set in problem.selection.vertex_sets]
    if all(len(pieces_of(kind, largest)) == 1 for kind in kinds):
        return problem
    return _Split(problem, largest).problem


class _Split:
    """Makes the graph of a problem."""

    def __init__(self, problem: Problem, largest: int):
        selection, other = problem.selection, Graph()
        self.problem = SplitProblem(other, selection, whole=problem)
        self._pieces = [pieces_of(vertex_set.type, largest) for vertex_set in selection.vertex_sets]
        self._next_id = problem.graph.max_vertex_id() + 1
        self._ids: list[np.ndarray] = []
        """Per vertex set (n, pieces) int64."""
        other.parameter_sets.extend(problem.graph.parameter_sets)
        for number, vertex_set in enumerate(selection.vertex_sets):
            self._split_vertices(vertex_set, selection.fixed[number], self._pieces[number])
        chosen = {}
        for edges in selection.edges:
            edge_set = self._split_edges(edges)
            other.adopt(edge_set)
            chosen[edge_set] = np.arange(len(edge_set))
        self.problem.selection = other.select(edges=chosen) if selection.chosen_by_edges else other.select(-1)

    def _split_vertices(self, whole: VertexSet, fixed: np.ndarray, pieces: tuple[Piece, ...]) -> None:
        ids = np.empty((len(whole), len(pieces)), np.int64)
        is_cut = len(pieces) > 1
        for number, piece in enumerate(pieces):
            if number == 0:
                ids[:, 0] = whole.ids
            else:
                ids[:, number] = self._next_id + np.arange(len(whole))
                self._next_id += len(whole)
            columns = {
                "sequence": whole.sequence.copy(),
                "ids": ids[:, number].copy(),
                "estimate": np.ascontiguousarray(whole.estimate[:, list(piece.storage)]),
                "fixed": fixed.copy(),
                "marginalized": np.zeros(len(whole), bool) if is_cut else whole.marginalized.copy(),
            }
            kind = piece_type(whole.type, piece) if is_cut else whole.type
            part = VertexSet(kind, Columns.holding(columns))
            self.problem.graph.adopt(part)
            self.problem.pieces.append((part, whole, piece.storage))
        self._ids.append(ids)

    def _split_edges(self, edges: EdgeSelection) -> EdgeSet:
        whole = edges.edge_set
        slots = list(enumerate(edges.vertex_sets))
        columns = {name: whole._columns[name][edges.rows] for name in _EDGE_COLUMNS}
        vertices = [self._ids[number][edges.vertex_rows[:, slot]] for slot, number in slots]
        columns["vertices"] = np.concatenate(vertices, axis=1)
        columns["level"] = np.zeros(len(edges.rows), np.int32)
        kind = split_edge_type(whole.type, tuple(self._pieces[number] for _, number in slots))
        return EdgeSet(kind, Columns.holding(columns))


@per_type_cache
def pieces_of(kind: VertexType, largest: int) -> tuple[Piece, ...]:
    """Pieces of at most `largest` tangent components each, in order.

    One that oplus does not let be cut stays whole, as does a type with a working form.
    """
    everything = Piece(tuple(range(kind.storage_dim)), tuple(range(kind.tangent_dim)))
    if kind.tangent_dim <= largest or kind.working is not None:
        return (everything,)
    found: list[Piece] = []
    for piece in _independent(kind):
        last = found[-1] if found else None
        if last is not None and len(last.tangent) + len(piece.tangent) <= largest:
            found[-1] = Piece((*last.storage, *piece.storage), (*last.tangent, *piece.tangent))
        else:
            found.append(piece)
    return tuple(Piece(tuple(sorted(p.storage)), tuple(sorted(p.tangent))) for p in found)


def _independent(kind: VertexType) -> list[Piece]:
    """The smallest pieces, by their first component; what nothing moves is with the first."""
    with workspace():
        vertex = trace_oplus(kind)
        names = [e.value for e in vertex.storage] + [e.value for e in vertex.delta]
        used = [{e.value for e in topological([moved]) if e.op == "var"} for moved in vertex.moved]
    number = {name: k for k, name in enumerate(names)}
    group = np.arange(len(names))
    for k, inputs in enumerate(used):
        together = np.unique(group[[k, *(number[name] for name in inputs if name in number)]])
        group[np.isin(group, together)] = together[0]
    dim = kind.storage_dim
    moving = list(dict.fromkeys(group[dim:].tolist()))
    group[~np.isin(group, moving)] = moving[0]
    return [
        Piece(
            tuple(np.flatnonzero(group[:dim] == group_number).tolist()),
            tuple(np.flatnonzero(group[dim:] == group_number).tolist()),
        )
        for group_number in sorted(
            moving, key=lambda group_number: int(np.flatnonzero(group == group_number)[0])
        )
    ]
