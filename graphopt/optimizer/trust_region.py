"""Dogleg trust region that starts as Gauss-Newton; one half of `auto`.

    step(radius) = h_gn                                    where |h_gn| <= radius
                   h_sd + beta (h_gn - h_sd)               between
                   radius h_sd / |h_sd|                    where |h_sd| >= radius
    h_gn = inv(H + mu I) b,    h_sd = (b'b / b'Hb) b

Every step is p b + q h_gn, and with (H + mu I) h_gn = b its predicted gain needs one product H b per
linearization, and that only if the radius limits the step:

    gain = 2 b's - s'Hs,   h_gn'H h_gn = b'h_gn - mu h_gn'h_gn,   b'H h_gn = b'b - mu b'h_gn

mu is 0 while H is positive definite.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphopt.linear.vectors import dot, norm
from graphopt.optimizer.algorithm import Outcome, Signals, Step, predicted_relative_decrease
from graphopt.optimizer.options import AutoOptions
from graphopt.solver.block_solver import BlockSolver
from graphopt.solver.trial import Damping

_ACCEPT = 1e-4  # actual over predicted gain of an accepted step
_GOOD, _POOR = 0.75, 0.25  # above: the radius may grow; below: it shrinks
_SMALLEST_DAMPING = 1e-12  # relative to the largest diagonal entry of H
_LARGEST_DAMPING = 1e8
_MOST_DAMPINGS = 25  # tried from one linearization: by factors of 10 from the smallest to the largest
_NO_GAIN = 1e-14  # predicted gain relative to chi2 that rounding hides


@dataclass
class _Model:
    """Scalar products of one linearization."""

    b: np.ndarray
    newton: np.ndarray
    damping: float
    bb: float
    b_newton: float
    newton_newton: float
    bHb: float | None = None

    def gain(self, p: float, q: float) -> float:
        """Predicted decrease of chi2 for the step p b + q newton."""
        bHb = self.bHb or 0.0
        mixed = self.bb - self.damping * self.b_newton
        curved = self.b_newton - self.damping * self.newton_newton
        quadratic = p * p * bHb + 2.0 * p * q * mixed + q * q * curved
        return 2.0 * (p * self.bb + q * self.b_newton) - quadratic

    def coefficients(self, radius: float) -> tuple[float, float]:
        """(p, q) of the dogleg step."""
        if self.newton_newton <= radius * radius:
            return 0.0, 1.0
        assert self.bHb is not None
        alpha = self.bb / self.bHb if self.bHb > 0.0 else np.inf
        steepest = alpha * np.sqrt(self.bb)
        if steepest >= radius:
            return radius / np.sqrt(self.bb), 0.0
        # |alpha b + beta (newton - alpha b)| = radius
        cross = alpha * self.b_newton - steepest * steepest
        leg = self.newton_newton - 2.0 * alpha * self.b_newton + steepest * steepest
        missing = radius * radius - steepest * steepest
        root = np.sqrt(cross * cross + leg * missing)
        beta = missing / (cross + root) if cross > 0.0 else (root - cross) / leg
        return alpha * (1.0 - beta), beta


class TrustRegion:
    """Dogleg with unlimited first radius; see the module's header."""

    note = ""

    def __init__(self, options: AutoOptions):
        self.options = options
        self.was_limited = False
        """Some step was not that of Gauss-Newton."""
        self._is_limited = False
        self._radius = np.inf
        self._damping = 0.0

    def start(self, solver: BlockSolver, chi2: float) -> None:
        """Remember the block solver."""
        self._solver = solver
        self._chi2 = chi2

    def damping(self) -> Damping:
        """Nothing, while H is positive definite."""
        return Damping(self._damping)

    def resume(self) -> None:
        """Back to Gauss-Newton."""
        self._radius = np.inf
        self._damping = 0.0

    def loosen(self, tolerance: float) -> bool:
        """Back to Gauss-Newton, if the last step was not one and the next would promise more."""
        if not self._is_limited or predicted_relative_decrease(self._solver, tolerance) <= tolerance:
            return False
        self.resume()
        return True

    def step(self, iteration: int, signals: Signals) -> Step:
        """Shorten the step until chi2 falls enough."""
        current = self._solver.linearize()
        model = self._model()
        if model is None:
            return Step(Outcome.LINEAR_SOLVER_FAILURE, current, self._damping, 1)
        shown = self._damping or None
        for trial in range(1, self.options.max_trials + 1):
            if trial > 1 and signals.should_stop():
                return Step(Outcome.CONTINUE, current, shown, trial - 1)
            chi2, size, gain = self._trial(model, current)
            if chi2 is not None:
                self._chi2 = chi2
                return Step(Outcome.CONTINUE, chi2, shown, trial, size)
            if gain <= _NO_GAIN * current:
                break
        return Step(Outcome.NO_IMPROVEMENT, current, shown, trial)

    def _model(self) -> _Model | None:
        """Solve for the Gauss-Newton step, damped as little as a positive definite matrix needs."""
        solver = self._solver
        for _ in range(_MOST_DAMPINGS):
            if solver.solve(self._damping) and np.isfinite(solver.dx).all():
                b, newton = solver.b, solver.dx.copy()
                return _Model(b, newton, self._damping, dot(b, b), dot(b, newton), dot(newton, newton))
            largest = solver.largest_diagonal()
            self._damping = max(10.0 * self._damping, _SMALLEST_DAMPING * largest)
            if not 0.0 < self._damping <= _LARGEST_DAMPING * largest < np.inf:
                break  # also where H is zero, and no damping in its proportion helps
        return None

    def _trial(self, model: _Model, current: float) -> tuple[float | None, float, float]:
        """Try the step of the present radius: (chi2 if accepted, largest entry, predicted gain)."""
        solver = self._solver
        if model.newton_newton > self._radius**2 and model.bHb is None:
            model.bHb = dot(model.b, solver.multiply(model.b))
        p, q = model.coefficients(self._radius)
        self._is_limited = p != 0.0 or q != 1.0 or model.damping != 0.0
        self.was_limited |= self._is_limited
        step = q * model.newton if p == 0.0 else p * model.b + q * model.newton
        length = norm(step)
        gain = model.gain(p, q)
        solver.dx = step
        chi2 = solver.move().chi2
        ratio = (current - chi2) / gain if gain > 0.0 else -np.inf
        if np.isfinite(chi2) and ratio > _ACCEPT:
            solver.discard_top()
            self._adapt(ratio, length)
            return chi2, float(np.abs(step).max()), gain
        solver.pop()
        self._radius = (0.25 if np.isfinite(chi2) else 0.1) * length
        return None, 0.0, gain

    def _adapt(self, ratio: float, length: float) -> None:
        if ratio > _GOOD:
            self._radius = max(self._radius, 3.0 * length)
            self._damping *= 0.1
            if self._damping < _SMALLEST_DAMPING:
                self._damping = 0.0
        elif ratio < _POOR:
            self._radius = 0.5 * min(self._radius, 2.0 * length)
