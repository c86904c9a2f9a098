"""The graph: vertices, edges and parameters as arrays, one set per type.

    graph = Graph()
    graph.add_vertices("VERTEX_SE2", ids=[0, 1], estimates=[[0, 0, 0], [1, 0, 0]])
    graph.add_edges("EDGE_SE2", vertices=[[0, 1]], measurements=[[1.1, 0, 0.1]], information=np.eye(3))
    graph.vertex(1).estimate = [1.1, 0, 0.1]

Adding is all-or-nothing: every check runs before anything is stored. Ids are any signed 64-bit numbers,
shared by vertices of all types; parameters have ids of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import numpy as np

import graphopt.graph.bounds as bounds
import graphopt.graph.residuals as residuals
import graphopt.graph.validate as validate
from graphopt.errors import GraphError, ShapeError, UnknownIdError
from graphopt.foreign_arrays import Needs, kept
from graphopt.graph.access import accessed_ids, is_access
from graphopt.graph.arguments import (
    checked_flags,
    checked_ids,
    checked_levels,
    checked_parameter_ids,
    edge_type_and_vertices,
    existing_set,
    kernel_numbers,
    kernel_widths,
    neutral_measurement,
    refuse_weights,
    resolved_edge_type,
    resolved_parameter_type,
    resolved_vertex_type,
    set_of,
)
from graphopt.graph.behind import points_behind
from graphopt.graph.computed import GraphComputed
from graphopt.graph.domains import NewImages
from graphopt.graph.gauge import gauge_freedom, gauge_vertex
from graphopt.graph.id_index import IdIndex
from graphopt.graph.kernels import renumber_kernels, used_own_kernels
from graphopt.graph.select import select, select_connected
from graphopt.graph.sets import EdgeSet, ParameterSet, VertexSet
from graphopt.graph.views import Edge, Vertex
from graphopt.html import html_table
from graphopt.suggestions import knows_its_options
from graphopt.types.base import VariadicEdgeType, VertexType
from graphopt.types.images import image_handles
from graphopt.types.robust_kernels import robust_kernel

if TYPE_CHECKING:
    from graphopt.graph.check import Finding
    from graphopt.graph.selection import Selection
    from graphopt.types.base import EdgeType, ParameterType
    from graphopt.types.registry import AnyEdgeType
    from graphopt.types.robust_kernels import RobustKernel


class Graph(GraphComputed):
    """Vertices, edges and parameters of an optimization problem."""

    def __repr__(self) -> str:
        return f"<Graph: {self.num_vertices} vertices, {self.num_edges} edges>"

    def _repr_html_(self) -> str:
        """For notebooks: a row per type."""
        rows = [
            [
                vertex_set.type.tag,
                len(vertex_set),
                f"{int(vertex_set.fixed.sum())} fixed, {int(vertex_set.marginalized.sum())} marginalized",
            ]
            for vertex_set in self.vertex_sets
        ]
        rows += [
            [
                edge_set.type.tag,
                len(edge_set),
                f"between {', '.join(vertex.tag for vertex in edge_set.type.vertices)}",
            ]
            for edge_set in self.edge_sets
        ]
        rows += [
            [parameter_set.type.tag, len(parameter_set), "parameters"]
            for parameter_set in self.parameter_sets
        ]
        return html_table(rows, ["type", "number", ""])

    # ---------------------------------------------------------------- adding

    @knows_its_options
    def add_vertices(
        self,
        vertex_type: VertexType | str,
        ids: Any,
        estimates: Any = None,
        *,
        fixed: Any = False,
        marginalized: Any = False,
        order: Any = None,
    ) -> slice:
        """Add vertices of one type and return their rows in its set.

        `ids` (n,); `estimates` (n, storage_dim), one that all share, or None for the type's identity; `fixed`
        and `marginalized` (n,) or one bool. `order` (n,) ascending: place among all lines of a file, by
        default last.

        Quaternions are taken as files are read: those further than 1e-3 from unit length are normalised, the
        others keep their digits. Raises `GraphError` for an id that exists, is given twice, or an estimate
        that is not finite or holds a zero quaternion.
        """
        resolved = resolved_vertex_type(vertex_type)
        ids = checked_ids(ids, resolved.tag)
        if estimates is None:
            estimates = resolved.identity
        tag, take = resolved.tag, validate.taken_rows if resolved.working is None else validate.as_rows
        estimates = take(estimates, len(ids), (resolved.storage_dim,), f"{tag} estimates")
        estimates = validate.checked_rows(estimates, 1, f"{tag} estimate", ids, resolved.wrap)
        validate.check_distinct(ids, f"{resolved.tag} id")
        self._refuse_known(ids, resolved.tag)
        number, vertex_set = set_of(self.vertex_sets, resolved, VertexSet)
        columns = {
            "sequence": self._orders(order, len(ids), vertex_set),
            "ids": ids,
            "estimate": estimates,
            "fixed": checked_flags(fixed, len(ids), "fixed"),
            "marginalized": checked_flags(marginalized, len(ids), "marginalized"),
        }
        return self._append(self.vertex_sets, number, vertex_set, columns, self._vertex_index)

    @knows_its_options
    def add_edges(
        self,
        edge_type: AnyEdgeType | str,
        vertices: Any,
        measurements: Any = None,
        information: Any = None,
        *,
        kernel: Any = None,
        kernel_width: Any = 1.0,
        level: Any = 0,
        parameters: Any = None,
        order: Any = None,
    ) -> slice:
        """Add edges of one type and return their rows in its set.

        `vertices` (m, arity) ids, or one access per slot (see `access`); `measurements` (m, measurement_dim),
        one that all share, or None for zeros (of a group: its neutral element); `information` (m, d, d), one
        (d, d) that all share, or None for the identity; `kernel` a name or number for all or (m,) numbers;
        `parameters` (m, num_parameters) ids, or one id or image per slot that all share. `order` and
        quaternions of measurements as in `add_vertices`.

        Raises `GraphError` for a vertex that is missing, of the wrong type or named twice by one edge, and
        for numbers that are not finite. Information matrices must be symmetric; that they are positive
        semi-definite is reported by `check()`, not required.
        """
        if is_access(vertices):
            vertices = accessed_ids(resolved_edge_type(edge_type), vertices, measurements)
        checked = self._checked_edges(
            edge_type,
            vertices,
            measurements,
            information,
            kernel=kernel,
            kernel_width=kernel_width,
            level=level,
            parameters=parameters,
            order=order,
        )
        return self._add_checked_edges(*checked, order)

    def _checked_edges(
        self,
        edge_type: AnyEdgeType | str,
        vertices: Any,
        measurements: Any = None,
        information: Any = None,
        *,
        kernel: Any = None,
        kernel_width: Any = 1.0,
        level: Any = 0,
        parameters: Any = None,
        order: Any = None,
    ) -> tuple[EdgeType, dict[str, Any], NewImages]:
        """Type, columns and new images of edges that may be added; nothing is added yet."""
        resolved, vertices = edge_type_and_vertices(edge_type, vertices)
        refuse_weights(resolved, information, kernel)
        tag, dim, count = resolved.tag, resolved.residual_dim, len(vertices)
        measurements = neutral_measurement(resolved) if measurements is None else measurements
        parameters, images = self.parameter_ids(parameters, resolved)
        size, wrap = (resolved.measurement_dim,), resolved.wrap_measurement
        measurements = validate.taken_rows(measurements, count, size, f"{tag} measurements", wrap)
        information = np.eye(dim) if information is None else information
        information = validate.taken_rows(information, count, (dim, dim), f"{tag} information")
        parameters = checked_parameter_ids(parameters, count, resolved)
        validate.check_no_loops(vertices, tag)
        self._check_slots(vertices, resolved)
        self.check_parameters(parameters, resolved, images)
        measurements = validate.checked_rows(measurements, 1, f"{tag} measurement", vertices, wrap)
        information = validate.checked_rows(information, 2, f"{tag} information", vertices)
        self._orders(order, count, set_of(self.edge_sets, resolved, EdgeSet)[1])
        widths = kept(kernel_width, (count,), Needs(is_positive=True), "kernel_width")
        columns = {
            "vertices": vertices,
            "measurement": measurements,
            "information": information,
            "kernel": kernel_numbers(kernel, count),
            "kernel_width": kernel_widths(kernel_width, count) if widths is None else widths,
            "level": checked_levels(level, count),
            "parameters": parameters,
        }
        return resolved, columns, images

    def _add_checked_edges(
        self, edge_type: EdgeType, columns: dict[str, Any], images: NewImages, order: Any
    ) -> slice:
        self._add_images(images)
        number, edge_set = set_of(self.edge_sets, edge_type, EdgeSet)
        orders = self._orders(order, len(columns["vertices"]), edge_set)
        return self._append(self.edge_sets, number, edge_set, {**columns, "sequence": orders}, None)

    @knows_its_options
    def add_parameters(
        self, parameter_type: ParameterType | str, ids: Any, values: Any, *, order: Any = None
    ) -> slice:
        """Add parameters of one type and return their rows.

        `ids` (p,) and `values` (p, storage_dim); of a type whose values are images an `Image` or p of them.
        """
        resolved = resolved_parameter_type(parameter_type)
        ids = checked_ids(ids, resolved.tag)
        images = []
        if resolved.image is not None:
            values, images = image_handles(resolved, values)
        values = validate.as_rows(values, len(ids), (resolved.storage_dim,), f"{resolved.tag} values")
        values = validate.checked_rows(values, 1, f"{resolved.tag} value", ids, resolved.wrap)
        validate.check_distinct(ids, f"{resolved.tag} id")
        known = self._parameter_index.find(ids)[0] >= 0
        if known.any():
            raise GraphError(
                f"{resolved.tag}: a parameter with id {int(ids[np.argmax(known)])} exists already."
            )
        number, parameter_set = set_of(self.parameter_sets, resolved, ParameterSet)
        columns = {"sequence": self._orders(order, len(ids), parameter_set), "ids": ids, "values": values}
        rows = self._append(self.parameter_sets, number, parameter_set, columns, self._parameter_index)
        parameter_set.keep_images(images)
        return rows

    def add_vertex(
        self,
        vertex_type: VertexType | str,
        vertex_id: int,
        estimate: Any = None,
        *,
        fixed: bool = False,
        marginalized: bool = False,
    ) -> Vertex:
        """Add one vertex and return it."""
        self.add_vertices(vertex_type, [vertex_id], estimate, fixed=fixed, marginalized=marginalized)
        return Vertex(self, int(vertex_id))

    def add_variadic_edges(
        self,
        edge_type: VariadicEdgeType | str,
        vertices: Sequence[Sequence[int]],
        measurements: Sequence[Any] | None = None,
        information: Sequence[Any] | None = None,
        **properties: Any,
    ) -> dict[int, slice]:
        """Add edges of differing numbers of vertices; return, by that number, their rows in its set.

        `vertices`: the ids of each edge; `measurements` and `information`: an array per edge, None as in
        `add_edges`; `properties` as there, the same for all. Edges keep their order in files.
        """
        resolved = resolved_edge_type(edge_type)
        if not isinstance(resolved, VariadicEdgeType):
            raise GraphError(f"{resolved.tag} has {len(resolved.vertices)} vertices always: use add_edges.")
        for what, given in (("measurements", measurements), ("information", information)):
            if given is not None and len(given) != len(vertices):
                raise ShapeError(
                    f"{resolved.tag}: {len(given)} {what} for {len(vertices)} edges, expected one each."
                )
        first, counts = self.next_order(), np.array([len(each_vertex) for each_vertex in vertices], int)
        arrays = (measurements, information)
        checked: list[tuple[int, tuple[EdgeType, dict[str, Any], NewImages], np.ndarray]] = []
        for num in np.unique(counts).tolist():
            rows = np.flatnonzero(counts == num)
            chosen = rows.tolist()
            ids = np.array([list(vertices[k]) for k in chosen])
            own = [array if array is None else np.array([array[k] for k in chosen]) for array in arrays]
            order = first + rows
            checked.append((num, self._checked_edges(resolved, ids, *own, **properties, order=order), order))
        return {num: self._add_checked_edges(*edges, order) for num, edges, order in checked}

    def add_edge(
        self,
        edge_type: AnyEdgeType | str,
        vertices: Iterable[int | Vertex],
        measurement: Any,
        information: Any = None,
        **properties: Any,
    ) -> Edge:
        """Add one edge and return it; `properties` as in `add_edges`."""
        if not isinstance(vertices, Iterable):
            raise ShapeError(f"vertices is {vertices!r}, expected the ids of the edge's vertices.")
        ids = [each_vertex.id if isinstance(each_vertex, Vertex) else each_vertex for each_vertex in vertices]
        resolved = resolved_edge_type(edge_type)
        if isinstance(resolved, VariadicEdgeType):
            resolved = resolved.instantiate(len(ids))
        if properties.get("parameters") is not None:
            properties["parameters"] = np.reshape(properties["parameters"], (1, -1))
        measurement = np.reshape(np.asarray(measurement), (1, -1))
        rows = self.add_edges(resolved, [ids], measurement, information, **properties)
        edge_set = existing_set(self.edge_sets, resolved, "edges")
        return Edge(self, edge_set, int(edge_set.sequence[rows.start]))

    # ---------------------------------------------------------------- looking up

    def vertex(self, vertex_id: int) -> Vertex:
        """The vertex with this id."""
        self.vertex_place(vertex_id)
        return Vertex(self, int(vertex_id))

    def vertices(self) -> Iterator[Vertex]:
        """All vertices in the order in which they were added."""
        for vertex_id in self.vertex_ids().tolist():
            yield Vertex(self, vertex_id)

    def edges(self) -> Iterator[Edge]:
        """All edges in the order in which they were added."""
        numbers = [(order, edge_set) for edge_set in self.edge_sets for order in edge_set.sequence.tolist()]
        for order, edge_set in sorted(numbers, key=lambda pair: pair[0]):
            yield Edge(self, edge_set, order)

    def edge(self, edge_set: EdgeSet | AnyEdgeType | str, row: int) -> Edge:
        """The edge in one row of an edge set."""
        found = edge_set if isinstance(edge_set, EdgeSet) else self.edge_set(edge_set)
        if not -len(found) <= row < len(found):
            raise UnknownIdError(f"{found.type.tag} has {len(found)} edges, there is no row {row}.")
        return Edge(self, found, int(found.sequence[row]))

    def edges_of(self, vertex_id: int) -> list[Edge]:
        """Edges of one vertex, in the order in which they were added."""
        found = [
            (order, edge_set)
            for edge_set in self.edge_sets
            for order in edge_set.sequence[(edge_set.vertices == vertex_id).any(axis=1)].tolist()
        ]
        return [Edge(self, edge_set, order) for order, edge_set in sorted(found, key=lambda pair: pair[0])]

    # ---------------------------------------------------------------- changing

    def set_fixed(self, ids: Any, fixed: bool = True) -> None:
        """Fix (or free) the vertices with these ids."""
        numbers, rows = self._places(ids)
        for number in np.unique(numbers).tolist():
            self.vertex_sets[number].fixed[rows[numbers == number]] = fixed

    def hold(self, ids: Any, components: Iterable[int], held: bool = True) -> None:
        """Hold (or free) single components of vertices while they are optimized.

        `components` are numbers of the update that the vertex type's oplus takes: of VERTEX_SE2 0, 1, 2 are
        the steps along x and y of the body and the turn. The held ones stay zero in every update, on every
        device and with every method. Of a vertex whose update is taken in its own frame, as
        VERTEX_SE3:QUAT's, that holds motions along the body's axes. No file format has a place for it;
        `pickle` keeps it.

        Raises `UnknownIdError` for an id that does not exist, `GraphError` for a component that its type
        lacks.
        """
        numbers, rows = self._places(ids)
        chosen = sorted({int(component) for component in components})
        for number in np.unique(numbers).tolist():
            kind = self.vertex_sets[number].type
            wrong = [axis for axis in chosen if not 0 <= axis < kind.tangent_dim]
            if wrong:
                raise GraphError(
                    f"{kind.tag} has no component {wrong[0]}: its updates have {kind.tangent_dim} numbers, "
                    f"0 to {kind.tangent_dim - 1}."
                )
        for number in np.unique(numbers).tolist():
            vertex_set = self.vertex_sets[number]
            mask = vertex_set.make_room_to_hold()
            mask[np.ix_(rows[numbers == number], np.array(chosen, np.int64))] = held

    def set_bounds(
        self, vertices: Any, lower: Any = None, upper: Any = None, components: Iterable[int] | None = None
    ) -> None:
        """Keep numbers of estimates between bounds while they are optimized: lower <= x <= upper.

        vertices: ids, or a vertex type or its tag for all vertices of that type that are there now.
        lower, upper: one number, (k,) or (n, k) for the k `components` of n vertices, -inf and inf where
        there is no bound; None: none at all. components: numbers of the estimate; None: all. What is given
        replaces both bounds of these components, so `set_bounds(ids)` removes them.

        Numbers can be bounded to which the update adds one of its own (points, vectors, intrinsics; of
        VERTEX_SE2 x and y), also of marginalized vertices. Optimizations by all methods and devices keep to
        them (`solver.bounded`); one that starts outside is moved in first, and says so. `Summary.kkt` tells
        which bounds are active. No file format but .npz has a place for them; `copy` and `pickle` keep them.

        Raises `UnknownIdError` for an id that does not exist, `GraphError` for NaN, a lower bound above the
        upper one, or a component that does not exist or cannot be bounded (poses, quaternions), by name.
        """
        if isinstance(vertices, (str, VertexType)):
            vertex_set = self.vertex_set(vertices)
            bounds.set_bounds([(vertex_set, np.arange(len(vertex_set)))], lower, upper, components)
            return
        numbers, rows = self._places(vertices)
        of_sets = [(self.vertex_sets[k], rows[numbers == k]) for k in np.unique(numbers).tolist()]
        if len(of_sets) > 1 and any(np.ndim(given) == 2 for given in (lower, upper)):
            raise ShapeError("bounds (n, k) are for vertices of one type; call set_bounds once per type.")
        bounds.set_bounds(of_sets, lower, upper, components)

    def set_robust_kernel(
        self,
        kernel: str | int | RobustKernel | None,
        width: float = 1.0,
        edge_type: AnyEdgeType | str | None = None,
    ) -> None:
        """Give all edges (of one type) a robust kernel of this width; None removes it."""
        number = robust_kernel(kernel).number
        kernel_widths(width, 1)
        resolved = None if edge_type is None else resolved_edge_type(edge_type)
        for edge_set in self.edge_sets:
            if edge_set.type.inequality:
                continue
            if resolved is None or edge_set.type.tag == resolved.tag:
                edge_set.kernel = number
                edge_set.kernel_width = width

    def remove_vertices(self, ids: Any) -> None:
        """Remove vertices and every edge that has one of them."""
        ids = np.atleast_1d(validate.as_ids(ids, "vertex ids"))
        numbers, rows = self._places(ids)
        self._note_change()
        gone = np.sort(ids)
        for edge_set in self.edge_sets:
            touched = np.isin(edge_set.vertices, gone).any(axis=1)
            if touched.any():
                edge_set.columns.keep(np.logical_not(touched))
        for number in np.unique(numbers).tolist():
            mask = np.ones(len(self.vertex_sets[number]), bool)
            mask[rows[numbers == number]] = False
            self.vertex_sets[number].columns.keep(mask)
        self._vertex_index.clear()

    def remove_edges(self, edge_set: EdgeSet | AnyEdgeType | str, rows: Any) -> None:
        """Remove edges of one set, given as rows or as a mask (m,) bool."""
        found = edge_set if isinstance(edge_set, EdgeSet) else self.edge_set(edge_set)
        keep = np.ones(len(found), bool)
        try:
            keep[np.asarray(rows) if len(rows) else []] = False
        except IndexError as error:
            raise UnknownIdError(f"{found.type.tag} has {len(found)} edges: {error}.") from None
        self._note_change()
        found.columns.keep(keep)

    def remove_parameters(self, ids: Any) -> None:
        """Remove parameters; refused while an edge uses one."""
        ids = np.atleast_1d(validate.as_ids(ids, "parameter ids"))
        numbers, rows = self.find_parameters(ids)
        if (numbers < 0).any():
            raise UnknownIdError(f"There is no parameter {int(ids[np.argmax(numbers < 0)])} in this graph.")
        for edge_set in self.edge_sets:
            used = np.isin(edge_set.parameters, ids)
            if used.any():
                raise GraphError(
                    f"Parameter {int(edge_set.parameters[used][0])} is used by {edge_set.type.tag} edges; "
                    "remove them first."
                )
        self._note_change()
        for number in np.unique(numbers).tolist():
            mask = np.ones(len(self.parameter_sets[number]), bool)
            mask[rows[numbers == number]] = False
            self.parameter_sets[number].columns.keep(mask)
        self._parameter_index.clear()

    def clear(self) -> None:
        """Remove everything."""
        self._note_change()
        self.vertex_sets.clear()
        self.edge_sets.clear()
        self.parameter_sets.clear()
        self.unparsed.clear()
        self.convolutions.clear()
        self.attachments.clear()
        self._vertex_index.clear()
        self._parameter_index.clear()
        self._next_order = 0

    def copy(self) -> Graph:
        """Independent graph with the same content; nothing that can be written is shared."""
        other = Graph()
        other.vertex_sets.extend(vertex_set.copy() for vertex_set in self.vertex_sets)
        other.edge_sets.extend(edge_set.copy() for edge_set in self.edge_sets)
        other.parameter_sets.extend(parameter_set.copy() for parameter_set in self.parameter_sets)
        other.unparsed.extend(self.unparsed)
        other.convolutions.extend(self.convolutions)
        other.attachments.update(deepcopy(self.attachments))
        other._next_order = self._next_order
        other._take_edge_sets()
        return other

    def __copy__(self) -> Graph:
        return self.copy()

    def __deepcopy__(self, memo: dict) -> Graph:
        memo[id(self)] = other = self.copy()
        return other

    def __getstate__(self) -> dict[str, Any]:
        """Everything but what is quickly made again; robust kernels of a user's own by name."""
        state = {name: value for name, value in vars(self).items() if not name.endswith("_index")}
        return {**state, "own_kernels": used_own_kernels(self.edge_sets)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """The graph as it was, with this process' numbers of kernels and images."""
        own_kernels = state.pop("own_kernels")
        Graph.__init__(self)
        vars(self).update(state)
        self._optimizations = []  # those of the graph that was pickled
        self._vertex_index = IdIndex(self.vertex_sets)
        self._parameter_index = IdIndex(self.parameter_sets)
        renumber_kernels(self.edge_sets, own_kernels)
        self._take_edge_sets()

    # ---------------------------------------------------------------- mathematics

    def chi2(self, level: int = 0, *, robust: bool = True) -> float:
        """Sum of rho(e' Omega e) over the active edges, in plain numpy; `robust=False` leaves rho out."""
        self.compute()
        function = residuals.robust_chi2 if robust else residuals.edge_chi2
        return float(
            sum(function(self, edges.edge_set, edges.rows).sum() for edges in self.select(level).edges)
        )

    def points_behind(self, level: int = 0) -> dict[str, list[int]]:
        """Active images of points that are not in front of their cameras: tag of the edge set -> rows.

        What a camera sees is said by the edge types (`EdgeType.sees`); chi2 counts such edges as g2o does.
        """
        return points_behind(self, self.select(level).edges)

    @knows_its_options
    def select(self, level: int = 0, vertices: Any = None, edges: Any = None) -> Selection:
        """The active part of the graph, as g2o's `initializeOptimization` chooses it; see `selection`.

        `vertices`: ids (or `Vertex` objects) to which the graph is restricted. `edges`: `Edge` objects, or a
        mapping from edge set to rows or mask; then `level` does not matter.
        """
        return select(self, level, vertices, edges)

    def gauge_freedom(self) -> bool:
        """g2o's `gaugeFreedom`: no vertex of the largest dimension is fixed or has a full prior."""
        return gauge_freedom(self)

    def find_gauge(self) -> int | None:
        """Id of the vertex that g2o's `findGauge` returns, None for an empty graph."""
        if not self.num_vertices:
            return None
        sequence = np.concatenate([vertex_set.sequence for vertex_set in self.vertex_sets])
        order = np.argsort(sequence, kind="stable")
        ids = np.concatenate([vertex_set.ids for vertex_set in self.vertex_sets])[order]
        dims = np.repeat(
            [vertex_set.type.tangent_dim for vertex_set in self.vertex_sets], list(map(len, self.vertex_sets))
        )
        position = gauge_vertex(ids, dims[order])
        return None if position is None else int(ids[position])

    def components(self, level: int = 0) -> tuple[int, tuple[np.ndarray, ...]]:
        """Number of connected components, and per vertex set each vertex' component (-1: not active)."""
        from graphopt.graph.components import connected_components

        return connected_components(select_connected(self, level))

    def check(self, level: int = 0) -> list[Finding]:
        """What may go wrong in an optimization of this graph; see `check`."""
        from graphopt.graph.check import check

        return check(self, level)
