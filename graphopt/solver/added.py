"""A block solver for graphs with edges that are evaluated elsewhere, beside those that are compiled.

It passes everything to the block solver of the compiled edges, on whatever device that is, and adds

    H_ij += J_i' w Omega J_j,    b_i -= J_i' w Omega e,    chi2 += rho(e' Omega e)

Subclasses of `AddedEdgesSolver` say what is added: `OutsideEdgesSolver` the edges of types with a function of
arrays (`EdgeType.outside`), once per linearization and once per chi2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations_with_replacement
from typing import Any

import numpy as np

from graphopt.codegen.second_order import compile_oplus_jacobian
from graphopt.graph import Graph
from graphopt.problem.segments import runs
from graphopt.problem.structure import EdgeGroup, Structure
from graphopt.solver.around import SolverAround
from graphopt.solver.external import ExternalPlaces
from graphopt.solver.trial import Damping, Trial
from graphopt.types.robust_kernels import robust_kernel


class AddedEdgesSolver(SolverAround):
    """Adds edges to those of another block solver."""

    def __init__(self, inner: Any, places: ExternalPlaces):
        super().__init__(inner)
        self._external = inner.external(places)
        self._chi2 = np.nan
        """At the present estimates, where it is known."""
        self._pushed: list[float] = []
        """The same of the estimates that were pushed."""

    # ---------------------------------------------------------------- of subclasses

    def _bring_estimates(self) -> None:
        """Bring the present estimates to where the edges are evaluated."""
        self._external.read_estimates()

    def _added(self) -> tuple[float, np.ndarray, np.ndarray]:
        """Chi2 of the edges, and what they add to H and b at their places, after `_bring_estimates`."""
        raise NotImplementedError  # pragma: no cover - of subclasses

    def _added_chi2(self) -> float:
        """Chi2 of the edges, after `_bring_estimates`."""
        raise NotImplementedError  # pragma: no cover - of subclasses

    # ---------------------------------------------------------------- BlockSolver

    def linearize(self) -> float:
        """H, b and robust chi2 of all edges; a device computes its part meanwhile."""
        self._bring_estimates()
        total = self._inner.linearize()
        own, values, b = self._added()
        if len(b):
            self._external.add(values, b)
        self._chi2 = total + own
        return self._chi2

    def chi2(self) -> float:
        """Robust chi2 of all edges."""
        self._chi2 = self._inner.chi2() + self._chi2_here()
        return self._chi2

    def _chi2_here(self) -> float:
        self._bring_estimates()
        return self._added_chi2()

    def trial(self, damping: Damping) -> Trial:
        """Solve, push, update, and chi2 of all edges."""
        return self._with_added_chi2(self._inner.trial(damping))

    def move(self) -> Trial:
        """Push, update, and chi2 of all edges."""
        return self._with_added_chi2(self._inner.move())

    def _with_added_chi2(self, done: Trial) -> Trial:
        if not done.solved:
            return done
        self._pushed.append(self._chi2)
        try:
            self._chi2 = done.chi2 + self._chi2_here()
        except BaseException:
            self.pop()
            raise
        return replace(done, chi2=self._chi2)

    def push(self) -> None:
        """Remember the estimates."""
        self._inner.push()
        self._pushed.append(self._chi2)

    def pop(self) -> None:
        """Return to the last push."""
        self._inner.pop()
        self._chi2 = self._pushed.pop()

    def discard_top(self) -> None:
        """Forget the last push."""
        self._inner.discard_top()
        self._pushed.pop()

    def largest_diagonal(self) -> float:
        """Largest absolute entry of H's diagonal."""
        return self._inner.largest_diagonal()

    def largest_gradient(self) -> float:
        """Largest absolute entry of b."""
        return self._inner.largest_gradient()


class OutsideEdgesSolver(AddedEdgesSolver):
    """Adds the edges of types whose residual and Jacobian functions of arrays compute."""

    def __init__(self, inner: Any, graph: Graph):
        structure: Structure = inner.structure
        outside = _outside(structure)
        self._groups = [OutsideGroup(graph, structure, group) for group in outside]
        self._blocks = Segments([group.blocks for group in self._groups])
        self._parts = Segments([group.parts for group in self._groups])
        super().__init__(inner, ExternalPlaces(vertices_of(outside), self._blocks.places, self._parts.places))

    def _added(self) -> tuple[float, np.ndarray, np.ndarray]:
        total = 0.0
        blocks, parts = np.zeros(len(self._blocks.places)), np.zeros(len(self._parts.places))
        for group in self._groups:
            chi2, of_blocks, of_parts = group.linearize()
            total += chi2
            self._blocks.add(group.blocks, of_blocks, blocks)
            self._parts.add(group.parts, of_parts, parts)
        return total, blocks, parts

    def _added_chi2(self) -> float:
        return sum(group.chi2() for group in self._groups)

    def first_non_finite(self) -> str | None:
        """Name the first edge that is not finite."""
        self._bring_estimates()
        found = [name for group in self._groups if (name := group.first_non_finite()) is not None]
        return found[0] if found else self._inner.first_non_finite()


class OutsideGroup:
    """Edges of one type that are evaluated outside."""

    def __init__(self, graph: Graph, structure: Structure, group: EdgeGroup):
        self._graph, self._structure, self._group = graph, structure, group
        self._kind = group.edge_set.type
        assert self._kind.outside is not None
        self._outside = self._kind.outside
        self.blocks, self.parts = places_of(structure, group)

    def _arguments(self) -> list[np.ndarray]:
        """(m, dim) each: estimates, parameters, measurement."""
        group, sets = self._group, self._structure.selection.vertex_sets
        rows, parameters = group.rows, self._graph.parameter_sets
        return [
            *(
                sets[number].look("estimate")[group.vertex_rows[:, slot]]
                for slot, number in enumerate(group.vertex_sets)
            ),
            *(
                parameters[number].look("values")[group.parameter_rows[:, slot]]
                for slot, number in enumerate(group.parameter_sets)
            ),
            group.edge_set.look("measurement")[rows],
        ]

    def _robust(self, residual: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(m,) rho and weight, (m, r) Omega e."""
        edges, rows = self._group.edge_set, self._group.rows
        weighted = np.einsum("mij,mj->mi", edges.look("information")[rows], residual)
        chi2 = (weighted * residual).sum(axis=1)
        if not self._group.kernel:
            return chi2, np.ones(len(chi2)), weighted
        width = edges.look("kernel_width")[rows]
        rho, weight = robust_kernel(self._group.kernel).function(chi2, width)
        return rho, np.broadcast_to(weight, chi2.shape), weighted

    def chi2(self) -> float:
        """Robust chi2 of all."""
        return float(self._robust(self._residual(self._arguments()))[0].sum())

    def _residual(self, arguments: list[np.ndarray]) -> np.ndarray:
        return self._outside.residual_of(self._kind, arguments)

    def linearize(self) -> tuple[float, list[np.ndarray], list[np.ndarray]]:
        """Robust chi2; by pair of slots the blocks of H, by columns (m, scalars); by slot those of b."""
        arguments = self._arguments()
        residual, by_storage = self._outside.linearize_of(self._kind, arguments)
        jacobians = [
            block @ _oplus_jacobians(vertex, values)
            for block, vertex, values in zip(by_storage, self._kind.vertices, arguments, strict=False)
        ]
        rho, weight, weighted = self._robust(residual)
        information = weight[:, None, None] * self._group.edge_set.look("information")[self._group.rows]
        weighted_jacobians = [information @ jacobian for jacobian in jacobians]
        blocks = []
        for number, ((i, j), _, size) in enumerate(self.blocks):
            block = jacobians[i].transpose(0, 2, 1) @ weighted_jacobians[j]
            blocks.append(stored_blocks(self._group, number, block, size))
        right = (weight[:, None] * weighted)[:, :, None]
        parts = [-(jacobian.transpose(0, 2, 1) @ right)[:, :, 0] for jacobian in jacobians]
        return float(rho.sum()), blocks, parts

    def first_non_finite(self) -> str | None:
        """A sentence about the first edge that is not finite."""
        residual, by_storage = self._outside.linearize_of(self._kind, self._arguments())
        for what, array in (("error", residual), *(("Jacobian", block) for block in by_storage)):
            bad = ~np.isfinite(array.reshape(len(array), -1)).all(axis=1)
            if bad.any():
                row = int(self._group.rows[np.argmax(bad)])
                ids = ", ".join(map(str, self._group.edge_set.look("vertices")[row].tolist()))
                return f"The {what} of {self._kind.tag} between vertices {ids} (row {row}) is not finite."
        return None


Places = list[tuple[Any, np.ndarray, int]]
"""(pair of slots or slot, (m,) first scalar in H or b, -1: none, scalars) of a group's edges."""


def vertices_of(groups: Sequence[EdgeGroup]) -> dict[int, np.ndarray]:
    """Number of a vertex set -> (k,) ascending rows of vertices that the edges have."""
    rows: dict[int, list[np.ndarray]] = {}
    for group in groups:
        for slot, number in enumerate(group.vertex_sets):
            rows.setdefault(number, []).append(group.vertex_rows[:, slot])
    return {number: np.unique(np.concatenate(some)).astype(np.int64) for number, some in rows.items()}


def places_of(structure: Structure, group: EdgeGroup) -> tuple[Places, Places]:
    """Of the blocks of H by pair of slots, and of the parts of b by slot."""
    dims = [vertex.tangent_dim for vertex in group.edge_set.type.vertices]
    blocks = [
        (pair, group.block_offset[:, number], dims[pair[0]] * dims[pair[1]])
        for number, pair in enumerate(combinations_with_replacement(range(len(dims)), 2))
    ]
    parts = [
        (slot, structure.vertex_offsets[number][group.vertex_rows[:, slot]], dims[slot])
        for slot, number in enumerate(group.vertex_sets)
    ]
    return blocks, parts


def stored_blocks(group: EdgeGroup, number: int, block: np.ndarray, size: int) -> np.ndarray:
    """(m, size) what H stores of a pair's blocks (m, rows, columns), by columns."""
    turned = group.block_transposed[:, number]
    flat = block.transpose(0, 2, 1).reshape(-1, size)
    flat[turned] = block.reshape(-1, size)[turned]
    return flat


class Segments:
    """Where the segments of many edges begin among all scalars that they add to."""

    def __init__(self, groups: list[Places]):
        sizes: dict[int, int] = {}
        for segments in groups:
            for _, offset, size in segments:
                sizes.update(dict.fromkeys(np.unique(offset[offset >= 0]).tolist(), size))
        self._known = np.array(sorted(sizes), np.int64)
        lengths = np.array([sizes[at] for at in self._known.tolist()], np.int64)
        self._first = np.concatenate([[0], np.cumsum(lengths)])
        self.places: np.ndarray = runs(self._known, lengths)
        """(n,) int64: all scalars."""
        self._rows = {
            id(segments): [self._placed(offset) for _, offset, _ in segments] for segments in groups
        }
        """By segments, which stay: edges that have one, and its first scalar among all."""

    def _placed(self, offset: np.ndarray) -> tuple[np.ndarray | slice, np.ndarray]:
        rows = np.flatnonzero(offset >= 0)
        first = self._first[np.searchsorted(self._known, offset[rows])]
        return slice(None) if len(rows) == len(offset) else rows, first

    def add(self, segments: Places, numbers: list[np.ndarray], sums: np.ndarray) -> None:
        """Add numbers (m, size) of segments to the sums, in the order of the edges."""
        for (_, _, size), own, (rows, first) in zip(segments, numbers, self._rows[id(segments)], strict=True):
            places = (first[:, None] + np.arange(size)).ravel()
            sums += np.bincount(places, own[rows].ravel(), len(sums))


def _oplus_jacobians(vertex: Any, storage: np.ndarray) -> np.ndarray:
    """(m, storage_dim, tangent_dim)."""
    found = compile_oplus_jacobian(vertex).run(np.ascontiguousarray(storage))
    return found.reshape(len(storage), vertex.storage_dim, vertex.tangent_dim)


def _outside(structure: Structure) -> list[EdgeGroup]:
    """External edges that are errors."""
    return [group for group in structure.external if not group.edge_set.type.inequality]


def with_outside_edges(inner: Any, graph: Graph) -> Any:
    """The block solver, or one around it that adds the edges that are evaluated outside."""
    outside = _outside(inner.structure)
    if not outside or any(group.edge_set.type.outside is None for group in outside):
        return inner  # or the program that made these types adds them
    return OutsideEdgesSolver(inner, graph)
