"""Computed values of a graph: adding them, and computing them from the estimates (`types.computed`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import graphopt.graph.residuals as residuals
from graphopt.errors import GraphError
from graphopt.graph.access import Access, accessed_ids
from graphopt.graph.convolution import checked_convolution
from graphopt.graph.domains import GraphDomains
from graphopt.graph.grids import Grid
from graphopt.types.base import EdgeType, VertexType
from graphopt.types.computed import ComputedVertexType, is_vector_space

if TYPE_CHECKING:
    from graphopt.graph.sets import EdgeSet


class GraphComputed(GraphDomains):
    """Computed values of a graph."""

    def add_computed(
        self,
        kind: ComputedVertexType,
        inputs: Grid | Access | Sequence[Grid | Access],
        offsets: Sequence[Any] | None = None,
        measurements: Any = None,
        *,
        parameters: Any = None,
        boundary: str = "skip",
        mask: Any = None,
    ) -> Grid:
        """Add a computed value with one term per place of a grid, or per row of accesses; return their grid.

        With `offsets` (one per input, as in `add_stencil`) `inputs` are grids, and the values have their
        shape; where the stencil leaves the grid (`boundary="skip"`) or `mask` is False, there is no value,
        and no edge may name one. Without, `inputs` are one access per vertex of the type, and there are as
        many values as rows. `measurements`: the terms' data, as of edges.
        """
        definition = _definition(kind)
        if offsets is None:
            accesses = [inputs] if isinstance(inputs, (Access, Grid)) else list(inputs)
            count = _num_rows(accesses, measurements, definition.measurement_dim)
            values = self.add_array(kind, np.zeros((count, kind.storage_dim)))
            self.add_terms(values, np.arange(count), accesses, measurements, parameters=parameters)
            return values
        slots = [inputs] * len(offsets) if isinstance(inputs, Grid) else list(inputs)  # type: ignore[arg-type]
        shaped = next((slot for slot in slots if isinstance(slot, Grid)), None)
        if shaped is None:
            raise GraphError(f"{kind.tag}: no input is a grid; leave out offsets and pass accesses.")
        values = self.add_grid(kind, shaped.shape)
        centre = (0,) * len(shaped.shape)
        self.add_stencil(
            definition,
            [values, *slots],
            [centre, *offsets],
            measurements,
            boundary=boundary,
            mask=mask,
            parameters=parameters,
        )
        self.compute()
        return values

    def add_terms(
        self, values: Grid, index: Any, inputs: Any, measurements: Any = None, *, parameters: Any = None
    ) -> None:
        """Add terms: value `index[t]` of `values` is the sum of all its terms.

        `inputs`: one access per vertex of the type; `measurements` (t, measurement_dim) their data.
        """
        kind = values.type
        definition = _definition(kind)
        accesses = [inputs] if isinstance(inputs, (Access, Grid)) else list(inputs)
        target = np.atleast_1d(np.asarray(index))
        ids = accessed_ids(
            definition, (Access("indexed", values, index=target, count=len(target)), *accesses), None
        )
        self.add_edges(definition, ids, measurements, parameters=parameters)
        self.compute()

    def add_convolution(
        self,
        kind: ComputedVertexType,
        source: Grid,
        weights: Any,
        *,
        offsets: Any = None,
        boundary: str = "zero",
    ) -> Grid:
        """Add weighted sums over the neighbours on a grid, one per place; return their grid.

        `kind`: a `sum_type` with the dimension of the source's vertices, whose oplus must be x + d.
        `weights`: the filter, centred, one axis per axis of the grid, so that
        c_p = sum over k of weights[k] x_{p + k - centre} (no flip); or with `offsets` (k, axes) numbers (k,),
        or (k, *shape) that vary with the place.
        `boundary`: "zero", "clamp", "wrap" or "mirror".
        """
        if not isinstance(kind, ComputedVertexType) or kind.definition is not None:
            raise GraphError(f"{kind!r} is no type of sums: make one with graphopt.sum_type(name, dim).")
        if source.type.storage_dim != kind.storage_dim or not is_vector_space(source.type):
            raise GraphError(
                f"{kind.tag} sums vectors of {kind.storage_dim}, {source.type.tag} stores "
                f"{source.type.storage_dim} numbers; it must be a vector whose oplus is x + d."
            )
        if source.graph is not self:
            raise GraphError(f"{kind.tag}: the grid belongs to another graph.")
        checked_convolution(kind, source, source, weights, offsets, boundary)
        values = self.add_grid(kind, source.shape)
        self.convolutions.append(checked_convolution(kind, source, values, weights, offsets, boundary))
        self.version += 1
        self.compute()
        return values

    def has_computed(self) -> bool:
        """Some vertices are computed values."""
        return any(
            isinstance(vertex_set.type, ComputedVertexType) and len(vertex_set)
            for vertex_set in self.vertex_sets
        )

    def definitions(self) -> list[EdgeSet]:
        """The terms of all computed values, of each type before those that follow from it."""
        found = [edge_set for edge_set in self.edge_sets if edge_set.type.defines and len(edge_set)]
        return sorted(found, key=lambda value: self._place_of(value.type.vertices[0]))

    def compute(self) -> None:
        """Compute all values from the present estimates; one is fixed where all that it follows from is.

        Called by `add_...`, `chi2` and `graphopt.optimize`; to be called after estimates were written, where
        the values or errors of single edges are looked at.
        """
        if not self.has_computed():
            return
        for number, vertex_set in enumerate(self.vertex_sets):
            if isinstance(vertex_set.type, ComputedVertexType) and len(vertex_set):
                total, moves = np.zeros_like(vertex_set.estimate), np.zeros(len(vertex_set), bool)
                for edge_set in self.definitions():
                    if edge_set.type.vertices[0] is vertex_set.type:
                        self._add_terms_of(edge_set, number, total, moves)
                for convolution in self.convolutions:
                    if convolution.value_type is vertex_set.type:
                        source, target = self.rows_of(convolution)
                        total[target] += convolution.apply(
                            self.vertex_set(convolution.source_type).estimate[source]
                        )
                        moves[target] |= convolution.reaches(
                            ~self.vertex_set(convolution.source_type).fixed[source]
                        )
                vertex_set.estimate[:] = total
                vertex_set.fixed[:] = ~moves

    def rows_of(self, convolution: Any) -> tuple[slice, slice]:
        """Rows of a convolution's sources and values in their vertex sets."""
        source = Grid(self, convolution.source_type, convolution.shape, convolution.first_source)
        values = Grid(self, convolution.value_type, convolution.shape, convolution.first_value)
        return source._rows()[1], values._rows()[1]

    def _add_terms_of(self, edge_set: EdgeSet, number: int, total: np.ndarray, moves: np.ndarray) -> None:
        """Add the terms of one set to the values of vertex set `number`, and mark those that can move."""
        sets, rows, _, _ = self.edge_places(edge_set, None)
        if any(isinstance(self.vertex_sets[k].type, ComputedVertexType) and k >= number for k in sets[1:]):
            raise GraphError(
                f"{edge_set.type.tag} follows from values of its own or of a later type: add the values of "
                "each type before those that follow from them."
            )
        np.add.at(total, rows[:, 0], residuals.errors(self, edge_set, np.arange(len(edge_set))))  # type: ignore[arg-type]
        free = np.zeros(len(rows), bool)
        for slot, set_ in enumerate(sets[1:], 1):
            free |= ~self.vertex_sets[set_].fixed[rows[:, slot]]
        np.logical_or.at(moves, rows[:, 0], free)

    def _place_of(self, kind: VertexType) -> int:
        return next((n for n, vertex_set in enumerate(self.vertex_sets) if vertex_set.type is kind), -1)


def _definition(kind: Any) -> EdgeType:
    if not isinstance(kind, ComputedVertexType) or kind.definition is None:
        raise GraphError(f"{kind!r} has no function: make a type of values with graphopt.computed_type.")
    return kind.definition


def _num_rows(accesses: list[Any], measurements: Any, measurement_dim: int) -> int:
    """How many values accesses and data make."""
    counts = {access.count for access in accesses if isinstance(access, Access) and access.count is not None}
    if np.ndim(measurements) == 2 or (measurement_dim == 1 and np.ndim(measurements) == 1):
        counts.add(len(measurements))
    if len(counts) > 1:
        raise GraphError(f"The number of values is not clear: accesses and data say {sorted(counts)}.")
    return counts.pop() if counts else 1


def without_values(graph: GraphComputed) -> dict[int, np.ndarray]:
    """Per number of a set of computed values (n,) bool: it has no term, no edge may name it."""
    missing = {}
    for number, vertex_set in enumerate(graph.vertex_sets):
        if isinstance(vertex_set.type, ComputedVertexType):
            missing[number] = np.ones(len(vertex_set), bool)
    for edge_set in graph.definitions():
        sets, rows, _, _ = graph.edge_places(edge_set, None)
        missing[sets[0]][rows[:, 0]] = False
    for convolution in graph.convolutions:
        missing[graph._place_of(convolution.value_type)][graph.rows_of(convolution)[1]] = False
    return missing
