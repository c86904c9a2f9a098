"""Vertices and edges of which each rank has read some, dealt so that every rank gets a part of the graph.

1. Kept vertices go to all ranks, and stay where an edge needs them.
2. Kept vertices stand in a row: by ascending id; where vertices are eliminated, along the longest axis of
   their positions. An eliminated vertex has the mean place of those it shares edges with, and an edge between
   kept vertices that of its own.
3. The row is cut into as many pieces as there are ranks, with equal numbers of edges: `partition`'s slabs.
   That needs two sums of one number per eliminated vertex, and one of a histogram.
4. Eliminated vertices and edges go to the ranks of their places.
5. Where nothing fixes a connected part of the graph a vertex is held, the same as of a whole one (`gauge`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from graphopt.distributed.communicator import Communicator, together
from graphopt.distributed.gauge import gauge_of_parts
from graphopt.distributed.partition import cut
from graphopt.distributed.scattering import Share
from graphopt.errors import FormatError, GraphError
from graphopt.graph import Graph
from graphopt.types import EdgeType, VertexType

_BINS = 1 << 16  # of the row of places


@dataclass(eq=False)
class VertexRows:
    """Vertices of one type."""

    type: VertexType
    ids: np.ndarray
    """(n,) int64."""
    estimate: np.ndarray
    """(n, storage_dim)."""
    fixed: np.ndarray
    """(n,) bool."""
    gone: np.ndarray
    """(n,) bool: eliminated, and on one rank only."""
    order: np.ndarray
    """(n,) int64: of the file."""


@dataclass(eq=False)
class EdgeRows:
    """Edges of one type."""

    type: EdgeType
    vertices: np.ndarray
    """(m, arity) int64 ids."""
    measurement: np.ndarray
    information: np.ndarray
    """(m, d, d)."""
    parameters: np.ndarray
    """(m, num_parameters) int64 ids."""
    kernel: np.ndarray
    """(m,) int32 numbers of robust kernels, 0: none."""
    kernel_width: np.ndarray
    order: np.ndarray


@dataclass(eq=False)
class Tables:
    """What one rank has read."""

    vertices: list[VertexRows] = field(default_factory=list)
    edges: list[EdgeRows] = field(default_factory=list)
    parameters: list[tuple[Any, np.ndarray, np.ndarray, np.ndarray]] = field(default_factory=list)
    """Type, ids (n,), values (n, d) and order (n,)."""


@dataclass(eq=False)
class PartedGraph:
    """A graph of which this rank has its share; `graphopt.optimize(parted, comm=comm)` takes it."""

    path: str
    share: Share
    num_vertices: int
    """Of all ranks."""
    num_edges: int
    num_points: int
    """Points of the file, those without edges too."""
    held: list[int] = field(default_factory=list)
    """Vertices that are held for the gauge."""


def deal(comm: Communicator, path: str, tables: Tables) -> PartedGraph:
    """This rank's part of what all ranks have read. Collective.

    `FormatError` on all ranks for an edge whose vertex is nowhere, or twice in it.
    """
    kept = _joined([_rows(table, ~table.gone) for part in comm.share(tables.vertices) for table in part])
    ids = np.concatenate([np.empty(0, np.int64), *(table.ids for table in kept)])
    order = np.argsort(ids, kind="stable")
    own_points = [_rows(vertex, vertex.gone) for vertex in tables.vertices]
    points = np.sort(np.concatenate([np.empty(0, np.int64), *_all_ids(comm, own_points)]))
    together(comm, lambda: _check_ids(path, ids[order], points))
    place = _places_along_axis(kept)[order] if len(points) else np.arange(len(ids), dtype=float)
    found = together(comm, lambda: [_found(path, edge, ids[order], points) for edge in tables.edges])
    ranks_of_points, ranks_of_edges = _ranks(comm, found, place, len(points))
    edges = _exchanged(comm, tables.edges, ranks_of_edges)
    places = [np.searchsorted(points, own_point.ids) for own_point in own_points]
    mine = _exchanged(comm, own_points, [ranks_of_points[each_place] for each_place in places])
    used = np.unique(np.concatenate([np.empty(0, np.int64), *(edge.vertices.ravel() for edge in edges)]))
    chosen = [_rows(table, np.isin(table.ids, used)) for table in (*kept, *mine)]
    every = [table for part in comm.share(tables.parameters) for table in part]
    graph = together(comm, lambda: _graph(path, chosen, edges, every))
    held = gauge_of_parts(comm, graph, *_ids_and_order(tables))
    for vertices in (*graph.vertex_sets, *kept):
        vertices.fixed = vertices.fixed | np.isin(vertices.ids, held)
    return _parted(comm, path, graph, kept, len(points), held)


def _ids_and_order(tables: Tables) -> tuple[np.ndarray, np.ndarray]:
    """(n,) of all vertices that this rank has read."""
    ids, order = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for vertices in tables.vertices:
        ids.append(vertices.ids)
        order.append(vertices.order)
    return np.concatenate(ids), np.concatenate(order)


def _all_ids(comm: Communicator, rows: Sequence[VertexRows]) -> list[np.ndarray]:
    return comm.share(np.concatenate([np.empty(0, np.int64), *(row.ids for row in rows)]))


def _rows(table: Any, chosen: np.ndarray) -> Any:
    """Some rows of a table; all of them without a copy."""
    if chosen.dtype == bool and chosen.all():
        return table
    columns = [getattr(table, each_field.name) for each_field in fields(table)[1:]]
    return type(table)(table.type, *(column[chosen] for column in columns))


def _joined(tables: Sequence[Any]) -> list[Any]:
    """One table per type."""
    found = []
    for kind in {table.type.tag: table.type for table in tables}.values():
        alike = [table for table in tables if table.type.tag == kind.tag and table.type == kind]
        names = [each_field.name for each_field in fields(alike[0])[1:]]
        columns = (np.concatenate([getattr(table, name) for table in alike]) for name in names)
        found.append(type(alike[0])(kind, *columns))
    return found


def _check_ids(path: str, kept: np.ndarray, points: np.ndarray) -> None:
    every = np.sort(np.concatenate([kept, points]))
    twice = np.flatnonzero(every[1:] == every[:-1])
    if len(twice):
        raise FormatError(
            f"{path}: vertex id {every[twice[0]]} is used twice. Give one of them another id, or delete it."
        )


def _places_along_axis(kept: Sequence[VertexRows]) -> np.ndarray:
    """(n,) places of all kept vertices along the longest axis of the positions that poses have.

    Vertices without a position come last, in their order.
    """
    positions = []
    for vertices in kept:
        values = np.full((len(vertices.ids), 3), np.nan)
        if vertices.type.pose is not None and len(vertices.ids):
            translation = np.asarray(vertices.type.pose(vertices.estimate).translation)
            values[:] = 0.0
            values[:, : translation.shape[1]] = translation
        positions.append(values)
    centers = np.concatenate(positions)
    known = np.isfinite(centers).all(axis=1)
    along = np.full(len(centers), np.inf)
    if known.any():
        centered = centers[known] - centers[known].mean(axis=0)
        along[known] = centered @ np.linalg.eigh(centered.T @ centered)[1][:, -1]
    return np.argsort(np.argsort(along, kind="stable"), kind="stable").astype(float)


def _found(path: str, edges: EdgeRows, kept: np.ndarray, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Per edge and slot the number of its kept vertex, -1: none; and (m,) that of its point, -1: none."""

    def refuse(rows: np.ndarray, slot: int, what: str) -> None:
        if len(rows):
            vertex, place = edges.vertices[rows[0], slot], edges.order[rows[0]]
            raise FormatError(f"{path}: {edges.type.tag} {place}: {what.format(vertex)}")

    slots, point = np.full(edges.vertices.shape, -1), np.full(len(edges.vertices), -1)
    for slot, ids in enumerate(edges.vertices.T):
        again = (edges.vertices[:, :slot] == ids[:, None]).any(axis=1)
        refuse(np.flatnonzero(again), slot, "the edge joins vertex {} to itself")
        at_kept, at_point = _where(kept, ids), _where(points, ids)
        refuse(np.flatnonzero((at_kept < 0) & (at_point < 0)), slot, "vertex {} does not exist")
        slots[:, slot] = at_kept
        point = np.where(at_point >= 0, at_point, point)
    return slots, point


def _where(known: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Places among ascending numbers, -1 where there is none."""
    if not len(known):
        return np.full(len(ids), -1)
    at = np.minimum(np.searchsorted(known, ids), len(known) - 1)
    return np.where(known[at] == ids, at, -1)


def _ranks(
    comm: Communicator, found: Sequence[tuple[np.ndarray, np.ndarray]], place: np.ndarray, num_points: int
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Rank of each point of all, and of each of this rank's edges."""
    sums, counts, weight = np.zeros(num_points), np.zeros(num_points), np.zeros(num_points)
    means = []
    for slots, point in found:
        seen = slots >= 0
        total = np.where(seen, place[slots], 0.0).sum(axis=1)
        number = seen.sum(axis=1)
        has = point >= 0
        sums += np.bincount(point[has], weights=total[has], minlength=num_points)
        counts += np.bincount(point[has], weights=number[has], minlength=num_points)
        weight += np.bincount(point[has], minlength=num_points)
        means.append(total / np.maximum(number, 1))
    sums, counts, weight = comm.sum(sums), comm.sum(counts), comm.sum(weight)
    # points with the same mean are told apart by their numbers
    of_points = sums / np.maximum(counts, 1.0) + np.arange(num_points) / max(num_points, 1)
    width = max(float(place.max(initial=0.0)), 0.0) + 2.0

    def bins(values: np.ndarray) -> np.ndarray:
        return np.minimum((values * (_BINS / width)).astype(np.int64), _BINS - 1)

    alone = [mean[point < 0] for mean, (_, point) in zip(means, found, strict=True)]
    histogram = np.zeros(_BINS)
    for graph in alone:
        histogram += np.bincount(bins(graph), minlength=_BINS)
    histogram = comm.sum(histogram) + np.bincount(bins(of_points), weights=weight, minlength=_BINS)
    rank_of_bin = cut(histogram, comm.size)
    ranks_of_points = rank_of_bin[bins(of_points)] if num_points else np.empty(0, np.int64)
    ranks_of_edges = []
    for mean, (_, point) in zip(means, found, strict=True):
        ranks = rank_of_bin[bins(mean)]
        has = point >= 0
        ranks[has] = ranks_of_points[point[has]]
        ranks_of_edges.append(ranks)
    return ranks_of_points, ranks_of_edges


def _exchanged(comm: Communicator, tables: Sequence[Any], ranks: Sequence[np.ndarray]) -> list[Any]:
    """Rows to the ranks that they are for; what this one gets, by type, in the order of ranks and rows."""
    sent: list[list[Any]] = [[] for _ in range(comm.size)]
    for table, of_rows in zip(tables, ranks, strict=True):
        order = np.argsort(of_rows, kind="stable")
        bounds = np.searchsorted(of_rows[order], np.arange(comm.size + 1))
        for rank in range(comm.size):
            sent[rank].append(_rows(table, order[bounds[rank] : bounds[rank + 1]]))
    received = [table for part in comm.exchange(sent) for table in part]
    return [table for table in _joined(received) if len(table.order)]


def _graph(
    path: str, vertices: Sequence[VertexRows], edges: Sequence[EdgeRows], parameters: Sequence[Any]
) -> Graph:
    """This rank's vertices and edges; parameters of all ranks."""
    graph = Graph()
    for vertex in vertices:
        if not len(vertex.ids):
            continue
        order = np.argsort(vertex.order, kind="stable")
        row = _rows(vertex, order)
        flags = {"fixed": row.fixed, "marginalized": row.gone}
        graph.add_vertices(row.type, row.ids, row.estimate, order=row.order, **flags)
    for kind, ids, values, order in parameters:
        graph.add_parameters(kind, ids, values, order=order)
    for edge in edges:
        row = _rows(edge, np.argsort(edge.order, kind="stable"))
        given = row.parameters if row.parameters.shape[1] else None
        try:
            graph.add_edges(
                row.type,
                row.vertices,
                row.measurement,
                row.information,
                kernel=row.kernel,
                kernel_width=row.kernel_width,
                parameters=given,
                order=row.order,
            )
        except GraphError as error:
            raise FormatError(f"{path}: {error}") from error
    return graph


def _parted(
    comm: Communicator,
    path: str,
    graph: Graph,
    kept: Sequence[VertexRows],
    num_points: int,
    held: list[int],
) -> PartedGraph:
    ids = np.concatenate([np.empty(0, np.int64), *(vertices.ids for vertices in kept)])
    dims = np.concatenate(
        [
            np.empty(0, np.int32),
            *(np.full(len(vertices.ids), vertices.type.tangent_dim, np.int32) for vertices in kept),
        ]
    )
    fixed = np.concatenate([np.empty(0, bool), *(vertices.fixed for vertices in kept)])
    order = np.argsort(ids, kind="stable")
    ids, dims, free = ids[order], dims[order], ~fixed[order]
    own = [vertices.ids[~vertices.marginalized] for vertices in graph.vertex_sets]
    seen = np.zeros(len(ids))
    seen[np.searchsorted(ids, np.concatenate([np.empty(0, np.int64), *own]))] = 1.0
    has = comm.sum(seen) > 0.0
    points = sum(int(vertices.marginalized.sum()) for vertices in graph.vertex_sets)
    numbers = np.array([seen[free].sum(), points, graph.num_edges])
    copies, points, edges = comm.sum(numbers).astype(int).tolist()
    share = Share(graph, False, ids[has & free], dims[has & free], "slabs", copies)
    return PartedGraph(path, share, int(has.sum()) + points, edges, num_points, held)
