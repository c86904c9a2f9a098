"""From a graph in the memory of one rank to a share per rank, and the estimates back.

A share is an ordinary `Graph`: the rank's edges, and the vertices that they have. Which vertices are
eliminated, and which are held, is decided for the whole graph; a share's flags say so. Kept vertices may be
in many shares; `Share.kept_ids` numbers them for all ranks alike.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from graphopt.cpu_kernels import kernels
from graphopt.distributed.partition import Incidence, Partition, partition
from graphopt.errors import DeviceError
from graphopt.graph import EdgeSet, Graph, Selection, VertexSet
from graphopt.graph.columns import Columns
from graphopt.graph.edge_columns import edge_set_of
from graphopt.graph.gather import gathered
from graphopt.graph.selection import EdgeSelection
from graphopt.problem.structure import eliminated_vertices

_VERTEX_COLUMNS = ("sequence", "ids", "estimate")
_EDGE_COLUMNS = (
    "sequence",
    "vertices",
    "measurement",
    "information",
    "kernel",
    "kernel_width",
    "parameters",
)


@dataclass(eq=False)
class Share:
    """What one rank optimizes."""

    graph: Graph
    chosen_by_edges: bool
    """All edges take part, also where all their vertices are fixed."""
    kept_ids: np.ndarray
    """(num_kept,) int64, ascending: the kept vertices of all ranks."""
    kept_dims: np.ndarray
    """(num_kept,) int32."""
    partition: str = "slabs"

    def select(self) -> Selection:
        """All edges of the share."""
        if self.chosen_by_edges:
            return self.graph.select(
                edges={edge_set: np.arange(len(edge_set)) for edge_set in self.graph.edge_sets}
            )
        return self.graph.select(-1)


@dataclass(frozen=True, eq=False)
class _Numbers:
    """The free vertices of a selection, numbered: kept ones by ascending id, and eliminated ones."""

    number: list[np.ndarray]
    """Per vertex set (n,) int32: number among the kept or the eliminated, -1 where fixed or not active."""
    gone: list[np.ndarray]
    """Per vertex set (n,) bool: eliminated."""
    kept_ids: np.ndarray
    kept_dims: np.ndarray
    num_eliminated: int


@dataclass(eq=False)
class Renewal:
    """The present numbers of a rank's share."""

    estimates: list[np.ndarray]
    """Per vertex set of the share (n, storage_dim)."""
    measurements: dict[int, np.ndarray]
    """By edge set of the share (m, d): those that have changed."""

    def write(self, share: Share) -> None:
        """Into the share that it is of."""
        for vertex_set, values in zip(share.graph.vertex_sets, self.estimates, strict=True):
            vertex_set.estimate[...] = values
        for number, values in self.measurements.items():
            share.graph.edge_sets[number].measurement[...] = values


class Scattered:
    """How a graph is scattered to ranks; its methods may be called by several threads. It keeps no graph."""

    def __init__(self, selection: Selection, numbers: _Numbers, cut: Partition):
        self._selection, self._numbers, self._partition = selection, numbers, cut
        self._vertices: dict[int, list[tuple[int, np.ndarray]]] = {}
        self._have_identity = [edges.edge_set.information_kind() == "identity" for edges in selection.edges]

    def share(self, graph: Graph, rank: int) -> Share:
        """What a rank optimizes."""
        selection, numbers = self._selection, self._numbers
        part = Graph()
        part.parameter_sets.extend(graph.parameter_sets)
        edges = self._edges_of(rank)
        self._vertices[rank] = self._found_vertices(edges)
        for number, rows in self._vertices[rank]:
            vertex_set = selection.vertex_sets[number]
            columns = {name: gathered(vertex_set.look(name), rows) for name in _VERTEX_COLUMNS}
            flags = {"fixed": selection.fixed[number][rows], "marginalized": numbers.gone[number][rows]}
            part.adopt(VertexSet(vertex_set.type, Columns.holding({**columns, **flags})))
        for number, rows in edges:
            part.adopt(_edges(selection.edges[number], rows, self._have_identity[number]))
        chosen = selection.chosen_by_edges
        return Share(part, chosen, numbers.kept_ids, numbers.kept_dims, self._partition.method)

    def renewal(self, graph: Graph, rank: int, changed: Collection[int]) -> Renewal:
        """The graph's present estimates, and measurements of the edge sets of the selection that changed."""
        selection = self._selection
        estimates = [
            gathered(graph.vertex_sets[number].look("estimate"), rows)
            for number, rows in self._vertices[rank]
        ]
        measurements = {}
        if changed:
            for place, (number, some) in enumerate(self._edges_of(rank)):
                edges = selection.edges[number]
                if number in changed:
                    measurements[place] = gathered(edges.edge_set.look("measurement"), edges.rows[some])
        return Renewal(estimates, measurements)

    def _edges_of(self, rank: int) -> list[tuple[int, np.ndarray]]:
        """Parts of the selection that the rank has edges of, and which."""
        found, first = [], 0
        for number, edges in enumerate(self._selection.edges):
            mine = kernels.places_of(self._partition.edges[first : first + len(edges.rows)], rank)
            first += len(edges.rows)
            if len(mine):
                found.append((number, mine))
        return found

    def vertices_of(self, rank: int) -> list[tuple[int, np.ndarray]]:
        """Of each vertex set of the rank's share, once it is made, its number in the graph and the rows."""
        return self._vertices[rank]

    def _found_vertices(self, edges: list[tuple[int, np.ndarray]]) -> list[tuple[int, np.ndarray]]:
        """The vertex sets that edges have vertices of, and which."""
        active = [np.zeros(len(vertex_set), bool) for vertex_set in self._selection.vertex_sets]
        for number, mine in edges:
            part = self._selection.edges[number]
            for slot, set_number in enumerate(part.vertex_sets):
                kernels.mark_chosen(part.vertex_rows, slot, mine, active[set_number])
        found = [(number, np.flatnonzero(mask)) for number, mask in enumerate(active)]
        return [(number, rows) for number, rows in found if len(rows)]


def scatter(selection: Selection, num_ranks: int, schur: str, method: str) -> Scattered:
    """Scatter a selection of a graph to ranks.

    schur: "off": nothing is eliminated. method: see `partition`.
    """
    external = [edge.edge_set.type.tag for edge in selection.edges if edge.edge_set.type.is_external]
    if external:
        raise DeviceError(
            f"{external[0]} is evaluated by Python objects of one process and cannot be scattered to ranks. "
            "Optimize without comm."
        )
    numbers = _number(selection, eliminate=schur != "off")
    incidence = _incidence(selection, numbers)
    return Scattered(selection, numbers, partition(incidence, num_ranks, method))


def _number(selection: Selection, eliminate: bool) -> _Numbers:
    sets = selection.vertex_sets
    free = [selection.free(number) for number in range(len(sets))]
    gone = eliminated_vertices(selection, free) if eliminate else [np.zeros_like(mask) for mask in free]
    ids = [set_.ids[mask & ~out] for set_, mask, out in zip(sets, free, gone, strict=True)]
    dims = [np.full(len(part), set_.type.tangent_dim, np.int32) for set_, part in zip(sets, ids, strict=True)]
    kept_ids = np.concatenate([np.empty(0, np.int64), *ids])
    order = np.argsort(kept_ids, kind="stable")
    kept_ids = kept_ids[order]
    number, count = [], 0
    for set_, mask, out in zip(sets, free, gone, strict=True):
        found = np.full(len(set_), -1, np.int32)
        found[mask & ~out] = np.searchsorted(kept_ids, set_.ids[mask & ~out])
        num_out = np.count_nonzero(out)
        found[out] = np.arange(count, count + num_out)
        count += num_out
        number.append(found)
    kept_dims = np.concatenate([np.empty(0, np.int32), *dims])[order]
    return _Numbers(number, gone, kept_ids, kept_dims, count)


def _incidence(selection: Selection, numbers: _Numbers) -> Incidence:
    arity = max((len(edge.vertex_sets) for edge in selection.edges), default=1)
    total = selection.num_active_edges
    kept = np.full((total, arity), -1, np.int32)
    eliminated = np.full(total, -1, np.int32)
    first = 0
    for edge in selection.edges:
        for slot, set_number in enumerate(edge.vertex_sets):
            tables = numbers.number[set_number], numbers.gone[set_number]
            kernels.number_slot(edge.vertex_rows, slot, *tables, first, kept, slot, eliminated)
        first += len(edge.rows)
    return Incidence(len(numbers.kept_ids), numbers.num_eliminated, kept, eliminated)


def _edges(edges: EdgeSelection, some: np.ndarray, have_identity: bool) -> EdgeSet:
    """have_identity: information matrices are not gathered, nor looked at again."""
    rows, given = gathered(edges.rows, some), edges.edge_set
    names = [name for name in _EDGE_COLUMNS if not (have_identity and name == "information")]
    return edge_set_of(given.type, **{name: gathered(given.look(name), rows) for name in names})
