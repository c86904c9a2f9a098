"""The exact Hessian and gradient of chi2 / 2, in the arrays of a block solver.

    (K + D) dx = b,    K = sum d2 (rho / 2),    b = -sum d (rho / 2)

K has the block pattern of the normal equations, so whatever solves these solves it: the block solver's H is
overwritten by K, and nothing but the edges' data is held twice.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from graphopt.codegen.second_order import compile_curvature
from graphopt.errors import GradientError, SolverError
from graphopt.graph import Graph
from graphopt.graph.bounds import constraints_of
from graphopt.linear.null_space import find_null_space
from graphopt.linear.options import SolverOptions
from graphopt.linear.vectors import norm
from graphopt.problem.structure import EdgeGroup, Structure
from graphopt.solver.cpu import CpuBlockSolver, add_programs, edge_data, make_linearizer
from graphopt.solver.edge_errors import edge_errors
from graphopt.solver.marginals import describe
from graphopt.types.base import working_edge_type

GROWTH = 1e12
"""Of a vector under inv(K) D: beyond, K is singular up to rounding."""
DAMPING = 1e-8
"""Share of K's diagonal that singular="damp" adds to it."""
_EXACT = 1e-10  # residual of a solution, relative, that is not refined
_REFINEMENTS = 3


class ExactEquations:
    """K and b at the estimates of a block solver, which solves with them."""

    def __init__(self, graph: Graph, solver: Any):
        self.solver, self.structure = solver, solver.structure
        self._graph = weakref.ref(graph)
        self._holds = _held_scalars(solver.structure)
        self._damping: np.ndarray | None = None
        self._weight = np.ones(0)

    def refresh(self) -> None:
        """Take the graph's present numbers, which the block solver has."""
        self._holds = _held_scalars(self.structure)

    def linearize(self) -> float:
        """K and b at the present estimates; returns chi2."""
        raise NotImplementedError

    def chi2(self) -> float:
        """Robustified chi2 at the present estimates."""
        raise NotImplementedError

    def edge_chi2(self) -> list[tuple[EdgeGroup, np.ndarray]]:
        """(m,) e' Omega e of each group, without robust kernels."""
        raise NotImplementedError

    def move(self, step: np.ndarray) -> float:
        """Remember the estimates, move them by a step, and return chi2 there."""
        self.solver.dx = step
        self.solver.push()
        self.solver.update()
        return self.chi2()

    def factorize(self, right: np.ndarray | None, damp: bool) -> np.ndarray | None:
        """x (dim,) of (K + D) x = right, None: = b; None: K + D is not positive definite.

        D holds components that the graph holds, and with `damp` is a share of K's diagonal.
        """
        self._damping = None
        if damp or self._holds.any():
            diagonal = np.abs(self.solver.diagonal)
            damping = DAMPING * diagonal if damp else np.zeros(len(diagonal))
            damping[self._holds] = 1e30 * max(float(diagonal.max()), 1.0)
            given: np.ndarray = self.solver.b if right is None else right
            self._damping, right = damping, np.where(self._holds, 0.0, given)
        x = self._solve(right)
        if x is None:
            return None
        self._weight = 1.0 / np.sqrt(np.maximum(np.abs(self.solver.diagonal), 1e-300))
        return self._refined(x, self.solver.b if right is None else right)[0]

    def _solve(self, right: np.ndarray | None) -> np.ndarray | None:
        """As `factorize`, as exactly as the block solver does."""
        raise NotImplementedError

    def _solve_again(self, right: np.ndarray) -> np.ndarray:
        """Another right-hand side after `_solve`."""
        raise NotImplementedError

    def solve_again(self, right: np.ndarray) -> np.ndarray:
        """Another right-hand side after `factorize`."""
        right = np.where(self._holds, 0.0, right)
        return self._refined(self._solve_again(right), right)[0]

    def solve_nearby(self, right: np.ndarray) -> np.ndarray | None:
        """Another right-hand side after `linearize_again`, by the factor of before; None: too far from K."""
        right = np.where(self._holds, 0.0, right)
        x, is_exact = self._refined(self._solve_again(right), right)
        return x if is_exact else None

    def linearize_again(self) -> None:
        """K and b where the last step has ended, after `factorize` and with its factor."""
        raise NotImplementedError

    def _refined(self, x: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, bool]:
        """Iterative refinement of what is not exact (conjugate gradients, condition, factor of another K).

        Returns whether it is exact now, too.
        """
        size, before = norm(self._weight * right), np.inf
        for number in range(_REFINEMENTS + 1):
            rest = right - self.multiply(x)
            left = norm(self._weight * rest)
            if number == _REFINEMENTS or not _EXACT * size < left < 0.5 * before:
                break
            before = left
            x = x + self._solve_again(rest)
        x = np.where(self._holds, 0.0, x) if self._damping is not None else x
        return x, left <= _EXACT * size

    def multiply(self, x: np.ndarray) -> np.ndarray:
        """(K + D) x, with what the last `factorize` has factorized."""
        product = self.solver.multiply(x)
        return product if self._damping is None else product + self._damping * x

    def growth(self) -> float:
        """How much inv(K) D lets a vector grow: 1 of a diagonal matrix, without bound of a singular one."""
        root = np.sqrt(np.abs(self.solver.diagonal))
        x = np.random.default_rng(0).standard_normal(len(root))
        return norm(root * self._solve_again(np.where(self._holds, 0.0, root * x))) / norm(x)

    def why_not_definite(self) -> str:
        """A sentence about a K that could not be factorized, or hardly; Gauss-Newton's H takes its place.

        Directions that change no error are looked for in J' w Omega J: away from the optimum K has none.
        """
        if not np.isfinite(self.solver.values).all():
            return "The Hessian is not finite: a function has no second derivative there."
        self.solver.linearize()
        try:
            space = find_null_space(self.structure.pattern, self.solver.values, self.structure.num_kept)
        except SolverError as error:
            return str(error)
        if space.num_directions == 0:
            return (
                "The Hessian is indefinite, or too ill-conditioned to be factorized: this is no minimum, or "
                "a robust kernel is so steep that the end is a saddle. Optimize further, or start elsewhere."
            )
        return (
            f"The Hessian is singular: {describe(space, self.structure)}. Fix vertices, hold components "
            "(Graph.hold), add priors, or pass singular='damp' where the loss does not depend on them."
        )


class HostEquations(ExactEquations):
    """On the CPU: programs of K overwrite the block solver's H."""

    def __init__(self, graph: Graph, solver: CpuBlockSolver):
        super().__init__(graph, solver)
        self.linearizer, self._groups = make_linearizer(
            graph.parameter_sets, solver.structure, solver.estimates, add_group=_add_group
        )
        self._digests = {number: group.data_fingerprints() for number, group in self._groups}

    def refresh(self) -> None:
        """Take the graph's measurements, information and kernel widths that have changed."""
        super().refresh()
        for number, group in self._groups:
            digests = group.data_fingerprints()
            if digests != self._digests[number]:
                self.linearizer.set_edge_data(number, *_data(group))
                self._digests[number] = digests

    def linearize(self) -> float:
        """K and b at the present estimates; returns chi2."""
        with self.solver.changing_equations():
            return self.linearizer.linearize(self.solver.values, self.solver.b)

    def linearize_again(self) -> None:
        """See `ExactEquations`; the graph has these estimates and parameters."""
        self.solver.take_all_estimates()
        self.linearize()

    def chi2(self) -> float:
        """Robustified chi2 at the present estimates."""
        return self.linearizer.chi2()

    def edge_chi2(self) -> list[tuple[EdgeGroup, np.ndarray]]:
        """(m,) e' Omega e of each group, without robust kernels."""
        return [(group, self.linearizer.edge_chi2(number)) for number, group in self._groups]

    def _solve(self, right: np.ndarray | None) -> np.ndarray | None:
        if right is not None:
            self.solver.b[:] = right
        solved = self.solver.solve(0.0 if self._damping is None else self._damping)
        return self.solver.dx.copy() if solved else None

    def _solve_again(self, right: np.ndarray) -> np.ndarray:
        return self.solver.solve_again(right)

    def product(self, values: np.ndarray, x: np.ndarray) -> np.ndarray:
        """(K + D) x with other values (see `Structure`) of K."""
        product = self.solver.product(values, x)
        return product if self._damping is None else product + self._damping * x


class DeviceEquations(ExactEquations):
    """On a device: kernels of K fill the H of a block solver `in_second_order`, and it stays there."""

    def refresh(self) -> None:
        """The block solver that it shares its arrays with has taken the graph's numbers."""
        super().refresh()
        self.solver.system.reset()

    def linearize(self) -> float:
        """K and b at the present estimates; returns chi2."""
        return self.solver.linearize()

    def linearize_again(self) -> None:
        """See `ExactEquations`; whatever the graph has."""
        self.solver.linearize_apart()

    def move(self, step: np.ndarray) -> float:
        """See `ExactEquations`; in one submission."""
        self.solver.dx = step
        return self.solver.move().chi2

    def chi2(self) -> float:
        """Robustified chi2 at the present estimates."""
        return self.solver.chi2()

    def edge_chi2(self) -> list[tuple[EdgeGroup, np.ndarray]]:
        """(m,) e' Omega e of the groups with a robust kernel, by the CPU."""
        graph, found = self._graph(), []
        assert graph is not None
        robust = [group for group in self.structure.groups if group.kernel]
        if robust:
            self.solver.finish()
        for group in robust:
            error = edge_errors(graph, group.edge_set)[group.rows]
            omega = group.edge_set.look("information")[group.rows]
            found.append((group, np.einsum("mi,mij,mj->m", error, omega, error)))
        return found

    def _solve(self, right: np.ndarray | None) -> np.ndarray | None:
        if right is not None:
            self.solver.b = right
        solved = self.solver.solve(0.0 if self._damping is None else self._damping)
        return self.solver.dx.copy() if solved else None

    def _solve_again(self, right: np.ndarray) -> np.ndarray:
        found = self.solver.solve_again(right)
        if found is None:  # conjugate gradients: a whole trial
            found = self._solve(right)
        return np.full(len(right), np.nan) if found is None else found

    def why_not_definite(self) -> str:
        """As the CPU finds it."""
        graph = self._graph()
        assert graph is not None
        self.solver.finish()
        equations = HostEquations(graph, CpuBlockSolver(graph, self.structure, SolverOptions(device="cpu")))
        equations.linearize()
        return equations.why_not_definite()


def _add_group(linearizer: Any, group: EdgeGroup) -> int:
    kind = working_edge_type(group.edge_set.type)
    programs = compile_curvature(kind, group.information, group.kernel)
    return add_programs(linearizer, group, (programs.chi2, programs.linearize, None), _data(group))


def _data(group: EdgeGroup) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """As `edge_data`, with the kernel's width behind the measurement."""
    measurement, information, width = edge_data(group)
    return np.concatenate([measurement, width[:, None]], axis=1), information, width


def _held_scalars(structure: Structure) -> np.ndarray:
    """(dim,) bool: components that vertices hold."""
    holds = np.zeros(structure.dim, bool)
    for vertex_set, offsets in zip(structure.selection.vertex_sets, structure.vertex_offsets, strict=True):
        if vertex_set.held is not None:
            rows = np.flatnonzero(offsets >= 0)
            places = offsets[rows, None] + np.arange(vertex_set.type.tangent_dim)
            holds[places.ravel()] = vertex_set.held[rows].ravel()
    return holds


def refuse_what_has_none(graph: Graph) -> None:
    """`GradientError` for graphs whose optimum has no derivative here."""
    constraints = constraints_of(graph)
    if constraints is not None:
        raise GradientError(
            f"The graph has {constraints}: where one becomes active, the optimum has no derivative. Fix what "
            "stays at its bound (Graph.hold) and remove the constraints."
        )
    if graph.has_computed():
        raise GradientError(
            "The graph has computed values (Graph.add_computed), whose optimum is not differentiated. Write "
            "the function into the residual."
        )
    for edge_set in graph.edge_sets:
        if edge_set.type.is_external:
            raise GradientError(
                f"{edge_set.type.tag} is evaluated outside: its second derivatives are not known, so the "
                "optimum is not differentiated. Write the residual with numpy functions "
                "(graphopt.edge_type), or leave these edges out."
            )
