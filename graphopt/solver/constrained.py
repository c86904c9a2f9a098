"""A block solver that adds what inequalities c(x) >= 0 put into Newton's equations, on any device.

    H + sum_k (rho_k A_k' A_k - y_k d2 c_k),    b + sum_k (y_k + t_k) A_k',    A_k = d c_k

It passes everything to the block solver of the other edges. c, A and curvature are evaluated on the host, by
all threads; y, rho and t are the interior point method's (`optimizer.interior_point`). chi2 stays that of the
other edges.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphopt.codegen.second_order import compile_constraint
from graphopt.cpu_kernels import kernels
from graphopt.graph import Graph
from graphopt.problem.structure import EdgeGroup, Structure
from graphopt.solver.around import SolverAround
from graphopt.solver.external import ExternalPlaces
from graphopt.solver.segments import Segments, places_of, stored_blocks, vertices_of
from graphopt.types.base import working_edge_type


def inequalities(structure: Structure) -> list[EdgeGroup]:
    """Those that take part."""
    return [group for group in structure.external if group.edge_set.type.inequality]


class ConstrainedSolver(SolverAround):
    """See the module's header; numbers of all inequalities follow each other, (k,)."""

    def __init__(self, inner: Any, graph: Graph):
        super().__init__(inner)
        structure: Structure = inner.structure
        groups = inequalities(structure)
        self._groups = [_Group(graph, structure, group) for group in groups]
        self._blocks = Segments([group.blocks for group in self._groups])
        self._parts = Segments([group.parts for group in self._groups])
        self._external = inner.external(
            ExternalPlaces(vertices_of(groups), self._blocks.places, self._parts.places)
        )
        self._ends = np.cumsum([group.count for group in self._groups])
        count = int(self._ends[-1])
        self.multipliers, self.stiffness, self._more = np.zeros((3, count))
        """y and rho of the next `linearize`."""
        self.share = 1.0
        """Of the curvature of inequalities that is added."""
        self.own_diagonal = np.zeros(self.dim)
        """Of H without the inequalities, at the last `linearize`."""

    def _split(self, numbers: np.ndarray) -> list[np.ndarray]:
        return np.split(numbers, self._ends[:-1])

    def origins(self) -> list[tuple[EdgeGroup, int, int]]:
        """(group, row of the group, component) of each number."""
        return [
            (group.edges, index // group.dim, index % group.dim)
            for group in self._groups
            for index in range(group.count)
        ]

    def values(self) -> np.ndarray:
        """c at the present estimates."""
        self._external.read_estimates()
        zero = self._split(np.zeros_like(self.multipliers))
        pairs = zip(self._groups, zero, strict=True)
        return np.concatenate([group.run(y)[:, : group.dim].ravel() for group, y in pairs])

    def along(self, step: np.ndarray) -> np.ndarray:
        """A dx, of the last `linearize`."""
        return np.concatenate([group.along(step) for group in self._groups])

    def squares(self, weights: np.ndarray) -> np.ndarray:
        """Sum of weights_j A_kj^2, of the last `evaluate`."""
        return np.concatenate([group.along(weights, squared=True) for group in self._groups])

    def bent_along(self, step: np.ndarray) -> float:
        """Dx' (sum y d2 c) dx, of the last `linearize`."""
        return sum(group.bent_along(step) for group in self._groups)

    def _pulled(self, numbers: np.ndarray) -> np.ndarray:
        sums = np.zeros(len(self._parts.places))
        for group, part in zip(self._groups, self._split(numbers), strict=True):
            self._parts.add(group.parts, group.pull(part), sums)
        return sums

    def add_to_b(self, more: np.ndarray) -> None:
        """t: stays until `evaluate`."""
        self._external.add(np.zeros(len(self._blocks.places)), self._pulled(more - self._more))
        self._more = more

    def evaluate(self) -> None:
        """Before the `linearize` at new estimates: c, A and curvature there; t is 0 again."""
        self._external.read_estimates()
        self._more = np.zeros_like(self._more)
        for group, y in zip(self._groups, self._split(self.multipliers), strict=True):
            group.evaluate(y)

    def linearize(self) -> float:
        """chi2 of the other edges; H and b of all."""
        chi2 = self._inner.linearize()
        self.own_diagonal = self._inner.diagonal.copy()
        values = np.zeros(len(self._blocks.places))
        for group, rho in zip(self._groups, self._split(self.stiffness), strict=True):
            self._blocks.add(group.blocks, group.curvature(rho, self.share), values)
        self._external.add(values, self._pulled(self.multipliers + self._more))
        return chi2

    def largest_gradient(self) -> float:
        """No gradient ends a run: that of the barrier is none of chi2."""
        return np.inf


class _Group:
    """Inequalities of one type: m edges of `dim` numbers."""

    def __init__(self, graph: Graph, structure: Structure, edges: EdgeGroup):
        self.edges, self._graph, self._structure = edges, graph, structure
        kind = self._kind = working_edge_type(edges.edge_set.type)
        self._program = compile_constraint(kind)
        self.dim = kind.residual_dim
        self.count = len(edges.rows) * self.dim
        self._dims = [vertex.tangent_dim for vertex in kind.vertices]
        self.blocks, self.parts = places_of(structure, edges)
        self._jacobians: list[np.ndarray] = []
        self._bent: list[np.ndarray] = []

    def run(self, multipliers: np.ndarray) -> np.ndarray:
        """(m, outputs) of the program at the graph's estimates; multipliers (m * dim,)."""
        edges, sets = self.edges, self._structure.selection.vertex_sets
        tables = []
        for number in edges.vertex_sets:
            form, estimate = sets[number].type.working, sets[number].look("estimate")
            tables.append(np.ascontiguousarray(estimate if form is None else form.encode(estimate)))
        measured = np.ascontiguousarray(edges.edge_set.look("measurement")[edges.rows])
        weights = np.ascontiguousarray(multipliers.reshape(-1, self.dim))
        data = [(array, list(range(array.shape[1]))) for array in (measured, weights) if array.shape[1]]
        return kernels.edge_outputs(
            self._program.native,
            tables,
            np.ascontiguousarray(edges.vertex_rows),
            [
                np.ascontiguousarray(self._graph.parameter_sets[number].look("values"))
                for number in edges.parameter_sets
            ],
            np.ascontiguousarray(edges.parameter_rows),
            data,
            None,
        )

    def evaluate(self, multipliers: np.ndarray) -> None:
        """A and curvature at the graph's estimates."""
        numbers = self.run(multipliers)
        at, self._jacobians = self.dim, []
        for size in self._dims:
            self._jacobians.append(numbers[:, at : at + self.dim * size].reshape(-1, self.dim, size))
            at += self.dim * size
        self._bent = []
        for (i, j), _, _ in self.blocks:
            rows, columns = self._dims[i], self._dims[j]
            block = np.zeros((len(numbers), rows, columns))
            for column in range(columns):
                count = column + 1 if i == j else rows
                block[:, :count, column] = numbers[:, at : at + count]
                at += count
            if i == j:
                block += np.triu(block, 1).transpose(0, 2, 1)
            self._bent.append(block)

    def along(self, step: np.ndarray, squared: bool = False) -> np.ndarray:
        """A dx; squared: of the squares of A's entries."""
        found = np.zeros((len(self.edges.rows), self.dim))
        for jacobian, (_, offset, size) in zip(self._jacobians, self.parts, strict=True):
            moves = np.flatnonzero(offset >= 0)
            of_vertex = step[offset[moves, None] + np.arange(size)]
            block = jacobian[moves] ** 2 if squared else jacobian[moves]
            found[moves] += (block @ of_vertex[:, :, None])[:, :, 0]
        return found.ravel()

    def pull(self, numbers: np.ndarray) -> list[np.ndarray]:
        """A' numbers, by slot."""
        column = numbers.reshape(-1, self.dim, 1)
        return [(jacobian.transpose(0, 2, 1) @ column)[:, :, 0] for jacobian in self._jacobians]

    def bent_along(self, step: np.ndarray) -> float:
        """Dx' (sum y d2 c) dx."""
        parts = [
            np.where(offset[:, None] >= 0, step[np.maximum(offset, 0)[:, None] + np.arange(size)], 0.0)
            for _, offset, size in self.parts
        ]
        total = 0.0
        for ((i, j), _, _), block in zip(self.blocks, self._bent, strict=True):
            found = float(np.einsum("mi,mij,mj->", parts[i], block, parts[j]))
            total += found if i == j else 2.0 * found
        return total

    def curvature(self, stiffness: np.ndarray, share: float) -> list[np.ndarray]:
        """rho A' A - share y d2 c by pair of slots, the stored blocks by columns."""
        rho = stiffness.reshape(-1, self.dim, 1)
        found = []
        for number, ((i, j), _, size) in enumerate(self.blocks):
            block = self._jacobians[i].transpose(0, 2, 1) @ (rho * self._jacobians[j])
            block -= share * self._bent[number]
            found.append(stored_blocks(self.edges, number, block, size))
        return found
