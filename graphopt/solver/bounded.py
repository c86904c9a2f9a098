"""A block solver for graphs whose estimates have bounds: Gauss-Newton steps within them, on any device.

    min over d   d'(H + D)d / 2 - b'd      lower <= x + d <= upper for the components that have bounds

It passes everything to another block solver and changes only what that solves. At each linearization the
*active* components are those at a bound that the negative gradient points out of (b_j < 0 at the lower one):
they stay. Staying means a large number on H's diagonal and none in b, which leaves pattern, elimination,
factorization and preconditioners as they are. Where a step would leave the bounds, the components that do are
put onto them, d_j = bound - x_j, and the others are solved for again,

    (H + D) d' = b - H delta      d = delta + d',

until nothing leaves (a few times at most; the rest is projected). So steps are those of the bounded quadratic
model, b is the projected gradient, and with enough damping the step is a projected gradient step, which
always lowers chi2. Estimates never leave the bounds.

References: Bertsekas, Projected Newton Methods for Optimization Problems with Simple Constraints, SIAM J.
Control 20 (1982); Kanzow, Yamashita and Fukushima, Levenberg-Marquardt methods with strong local convergence
properties for solving nonlinear equations with convex constraints, J. Comput. Appl. Math. 172 (2004).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from graphopt.linear.vectors import dot
from graphopt.problem.structure import EdgeGroup, Structure
from graphopt.solver.around import SolverAround
from graphopt.solver.capabilities import Capabilities, capabilities_of
from graphopt.solver.external import ExternalPart, ExternalPlaces
from graphopt.solver.trial import Damping, Trial
from graphopt.types.bounds import STAYS, added_components

_STIFF = {"double": 1e30, "mixed": 1e15}
"""Times H's diagonal: what holds active components, which move by its inverse of a step."""
_ROUNDS = 8  # solutions of one step with more and more components at their bounds
_NEAR = 1e-12  # distance from a bound that is rounding, relative to the bound and to chi2's root


@dataclass(frozen=True, eq=False)
class BoundedRows:
    """Components of one vertex set that have bounds and move; k of them."""

    number: int
    """Of the vertex set in the structure's selection."""
    rows: np.ndarray
    """(k,) rows of the vertex set."""
    places: np.ndarray
    """(k,) numbers of the estimate."""
    scalars: np.ndarray
    """(k,) places in dx and b."""
    lower: np.ndarray
    upper: np.ndarray


def bounded_rows(structure: Structure) -> list[BoundedRows]:
    """All components that have bounds and move, by vertex set."""
    found = []
    for number, vertex_set in enumerate(structure.selection.vertex_sets):
        if not vertex_set.has_bounds:
            continue
        offsets = structure.vertex_offsets[number]
        lower, upper = vertex_set.look("lower"), vertex_set.look("upper")
        bounded = (np.isfinite(lower) | np.isfinite(upper)) & (offsets >= 0)[:, None]
        component = np.full(vertex_set.type.storage_dim, STAYS)
        for place, added in added_components(vertex_set.type).items():
            component[place] = added
        rows, places = np.nonzero(bounded & (component != STAYS))
        if len(rows):
            scalars = offsets[rows] + component[places]
            found.append(BoundedRows(number, rows, places, scalars, lower[rows, places], upper[rows, places]))
    return found


class BoundedSolver(SolverAround):
    """Keeps another block solver's steps within bounds; see the module's header."""

    capabilities = Capabilities(keeps_bounds=True)
    """None of the other solver's: they would leave the bounds out."""

    def __init__(self, inner: Any, bounded: list[BoundedRows]):
        super().__init__(inner)
        self._bounded = bounded
        self._scalars = np.concatenate([each.scalars for each in bounded])
        self._lower = np.concatenate([each.lower for each in bounded])
        self._upper = np.concatenate([each.upper for each in bounded])
        vertices = {each.number: np.unique(each.rows) for each in bounded}
        at_diagonal = self.structure.pattern.diagonal_indices()[self._scalars]
        self._external: ExternalPart = inner.external(ExternalPlaces(vertices, at_diagonal, self._scalars))
        self._all_of_b: ExternalPart | None = None
        self._stiff = _STIFF[inner.precision]
        self.active = np.zeros(len(self._scalars), bool)
        """(k,) components that stay at their bounds, at the last `linearize`."""
        self.push_out = np.zeros(len(self._scalars))
        """(k,) b before active components were taken out of it."""
        self._weight = np.zeros(len(self._scalars))
        self._diagonal: np.ndarray | None = None
        """H's own, where numbers were added to it."""
        self._kept_b: np.ndarray | None = None
        """b of the last `linearize`, where the inner solver has another right-hand side at present."""

    # ---------------------------------------------------------------- bounds

    @property
    def bounded(self) -> list[BoundedRows]:
        """Components that have bounds and move; `active` and `push_out` are in their order."""
        return self._bounded

    def _estimates(self) -> np.ndarray:
        """(k,) present numbers of the components."""
        sets = self.structure.selection.vertex_sets
        if capabilities_of(self._inner).snapshot:
            arrays = [self._inner.estimates[each.number].array for each in self._bounded]
        else:
            self._external.read_estimates()
            arrays = [sets[each.number].look("estimate") for each in self._bounded]
        return np.concatenate(
            [array[each.rows, each.places] for array, each in zip(arrays, self._bounded, strict=True)]
        )

    def _find_active(self, chi2: float) -> None:
        """Who is at a bound and is pushed out of it."""
        x, diagonal = self._estimates(), self._inner.diagonal
        of_x = diagonal[self._scalars]
        b = self.push_out = self._inner.b[self._scalars].copy()
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            near = _NEAR * np.sqrt(max(chi2, 0.0) / np.maximum(of_x, np.finfo(float).tiny))
        near = np.where(np.isfinite(near), near, 0.0)
        at_lower = x <= self._lower + np.maximum(near, _rounding(self._lower))
        at_upper = x >= self._upper - np.maximum(near, _rounding(self._upper))
        self.active = (at_lower & (b < 0.0)) | (at_upper & (b > 0.0)) | (self._lower == self._upper)
        self._weight = self._stiff * np.maximum(of_x, np.finfo(np.float32).tiny)
        self._diagonal = diagonal.copy() if self.active.any() else None

    def _hold(self, held: np.ndarray, others: np.ndarray | None = None) -> None:
        """Let components (k,) bool stay in the next solution; others (dim,): added to all of b first."""
        b = self._inner.b[self._scalars]
        if others is not None:
            whole = self._all_of_b = self._all_of_b or self._inner.external(
                ExternalPlaces({}, np.empty(0, np.int64), np.arange(self.dim))
            )
            whole.add(np.empty(0), others)
            b = b + others[self._scalars]
        self._external.add(np.where(held, self._weight, 0.0), np.where(held, -b, 0.0))

    def _restore(self) -> None:
        """H and b of the last `linearize`, where a step within bounds has changed them."""
        if self._kept_b is not None:
            self._kept_b = None
            self._inner.linearize()
            if self.active.any():
                self._hold(self.active)

    def _leaving(self, x: np.ndarray, step: np.ndarray) -> np.ndarray:
        """(k,) bool: components that leave their bounds."""
        return (x + step < self._lower) | (x + step > self._upper)

    def _projected(self, x: np.ndarray, step: np.ndarray) -> np.ndarray:
        return np.clip(x + step, self._lower, self._upper) - x

    def _solve_within(self, shift: float | np.ndarray) -> float | None:
        """After a solution that leaves the bounds: one within them, in dx.

        Returns the quadratic model's decrease of chi2; None where H + D is not positive definite.
        """
        inner, x, scalars = self._inner, self._estimates(), self._scalars
        b = inner.b.copy()
        held, delta = self.active.copy(), np.zeros(self.dim)
        damping = np.broadcast_to(np.asarray(shift, float), (self.dim,))
        step, gain = inner.dx.copy(), None
        for _ in range(_ROUNDS):
            leaving = self._leaving(x, step[scalars]) & ~held
            if gain is not None and not leaving.any():
                break
            delta[scalars[leaving]] = self._projected(x, step[scalars])[leaving]
            held |= leaving
            inner.linearize()
            self._kept_b = b
            product = inner.multiply(delta)
            self._hold(held, -product)
            if not inner.solve(shift):
                return None
            rest = inner.dx.copy()
            rest[scalars[held]] = 0.0
            step = delta + rest
            gain = dot(delta, 2.0 * b - product) + dot(rest, b - product + damping * rest)
        step[scalars] = self._projected(x, step[scalars])
        inner.dx = step
        return gain

    # ---------------------------------------------------------------- BlockSolver

    def in_double(self) -> BoundedSolver | None:
        """The same around the other solver's in double."""
        double = self._inner.in_double()
        return None if double is None else BoundedSolver(double, self._bounded)

    @property
    def b(self) -> np.ndarray:
        """(dim,) right-hand side, 0 for active components: half of the negative projected gradient."""
        return self._inner.b if self._kept_b is None else self._kept_b

    @property
    def diagonal(self) -> np.ndarray:
        """(dim,) diagonal of H."""
        return self._inner.diagonal if self._diagonal is None else self._diagonal

    def linearize(self) -> float:
        """H, b and chi2; finds the active components."""
        self._kept_b = None
        chi2 = self._inner.linearize()
        self._find_active(chi2)
        if self.active.any():
            self._hold(self.active)
        return chi2

    def solve(self, damping: float | np.ndarray) -> bool:
        """(H + D) dx = b within the bounds."""
        self._restore()
        if not self._inner.solve(damping):
            return False
        if self._leaving(self._estimates(), self._inner.dx[self._scalars]).any():
            return self._solve_within(damping) is not None
        return True

    def trial(self, damping: Damping) -> Trial:
        """Solve within the bounds, push, update and chi2; as the other solver does where nothing leaves."""
        self._restore()
        inner = self._inner
        found = inner.trial(damping)
        if not found.solved or not (self._leaving(self._estimates(), np.zeros(1)) & ~self.active).any():
            return found
        inner.pop()
        shift = damping.of(self.diagonal) if damping.scaled else damping.value
        gain = self._solve_within(shift)
        if gain is None:
            return Trial(False, seconds=found.seconds)
        step = inner.dx
        size = float(max(step.max(), -step.min()))
        moved = inner.move()
        return Trial(True, moved.chi2, gain, size, {**found.seconds, **moved.seconds}, found.is_coarse)

    def move(self) -> Trial:
        """Push, update by dx as far as the bounds go, and chi2 there."""
        self._project()
        return self._inner.move()

    def update(self) -> None:
        """Move all vertices, as far as their bounds go."""
        self._project()
        self._inner.update()

    def _project(self) -> None:
        x, step = self._estimates(), self._inner.dx
        if (self._leaving(x, step[self._scalars])).any():
            projected = step.copy()
            projected[self._scalars] = self._projected(x, step[self._scalars])
            self._inner.dx = projected

    def multiply(self, vector: np.ndarray) -> np.ndarray:
        """H times a vector."""
        self._restore()
        return self._inner.multiply(vector)

    def chi2_by_vertex(self, group: EdgeGroup, slot: int) -> np.ndarray | None:
        """The other solver's."""
        return self._inner.chi2_by_vertex(group, slot)

    def take(self, number: int, rows: np.ndarray) -> None:
        """Take the graph's estimates of some rows, moved into their bounds."""
        self.move_graph_inside()
        self._inner.take(number, rows)

    def refresh(self) -> None:
        """Take the graph's present numbers, moved into the bounds."""
        self.move_graph_inside()
        self._kept_b = None
        self._inner.refresh()

    def finish(self) -> None:
        """Bring the estimates into the graph, none of them beyond its bounds by rounding."""
        self._inner.finish()
        self.move_graph_inside()

    def move_graph_inside(self) -> None:
        """Move the graph's estimates into the bounds, and those that rounding left off them onto them."""
        at = 0
        for each in self._bounded:
            vertex_set = self.structure.selection.vertex_sets[each.number]
            x = vertex_set.look("estimate")[each.rows, each.places]
            inside = np.clip(x, each.lower, each.upper)
            active = self.active[at : at + len(x)]
            b = self.push_out[at : at + len(x)]
            at += len(x)
            for bound, pushed in ((each.lower, b < 0.0), (each.upper, b > 0.0)):
                close = active & pushed & np.isclose(x, bound, rtol=_NEAR, atol=0.0)
                inside[close] = bound[close]
            if (inside != x).any():
                vertex_set.estimate[each.rows, each.places] = inside


def _rounding(bounds: np.ndarray) -> np.ndarray:
    """By how much an estimate that was moved onto a bound may be off it."""
    return np.where(np.isfinite(bounds), _NEAR * np.abs(bounds), 0.0)


def within_bounds(solver: Any) -> Any:
    """The block solver, or one around it that keeps to the bounds of its graph."""
    bounded = bounded_rows(solver.structure)
    return BoundedSolver(solver, bounded) if bounded else solver
