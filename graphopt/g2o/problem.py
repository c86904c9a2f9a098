"""The arrays behind an optimizer.

A `graphopt.Graph` that is built from the objects, and the active part of it.

    objects --gather--> Graph --Structure, block solver--> estimates --scatter--> objects

A `Problem` is made by the first `initialize_optimization` after the graph changed and serves until it
changes again, so repeated optimizations of one graph keep their analysis. An edge whose error or Jacobian
is defined in Python is in the `Graph` with a type whose error is zero, which gives it its place in H;
`python_edges` adds its part.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from graphopt.cpu_kernels import kernels
from graphopt.errors import GraphError
from graphopt.g2o import evaluate
from graphopt.g2o.gicp import is_plane_to_plane, plane_information
from graphopt.g2o.robust_kernels import RobustKernelScaleDelta
from graphopt.g2o.storage import RowList
from graphopt.graph import Graph, Selection, residuals
from graphopt.graph.selection import EdgeSelection
from graphopt.types import EdgeType, VertexType
from graphopt.types.files import measurement_then_information, plain
from graphopt.types.robust_kernels import robust_kernel


@cache
def placeholder_type(residual_dim: int, vertices: tuple[VertexType, ...]) -> EdgeType:
    """An edge type whose error is zero: it holds the place of edges defined in Python."""
    return EdgeType(
        name=f"PythonEdge{residual_dim}",
        tag=f"EDGE_PYTHON_{residual_dim}_" + "_".join(one.tag for one in vertices),
        vertices=vertices,
        parameters=(),
        measurement_dim=1,
        residual_dim=residual_dim,
        residual=lambda *arguments: np.zeros(residual_dim),
        jacobian=None,
        wrap_measurement=lambda storage: storage,
        file=measurement_then_information(plain(1), residual_dim),
    )


class VertexList:
    """The vertices of one vertex set."""

    __slots__ = ("is_python", "objects", "rows", "vertex_set")

    def __init__(self, vertex_set: Any, objects: list[Any], rows: RowList):
        self.vertex_set = vertex_set
        self.objects = objects
        self.rows = rows
        self.is_python = [row for row, one in enumerate(objects) if one._is_python]

    def take_estimates(self) -> None:
        """Objects -> graph."""
        self.rows.gather("estimate", self.vertex_set.estimate)

    def give_estimates(self) -> None:
        """Graph -> objects."""
        self.rows.scatter("estimate", self.vertex_set.estimate)

    def take_flags(self) -> None:
        """Fixed and marginalized of the objects -> graph."""
        self.rows.gather("fixed", self.vertex_set.fixed)
        self.rows.gather("marginalized", self.vertex_set.marginalized)


class EdgeList:
    """The edges of one edge set, and which of them are active."""

    __slots__ = ("_active", "edge_set", "has_planes", "is_python", "objects", "places", "rows")

    def __init__(self, graph: Graph, edge_set: Any, objects: list[Any], rows: RowList, is_python: bool):
        self.edge_set = edge_set
        rows_of_set = np.arange(len(objects))
        vertex_sets, vertex_rows, parameter_sets, parameter_rows = graph.edge_places(edge_set, rows_of_set)
        self.places = EdgeSelection(
            edge_set,
            rows_of_set,
            tuple(vertex_sets),
            vertex_rows.astype(np.int32),
            tuple(parameter_sets),
            parameter_rows.astype(np.int32),
        )
        self.objects = objects
        self.rows = rows
        self.is_python = is_python
        self.has_planes = not is_python and is_plane_to_plane(objects[0])
        self._active = np.empty(0, np.int64)

    @property
    def active(self) -> np.ndarray:
        """(k,) rows of the active edges."""
        return self._active

    @active.setter
    def active(self, rows: np.ndarray) -> None:
        self._active = rows

    def selection(self) -> EdgeSelection:
        """The active edges for the block solver."""
        rows, all_edges = self._active, self.places
        if len(rows) == len(self.objects):
            return all_edges
        return replace(
            all_edges,
            rows=rows,
            vertex_rows=all_edges.vertex_rows[rows],
            parameter_rows=all_edges.parameter_rows[rows],
        )

    def active_objects(self) -> list[Any]:
        """Active edges."""
        if len(self._active) == len(self.objects):
            return self.objects
        return [self.objects[row] for row in self._active.tolist()]

    def take_levels(self) -> np.ndarray:
        """(m,) levels of the objects."""
        return self.rows.column("level", (), np.int32)

    def take_values(self) -> None:
        """Measurement, information and kernels of the objects -> graph."""
        if self.is_python:
            return
        edge_set = self.edge_set
        self.rows.gather("measurement", edge_set.measurement)
        self.rows.gather("information", edge_set.information)
        if self.has_planes:  # set before each evaluation; the block solver has to expect full matrices
            edge_set.information[self._active] = _FULL
        kernels = _kernels(self.objects)
        if kernels is not None:
            edge_set.kernel, edge_set.kernel_width = kernels
        elif edge_set.kernel.any():
            edge_set.kernel = 0

    def set_plane_information(self, graph: Graph) -> None:
        """Information matrices of plane-to-plane GICP edges, at the graph's estimates."""
        poses = residuals.arguments(graph, self.edge_set, self._active)
        covariances = np.array([one._covariances for one in self.active_objects()])
        self.edge_set.information[self._active] = plane_information(covariances, poses[0], poses[1])

    def chi2(self) -> np.ndarray:
        """(k,) chi2 of the active edges, of their last errors."""
        values = self.rows.column("chi2", ())[self._active]
        stale = np.flatnonzero(np.isnan(values)).tolist()  # an error was set or an information matrix changed
        for place in stale:
            values[place] = self.objects[int(self._active[place])].chi2()
        return values

    def robust_chi2(self) -> float:
        """Sum of rho(chi2) over the active edges, of their last errors."""
        values = self.chi2()
        kernels = _kernels(self.active_objects())
        if kernels is None:
            return float(values.sum())
        numbers, widths = kernels
        for number in np.unique(numbers[numbers > 0]).tolist():
            mask = numbers == number
            values[mask] = robust_kernel(number).function(values[mask], widths[mask])[0]
        return float(values.sum())


_FULL = np.eye(3) + 0.1


def _kernels(edges: list[Any]) -> tuple[np.ndarray, np.ndarray] | None:
    """(m,) numbers and (m,) widths of the robust kernels, None if no edge has one."""
    classes, which, widths = kernels.robust_kernels(edges)
    if not classes:
        return None
    if RobustKernelScaleDelta in classes:
        none = (0, 1.0)
        pairs = [none if one._kernel is None else one._kernel._for_solver() for one in edges]
        return np.array([one[0] for one in pairs], np.int32), np.array([one[1] for one in pairs])
    return np.array([one._number for one in classes] + [0], np.int32)[which], widths


def _grouped(edges: list[Any]) -> dict[tuple[bool, EdgeType], Any]:
    """Places of the edges by (defined in Python, type)."""
    classes = set(map(type, edges))
    if len(classes) == 1:
        one = classes.pop()
        is_python = one._error_is_python or one._jacobian_is_python
        if not is_python and isinstance(one._type, EdgeType):
            return {(False, one._type): range(len(edges))}
    groups: dict[tuple[bool, EdgeType], list[int]] = {}
    for place, one in enumerate(edges):
        groups.setdefault(_group_of(one), []).append(place)
    return groups


def _group_of(edge: Any) -> tuple[bool, EdgeType]:
    if edge._error_is_python or edge._jacobian_is_python:
        return True, placeholder_type(edge.dimension(), tuple(v._type for v in edge._vertices))
    return False, edge._type


class Problem:
    """A `Graph` built from the objects of an optimizer."""

    def __init__(self, owner: Any):
        self.version = owner._version
        self.graph = Graph()
        self.selection: Selection | None = None
        self._ids: dict[Any, int] = {}
        """Ids here of vertices whose own id is another vertex', see `_strangers`."""
        edges = kernels.complete_edges(list(owner._edges))
        vertices = list(owner._vertices.values())
        if owner._has_strangers:
            vertices += self._strangers(owner, edges)
        self._add_vertices(vertices)
        self._add_parameters(list(owner._parameter_container._by_id.values()))
        self._add_edges(edges, len(vertices) + len(owner._parameter_container))

    # ---------------------------------------------------------------- building

    def _strangers(self, owner: Any, edges: list[Any]) -> list[Any]:
        """Vertices of edges that were not added to the graph; g2o optimizes them all the same."""
        own = owner._vertices
        found = dict.fromkeys(v for edge in edges for v in edge._vertices if own.get(v._id) is not v)
        next_id = max((one._id for one in (*own.values(), *found)), default=0) + 1
        taken = set(own)
        for vertex in found:
            if vertex._id < 0 or vertex._id in taken:
                self._ids[vertex] = next_id
                next_id += 1
            taken.add(vertex._id)
        return list(found)

    def _id_of(self, vertex: Any) -> int:
        found = self._ids.get(vertex) if self._ids else None
        return vertex._id if found is None else found

    def _add_vertices(self, vertices: list[Any]) -> None:
        groups: dict[VertexType, list[int]] = {}
        for place, one in enumerate(vertices):
            groups.setdefault(one._type, []).append(place)
        self.vertex_lists: list[VertexList] = []
        for kind, places in groups.items():
            objects = [vertices[place] for place in places]
            ids = np.array([self._id_of(one) for one in objects], np.int64)
            rows = RowList(objects)
            estimates = rows.column("estimate", (kind.storage_dim,))
            self.graph.add_vertices(kind, ids, estimates, order=places)
            self.vertex_lists.append(VertexList(self.graph.vertex_set(kind), objects, rows))

    def _add_parameters(self, parameters: list[Any]) -> None:
        self._parameter_lists: list[tuple[Any, RowList]] = []
        groups: dict[Any, list[Any]] = {}
        for one in parameters:
            groups.setdefault(one._type, []).append(one)
        for kind, objects in groups.items():
            rows = RowList(objects)
            values = rows.column("estimate", (kind.storage_dim,))
            self.graph.add_parameters(kind, [one._id for one in objects], values)
            self._parameter_lists.append((self.graph.parameter_set(kind), rows))

    def _add_edges(self, edges: list[Any], first_order: int) -> None:
        self.edge_lists: list[EdgeList] = []
        for (is_python, kind), places in _grouped(edges).items():
            objects = edges if len(places) == len(edges) else [edges[place] for place in places]
            self.edge_lists.append(self._add_group(kind, objects, is_python, np.array(places) + first_order))

    def _add_group(self, kind: EdgeType, objects: list[Any], is_python: bool, order: np.ndarray) -> EdgeList:
        vertices = kernels.vertex_ids(objects, len(kind.vertices))
        if self._ids:
            vertices = np.array([[self._id_of(v) for v in one._vertices] for one in objects], np.int64)
        rows = RowList(objects)
        if is_python:
            measurements, information = np.zeros((len(objects), 1)), None
        else:
            measurements = rows.column("measurement", (kind.measurement_dim,))
            information = rows.column("information", (kind.residual_dim, kind.residual_dim))
        parameters = None
        if kind.parameters:
            parameters = np.array([one.param_ids() for one in objects], np.int64)
        self.graph.add_edges(kind, vertices, measurements, information, parameters=parameters, order=order)
        return EdgeList(self.graph, self.graph.edge_set(kind), objects, rows, is_python)

    # ---------------------------------------------------------------- choosing

    def choose_level(self, level: int) -> None:
        """All edges of a level, of all levels if negative."""
        self._choose(
            [
                np.ones(len(one.objects), bool) if level < 0 else one.take_levels() == level
                for one in self.edge_lists
            ]
        )

    def choose_vertices(self, vertices: Iterable[Any], level: int) -> None:
        """The edges of a level whose vertices are all given."""
        ids = np.array([self._id_of(one) for one in vertices], np.int64)
        masks = []
        for one in self.edge_lists:
            mask = np.isin(one.edge_set.vertices, ids).all(axis=1)
            masks.append(mask if level < 0 else mask & (one.take_levels() == level))
        self._choose(masks)

    def choose_edges(self, edges: Iterable[Any]) -> None:
        """Exactly these edges."""
        wanted = set(edges)
        self._choose(
            [
                np.fromiter((e in wanted for e in one.objects), bool, len(one.objects))
                for one in self.edge_lists
            ]
        )

    def _choose(self, masks: list[np.ndarray]) -> None:
        for one, mask in zip(self.edge_lists, masks, strict=True):
            one.active = np.flatnonzero(mask)
        for one in self.vertex_lists:
            one.take_flags()
        sets = self.graph.vertex_sets
        edges = tuple(one.selection() for one in self.edge_lists if len(one.active))
        active = tuple(np.zeros(len(one), bool) for one in sets)
        for one in edges:
            for slot, number in enumerate(one.vertex_sets):
                active[number][one.vertex_rows[:, slot]] = True
        fixed = tuple(one.fixed.copy() for one in sets)
        parameter_sets = tuple(self.graph.parameter_sets)
        self.selection = Selection(tuple(sets), active, fixed, edges, True, parameter_sets)

    def active_vertices(self) -> list[Any]:
        """Vertices of active edges by ascending id, as in g2o."""
        if self.selection is None:
            return []
        found = [
            one.objects[row]
            for one, active in zip(self.vertex_lists, self.selection.active, strict=True)
            for row in np.flatnonzero(active).tolist()
        ]
        return sorted(found, key=lambda vertex: vertex._id)

    def active_edges(self) -> list[Any]:
        """Active edges in the order in which they were added."""
        found = [edge for one in self.edge_lists for edge in one.active_objects()]
        return sorted(found, key=lambda edge: edge._internal_id)

    # ---------------------------------------------------------------- moving values

    def take_values(self) -> None:
        """All values of the objects -> graph."""
        for one in self.vertex_lists:
            one.take_estimates()
        for parameter_set, rows in self._parameter_lists:
            rows.gather("estimate", parameter_set.values)
        for edges in self.edge_lists:
            edges.take_values()

    def give_estimates(self) -> None:
        """Estimates of the graph -> objects."""
        for one in self.vertex_lists:
            one.give_estimates()

    def compute_errors(self) -> None:
        """Errors and chi2 of all active edges -> objects, at the estimates, which both have."""
        for one in self.edge_lists:
            if not len(one.active):
                continue
            if one.is_python:
                for edge in one.active_objects():
                    edge.compute_error()
                continue
            if one.has_planes:
                one.set_plane_information(self.graph)
                one.rows.scatter("information", one.edge_set.information)
            if not one.edge_set.type.parameters:
                evaluate.evaluator(one.edge_set.type).many(one.active_objects())
                continue
            error = self._errors(one.edge_set, one.active)
            information = one.edge_set.information
            if len(one.active) == len(one.objects):
                chi2 = evaluate.chi2(error, information)
            else:
                chi2 = evaluate.chi2(error, information[one.active])
                error = _merged(one, "error", error)
                chi2 = _merged(one, "chi2", chi2)
            one.rows.scatter("error", error)
            one.rows.scatter("chi2", chi2)

    def _errors(self, edge_set: Any, rows: np.ndarray) -> np.ndarray:
        inputs = residuals.arguments(self.graph, edge_set, rows)
        return evaluate.errors(edge_set.type, np.concatenate(inputs, axis=1))

    def active_chi2(self) -> float:
        """Sum of chi2 of the active edges, of their last errors."""
        total = 0.0
        for one in self.edge_lists:
            if not len(one.active):
                continue
            total += float(one.chi2().sum())
        return total

    def active_robust_chi2(self) -> float:
        """Sum of rho(chi2) of the active edges, of their last errors."""
        return sum(one.robust_chi2() for one in self.edge_lists if len(one.active))

    def place_of(self, vertex: Any) -> tuple[int, int]:
        """(vertex set, row) of a vertex object."""
        try:
            return self.graph.vertex_place(self._id_of(vertex))
        except GraphError:
            raise GraphError(
                f"{vertex!r} was not in the graph at the last initialize_optimization."
            ) from None


def _merged(edges: EdgeList, name: str, values: np.ndarray) -> np.ndarray:
    """All rows of a column, with `values` in the active ones."""
    full = edges.rows.column(name, values.shape[1:])
    full[edges.active] = values
    return full
