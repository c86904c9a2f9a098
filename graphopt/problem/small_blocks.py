"""Optimizations on devices whose blocks have at most so many rows: larger vertices are taken apart.

The block solver gets an ordinary graph in which each piece of a vertex is a vertex (`piece_types`). Chi2, H
and b are those of the graph itself.
Which components of a vertex belong together follows from its traced oplus.
"""

from __future__ import annotations

import numpy as np

from graphopt.codegen.trace import trace_oplus
from graphopt.codegen.workspace import workspace
from graphopt.graph import EdgeSet, Graph, Selection
from graphopt.graph.selection import EdgeSelection
from graphopt.problem.piece_types import Piece, piece_type, split_edge_type
from graphopt.problem.rewrite import (
    EdgeCopy,
    Rewriter,
    Rewritten,
    VertexCopy,
    edge_set_of,
    select_all,
    vertex_copy,
)
from graphopt.symbolic.expr import topological
from graphopt.types.base import VertexType
from graphopt.types.cache import per_type_cache

LARGEST_BLOCK = 15
"""Rows of a block that kernels keep in registers; larger vertices are split, see `Device`."""


def _applies(graph: Graph, selection: Selection) -> bool:
    """A vertex has more components, and oplus lets them be divided."""
    return any(len(pieces_of(vertex_set.type, LARGEST_BLOCK)) > 1 for vertex_set in selection.vertex_sets)


def _make(graph: Graph, selection: Selection) -> Rewritten:
    made = Graph()
    made.parameter_sets.extend(graph.parameter_sets)
    vertices: list[VertexCopy] = []
    edges: list[EdgeCopy] = []
    ids: list[np.ndarray] = []  # per vertex set (n, pieces)
    next_id = graph.max_vertex_id() + 1
    for number, vertex_set in enumerate(selection.vertex_sets):
        ids.append(_ids_of_pieces(vertex_set.ids, len(pieces_of(vertex_set.type, LARGEST_BLOCK)), next_id))
        next_id += ids[-1][:, 1:].size
        vertices += _divided_vertices(selection, number, ids[-1])
    for copy in vertices:
        made.adopt(copy.made)
    for selected in selection.edges:
        edge_set, copies = _divided_edges(selected, selection, ids)
        made.adopt(edge_set)
        edges += copies
    return Rewritten(made, select_all(made, selection), vertices, edges)


SMALL_BLOCKS = Rewriter(_applies, _make)


def _ids_of_pieces(ids: np.ndarray, num_pieces: int, next_id: int) -> np.ndarray:
    """(n, num_pieces) int64: the first piece has the vertex's own id."""
    more = next_id + np.arange(len(ids) * (num_pieces - 1), dtype=np.int64)
    return np.concatenate([ids[:, None], more.reshape(num_pieces - 1, len(ids)).T], axis=1)


def _divided_vertices(selection: Selection, number: int, ids: np.ndarray) -> list[VertexCopy]:
    source, fixed = selection.vertex_sets[number], selection.fixed[number]
    pieces, found = pieces_of(source.type, LARGEST_BLOCK), []
    is_divided = len(pieces) > 1
    for column, piece in enumerate(pieces):
        marginalized = np.zeros(len(source), bool) if is_divided else source.look("marginalized").copy()
        found.append(
            vertex_copy(
                piece_type(source.type, piece) if is_divided else source.type,
                source,
                (slice(None), list(piece.storage)),
                fixed.copy(),
                sequence=source.sequence.copy(),
                ids=ids[:, column].copy(),
                marginalized=marginalized,
            )
        )
    return found


def _divided_edges(
    edges: EdgeSelection, selection: Selection, ids: list[np.ndarray]
) -> tuple[EdgeSet, list[EdgeCopy]]:
    source = edges.edge_set
    slots = list(enumerate(edges.vertex_sets))
    vertices = np.concatenate([ids[number][edges.vertex_rows[:, slot]] for slot, number in slots], axis=1)
    pieces = tuple(pieces_of(selection.vertex_sets[number].type, LARGEST_BLOCK) for _, number in slots)
    return edge_set_of(
        split_edge_type(source.type, pieces), vertices, [(slice(None), ((source, edges.rows),))]
    )


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
