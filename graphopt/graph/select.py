"""Build a `Selection`: which edges and vertices of a graph are active."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

import graphopt.graph.validate as validate
from graphopt.cpu_kernels import kernels
from graphopt.errors import UnknownIdError
from graphopt.graph.selection import EdgeSelection, Selection
from graphopt.graph.sets import EdgeSet
from graphopt.graph.views import Edge, Vertex

if TYPE_CHECKING:
    from graphopt.graph.store import GraphStore


_last: WeakKeyDictionary[GraphStore, tuple[Hashable, Selection]] = WeakKeyDictionary()
"""Of each graph what was chosen last by level, and from what."""


def select(graph: GraphStore, level: int, vertices: Any, edges: Any) -> Selection:
    """Choose by level, by vertices or by edges; see `selection` for the rules.

    By level the same object as last time, while everything that it depends on is the same.
    """
    if vertices is not None or edges is not None:
        return _select(graph, level, vertices, edges)
    key = level, _fingerprint(graph)
    last = _last.get(graph)
    if last is None or last[0] != key:
        last = _last[graph] = key, _select(graph, level, None, None)
    return last[1]


def select_connected(graph: GraphStore, level: int) -> Selection:
    """The same with the terms of computed values as edges: what is connected through them."""
    return _select(graph, level, None, None, with_terms=True)


def forget(graph: GraphStore) -> None:
    """Release what was chosen last."""
    _last.pop(graph, None)


def _fingerprint(graph: GraphStore) -> Hashable:
    """Of all that a selection by level and its structure depend on; one pass over what may be new."""
    chosen = (
        (graph.vertex_sets, ("ids", "fixed", "marginalized")),
        (graph.edge_sets, ("vertices", "level", "parameters")),
        (graph.parameter_sets, ("ids",)),
    )
    found = [(columns, name) for sets, names in chosen for columns in sets for name in names]
    digests = b"".join([columns.fingerprint(name) for columns, name in found])
    return graph.version, tuple([(id(columns), len(columns)) for columns, _ in found]), digests


def _select(graph: GraphStore, level: int, vertices: Any, edges: Any, with_terms: bool = False) -> Selection:
    fixed = tuple(vertex_set.look("fixed").copy() for vertex_set in graph.vertex_sets)
    inside = None if vertices is None else _vertex_masks(graph, vertices)
    chosen = None if edges is None else _edge_masks(graph, edges)
    active = tuple(np.zeros(len(vertex_set), bool) for vertex_set in graph.vertex_sets)
    selected = []
    for edge_set in graph.edge_sets:
        kind = edge_set.type
        if (kind.inequality and not kind.is_external) or (kind.defines and not with_terms):
            continue
        if chosen is not None:
            rows = np.flatnonzero(chosen.get(id(edge_set), False))
        else:
            rows = _rows_of_level(edge_set, level)
        selection = _take(graph, edge_set, rows, None if chosen is not None else fixed, inside)
        if not len(selection.rows):
            continue
        selected.append(selection)
        for slot, number in enumerate(selection.vertex_sets):
            kernels.mark(selection.vertex_rows, slot, active[number])
    return Selection(
        tuple(graph.vertex_sets),
        active,
        fixed,
        tuple(selected),
        chosen is not None,
        tuple(graph.parameter_sets),
    )


def _rows_of_level(edge_set: EdgeSet, level: int) -> np.ndarray:
    levels = edge_set.look("level")
    if level < 0 or (kernels.common_step(levels) == 0 and levels[0] == level):
        return kernels.row_numbers(len(edge_set))
    return np.flatnonzero(levels == level)


def _take(
    graph: GraphStore,
    edge_set: EdgeSet,
    rows: np.ndarray,
    fixed: tuple[np.ndarray, ...] | None,
    inside: tuple[np.ndarray, ...] | None,
) -> EdgeSelection:
    """Rows of an edge set with a free vertex (unless `fixed` is None) and all vertices inside."""
    vertex_sets, vertex_rows, parameter_sets, parameter_rows = graph.edge_places(
        edge_set, None if len(rows) == len(edge_set) else rows
    )
    keep = np.ones(len(rows), bool)
    if not len(rows):
        fixed = inside = None
    if fixed is not None and all([fixed[number].any() for number in vertex_sets]):
        keep &= ~_all_of(fixed, vertex_sets, vertex_rows)
    if inside is not None:
        keep &= _all_of(inside, vertex_sets, vertex_rows)
    if not keep.all():
        rows, vertex_rows, parameter_rows = rows[keep], vertex_rows[keep], parameter_rows[keep]
    return EdgeSelection(
        edge_set,
        rows,
        tuple(vertex_sets),
        vertex_rows,
        tuple(parameter_sets),
        parameter_rows,
    )


def _all_of(masks: tuple[np.ndarray, ...], vertex_sets: list[int], vertex_rows: np.ndarray) -> np.ndarray:
    """(k,) bool: every vertex of the edge is in its mask."""
    result = np.ones(len(vertex_rows), bool)
    for slot, number in enumerate(vertex_sets):
        result &= masks[number][vertex_rows[:, slot]]
    return result


def _vertex_masks(graph: GraphStore, vertices: Any) -> tuple[np.ndarray, ...]:
    if not isinstance(vertices, np.ndarray):
        vertices = [vertex.id if isinstance(vertex, Vertex) else vertex for vertex in vertices]
    ids = np.atleast_1d(validate.as_ids(vertices, "vertex ids"))
    numbers, rows = graph.find_vertices(ids)
    if (numbers < 0).any():
        raise UnknownIdError(f"There is no vertex {int(ids[np.argmax(numbers < 0)])} in this graph.")
    masks = tuple(np.zeros(len(vertex_set), bool) for vertex_set in graph.vertex_sets)
    for number, mask in enumerate(masks):
        mask[rows[numbers == number]] = True
    return masks


def _edge_masks(graph: GraphStore, edges: Any) -> dict[int, np.ndarray]:
    masks = {id(each_edge_set): np.zeros(len(each_edge_set), bool) for each_edge_set in graph.edge_sets}
    if isinstance(edges, Mapping):
        for edge_set, rows in edges.items():
            found = edge_set if isinstance(edge_set, EdgeSet) else graph.edge_set(edge_set)
            masks[id(found)][np.asarray(rows)] = True
        return masks
    for edge in edges:
        if not isinstance(edge, Edge) or id(edge.edge_set) not in masks:
            raise UnknownIdError(f"{edge!r} is not an edge of this graph.")
        masks[id(edge.edge_set)][edge.row] = True
    return masks
