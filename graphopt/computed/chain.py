"""The chain rule of computed values as a sequence of sparse maps.

    x: scalars of the updates of all optimized vertices,   c: those of all computed values,  full = (x, c)
    dc = L dx,   by the terms' Jacobians and the convolutions, type after type
    inner scalars (those that edges name) = some of full

`expand` makes the inner vector of an outer one, `contract` is its transpose: with H_in, b_in of the edges as
functions of the inner scalars, H = expand' H_in expand and b = expand' b_in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import scipy.sparse

from graphopt.cpu_kernels import kernels
from graphopt.graph import EdgeSet, Graph
from graphopt.graph.convolution import Convolution
from graphopt.problem.structure import Structure
from graphopt.problem.working import WorkingEstimates
from graphopt.solver.cpu import compiled_edge
from graphopt.types.base import working_edge_type
from graphopt.types.computed import ComputedVertexType


class Map(Protocol):
    """Adds what some values follow from."""

    def add_values(self) -> None:
        """Add the terms to the values in the graph."""
        ...

    def linearize(self) -> None:
        """Take the derivatives at the present estimates."""
        ...

    def forward(self, full: np.ndarray) -> None:
        """full[values] += L full[sources]."""
        ...

    def backward(self, full: np.ndarray) -> None:
        """full[sources] += L' full[values]."""
        ...

    def backward_squared(self, full: np.ndarray) -> None:
        """The same with the squares of L's entries."""
        ...


class TermMap:
    """The terms of one edge set; their Jacobians are stored as a sparse matrix of constant pattern."""

    def __init__(
        self,
        graph: Graph,
        edge_set: EdgeSet,
        offsets: Sequence[np.ndarray],
        estimates: Sequence[Any],
    ):
        """offsets: per vertex set the first scalar of each vertex in full or -1."""
        self._graph, self._set, self._estimates = graph, edge_set, estimates
        self._type = working_edge_type(edge_set.type)
        self._programs = compiled_edge(self._type, "identity", 0)
        self._sets, self._rows, self._parameter_sets, self._parameter_rows = graph.edge_places(edge_set, None)
        self._target, count = self._sets[0], edge_set.type.residual_dim
        rows, columns, kept = [], [], []
        first = offsets[self._target][self._rows[:, 0]][:, None] + np.arange(count)
        for slot, vertex in enumerate(self._type.vertices):
            size = vertex.tangent_dim
            shape = (len(edge_set), count, size)
            at = offsets[self._sets[slot]][self._rows[:, slot]] if slot else np.full(len(edge_set), -1)
            kept.append(np.broadcast_to((at >= 0)[:, None, None], shape).reshape(len(edge_set), -1))
            rows.append(np.broadcast_to(first[:, :, None], shape).reshape(len(edge_set), -1))
            column = at[:, None, None] + np.arange(size)
            columns.append(np.broadcast_to(column, shape).reshape(len(edge_set), -1))
        self._kept = np.concatenate(kept, axis=1)
        places = np.concatenate(rows, axis=1)[self._kept], np.concatenate(columns, axis=1)[self._kept]
        order = np.lexsort((places[1], places[0]))
        self._order = np.flatnonzero(self._kept.ravel())[order]
        values, sources = places[0][order], places[1][order]
        self.source_rows, at_source = np.unique(sources, return_inverse=True)
        self.value_rows, at_value = np.unique(values, return_inverse=True)
        starts = np.searchsorted(at_value, np.arange(len(self.value_rows) + 1))
        shape = (len(self.value_rows), len(self.source_rows))
        data = (np.zeros(len(sources)), at_source.reshape(-1).astype(np.int32), starts.astype(np.int32))
        self.matrix = scipy.sparse.csr_matrix(data, shape=shape)
        self._transposed: Any = None
        self._squared: Any = None

    def _inputs(self) -> np.ndarray:
        estimates = [self._estimates[n].array[self._rows[:, k]] for k, n in enumerate(self._sets)]
        constants = [
            self._graph.parameter_sets[n].values[self._parameter_rows[:, k]]
            for k, n in enumerate(self._parameter_sets)
        ]
        return np.concatenate([*estimates, *constants, self._set.measurement], axis=1)

    def add_values(self) -> None:
        """See `Map`."""
        np.add.at(
            self._estimates[self._target].array, self._rows[:, 0], self._programs.errors.run(self._inputs())
        )

    def linearize(self) -> None:
        """See `Map`."""
        self.matrix.data[:] = self._programs.jacobians.run(self._inputs()).ravel()[self._order]
        self._transposed = self.matrix.T.tocsr()
        self._squared = None

    def forward(self, full: np.ndarray) -> None:
        """See `Map`."""
        full[self.value_rows] += self.matrix @ full[self.source_rows]

    def backward(self, full: np.ndarray) -> None:
        """See `Map`."""
        full[self.source_rows] += self._transposed @ full[self.value_rows]

    def backward_squared(self, full: np.ndarray) -> None:
        """See `Map`."""
        full[self.source_rows] += self._transposed.power(2) @ full[self.value_rows]


class ConvolutionMap:
    """The sums of one convolution; nothing is stored but its weights."""

    def __init__(
        self, graph: Graph, convolution: Convolution, offsets: Sequence[np.ndarray], estimates: Sequence[Any]
    ):
        source, target = graph.rows_of(convolution)
        kinds = [vertex_set.type for vertex_set in graph.vertex_sets]
        numbers = kinds.index(convolution.source_type), kinds.index(convolution.value_type)
        self._convolution = convolution
        self._from, self._to = estimates[numbers[0]].array[source], estimates[numbers[1]].array[target]
        first = offsets[numbers[0]][source]
        self._free = np.flatnonzero(first >= 0)
        steps = np.arange(convolution.value_type.storage_dim)
        self._source = first[self._free][:, None] + steps
        self._values = offsets[numbers[1]][target][:, None] + steps

    def add_values(self) -> None:
        """See `Map`."""
        self._to += self._convolution.apply(self._from)

    def linearize(self) -> None:
        """See `Map`: nothing changes."""

    def forward(self, full: np.ndarray) -> None:
        """See `Map`."""
        x = np.zeros(self._values.shape)
        x[self._free] = full[self._source]
        full[self._values] += self._convolution.apply(x)

    def backward(self, full: np.ndarray) -> None:
        """See `Map`."""
        full[self._source] += self._convolution.apply_transposed(full[self._values])[self._free]

    def backward_squared(self, full: np.ndarray) -> None:
        """See `Map`."""
        full[self._source] += self._convolution.apply_squared_transposed(full[self._values])[self._free]


class Chain:
    """All maps of a graph, for an outer structure (optimized vertices) and an inner one (what edges name)."""

    def __init__(
        self, graph: Graph, outer: Structure, inner: Structure, estimates: Sequence[WorkingEstimates]
    ):
        self.dim = outer.dim
        offsets, end = [], outer.dim
        self._computed = []
        for number, vertex_set in enumerate(graph.vertex_sets):
            if isinstance(vertex_set.type, ComputedVertexType):
                offsets.append(end + vertex_set.type.tangent_dim * np.arange(len(vertex_set), dtype=np.int64))
                end += vertex_set.type.tangent_dim * len(vertex_set)
                self._computed.append(estimates[number])
            else:
                offsets.append(outer.vertex_offsets[number])
        self._full_dim = end
        self._inner = np.empty(inner.dim, np.int64)
        for number, vertex_set in enumerate(graph.vertex_sets):
            steps = np.arange(vertex_set.type.tangent_dim)
            rows = np.flatnonzero(inner.vertex_offsets[number] >= 0)
            places = inner.vertex_offsets[number][rows][:, None] + steps
            self._inner[places] = offsets[number][rows][:, None] + steps
        kinds = [vertex_set.type for vertex_set in graph.vertex_sets]
        maps: list[tuple[int, Map]] = [
            (kinds.index(definition.type.vertices[0]), TermMap(graph, definition, offsets, estimates))
            for definition in graph.definitions()
        ]
        maps += [
            (kinds.index(convolution.value_type), ConvolutionMap(graph, convolution, offsets, estimates))
            for convolution in graph.convolutions
        ]
        self.maps = [map_ for _, map_ in sorted(maps, key=lambda pair: pair[0])]

    @property
    def nbytes(self) -> int:
        """Memory of the derivatives."""
        stored = [map_.matrix.data.nbytes for map_ in self.maps if isinstance(map_, TermMap)]
        return 4 * sum(stored) + self._inner.nbytes

    def compute(self) -> None:
        """The values at the present estimates."""
        for values in self._computed:
            values.array[:] = 0.0
        for map_ in self.maps:
            map_.add_values()

    def linearize(self) -> None:
        """The derivatives at the present estimates and values."""
        for map_ in self.maps:
            kernels.check_stop()
            map_.linearize()

    def expand(self, outer: np.ndarray) -> np.ndarray:
        """(inner dim,) what an outer vector (dim,) does to what edges name."""
        full = np.concatenate([outer, np.zeros(self._full_dim - self.dim)])
        for map_ in self.maps:
            map_.forward(full)
        return full[self._inner]

    def contract(self, inner: np.ndarray) -> np.ndarray:
        """(dim,) the transpose of `expand`."""
        full = self._spread(inner)
        for map_ in reversed(self.maps):
            map_.backward(full)
        return full[: self.dim]

    def contract_squared(self, inner: np.ndarray) -> np.ndarray:
        """(dim,) the same with squared derivatives, as for the diagonal of H where H_in is diagonal."""
        full = self._spread(inner)
        for map_ in reversed(self.maps):
            map_.backward_squared(full)
        return full[: self.dim]

    def matrix(self) -> scipy.sparse.csr_matrix | None:
        """(inner dim, dim) `expand` as a matrix; None where a convolution is part of it."""
        total: Any = scipy.sparse.csr_matrix(scipy.sparse.identity(self._full_dim))[:, : self.dim]
        for map_ in self.maps:
            if not isinstance(map_, TermMap):
                return None
            coo = map_.matrix.tocoo()
            places = (map_.value_rows[coo.row], map_.source_rows[coo.col])
            total = total + scipy.sparse.csr_matrix((coo.data, places), shape=(self._full_dim,) * 2) @ total
        return scipy.sparse.csr_matrix(total[self._inner])

    def _spread(self, inner: np.ndarray) -> np.ndarray:
        full = np.zeros(self._full_dim)
        full[self._inner] = inner
        return full
