"""Object view of a graph: `Vertex` and `Edge` are a few words that find their row in the arrays when asked.

A vertex is named by its id, an edge by its set and its `sequence` number, so objects stay valid while the
graph grows or loses other vertices and edges. An object whose vertex or edge was removed raises
`UnknownIdError`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import graphopt.graph.residuals as residuals
import graphopt.graph.validate as validate
from graphopt.errors import UnknownIdError
from graphopt.graph.arguments import checked_levels
from graphopt.types.robust_kernels import robust_kernel

if TYPE_CHECKING:
    from collections.abc import Iterable

    from graphopt.graph.sets import EdgeSet, VertexSet
    from graphopt.graph.store import GraphStore
    from graphopt.types import EdgeType, VertexType


def _of_one(value: Any, rows: np.ndarray, what: str) -> np.ndarray:
    """`value` as float64 in the shape of a row; `ShapeError` for others, a single number too."""
    return validate.as_rows(value, 1, rows.shape[1:], what)


class Vertex:
    """One vertex of a graph."""

    __slots__ = ("_graph", "id")

    def __init__(self, graph: GraphStore, vertex_id: int):
        self._graph = graph
        self.id = vertex_id

    def _place(self) -> tuple[VertexSet, int]:
        number, row = self._graph.vertex_place(self.id)
        return self._graph.vertex_sets[number], row

    def __repr__(self) -> str:
        return (
            f"<Vertex {self.id} {self.type.tag}: {self.estimate.tolist()}{', fixed' if self.fixed else ''}>"
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vertex) and other._graph is self._graph and other.id == self.id

    def __hash__(self) -> int:
        return hash((id(self._graph), self.id))

    @property
    def type(self) -> VertexType:
        """The vertex type."""
        return self._place()[0].type

    @property
    def estimate(self) -> np.ndarray:
        """(storage_dim,) float64, live: writing into it moves the vertex."""
        vertex_set, row = self._place()
        return vertex_set.estimate[row]

    @estimate.setter
    def estimate(self, value: Any) -> None:
        vertex_set, row = self._place()
        what = f"{vertex_set.type.tag} estimate"
        numbers = _of_one(value, vertex_set.look("estimate"), what)
        vertex_set.estimate[row] = validate.with_unit_quaternions(numbers, vertex_set.type.wrap, what)

    @property
    def fixed(self) -> bool:
        """Held constant."""
        vertex_set, row = self._place()
        return bool(vertex_set.fixed[row])

    @fixed.setter
    def fixed(self, value: bool) -> None:
        vertex_set, row = self._place()
        vertex_set.fixed[row] = value

    @property
    def held(self) -> tuple[int, ...]:
        """Components of its updates that stay zero; see `Graph.hold`."""
        vertex_set, row = self._place()
        held = vertex_set.held
        return () if held is None else tuple(np.flatnonzero(held[row]).tolist())

    @held.setter
    def held(self, components: Iterable[int]) -> None:
        self._graph.hold([self.id], range(self.type.tangent_dim), held=False)
        self._graph.hold([self.id], components)

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """(storage_dim,) lower and upper bounds of the estimate, infinite where there is none."""
        vertex_set, row = self._place()
        lower, upper = vertex_set.lower, vertex_set.upper
        if lower is None or upper is None:
            dim = vertex_set.type.storage_dim
            return np.full(dim, -np.inf), np.full(dim, np.inf)
        return lower[row].copy(), upper[row].copy()

    @bounds.setter
    def bounds(self, bounds: tuple[Any, Any]) -> None:
        self._graph.set_bounds([self.id], *bounds)

    @property
    def marginalized(self) -> bool:
        """Eliminated by the Schur complement."""
        vertex_set, row = self._place()
        return bool(vertex_set.marginalized[row])

    @marginalized.setter
    def marginalized(self, value: bool) -> None:
        vertex_set, row = self._place()
        vertex_set.marginalized[row] = value

    def edges(self) -> list[Edge]:
        """Edges that have this vertex, in the order in which they were added. Looks through all edges."""
        return self._graph.edges_of(self.id)

    def remove(self) -> None:
        """Take the vertex and its edges out of the graph."""
        self._graph.remove_vertices([self.id])


class Edge:
    """One edge of a graph."""

    __slots__ = ("_graph", "edge_set", "sequence")

    def __init__(self, graph: GraphStore, edge_set: EdgeSet, sequence: int):
        self._graph = graph
        self.edge_set = edge_set
        self.sequence = sequence

    @property
    def row(self) -> int:
        """Row in the edge set at the moment."""
        all_numbers = self.edge_set.sequence
        row = int(np.searchsorted(all_numbers, self.sequence))
        if row == len(all_numbers) or all_numbers[row] != self.sequence:
            raise UnknownIdError(f"This {self.edge_set.type.tag} was removed from the graph.")
        return row

    def __repr__(self) -> str:
        return f"<Edge {self.type.tag} between {', '.join(map(str, self.vertex_ids))}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Edge) and other.edge_set is self.edge_set and other.sequence == self.sequence

    def __hash__(self) -> int:
        return hash((id(self.edge_set), self.sequence))

    @property
    def type(self) -> EdgeType:
        """The edge type."""
        return self.edge_set.type

    @property
    def vertex_ids(self) -> tuple[int, ...]:
        """Ids of its vertices."""
        return tuple(self.edge_set.vertices[self.row].tolist())

    @property
    def vertices(self) -> tuple[Vertex, ...]:
        """Its vertices."""
        return tuple(Vertex(self._graph, vertex_id) for vertex_id in self.vertex_ids)

    @property
    def measurement(self) -> np.ndarray:
        """(measurement_dim,) float64, live."""
        return self.edge_set.measurement[self.row]

    @measurement.setter
    def measurement(self, value: Any) -> None:
        all_rows = self.edge_set.measurement
        what = f"{self.type.tag} measurement"
        numbers = _of_one(value, all_rows, what)
        all_rows[self.row] = validate.with_unit_quaternions(numbers, self.type.wrap_measurement, what)

    @property
    def information(self) -> np.ndarray:
        """(d, d) float64, live."""
        return self.edge_set.information[self.row]

    @information.setter
    def information(self, value: Any) -> None:
        all_rows = self.edge_set.information
        all_rows[self.row] = _of_one(value, all_rows, f"{self.type.tag} information")

    @property
    def kernel(self) -> str | None:
        """Name of the robust kernel, None for none."""
        number = int(self.edge_set.kernel[self.row])
        return robust_kernel(number).name if number else None

    @kernel.setter
    def kernel(self, value: str | int | None) -> None:
        self.edge_set.kernel[self.row] = robust_kernel(value).number

    @property
    def kernel_width(self) -> float:
        """The robust kernel's delta."""
        return float(self.edge_set.kernel_width[self.row])

    @kernel_width.setter
    def kernel_width(self, value: float) -> None:
        self.edge_set.kernel_width[self.row] = value

    @property
    def level(self) -> int:
        """Level of the edge."""
        return int(self.edge_set.level[self.row])

    @level.setter
    def level(self, value: int) -> None:
        self.edge_set.level[self.row] = checked_levels(value, 1)

    @property
    def parameters(self) -> tuple[int, ...]:
        """Ids of its parameters."""
        return tuple(self.edge_set.parameters[self.row].tolist())

    def error(self) -> np.ndarray:
        """(residual_dim,) error at the present estimates."""
        return residuals.errors(self._graph, self.edge_set, np.array([self.row]))[0]

    def chi2(self) -> float:
        """E' Omega e at the present estimates, without the robust kernel."""
        return float(residuals.edge_chi2(self._graph, self.edge_set, np.array([self.row]))[0])

    def remove(self) -> None:
        """Take the edge out of the graph."""
        self._graph.remove_edges(self.edge_set, [self.row])
