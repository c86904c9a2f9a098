"""A block solver for graphs with edges that are evaluated elsewhere, beside those that are compiled.

It passes everything to the block solver of the compiled edges, on whatever device that is, and adds

    H_ij += J_i' w Omega J_j,    b_i -= J_i' w Omega e,    chi2 += rho(e' Omega e)

Subclasses of `AddedEdgesSolver` say what is added: `OutsideEdgesSolver` the edges of types with a function of
arrays (`EdgeType.outside`), once per linearization and once per chi2.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from graphopt.codegen.second_order import compile_oplus_jacobian
from graphopt.graph import Graph
from graphopt.problem.structure import EdgeGroup, Structure
from graphopt.solver.added_arrays import AddedOnDevice, by_library
from graphopt.solver.around import SolverAround
from graphopt.solver.external import ExternalPlaces
from graphopt.solver.segments import Segments, places_of, stored_blocks, vertices_of
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
        self._graph, structure = graph, inner.structure
        outside = _outside(structure)
        self._there: list[AddedOnDevice] = []
        """What is evaluated on the block solver's device."""
        for some in by_library(outside):
            added = AddedOnDevice(graph, structure, some, inner)
            if added.part is not None:
                self._there.append(added)
                outside = [group for group in outside if group not in some]
        self._groups = [OutsideGroup(graph, structure, group) for group in outside]
        self._blocks = Segments([group.blocks for group in self._groups])
        self._parts = Segments([group.parts for group in self._groups])
        super().__init__(inner, ExternalPlaces(vertices_of(outside), self._blocks.places, self._parts.places))

    def _added(self) -> tuple[float, np.ndarray, np.ndarray]:
        total = sum(added.linearize() for added in self._there)
        blocks, parts = np.zeros(len(self._blocks.places)), np.zeros(len(self._parts.places))
        for group in self._groups:
            chi2, of_blocks, of_parts = group.linearize()
            total += chi2
            self._blocks.add(group.blocks, of_blocks, blocks)
            self._parts.add(group.parts, of_parts, parts)
        return total, blocks, parts

    def _added_chi2(self) -> float:
        return sum(one.chi2() for one in (*self._there, *self._groups))

    def first_non_finite(self) -> str | None:
        """Name the first edge that is not finite."""
        self._inner.finish()
        found = [group.first_non_finite() for group in self._all_here()]
        return next((name for name in found if name is not None), None) or self._inner.first_non_finite()

    def _all_here(self) -> list[OutsideGroup]:
        """All groups, as the host evaluates them."""
        outside = _outside(self.structure)
        return [OutsideGroup(self._graph, self.structure, group) for group in outside]


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
