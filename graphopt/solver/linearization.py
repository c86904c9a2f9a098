"""The normal equations as scipy matrices: `graphopt.linearize(graph)`.

    e(x oplus d) = e + J d,    W = diag(w_k Omega_k),    H = J' W J,    b = -J' W e,    H d = b

One block of rows per active edge, one block of columns per vertex that is optimized; w is the robust
kernel's weight rho'(e' Omega e), 1 without one. Nothing is damped, and no gauge is held: H is
singular while the graph can move as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

from graphopt.errors import GraphError
from graphopt.graph import EdgeSet, Graph, residuals
from graphopt.graph.selection import EdgeSelection
from graphopt.problem.inline import with_values_inlined
from graphopt.problem.structure import Structure
from graphopt.solver.cpu import compiled_edge
from graphopt.types.base import working_edge_type
from graphopt.types.robust_kernels import robust_kernel


@dataclass(frozen=True, eq=False)
class EdgeRows:
    """Where the edges of one set stand among the rows."""

    edge_set: EdgeSet
    rows: np.ndarray
    """(k,) int64: rows of the edge set that are active, ascending."""
    first: int
    """First scalar row; edge i of `rows` has `residual_dim` rows from first + i residual_dim on."""


@dataclass(frozen=True, eq=False)
class Linearization:
    """A graph at its present estimates; n scalars are optimized, there are m residuals."""

    H: scipy.sparse.csc_matrix
    """(n, n) J' W J, both triangles."""
    b: np.ndarray
    """(n,) -J' W e; a Gauss-Newton step solves H d = b."""
    J: scipy.sparse.csr_matrix
    """(m, n) derivative of the errors by the update: oplus(x, d) as each vertex type has it."""
    residuals: np.ndarray
    """(m,) errors, not weighted."""
    W: scipy.sparse.csr_matrix
    """(m, m) information matrices times the robust kernels' weights, symmetric, block diagonal."""
    chi2: float
    """Sum of rho(e' Omega e)."""
    vertex_ids: np.ndarray
    """(v,) int64: vertex of each block of columns. First those that are not marginalized, then the
    marginalized, each by ascending id."""
    offsets: np.ndarray
    """(v + 1,) int64: vertex i has the columns from offsets[i] to offsets[i + 1], one per component that it
    does not hold (`Graph.hold`)."""
    edges: tuple[EdgeRows, ...]
    """Order of the rows: the graph's edge sets, each by ascending row."""

    def columns(self, vertex_id: int) -> slice:
        """Columns of a vertex. `GraphError` if it is not optimized."""
        found = np.flatnonzero(self.vertex_ids == vertex_id)
        if not len(found):
            raise GraphError(
                f"Vertex {vertex_id} has no columns: it is not in the graph, is fixed, or has no active edge."
            )
        return slice(int(self.offsets[found[0]]), int(self.offsets[found[0] + 1]))


def linearize(graph: Graph, level: int = 0, *, vertices: Any = None, edges: Any = None) -> Linearization:
    """H, b, J, errors and W of the active part of a graph (`Graph.select`) at the present estimates.

    The estimates and the graph stay as they are. Computed values are inlined: the rows are those of edges
    between what they follow from. Raises `GraphError` where nothing is to be optimized, or an
    edge type is evaluated elsewhere (`EdgeType.is_external`).
    """
    problem = with_values_inlined(graph, graph.select(level, vertices, edges))
    graph, selection = problem.graph, problem.selection
    structure = Structure(selection)
    moves = _moving(structure)
    parts = [_Part(graph, structure, edge) for edge in structure.selection.edges]
    first = np.concatenate([[0], np.cumsum([len(part.errors) for part in parts])])
    J = scipy.sparse.csr_matrix(scipy.sparse.vstack([part.jacobian for part in parts]))[:, moves]
    W = scipy.sparse.csr_matrix(scipy.sparse.block_diag([part.weights for part in parts]))
    errors = np.concatenate([part.errors for part in parts])
    weighted = (J.T @ W).tocsr()
    return Linearization(
        H=(weighted @ J).tocsc(),
        b=-(weighted @ errors),
        J=J,
        residuals=errors,
        W=W,
        chi2=float(sum(part.chi2 for part in parts)),
        vertex_ids=np.array(structure.ids),
        offsets=np.concatenate([[0], np.cumsum(moves)])[structure.offsets],
        edges=tuple(
            EdgeRows(edge.edge_set, edge.rows, int(start))
            for edge, start in zip(structure.selection.edges, first[:-1], strict=True)
        ),
    )


def _moving(structure: Structure) -> np.ndarray:
    """(dim,) bool: scalars that are not held (`Graph.hold`)."""
    moves = np.ones(structure.dim, bool)
    for vertex_set, offsets in zip(structure.selection.vertex_sets, structure.vertex_offsets, strict=True):
        if vertex_set.held is not None:
            rows, components = np.nonzero(vertex_set.held & (offsets >= 0)[:, None])
            moves[offsets[rows] + components] = False
    return moves


class _Part:
    """The rows of one edge set."""

    def __init__(self, graph: Graph, structure: Structure, edges: EdgeSelection):
        kind = edges.edge_set.type
        if kind.is_external:
            raise GraphError(f"{kind.tag} is evaluated outside the block solver and has no Jacobian here.")
        inputs = residuals.working_arguments(graph, edges.edge_set, edges.rows)
        programs = compiled_edge(working_edge_type(kind), "identity", 0)
        stacked = np.concatenate(inputs, axis=1)
        count, dim = len(edges.rows), kind.residual_dim
        errors = programs.errors.run(stacked)
        self.errors = errors.ravel()
        self.chi2, self.weights = _weights(edges, errors)
        self.jacobian = _jacobian(structure, edges, programs.jacobians.run(stacked), count * dim)


def _weights(edges: EdgeSelection, errors: np.ndarray) -> tuple[float, scipy.sparse.bsr_matrix]:
    """Sum of rho, and the information matrices times the robust weights as a block diagonal matrix."""
    edge_set, rows = edges.edge_set, edges.rows
    information = edge_set.look("information")[rows].copy()
    squared = np.einsum("ki,kij,kj->k", errors, information, errors)
    rho, kernel, width = squared.copy(), edge_set.look("kernel")[rows], edge_set.look("kernel_width")[rows]
    for number in np.unique(kernel[kernel != 0]).tolist():
        mask = kernel == number
        rho[mask], weight = robust_kernel(number).function(squared[mask], width[mask])
        information[mask] *= np.asarray(weight)[:, None, None]
    count, dim = errors.shape
    places = (information, np.arange(count), np.arange(count + 1))
    return float(rho.sum()), scipy.sparse.bsr_matrix(places, shape=(count * dim, count * dim))


def _jacobian(
    structure: Structure, edges: EdgeSelection, values: np.ndarray, num_rows: int
) -> scipy.sparse.coo_matrix:
    """Blocks of all slots, (k, d * sum of tangent_dims) slot after slot, at the columns of their vertices."""
    kind, begin, data, rows, columns = edges.edge_set.type, 0, [], [], []
    first_row = np.arange(len(values))[:, None, None] * kind.residual_dim
    for slot, (number, vertex) in enumerate(zip(edges.vertex_sets, kind.vertices, strict=True)):
        size = kind.residual_dim * vertex.tangent_dim
        block = values[:, begin : begin + size].reshape(-1, kind.residual_dim, vertex.tangent_dim)
        begin += size
        offset = structure.vertex_offsets[number][edges.vertex_rows[:, slot]]
        free = offset >= 0
        shape = block[free].shape
        data.append(block[free].ravel())
        row = first_row[free] + np.arange(kind.residual_dim)[:, None]
        column = offset[free][:, None, None] + np.arange(vertex.tangent_dim)
        rows.append(np.broadcast_to(row, shape).ravel())
        columns.append(np.broadcast_to(column, shape).ravel())
    triplets = (np.concatenate(data), (np.concatenate(rows), np.concatenate(columns)))
    return scipy.sparse.coo_matrix(triplets, shape=(num_rows, structure.dim))
