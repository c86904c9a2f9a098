"""Optimizations with inequalities, c(x) >= 0, by a primal-dual interior point method with elastic slacks.

    min  f(x) + sum nu_k p_k - mu (log s_k + log p_k)      c + p = s,    f = chi2 / 2

s and p that minimise this for an x follow from c alone, so it is a smooth function of x: nothing has to be
feasible. y_k are the multipliers (those of chi2 are 2 y), between 0 and nu_k. Newton's equations, with s, p
and y eliminated (`solver.constrained` adds the terms):

    (H - sum y_k d2 c_k + A' R A + lambda D) dx = b + A' (y + t),    A = d c,    D = diag(H)
    1 / R = s / y + p / (nu - y),    t = R (mu / y - mu / (nu - y) - c),    dy = t - R A dx
    ds = mu / y - s - s dy / y,      dp = (mu + p dy) / (nu - y) - p

Steps stop short of the boundary (s, p, y, nu - y = 0) by a share of 1 - tau of the way. They must lower the
function below the highest of its last `_MEMORY` values. Otherwise a step that was not shortened is corrected
by the curvature of c (Maratos' effect), then halved, then lambda grows. mu follows the errors of the
conditions, and falls superlinearly; nu_k grows where y_k comes near it, so p vanishes if anything is
feasible.

H is Gauss-Newton's and leaves the curvature of the residuals out, which may outweigh that of c: the latter is
scaled by the share of it that the last change of the gradient shows.

References: Fiacco and McCormick 1968; Waechter and Biegler, On the implementation of an interior-point filter
line-search algorithm, Math. Program. 106 (2006): mu, tau, correction; Gould, Orban and Toint, An
interior-point l1-penalty method for nonlinear optimization (2003): p and nu; Dennis, Gay and Welsch, An
adaptive nonlinear least-squares algorithm, ACM TOMS 7 (1981): scaled curvature.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from graphopt.linear.vectors import dot
from graphopt.optimizer.algorithm import AlgorithmBase, Outcome, Signals, Step
from graphopt.optimizer.kkt import ActiveInequality, KktConditions, kkt_of
from graphopt.optimizer.options import StopRules
from graphopt.optimizer.summary import Summary, TerminationType
from graphopt.problem.constrained import Constrained
from graphopt.problem.rewrite import Rewrite
from graphopt.solver.block_solver import BlockSolver
from graphopt.solver.constrained import ConstrainedSolver

MET = 1e-8
"""Of the conditions' errors, relative: where a run ends, unless its options ask for less."""
_OF_TOLERANCE, _FINEST, _COARSEST = 0.1, 1e-10, 1e-6  # errors, from function_tolerance
_MU = 0.1  # at the start, of chi2 / 2, for all inequalities together
_LINEAR, _SUPER, _NEAR = 0.2, 1.5, 10.0  # mu <- min(linear mu, mu^super) where errors are below near mu
_NU, _MOST_NU = 10.0, 1e6  # at the start, of chi2 / 2 per scale of the inequality; growth in all
_NU_GROWTH, _CLOSE = 10.0, 0.9  # of nu, where y comes closer than this share of it
_PATIENCE = 15  # iterations with the largest nu and y close to it, before nothing is feasible
_TAU = 0.99  # least share of the way to the boundary
_SPREAD = 1e10  # y stays within this of mu / s
_NOTICED = 1e-3  # share of the curvature along a step that a constraint's must have to be judged by it
_SHOWN = 1e-10  # of the function: predicted decreases that it shows
_MEMORY = 4  # values that a step may exceed all but the highest of
_ARMIJO = 1e-4  # share of the predicted decrease
_HALVINGS = 3  # of a step, before lambda grows
_LAMBDA, _LEAST_LAMBDA, _GROWTH = 1e-4, 1e-9, 8.0
_POOR, _GOOD = 0.25, 0.75  # shares of the predicted decrease at which lambda grows and falls
_DIAGONAL = (1e-6, 1e32)  # min_lm_diagonal, max_lm_diagonal of Ceres
_MOST_TRIALS = 28  # lambda grows by 1e24
_ROUNDING = 1e-13  # of the function: decreases that it does not show
_EXACT = 1e-12  # of chi2 at the start, and of 1: below, chi2 is no measure
_WEAKLY = 1e-7  # multiplier, of chi2 / 2 per scale, of inequalities that count as active
_STALLED = 1e-6  # errors at which a run may end because rounding stops it
_INFEASIBLE = "The largest violation is {:.3g}, of {} row {} (vertices {})."
_ENDS = (TerminationType.CONVERGENCE, TerminationType.NO_IMPROVEMENT, TerminationType.NO_CONVERGENCE)


class _Direction(NamedTuple):
    """A solution of Newton's equations."""

    dx: np.ndarray
    along: np.ndarray
    """A dx."""
    dy: np.ndarray
    longest: float
    """Share of it that leaves s and p > 0."""
    longest_y: float


class _Point(NamedTuple):
    """Where a step leads."""

    chi2: float
    c: np.ndarray
    value: float
    """Of the function."""


class _Taken(NamedTuple):
    """What the last step tells about curvature, at the next linearization."""

    dx: np.ndarray
    before: float
    """dx' (b + A' y) where it began, with the new y."""
    stiffness: float
    """dx' H dx."""
    bent: float
    """dx' (sum y d2 c) dx."""
    damped: float
    """dx' lambda D dx."""

    def shortened(self, share: float) -> _Taken:
        """Of a share of the step."""
        squares = (share * share * each for each in self[2:])
        return _Taken(share * self.dx, share * self.before, *squares)


class InteriorPoint(AlgorithmBase):
    """See the module's header."""

    checks_precision = False
    """chi2 may rise, so what one precision gains beside another is not to be seen by it."""

    def __init__(self, rules: StopRules, constraints: ConstrainedSolver):
        super().__init__(rules)
        self._constraints = constraints
        share = _OF_TOLERANCE * rules.function_tolerance
        self._tolerance = float(np.clip(share, _FINEST, _COARSEST)) if share > 0.0 else MET
        self._lambda = _LAMBDA
        self._values: list[float] = []
        self._taken: _Taken | None = None
        self._num_hopeless = 0
        self._is_hidden = False
        """The last decrease is too small for the function to show it."""

    def start(self, solver: BlockSolver, chi2: float) -> None:
        """Slacks and multipliers."""
        super().start(solver, chi2)
        terms = self._constraints
        self._least_f = 0.5 * _EXACT * max(chi2, 1.0)
        self._c = terms.values()
        terms.evaluate()
        solver.linearize()
        slopes = terms.squares(1.0 / np.clip(terms.own_diagonal, *_DIAGONAL))
        scale = np.sqrt(np.square(self._c) + 2.0 * self._f(chi2) * slopes)
        self._scale = np.where(scale > 0.0, scale, 1.0)
        """c at the start, and by how much it changes where chi2 changes as a whole."""
        self._mu = _MU * self._f(chi2) / len(self._c)
        self._nu = _NU * self._f(chi2) / self._scale
        self._largest_nu = _MOST_NU * self._nu
        self._y = self._mu / self._slacks(self._c)[0]

    def _f(self, chi2: float) -> float:
        return max(0.5 * chi2, self._least_f)

    def _slacks(self, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """s and p: s - p = c, mu / s + mu / p = nu."""
        mu, nu = self._mu, self._nu
        larger = (nu * np.abs(c) + 2.0 * mu + np.hypot(nu * c, 2.0 * mu)) / (2.0 * nu)
        smaller = mu * larger / (nu * larger - mu)
        return np.where(c > 0.0, larger, smaller), np.where(c > 0.0, smaller, larger)

    def _function(self, chi2: float, c: np.ndarray) -> float:
        s, p = self._slacks(c)
        barrier = float((np.log(s / self._scale) + np.log(p / self._scale)).sum())
        return 0.5 * chi2 + dot(self._nu, p) - self._mu * barrier

    # ---------------------------------------------------------------- linearization, mu and nu

    def _linearize(self) -> tuple[float, np.ndarray]:
        """chi2, and (dim,) b + A' y: the gradient of the Lagrangian, downwards."""
        terms = self._constraints
        terms.multipliers = self._y
        terms.evaluate()
        s, p = self._slacks(self._c)
        terms.stiffness = 1.0 / (s / self._y + p / (self._nu - self._y))
        chi2 = self.chi2 = self.solver.linearize()
        downhill = self.solver.b.copy()
        if self._taken is not None:
            dx, before, stiffness, bent, damped = self._taken
            changed = before - dot(downhill, dx)
            if abs(bent) > _NOTICED * abs(stiffness):
                terms.share = float(np.clip((stiffness - changed) / bent, 0.0, 1.0))
            model = stiffness - terms.share * bent + damped
            if self._is_hidden and model > 0.0:  # changed / model of the step would have been enough
                self._adapt(2.0 - changed / model, True)
        self._damped = np.clip(terms.own_diagonal, *_DIAGONAL)
        return chi2, downhill

    def _errors(self, chi2: float, downhill: np.ndarray) -> float:
        """Of stationarity, relative."""
        diagonal = self._constraints.own_diagonal
        diagonal = np.where(diagonal > 0.0, diagonal, np.maximum(self.solver.diagonal, _DIAGONAL[0]))
        scale = np.sqrt(diagonal * 2.0 * self._f(chi2))
        return float(np.max(np.abs(downhill) / scale, initial=0.0))

    def _complementarity(self, mu: float) -> float:
        """Largest |s y - mu|, |p (nu - y) - mu|."""
        s, p = self._slacks(self._c)
        return float(max(np.abs(s * self._y - mu).max(), np.abs(p * (self._nu - self._y) - mu).max()))

    def _update_mu(self, f: float, errors: float) -> None:
        """Lower mu while the errors are small beside it."""
        least = 0.1 * self._tolerance
        while (mu := self._mu / f) > least:
            if max(errors, self._complementarity(self._mu) / f) > _NEAR * mu:
                return
            self._mu = f * max(least, min(_LINEAR * mu, mu**_SUPER))
            self._values.clear()

    def _update_nu(self) -> None:
        """Raise nu where y comes near it."""
        near = self._y > _CLOSE * self._nu
        hopeless = near & (self._nu >= self._largest_nu)
        self._num_hopeless = self._num_hopeless + 1 if hopeless.any() else 0
        near &= ~hopeless
        if near.any():
            self._nu = np.where(near, _NU_GROWTH * self._nu, self._nu)
            self._values.clear()

    # ---------------------------------------------------------------- steps

    def step(self, iteration: int, signals: Signals) -> Step:
        """Solve Newton's equations; correct, shorten or damp the step until it is good."""
        self._update_nu()
        chi2, downhill = self._linearize()
        errors = self._errors(chi2, downhill)
        now = max(errors, self._complementarity(0.0) / self._f(chi2))
        if now <= self._tolerance:
            return Step(Outcome.CONVERGED, chi2, None, 0, settles_chi2=True)
        if self._num_hopeless > _PATIENCE:
            return Step(Outcome.NO_IMPROVEMENT, chi2, None, 0, settles_chi2=True)
        self._update_mu(self._f(chi2), errors)
        more = self._mu / self._slacks(self._c)[0] - self._y
        solved = False
        for trial in range(1, _MOST_TRIALS + 1):
            if trial > 1 and signals.should_stop():
                return Step(Outcome.CONTINUE, chi2, self._lambda, trial - 1, settles_chi2=True)
            way = self._direction(more)
            if way is not None:
                solved = True
                after = self._search(way, more, chi2, downhill, is_first=trial == 1)
                if after is not None:
                    return Step(Outcome.CONTINUE, after, self._lambda, trial, settles_chi2=True)
                if now <= _STALLED:
                    break
            self._lambda = max(_GROWTH * self._lambda, _LAMBDA)
        outcome = Outcome.NO_IMPROVEMENT if solved else Outcome.LINEAR_SOLVER_FAILURE
        return Step(outcome, chi2, self._lambda, trial, settles_chi2=True)

    def _direction(self, more: np.ndarray) -> _Direction | None:
        """Solve with t = more; None: not positive definite."""
        y, nu, mu, solver = self._y, self._nu, self._mu, self.solver
        self._constraints.add_to_b(more)
        if not solver.solve(self._lambda * self._damped) or not np.isfinite(solver.dx).all():
            return None
        dx = solver.dx.copy()
        along = self._constraints.along(dx)
        dy = more - self._constraints.stiffness * along
        s, p = self._slacks(self._c)
        ds = mu / y - s - s / y * dy
        dp = (mu + p * dy) / (nu - y) - p
        tau = max(_TAU, 1.0 - mu / self._f(self.chi2))
        longest = min(_to_boundary(s, ds, tau), _to_boundary(p, dp, tau))
        return _Direction(
            dx, along, dy, longest, min(_to_boundary(y, dy, tau), _to_boundary(nu - y, -dy, tau))
        )

    def _search(
        self, way: _Direction, more: np.ndarray, chi2: float, downhill: np.ndarray, is_first: bool
    ) -> float | None:
        """chi2 after a good part of the step; None if there is none. is_first: lambda is that of before."""
        slope = min(-dot(downhill, way.dx) - dot(more, way.along), 0.0)
        now = self._function(chi2, self._c)
        self._values = [*self._values[1 - _MEMORY :], now]
        allowed = max(self._values) + _ROUNDING * (abs(now) + self._f(chi2))
        taken = self._curvature(way, more, downhill)
        share = way.longest
        for _ in range(_HALVINGS):
            found = self._move(way.dx, share)
            corrected = None
            if found.value > allowed + _ARMIJO * share * slope:
                self.solver.pop()
                if share == 1.0 and np.isfinite(found.value):
                    bent = found.c - self._c - way.along
                    corrected = self._direction(more - self._constraints.stiffness * bent)
                if corrected is None:
                    share *= 0.5
                    continue
                found = self._move(corrected.dx, corrected.longest)
                if found.value > allowed + _ARMIJO * corrected.longest * slope:
                    self.solver.pop()
                    share *= 0.5
                    continue
            self._taken = None if corrected is not None else taken.shortened(share)
            self._take(found, way)
            gain = -share * slope - 0.5 * share**2 * (-slope - taken.damped)
            self._is_hidden = gain <= _SHOWN * (abs(now) + self._f(chi2))
            if not self._is_hidden:
                self._adapt((now - found.value) / gain, is_first)
            return found.chi2
        return None

    def _adapt(self, ratio: float, is_first: bool) -> None:
        """Lambda after a step whose decrease is so much of the predicted one."""
        if ratio < _POOR:
            self._lambda = max(_GROWTH * self._lambda, _LAMBDA)
        elif ratio > _GOOD and is_first:
            self._lambda *= 0.1 if self._lambda > _LEAST_LAMBDA else 0.0

    def _curvature(self, way: _Direction, more: np.ndarray, downhill: np.ndarray) -> _Taken:
        """What the whole step would tell."""
        bent = self._constraints.bent_along(way.dx)
        of_b = dot(downhill, way.dx)
        stiffness = of_b + dot(more, way.along) + self._constraints.share * bent
        damped = self._lambda * dot(self._damped * way.dx, way.dx)
        stiffness -= damped
        stiffness -= dot(self._constraints.stiffness * way.along, way.along)
        return _Taken(way.dx, of_b + way.longest_y * dot(way.dy, way.along), stiffness, bent, damped)

    def _move(self, dx: np.ndarray, share: float) -> _Point:
        """Push and move by a share of a step."""
        self.solver.dx = share * dx
        chi2 = self.solver.move().chi2
        c = self._constraints.values()
        is_finite = np.isfinite(chi2) and np.isfinite(c).all()
        return _Point(chi2, c, self._function(chi2, c) if is_finite else np.inf)

    def _take(self, found: _Point, way: _Direction) -> None:
        """Keep where a step has led."""
        self.solver.discard_top()
        self._c = found.c
        central = self._mu / self._slacks(self._c)[0]
        y = np.maximum(self._y + way.longest_y * way.dy, central / _SPREAD)
        self._y = np.minimum(y, np.minimum(central * _SPREAD, (1.0 - 1.0 / _SPREAD) * self._nu))

    # ---------------------------------------------------------------- the end

    def conclude(self, summary: Summary, solver: Any, problem: Rewrite, source: Constrained) -> None:
        """KKT conditions at the solver's estimates, and whether the inequalities hold."""
        terms = self._constraints
        c = terms.values()
        multipliers, f = self._y, self._f(summary.final_chi2)
        is_active = multipliers * self._scale / f > np.minimum(c / self._scale, _WEAKLY)
        terms.multipliers, terms.stiffness = np.zeros_like(c), np.zeros_like(c)
        terms.evaluate()
        terms.add_to_b(multipliers)
        found = kkt_of(solver, problem)
        active, origins = [], terms.origins()
        for index in np.flatnonzero(is_active).tolist():
            edges, row, component = _origin(source, *origins[index])
            numbers = float(c[index]), 2.0 * float(multipliers[index])
            active.append(ActiveInequality(edges.type.tag, row, component, *numbers))
        worst = int(np.argmin(c / self._scale))
        summary.kkt = KktConditions(
            found.stationarity,
            found.scaled_stationarity,
            max(-float(c.min()), 0.0),
            2.0 * float((multipliers * np.abs(c)).max()),
            found.bounds,
            tuple(active),
        )
        if -c[worst] > _STALLED * self._scale[worst] and summary.termination in _ENDS:
            edges, row, _ = _origin(source, *origins[worst])
            ids = ", ".join(map(str, edges.look("vertices")[row].tolist()))
            summary.termination = TerminationType.INFEASIBLE
            text = _INFEASIBLE.format(-float(c[worst]), edges.type.tag, row, ids)
            summary.message = f"{summary.message} {text}".strip()


def _origin(source: Constrained, group: Any, row: int, component: int) -> tuple[Any, int, int]:
    """The user's edge set, row and component of a number."""
    edges, found = source.origin(int(group.edge_set.sequence[group.rows[row]]))
    return edges, found, component


def _to_boundary(x: np.ndarray, dx: np.ndarray, tau: float) -> float:
    """Largest share of a step that leaves 1 - tau of each x > 0."""
    towards = dx < 0.0
    return float(min(1.0, np.min(-tau * x[towards] / dx[towards], initial=1.0)))
