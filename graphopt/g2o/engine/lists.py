"""Lists of objects beside the arrays of their vertex set or edge set, between which numbers move.

An edge whose error or Jacobian is defined in Python is in the `Graph` with an external type, which gives it
its place in H; `python_edges` adds its part.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphopt.cpu_kernels import kernels
from graphopt.errors import GraphError
from graphopt.g2o.elements.gicp import is_plane_to_plane, plane_information
from graphopt.g2o.elements.robust_kernels import RobustKernelScaleDelta
from graphopt.g2o.engine import evaluate
from graphopt.graph import Graph, residuals
from graphopt.graph.selection import EdgeSelection
from graphopt.types import EdgeType, VertexType
from graphopt.types.cache import per_type_cache
from graphopt.types.files import measurement_then_information, plain


@per_type_cache
def placeholder_type(residual_dim: int, vertices: tuple[VertexType, ...]) -> EdgeType:
    """The edge type that holds the place of edges defined in Python."""
    return EdgeType(
        name=f"PythonEdge{residual_dim}",
        tag=f"EDGE_PYTHON_{residual_dim}_" + "_".join(vertex.tag for vertex in vertices),
        vertices=vertices,
        parameters=(),
        measurement_dim=1,
        residual_dim=residual_dim,
        residual=lambda *arguments: np.zeros(residual_dim),
        jacobian=None,
        wrap_measurement=lambda storage: storage,
        file=measurement_then_information(plain(1), residual_dim),
        is_external=True,
    )


class VertexList:
    """The vertices of one vertex set."""

    __slots__ = ("has_new_flags", "is_python", "objects", "rows", "vertex_set")

    def __init__(self, vertex_set: Any, objects: list[Any], rows: Any):
        self.vertex_set = vertex_set
        self.objects = objects
        self.rows = rows
        """`kernels.RowList` of the objects."""
        some = any([class_._is_python for class_ in kernels.classes(objects)])
        self.is_python = [row for row, own in enumerate(objects) if own._is_python] if some else []
        self.has_new_flags = False
        """`take_flags` found others than before; who makes a selection of them says False."""

    def take_estimates(self) -> None:
        """Objects -> graph."""
        self.rows.gather("estimate", self.vertex_set.estimate)

    def give_estimates(self) -> None:
        """Graph -> objects."""
        self.rows.scatter("estimate", self.vertex_set.estimate)

    def take_flags(self) -> None:
        """Fixed and marginalized of the objects -> graph."""
        self.has_new_flags |= self.rows.take("fixed", self.vertex_set.fixed)
        self.has_new_flags |= self.rows.take("marginalized", self.vertex_set.marginalized)


class EdgeList:
    """The edges of one edge set, and which of them are active."""

    __slots__ = ("active", "edge_set", "has_planes", "is_python", "mask", "objects", "places", "rows")

    def __init__(self, places: EdgeSelection, objects: list[Any], rows: Any, is_python: bool):
        self.edge_set = places.edge_set
        self.places = places
        """Where the vertices and parameters of all edges are."""
        self.objects = objects
        self.rows = rows
        """`kernels.RowList` of the objects."""
        self.is_python = is_python
        self.has_planes = not is_python and is_plane_to_plane(objects[0])
        self.mask = np.zeros(len(objects), bool)
        """(m,) who is active."""
        self.active = np.empty(0, np.int64)
        """(k,) rows of the active edges."""

    def choose(self, mask: np.ndarray) -> bool:
        """Set who is active, (m,) bool; True if that has changed."""
        if mask.tobytes() == self.mask.tobytes():
            return False
        self.mask = mask
        self.active = mask.nonzero()[0]
        return True

    @property
    def _all_active(self) -> bool:
        return len(self.active) == len(self.objects)

    def selection(self) -> EdgeSelection:
        """The active edges for the block solver."""
        rows, edges = self.active, self.places
        if self._all_active:
            return edges
        return EdgeSelection(
            edges.edge_set,
            rows,
            edges.vertex_sets,
            edges.vertex_rows.take(rows, axis=0),
            edges.parameter_sets,
            edges.parameter_rows.take(rows, axis=0),
            edges.source,
        )

    def active_objects(self) -> list[Any]:
        """Active edges."""
        return self.objects if self._all_active else [self.objects[row] for row in self.active.tolist()]

    def take_levels(self) -> np.ndarray:
        """(m,) levels of the objects."""
        return self.rows.column("level")

    def take_values(self) -> None:
        """Measurement, information and kernels of the objects -> graph."""
        if self.is_python:
            return
        edge_set = self.edge_set
        self.rows.gather("measurement", edge_set.measurement)
        self.rows.gather("information", edge_set.information)
        if self.has_planes:  # set before each evaluation; the block solver has to expect full matrices
            edge_set.information[self.active] = _FULL
        if not kernels.all_symmetric(edge_set.information):
            self._symmetrise(edge_set.information)
        _take_kernels(self.objects, edge_set.kernel, edge_set.kernel_width)

    def _symmetrise(self, information: np.ndarray) -> None:
        """Replace (m, d, d) matrices that rounding made asymmetric by (Omega + Omega') / 2.

        Products such as R L R' in single precision are symmetric to 1e-7. More than 1e-5 of the largest entry
        is refused in active edges: g2o would compute with another matrix in chi2 than in H. NaN passes, as
        in g2o, and is found where it is used.
        """
        rows = np.flatnonzero((information != information.transpose(0, 2, 1)).any(axis=(1, 2)))
        given = information[rows]
        transposed = given.transpose(0, 2, 1)
        gaps = np.abs(given - transposed).max(axis=(1, 2))
        is_wrong = (gaps > _ASYMMETRY * np.abs(given).max(axis=(1, 2))) & self.mask[rows]
        if is_wrong.any():
            place = int(np.argmax(is_wrong))
            raise GraphError(
                f"{self.objects[int(rows[place])]!r}: its information matrix is not symmetric (largest "
                f"difference {gaps[place]:.3g}); {_ASYMMETRY:g} of the largest entry is taken for rounding. "
                "Pass (Omega + Omega.T) / 2 if that is what you mean."
            )
        information[rows] = 0.5 * (given + transposed)

    def set_plane_information(self, graph: Graph) -> None:
        """Information matrices of plane-to-plane GICP edges, at the graph's estimates."""
        poses = residuals.arguments(graph, self.edge_set, self.active)
        covariances = np.array([active_object._covariances for active_object in self.active_objects()])
        self.edge_set.information[self.active] = plane_information(covariances, poses[0], poses[1])

    def compute_errors(self, graph: Graph) -> None:
        """Errors and chi2 of the active edges -> objects, at the estimates, which both have."""
        if self.is_python:
            for edge in self.active_objects():
                edge.compute_error()
            return
        if self.has_planes:
            self.set_plane_information(graph)
            self.rows.scatter("information", self.edge_set.information)
        kind = self.edge_set.type
        if not kind.parameters:
            evaluate.evaluator(kind).many(self.objects, None if self._all_active else self.active)
            return
        inputs = residuals.arguments(graph, self.edge_set, self.active)
        error = evaluate.errors(kind, np.concatenate(inputs, axis=1))
        chi2 = evaluate.chi2(error, self.edge_set.information[self.active])
        self.rows.scatter("error", self._merged("error", error))
        self.rows.scatter("chi2", self._merged("chi2", chi2))

    def _merged(self, name: str, values: np.ndarray) -> np.ndarray:
        """All rows of a column, with `values` in the active ones."""
        if self._all_active:
            return values
        full = self.rows.column(name)
        full[self.active] = values
        return full

    def chi2(self) -> np.ndarray:
        """(k,) chi2 of the active edges, of their last errors."""
        values = self.rows.column("chi2")
        if not self._all_active:
            values = values[self.active]
        if np.isnan(values.sum()):  # an error was set or an information matrix changed
            for place in np.flatnonzero(np.isnan(values)).tolist():
                values[place] = self.objects[int(self.active[place])].chi2()
        return values

    def robust_chi2(self) -> float:
        """Sum of rho(chi2) over the active edges, of their last errors."""
        values = self.chi2()
        numbers, widths = np.empty(len(self.objects), np.int32), np.empty(len(self.objects))
        for number in _take_kernels(self.objects, numbers, widths):
            places = (numbers[self.active] == number).nonzero()[0]
            values[places] = evaluate.robust_chi2(number, values[places], widths[self.active[places]])
        return float(values.sum())


_FULL = np.eye(3) + 0.1
_ASYMMETRY = 1e-5  # relative to the largest entry of an information matrix


def _take_kernels(edges: list[Any], numbers: np.ndarray, widths: np.ndarray) -> list[int]:
    """Fill in (m,) numbers and (m,) widths of the robust kernels; the numbers that occur, without 0."""
    classes = kernels.robust_kernels(edges, numbers, widths)
    if RobustKernelScaleDelta not in classes:
        return [class_._number for class_ in classes]
    for place, edge in enumerate(edges):
        if isinstance(edge._kernel, RobustKernelScaleDelta):
            numbers[place], widths[place] = edge._kernel._for_solver()
    return [number for number in np.unique(numbers).tolist() if number]


def vertices_by_type(vertices: list[Any]) -> dict[VertexType, Any]:
    """Indices of the vertices by type."""
    classes = kernels.classes(vertices)
    if len(classes) == 1 and isinstance(classes[0]._type, VertexType):
        return {classes[0]._type: range(len(vertices))}
    groups: dict[VertexType, list[int]] = {}
    for index, vertex in enumerate(vertices):
        groups.setdefault(vertex._type, []).append(index)
    return groups


def grouped(edges: list[Any]) -> dict[tuple[bool, EdgeType], Any]:
    """Places of the edges by (defined in Python, type)."""
    classes = kernels.classes(edges)
    if len(classes) == 1:
        (cls,) = classes
        is_python = cls._error_is_python or cls._jacobian_is_python
        if not is_python and isinstance(cls._type, EdgeType):
            return {(False, cls._type): range(len(edges))}
    groups: dict[tuple[bool, EdgeType], list[int]] = {}
    for place, cls in enumerate(edges):
        groups.setdefault(_group_of(cls), []).append(place)
    return groups


def _group_of(edge: Any) -> tuple[bool, EdgeType]:
    if edge._error_is_python or edge._jacobian_is_python:
        return True, placeholder_type(edge.dimension(), tuple(v._type for v in edge._vertices))
    return False, edge._type
