"""Types and parameters of an `Online`, as its native session numbers them."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphopt import codegen
from graphopt.errors import GraphError
from graphopt.graph import Graph
from graphopt.online.additions import CheckedEdges
from graphopt.online.frames import moving_vertex_type, online_edge_type
from graphopt.solver.cpu import compiled_edge, compiled_vertex
from graphopt.types.base import EdgeType, VertexType

EdgeRows = tuple[int, np.ndarray, np.ndarray, np.ndarray, "np.ndarray | None"]
"""Number of the kind, vertices, parameter rows, data and bounds of edges."""


class Kinds:
    """Vertex types, edge types and parameter sets that a session knows."""

    def __init__(self, session: Any):
        self._session = session
        self.vertex_types: list[VertexType] = []
        self._vertex_numbers: dict[VertexType, int] = {}
        self.edge_kinds: list[tuple[EdgeType, str, int]] = []
        """(type, information, kernel) of each number."""
        self._edge_numbers: dict[tuple[EdgeType, str, int], int] = {}
        self.parameters = Graph()
        """Holds the parameters, nothing else."""
        self._parameter_numbers: dict[Any, int] = {}
        self._parameter_rows: dict[int, tuple[Any, int]] = {}

    def vertex_kind(self, vertex_type: VertexType) -> int:
        """Number of a vertex type, which is added if it is new."""
        number = self._vertex_numbers.get(vertex_type)
        if number is None:
            moving = moving_vertex_type(vertex_type)
            number = self._session.add_vertex_kind(
                compiled_vertex(moving).native, moving.storage_dim, vertex_type.role == "point"
            )
            self._vertex_numbers[vertex_type] = number
            self.vertex_types.append(vertex_type)
        return number

    def encode(self, vertex_type: VertexType, estimates: np.ndarray) -> np.ndarray:
        """Estimates as they are computed with; quaternions become unit."""
        form = vertex_type.working
        if form is None:
            return np.ascontiguousarray(estimates, np.float64)
        return np.ascontiguousarray(form.encode(form.tidy(estimates)))

    def decode(self, vertex_type: VertexType, working: np.ndarray) -> np.ndarray:
        """Estimates as graphs store them."""
        form = vertex_type.working
        return working if form is None else form.decode(working)

    def add_parameters(self, parameter_type: Any, ids: Any, values: Any) -> None:
        """See `Graph.add_parameters`."""
        self.parameters.add_parameters(parameter_type, ids, values)
        for parameter_set in self.parameters.parameter_sets:
            number = self._parameter_numbers.get(parameter_set.type)
            if number is None:
                number = self._session.add_parameter_set(parameter_set.type.storage_dim)
                self._parameter_numbers[parameter_set.type] = number
            self._session.set_parameters(number, parameter_set.values)
            for row, id_ in enumerate(parameter_set.ids.tolist()):
                self._parameter_rows[id_] = (parameter_set.type, row)

    def edge_kind(self, edge_type: EdgeType, information: str, kernel: int) -> int:
        """Number of a compiled edge type."""
        key = (edge_type, information, kernel)
        number = self._edge_numbers.get(key)
        if number is None:
            compiled = compiled_edge(online_edge_type(edge_type), information, kernel)
            columns = len(codegen.information_columns(edge_type.residual_dim, information))
            number = self._session.add_edge_kind(
                compiled.linearize.native,
                None if compiled.kernel is None else compiled.kernel.native,
                [self.vertex_kind(kind) for kind in edge_type.vertices],
                [self._parameter_set(kind) for kind in edge_type.parameters],
                edge_type.measurement_dim + columns + (1 if kernel else 0),
                edge_type.residual_dim,
            )
            self._edge_numbers[key] = number
            self.edge_kinds.append(key)
        return number

    def _parameter_set(self, parameter_type: Any) -> int:
        if parameter_type not in self._parameter_numbers:
            raise GraphError(
                f"There are no parameters of type {parameter_type.tag}; `add_parameters` adds them."
            )
        return self._parameter_numbers[parameter_type]

    def parameter_rows(self, edges: CheckedEdges) -> np.ndarray:
        """(m, num_parameters) int32."""
        kinds = edges.type.parameters
        if not kinds:
            return np.empty((len(edges.vertices), 0), np.int32)
        rows = np.empty(edges.parameters.shape, np.int32)
        for slot, kind in enumerate(kinds):
            for k, id_ in enumerate(edges.parameters[:, slot].tolist()):
                known = self._parameter_rows.get(id_)
                if known is None or known[0] is not kind:
                    raise GraphError(
                        f"{edges.type.tag} {k} refers to parameter {id_}; no {kind.tag} has this id."
                    )
                rows[k, slot] = known[1]
        return rows

    def parameter_ids(self, edge_type: EdgeType, rows: np.ndarray) -> np.ndarray | None:
        """(m, num_parameters) ids of rows; None: there are none."""
        if not edge_type.parameters:
            return None
        sets = {one.type: one.ids for one in self.parameters.parameter_sets}
        return np.stack([sets[kind][rows[:, slot]] for slot, kind in enumerate(edge_type.parameters)], axis=1)

    def rows(self, edges: CheckedEdges) -> list[tuple[Any, EdgeRows]]:
        """(index of the edges, what the session takes) by robust kernel."""
        vertices, parameters = np.ascontiguousarray(edges.vertices), self.parameter_rows(edges)
        kernels, bounds = edges.kernels, edges.bounds
        if kernels is None or edges.widths is None or not kernels.any():
            number = self.edge_kind(edges.type, edges.variant, 0)
            return [(slice(None), (number, vertices, parameters, edges.rows, bounds))]
        found = []
        for kernel in np.unique(kernels).tolist():
            own, data = np.flatnonzero(kernels == kernel), edges.rows
            if kernel:
                data = np.concatenate([data, edges.widths[:, None]], axis=1)
            number = self.edge_kind(edges.type, edges.variant, kernel)
            limits = None if bounds is None else bounds[own]
            found.append((own, (number, vertices[own], parameters[own], data[own], limits)))
        return found

    def unpacked(self, number: int, data: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Measurements (m, d), information (m, r, r) and kernel widths (m,) of rows of data."""
        kind, variant, kernel = self.edge_kinds[number]
        dim = kind.residual_dim
        measurement = data[:, : kind.measurement_dim]
        width = data[:, -1] if kernel else np.ones(len(data))
        information = np.zeros((len(data), dim * dim))
        if variant == "identity":
            information[:] = np.eye(dim).ravel()
        else:
            columns = np.array(codegen.information_columns(dim, variant))
            packed = data[:, kind.measurement_dim : kind.measurement_dim + len(columns)]
            information[:, columns] = packed
            rows, others = np.divmod(columns, dim)
            information[:, others * dim + rows] = packed
        return measurement, information.reshape(-1, dim, dim), width
