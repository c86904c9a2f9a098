"""Levenberg-Marquardt with Marquardt's scaling; one half of `auto`.

(H + lambda diag(H)) dx = b
rho = (chi2 - chi2_new) / (dx' (lambda diag(H) dx + b))
rho > 0.75: lambda <- lambda / 5         rho > 0.5:  lambda <- lambda / 3
rho < 0.25: lambda <- 2 lambda           rejected:   lambda <- lambda nu,  nu <- 2 nu
accepted after a rejection: lambda <- lambda max(1/3, 1 - (2 rho - 1)^3), nu <- 2 (Nielsen)

Lambda falls fast: points far away move along their rays by about 1 / sqrt(lambda), so while chi2 falls by
them, a lambda that falls slowly sets the pace. An occasional rejected step costs less than that.
"""

from __future__ import annotations

import numpy as np

from graphopt.optimizer.algorithm import Outcome, Signals, Step
from graphopt.optimizer.options import AutoOptions
from graphopt.optimizer.vectors import dot
from graphopt.solver.block_solver import BlockSolver

_INITIAL_LAMBDA = 1e-4  # 1 / initial_trust_region_radius of Ceres
_SMALLEST_DIAGONAL, _LARGEST_DIAGONAL = 1e-6, 1e32  # min_lm_diagonal, max_lm_diagonal of Ceres
_LARGEST_LAMBDA = 1e32
_SMALLEST_LAMBDA = 1e-16
_ACCEPT = 1e-3  # min_relative_decrease of Ceres
_NO_GAIN = 1e-14  # predicted gain relative to chi2 that rounding hides


class ScaledDamping:
    """Levenberg-Marquardt with diagonal scaling; see the module's header."""

    note = ""

    def __init__(self, options: AutoOptions):
        self.options = options

    def start(self, solver: BlockSolver, chi2: float) -> None:
        """Remember the block solver; also starts again at a new estimate."""
        self._solver = solver
        self._lambda = _INITIAL_LAMBDA
        self._nu = 2.0

    def step(self, iteration: int, signals: Signals) -> Step:
        """Raise lambda until chi2 falls enough."""
        solver = self._solver
        current = solver.linearize()
        scale = np.clip(solver.diagonal, _SMALLEST_DIAGONAL, _LARGEST_DIAGONAL)
        trial, solved = 0, False
        while trial < self.options.max_trials and self._lambda < _LARGEST_LAMBDA:
            if trial and signals.should_stop():
                return Step(Outcome.CONTINUE, current, self._lambda, trial)
            trial += 1
            damping = self._lambda * scale
            if not solver.solve(damping):
                self._reject()
                continue
            solved = True
            gain = dot(solver.dx, damping * solver.dx + solver.b)
            chi2 = self._trial(current, gain, trial)
            if chi2 is not None:
                return Step(Outcome.CONTINUE, chi2, self._lambda, trial, float(np.abs(solver.dx).max()))
            if gain <= _NO_GAIN * current:
                break
        outcome = Outcome.NO_IMPROVEMENT if solved else Outcome.LINEAR_SOLVER_FAILURE
        return Step(outcome, current, self._lambda, trial)

    def _trial(self, current: float, gain: float, trial: int) -> float | None:
        """Take dx; chi2 if it is accepted, else None with the estimate as before."""
        solver = self._solver
        solver.push()
        solver.update()
        chi2 = solver.chi2()
        rho = (current - chi2) / gain if gain > 0.0 else -np.inf
        if np.isfinite(chi2) and rho > _ACCEPT:
            solver.discard_top()
            self._lambda = max(self._lambda * _factor(rho, trial), _SMALLEST_LAMBDA)
            self._nu = 2.0
            return chi2
        solver.pop()
        self._reject()
        return None

    def _reject(self) -> None:
        self._lambda *= self._nu
        self._nu *= 2.0


def _factor(rho: float, trial: int) -> float:
    """What an accepted step with actual over predicted gain rho does to lambda."""
    if trial > 1:
        return max(1.0 / 3.0, 1.0 - (2.0 * rho - 1.0) ** 3)
    if rho > 0.5:
        return 0.2 if rho > 0.75 else 1.0 / 3.0
    return 1.0 if rho > 0.25 else 2.0
