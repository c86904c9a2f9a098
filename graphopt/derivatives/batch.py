"""Several problems of one shape as one graph: copies of a graph beside each other.

They share the structure of their equations and one factorization, in which they do not meet; each part that
nothing else holds has its own gauge.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np

from graphopt.errors import GradientError
from graphopt.graph import Graph

_FLOATS = (
    ("vertex_sets", ("estimate",)),
    ("edge_sets", ("measurement", "information", "kernel_width")),
    ("parameter_sets", ("values",)),
)
_SHAPING = (
    ("vertex_sets", ("ids", "fixed", "marginalized")),
    ("edge_sets", ("vertices", "kernel", "level", "parameters")),
    ("parameter_sets", ("ids",)),
)
_copies: WeakKeyDictionary[Graph, tuple[object, Graph]] = WeakKeyDictionary()
"""Of each graph its last copies, and of what they were made."""


def copies(graph: Graph, count: int) -> Graph:
    """`count` copies of a graph as one; rows of copy b begin at b n. The same object for the same shape."""
    shape = count, graph.version, _fingerprints(graph, _SHAPING)
    known = _copies.get(graph)
    if known is None or known[0] != shape:
        known = _copies[graph] = shape, _made(graph, count)
    for name, columns in _FLOATS:
        for one, many in zip(getattr(graph, name), getattr(known[1], name), strict=True):
            for column in columns:
                tiled = _tiled(one.look(column), count)
                if not np.array_equal(many.look(column), tiled):
                    setattr(many, column, tiled)
    return known[1]


def ids_of_copies(graph: Graph, ids: list[int], count: int) -> list[int]:
    """Ids of some vertices of a graph in all of its copies."""
    known = np.sort(np.concatenate([rows.ids for rows in graph.vertex_sets]))
    return _numbered(np.array(ids, np.int64), known, count).tolist()


def _fingerprints(graph: Graph, chosen: tuple[tuple[str, tuple[str, ...]], ...]) -> bytes:
    found = [
        rows.fingerprint(column)
        for name, columns in chosen
        for rows in getattr(graph, name)
        for column in columns
    ]
    return b"".join(found)


def _made(graph: Graph, count: int) -> Graph:
    if any(vertex_set.holds_components for vertex_set in graph.vertex_sets):
        raise GradientError("Batches of graphs whose vertices hold components are not supported.")
    if any(parameter_set.type.image is not None for parameter_set in graph.parameter_sets):
        raise GradientError("Batches of graphs with images are not supported.")
    many = Graph()
    ids = np.sort(np.concatenate([rows.ids for rows in graph.vertex_sets] or [np.zeros(0, np.int64)]))
    of_parameters = np.sort(
        np.concatenate([rows.ids for rows in graph.parameter_sets] or [np.zeros(0, np.int64)])
    )
    for rows in graph.vertex_sets:
        many.add_vertices(
            rows.type,
            _numbered(rows.ids, ids, count),
            _tiled(rows.look("estimate"), count),
            fixed=_tiled(rows.look("fixed"), count),
            marginalized=_tiled(rows.look("marginalized"), count),
        )
    for rows in graph.parameter_sets:
        many.add_parameters(
            rows.type, _numbered(rows.ids, of_parameters, count), _tiled(rows.look("values"), count)
        )
    for rows in graph.edge_sets:
        named = rows.look("parameters")
        many.add_edges(
            rows.type,
            _numbered(rows.look("vertices"), ids, count),
            _tiled(rows.look("measurement"), count),
            _tiled(rows.look("information"), count),
            kernel=_tiled(rows.look("kernel"), count),
            kernel_width=_tiled(rows.look("kernel_width"), count),
            level=_tiled(rows.look("level"), count),
            parameters=_numbered(named, of_parameters, count) if named.shape[1] else None,
        )
    return many


def _tiled(array: np.ndarray, count: int) -> np.ndarray:
    """(count n, ...)."""
    return np.broadcast_to(array, (count, *array.shape)).reshape(-1, *array.shape[1:])


def _numbered(names: np.ndarray, known: np.ndarray, count: int) -> np.ndarray:
    """Ids of all copies: the how-manieth id it is, beyond those of the copies before."""
    place = np.searchsorted(known, names)
    first = (np.arange(count) * len(known)).reshape(-1, *(1,) * names.ndim)
    return (first + place).reshape(-1, *names.shape[1:])
