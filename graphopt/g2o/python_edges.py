"""A block solver for graphs with vertices and edges that are defined in Python.

It passes everything to the block solver of the other edges and adds the parts of the Python edges to its H
and b:

    H_ij += J_i' w Omega J_j,    b_i -= J_i' w Omega e,    chi2 += rho(e' Omega e)

Their places in H are those of the placeholder edges of `problem`. Vertices with their own `oplus_impl` are
moved by it. The estimates go to the objects before Python code runs. Information matrices of plane-to-plane
GICP edges are set before each evaluation.
"""

from __future__ import annotations

from itertools import combinations_with_replacement
from typing import Any

import numpy as np

from graphopt.g2o.edges import numeric_jacobians
from graphopt.g2o.problem import EdgeList, Problem, VertexList
from graphopt.solver.structure import EdgeGroup, Structure
from graphopt.solver.trial import TrialsByParts
from graphopt.types.robust_kernels import robust_kernel


class PythonEdgeSolver(TrialsByParts):
    """Implements `BlockSolver` around another one."""

    def __init__(self, inner: Any, problem: Problem):
        self._inner = inner
        self._problem = problem
        self.structure: Structure = inner.structure
        self.dim = inner.dim
        lists = {id(one.edge_set): one for one in problem.edge_lists if one.is_python}
        self._groups = [
            (group, lists[id(group.edge_set)])
            for group in self.structure.groups
            if id(group.edge_set) in lists
        ]
        self._moved = [one for one in problem.vertex_lists if one.is_python]
        self._planes = [one for one in problem.edge_lists if one.has_planes and len(one.active)]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    @property
    def precision(self) -> str:
        """That of the other edges' solver."""
        return self._inner.precision

    @property
    def dx(self) -> np.ndarray:
        """(dim,) step."""
        return self._inner.dx

    @dx.setter
    def dx(self, step: np.ndarray) -> None:
        self._inner.dx = step

    def linearize(self) -> float:
        """H, b and robust chi2 of all edges."""
        self._set_plane_information()
        total = self._inner.linearize()
        self._give_estimates()
        system = getattr(self._inner, "system", None) if self._groups else None
        if system is not None:  # a device that has H and b on their way already
            system.wait_upload()
        for group, edges in self._groups:
            for place, row in enumerate(group.rows.tolist()):
                total += self._add(group, place, edges.objects[row])
        if system is not None:
            system.upload()
        return total

    def chi2(self) -> float:
        """Robust chi2 of all edges."""
        self._set_plane_information()
        total = self._inner.chi2()
        self._give_estimates()
        for group, edges in self._groups:
            for row in group.rows.tolist():
                edge = edges.objects[row]
                edge.compute_error()
                total += _robust(edge)[0]
        return total

    def _give_estimates(self) -> None:
        """Bring the estimates to the objects for Python code."""
        if self._groups:
            self._inner.finish()
            self._problem.give_estimates()

    def _set_plane_information(self) -> None:
        if self._planes:
            self._inner.finish()
            for edges in self._planes:
                edges.set_plane_information(self._problem.graph)
            self._inner.refresh()

    def update(self) -> None:
        """Move all vertices."""
        self._inner.update()
        for vertices in self._moved:
            number = self.structure.selection.vertex_sets.index(vertices.vertex_set)
            self._move(vertices, self.structure.vertex_offsets[number])

    def _move(self, vertices: VertexList, offsets: np.ndarray) -> None:
        estimates = vertices.vertex_set.estimate
        for row in vertices.is_python:
            offset = int(offsets[row])
            if offset < 0:
                continue
            vertex = vertices.objects[row]
            vertex._chunk.estimate[vertex._row] = estimates[row]
            vertex.oplus_impl(self._inner.dx[offset : offset + vertex.dimension()].copy())
            estimates[row] = vertex._chunk.estimate[vertex._row]

    def _add(self, group: EdgeGroup, place: int, edge: Any) -> float:
        """Add one edge to H and b; returns rho(chi2)."""
        edge.compute_error()
        edge._jacobians = None
        edge.linearize_oplus()
        if edge._jacobians is None:  # an override that leaves it to g2o
            edge._jacobians = numeric_jacobians(edge)
        chi2, weight = _robust(edge)
        weighted = weight * edge._chunk.information[edge._row]
        error = edge._chunk.error[edge._row]
        jacobians = edge._jacobians
        arity = len(jacobians)
        for slot, jacobian in enumerate(jacobians):
            number = group.vertex_sets[slot]
            offset = int(self.structure.vertex_offsets[number][group.vertex_rows[place, slot]])
            if offset >= 0:
                self._inner.b[offset : offset + jacobian.shape[1]] -= jacobian.T @ (weighted @ error)
        pairs = combinations_with_replacement(range(arity), 2)
        values = self._inner.values
        for pair, (i, j) in enumerate(pairs):
            at = int(group.block_offset[place, pair])
            if at < 0:
                continue
            block = jacobians[i].T @ weighted @ jacobians[j]
            if group.block_transposed[place, pair]:
                block = block.T
            values[at : at + block.size] += block.ravel(order="F")
        return chi2


def _robust(edge: Any) -> tuple[float, float]:
    """(rho, weight) of an edge's last error."""
    chi2 = edge.chi2()
    number, width = (0, 1.0) if edge._kernel is None else edge._kernel._for_solver()
    if not number:
        return chi2, 1.0
    value, weight = robust_kernel(number).function(chi2, width)
    return float(value), float(weight)


def needs_python(problem: Problem) -> bool:
    """Some active edge or vertex is defined in Python, or its information follows from the estimates."""
    edges: list[EdgeList] = problem.edge_lists
    return any((one.is_python or one.has_planes) and len(one.active) for one in edges) or any(
        one.is_python for one in problem.vertex_lists
    )
