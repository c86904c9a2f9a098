"""The arrays of a graph, the places of ids in them, and the checks before anything is added."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

import graphopt.graph.validate as validate
from graphopt.errors import GraphError, OptionError, UnknownIdError
from graphopt.graph.arguments import (
    comma_separated,
    defined_again,
    existing_set,
    number_of,
    resolved_edge_type,
    resolved_parameter_type,
    resolved_vertex_type,
)
from graphopt.graph.convolution import Convolution
from graphopt.graph.id_index import IdIndex
from graphopt.graph.sets import EdgeSet, ParameterSet, VertexSet
from graphopt.types.base import EdgeType, VariadicEdgeType

if TYPE_CHECKING:
    from graphopt.types.base import ParameterType, VertexType
    from graphopt.types.registry import AnyEdgeType

_holding = threading.Lock()
"""For the moment in which an optimization begins."""


@dataclass(frozen=True)
class UnparsedLine:
    """A line of a file whose tag is unknown: kept verbatim, written back at its place."""

    text: str
    order: int
    """Place among `sequence` numbers."""
    line_number: int
    """Line in the file it came from, from 1."""


if TYPE_CHECKING:

    class _GraphMethods:
        """Methods of `Graph` that the parts it is made of call on it."""

        def has_computed(self) -> bool: ...
        def add_vertices(self, *arguments: Any, **options: Any) -> slice: ...
        def add_edges(self, *arguments: Any, **options: Any) -> slice: ...
        def add_parameters(self, *arguments: Any, **options: Any) -> slice: ...
        def remove_vertices(self, ids: Any) -> None: ...
        def remove_edges(self, edge_set: Any, rows: Any) -> None: ...
        def edges_of(self, vertex_id: int) -> list[Any]: ...
        def hold(self, ids: Any, components: Iterable[int], held: bool = True) -> None: ...
        def set_bounds(
            self, vertices: Any, lower: Any = None, upper: Any = None, components: Any = None
        ) -> None: ...
        def select(self, level: int = 0, vertices: Any = None, edges: Any = None) -> Any: ...
        def gauge_freedom(self) -> bool: ...
        def find_gauge(self) -> int | None: ...

else:
    _GraphMethods = object


class GraphStore(_GraphMethods):
    """Sets of vertices, edges and parameters, and where an id is in them."""

    def __init__(self) -> None:
        self.vertex_sets: list[VertexSet] = []
        """In order of first use."""
        self.edge_sets: list[EdgeSet] = []
        """In order of first use; edges of one tag and different arity are in different sets."""
        self.parameter_sets: list[ParameterSet] = []
        """In order of first use."""
        self.convolutions: list[Convolution] = []
        """Computed values that are weighted sums over a grid (`graph.computed`)."""
        self.unparsed: list[UnparsedLine] = []
        """Lines with unknown tags."""
        self.attachments: dict[str, object] = {}
        """What a file format needs to write itself back (names, colours, ...); `Graph.copy` copies it too."""
        self._vertex_index = IdIndex(self.vertex_sets)
        self._parameter_index = IdIndex(self.parameter_sets)
        self._next_order = 0
        self.version = 0
        """Increases when vertices, edges or parameters are added or removed."""
        self._optimizations: list[int] = []
        """Threads of those that run at present, one within the other, see `held_still`."""

    # ---------------------------------------------------------------- sizes and sets

    @property
    def num_vertices(self) -> int:
        """Vertices of all types."""
        return sum(map(len, self.vertex_sets))

    @property
    def num_edges(self) -> int:
        """Edges of all types."""
        return sum(map(len, self.edge_sets))

    @property
    def num_parameters(self) -> int:
        """Parameters of all types."""
        return sum(map(len, self.parameter_sets))

    @property
    def nbytes(self) -> int:
        """Memory of all arrays."""
        return sum(columns.nbytes for columns in (*self.vertex_sets, *self.edge_sets, *self.parameter_sets))

    def max_vertex_id(self) -> int:
        """Largest vertex id, -1 for a graph without vertices."""
        return max(
            (int(each_vertex_set.ids.max()) for each_vertex_set in self.vertex_sets if len(each_vertex_set)),
            default=-1,
        )

    def __contains__(self, vertex_id: object) -> bool:
        return isinstance(vertex_id, (int, np.integer)) and self._vertex_index.get(int(vertex_id)) is not None

    def vertex_set(self, vertex_type: VertexType | str) -> VertexSet:
        """The vertices of one type. `GraphError` if the graph never had any."""
        resolved = resolved_vertex_type(vertex_type)
        return existing_set(self.vertex_sets, resolved, "vertices")

    def edge_set(self, edge_type: AnyEdgeType | str, arity: int | None = None) -> EdgeSet:
        """The edges of one type; `arity` chooses for types with any number of vertices."""
        resolved = resolved_edge_type(edge_type)
        if isinstance(resolved, VariadicEdgeType):
            if arity is None:
                raise OptionError(f"{resolved.tag} has any number of vertices; pass arity.")
            resolved = resolved.instantiate(arity)
        return existing_set(self.edge_sets, resolved, "edges")

    def parameter_set(self, parameter_type: ParameterType | str) -> ParameterSet:
        """The parameters of one type."""
        return existing_set(self.parameter_sets, resolved_parameter_type(parameter_type), "parameters")

    # ---------------------------------------------------------------- places

    def next_order(self) -> int:
        """The `order` that the next thing added would get."""
        return self._next_order

    def vertex_place(self, vertex_id: int) -> tuple[int, int]:
        """(number of the vertex set, row) of an id."""
        try:
            place = self._vertex_index.get(vertex_id)
        except TypeError:  # an array of one number
            place = self._vertex_index.get(int(vertex_id))
        if place is None:
            raise UnknownIdError(
                f"There is no vertex {vertex_id} in this graph of {self.num_vertices} vertices."
            )
        return place

    def find_vertices(self, ids: Any) -> tuple[np.ndarray, np.ndarray]:
        """(numbers of the vertex sets, rows) of many ids, in the shape of `ids`; -1 for unknown ids."""
        return self._vertex_index.find(validate.as_ids(ids, "vertex ids"))

    def find_parameters(self, ids: Any) -> tuple[np.ndarray, np.ndarray]:
        """(numbers of the parameter sets, rows) of many ids; -1 for unknown ids."""
        return self._parameter_index.find(validate.as_ids(ids, "parameter ids"))

    def vertex_ids(self) -> np.ndarray:
        """(num_vertices,) int64 ids in the order in which the vertices were added."""
        if not self.vertex_sets:
            return np.empty(0, np.int64)
        sequence = np.concatenate([each_vertex_set.sequence for each_vertex_set in self.vertex_sets])
        return np.concatenate([each_vertex_set.ids for each_vertex_set in self.vertex_sets])[
            np.argsort(sequence, kind="stable")
        ]

    def edge_places(
        self, edge_set: EdgeSet, rows: np.ndarray | None
    ) -> tuple[list[int], np.ndarray, list[int], np.ndarray]:
        """Where the vertices and parameters of edges are.

        rows: None for all. Returns per slot the number of its vertex set, rows in them (k, arity) int32, and
        the same for parameters.
        """
        vertices = edge_set.look("vertices")
        vertices = vertices if rows is None else vertices[rows]
        vertex_rows, smallest = self._vertex_index.find_rows(vertices)
        if smallest < 0:
            missing = int(vertices.ravel()[np.argmin(vertex_rows)])
            raise GraphError(f"{edge_set.type.tag}: an edge names vertex {missing}, which does not exist.")
        vertex_sets = [number_of(self.vertex_sets, slot) for slot in edge_set.type.vertices]
        parameter_sets, parameter_rows = self.parameter_places(edge_set)
        if rows is not None:
            parameter_rows = parameter_rows[rows]
        return vertex_sets, vertex_rows, list(parameter_sets), parameter_rows

    def parameter_places(self, edge_set: EdgeSet) -> tuple[tuple[int, ...], np.ndarray]:
        """Per slot the number of its parameter set, and int32 rows in them (m, num_parameters)."""
        wanted = edge_set.type.parameters
        if not wanted:
            return (), np.empty((len(edge_set), 0), np.int32)
        rows, _ = self._parameter_index.find_rows(edge_set.look("parameters"))
        return tuple(number_of(self.parameter_sets, wanted_type) for wanted_type in wanted), rows

    def check_parameters(
        self, parameters: np.ndarray, edge_type: EdgeType, to_come: Iterable[int] = ()
    ) -> None:
        """Refuse ids (m, num_parameters) of which one is missing or of another type, but for ids to come."""
        numbers, _ = self._parameter_index.find(parameters)
        for slot, parameter_type in enumerate(edge_type.parameters):
            expected = number_of(self.parameter_sets, parameter_type)
            wrong = (numbers[:, slot] != expected) | (numbers[:, slot] < 0)
            wrong &= ~np.isin(parameters[:, slot], list(to_come))
            if wrong.any():
                row = int(np.argmax(wrong))
                raise GraphError(
                    f"{edge_type.tag} of row {row} needs a {parameter_type.tag} with id "
                    f"{int(parameters[row, slot])}, which is not in the graph. Add the parameters first."
                )

    # ---------------------------------------------------------------- whole sets

    def adopt(self, new: VertexSet | EdgeSet | ParameterSet) -> None:
        """Take a set of a type that this graph has none of; who made its arrays has checked them.

        Ids are distinct, edges name vertices of the right types, `sequence` ascends, numbers are finite.
        """
        self._note_change()
        if isinstance(new, VertexSet):
            self.vertex_sets.append(new)
            self._vertex_index.clear()
        elif isinstance(new, ParameterSet):
            self.parameter_sets.append(new)
            self._parameter_index.clear()
        else:
            self.edge_sets.append(new)
            self._take_edge_sets()
        if len(new):
            self._next_order = max(self._next_order, int(new.sequence[-1]) + 1)

    @contextmanager
    def held_still(self) -> Iterator[None]:
        """While this is active, nothing may be added or removed, by no thread: results belong to rows.

        Estimates, measurements and flags may be written. `GraphError` where another thread holds the graph:
        two optimizations would write the same estimates.
        """
        thread = threading.get_ident()
        with _holding:
            if any(other != thread for other in self._optimizations):
                raise GraphError(
                    "This graph is being optimized by another thread, and both would write its estimates. "
                    "Wait for that one, or optimize a copy: graphopt.optimize(graph.copy())."
                )
            self._optimizations.append(thread)
        try:
            yield
        finally:
            self._optimizations.pop()

    # ---------------------------------------------------------------- helpers

    def _note_change(self) -> None:
        """Before anything is taken whole or removed."""
        self._refuse_while_optimized()
        self.version += 1

    def _refuse_while_optimized(self) -> None:
        if self._optimizations:
            raise GraphError(
                "Nothing can be added to or removed from a graph while it is optimized, neither by a "
                "callback nor by another thread. Do it afterwards, or optimize a copy: "
                "graphopt.optimize(graph.copy())."
            )

    def _take_edge_sets(self) -> None:
        """Edge sets evaluate their edges at this graph's estimates."""
        for edge_set in self.edge_sets:
            edge_set.graph = self

    def _places(self, ids: Any) -> tuple[np.ndarray, np.ndarray]:
        ids = np.atleast_1d(validate.as_ids(ids, "vertex ids"))
        numbers, rows = self._vertex_index.find(ids)
        if (numbers < 0).any():
            raise UnknownIdError(f"There is no vertex {int(ids[np.argmax(numbers < 0)])} in this graph.")
        return numbers, rows

    def _refuse_known(self, ids: np.ndarray, tag: str) -> None:
        if not self.num_vertices:
            return
        numbers, _ = self._vertex_index.find(ids)
        known = numbers >= 0
        if known.any():
            row = int(np.argmax(known))
            there = self.vertex_sets[int(numbers[row])].type.tag
            raise GraphError(f"{tag} of row {row}: vertex {int(ids[row])} exists already, as a {there}.")

    def _check_slots(self, vertices: np.ndarray, edge_type: EdgeType) -> None:
        numbers = self._vertex_index.find_sets(vertices)
        for slot, vertex_type in enumerate(edge_type.vertices):
            expected = number_of(self.vertex_sets, vertex_type)
            wrong = (numbers[:, slot] != expected) | (numbers[:, slot] < 0)
            if not wrong.any():
                continue
            row = int(np.argmax(wrong))
            vertex_id, number = int(vertices[row, slot]), int(numbers[row, slot])
            if number < 0:
                raise GraphError(
                    f"{edge_type.tag} of row {row} (vertices {comma_separated(vertices[row])}) names "
                    f"vertex {vertex_id}, which is not in the graph. Add the vertices first."
                )
            raise GraphError(
                f"{edge_type.tag} of row {row} (vertices {comma_separated(vertices[row])}): "
                f"vertex {vertex_id} in slot {slot} is a {self.vertex_sets[number].type.tag}, "
                f"expected a {vertex_type.tag}."
                + defined_again(vertex_type, (self.vertex_sets[number].type,))
            )

    def _orders(self, order: Any, count: int, one_set: VertexSet | EdgeSet | ParameterSet) -> np.ndarray:
        if order is None:
            return np.arange(self._next_order, self._next_order + count)
        numbers = validate.as_ids(order, "order", (count,))
        last = int(one_set.sequence[-1]) if len(one_set) else -1
        if count and (numbers[0] <= last or (numbers[1:] <= numbers[:-1]).any()):
            raise GraphError(f"order must ascend and start after {last}, the last one of {one_set.type.tag}.")
        return numbers

    def _append(
        self, sets: list, number: int, one_set: Any, columns: dict[str, Any], index: IdIndex | None
    ) -> slice:
        self._refuse_while_optimized()
        first = len(one_set)
        count = len(columns["sequence"])
        one_set.columns.append(count, columns)
        self.version += 1
        if number == len(sets):
            sets.append(one_set)
            self._take_edge_sets()
        if index is not None:
            index.added(number, first, columns["ids"])
        if count:
            self._next_order = max(self._next_order, int(columns["sequence"][-1]) + 1)
        return slice(first, first + count)
