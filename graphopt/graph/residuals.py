"""Errors and chi2 of edges in plain numpy, straight from the residual functions of `types`.

    chi2 = sum rho(e' Omega e)

It needs no compiled code: the optimizer's native results are tested against it, and `Edge.chi2()` uses it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from graphopt.types.base import working_edge_type
from graphopt.types.robust_kernels import robust_kernel


class Graph(Protocol):
    """What residuals need of a `GraphStore`."""

    @property
    def version(self) -> int:
        """Changes when vertices or edges come or go."""
        ...

    @property
    def vertex_sets(self) -> Sequence[Any]:
        """All sets of vertices."""
        ...

    @property
    def parameter_sets(self) -> Sequence[Any]:
        """All sets of parameters."""
        ...

    def edge_places(self, edge_set: Any, rows: Any) -> tuple[Sequence[int], Any, Sequence[int], Any]:
        """Numbers of the vertex sets and rows in them (k, arity); the same of parameters."""
        ...


class EdgeSet(Protocol):
    """What they need of a set of edges (`sets.EdgeSet`)."""

    @property
    def type(self) -> Any:
        """The edges' type."""
        ...

    @property
    def arity(self) -> int:
        """Vertices of an edge."""
        ...

    def look(self, name: str) -> np.ndarray:
        """The array of a name to read only."""
        ...


def arguments(graph: Graph, edge_set: EdgeSet, rows: np.ndarray) -> list[np.ndarray]:
    """Arguments of the residual for these rows, (k, dim) each: estimates, parameters, measurement."""
    vertex_sets, vertex_rows, parameter_sets, parameter_rows = graph.edge_places(edge_set, rows)
    return [
        *(graph.vertex_sets[number].estimate[vertex_rows[:, i]] for i, number in enumerate(vertex_sets)),
        *(
            graph.parameter_sets[number].values[parameter_rows[:, i]]
            for i, number in enumerate(parameter_sets)
        ),
        edge_set.look("measurement")[rows],
    ]


def working_arguments(graph: Graph, edge_set: EdgeSet, rows: np.ndarray) -> list[np.ndarray]:
    """`arguments` with the estimates in their working forms."""
    return _in_working_form(edge_set, arguments(graph, edge_set, rows))


def _in_working_form(edge_set: EdgeSet, values: list[np.ndarray]) -> list[np.ndarray]:
    encoded = list(values)
    for i, vertex in enumerate(edge_set.type.vertices):
        if vertex.working is not None:
            encoded[i] = vertex.working.encode(values[i])
    return encoded


def errors(graph: Graph, edge_set: EdgeSet, rows: np.ndarray) -> np.ndarray:
    """(k, residual_dim) errors of these rows."""
    return errors_of(edge_set, arguments(graph, edge_set, rows))


def errors_of(edge_set: EdgeSet, values: list[np.ndarray]) -> np.ndarray:
    """(k, residual_dim) errors for these `arguments`, (k, dim) each."""
    if edge_set.type.outside is not None:
        return edge_set.type.outside.residual_of(edge_set.type, values)
    edge_type = working_edge_type(edge_set.type)
    encoded, arity = _in_working_form(edge_set, values), edge_set.arity
    residual = edge_type.error(tuple(encoded[:arity]), tuple(encoded[arity:-1]), encoded[-1])
    residual = np.asarray(residual, np.float64)
    return np.broadcast_to(residual, (len(values[-1]), edge_type.residual_dim))


def edge_chi2(graph: Graph, edge_set: EdgeSet, rows: np.ndarray) -> np.ndarray:
    """(k,) e' Omega e of these rows, without robust kernels."""
    error = errors(graph, edge_set, rows)
    return np.einsum("ki,kij,kj->k", error, edge_set.look("information")[rows], error)


def robust_chi2(graph: Graph, edge_set: EdgeSet, rows: np.ndarray) -> np.ndarray:
    """(k,) rho(e' Omega e) of these rows."""
    squared = edge_chi2(graph, edge_set, rows)
    kernel, width = edge_set.look("kernel")[rows], edge_set.look("kernel_width")[rows]
    result = squared.copy()
    for number in np.unique(kernel[kernel != 0]).tolist():
        mask = kernel == number
        result[mask] = robust_kernel(number).function(squared[mask], width[mask])[0]
    return result
