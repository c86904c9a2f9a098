"""Levenberg-Marquardt as in g2o 2.3 (`OptimizationAlgorithmLevenberg`), after Nielsen.

    (H + lambda I) dx = b
    rho = (chi2 - chi2_new) / (dx' (lambda dx + b) + 1e-3)           actual over predicted decrease
    good step:  lambda <- lambda max(1/3, min(1 - (2 rho - 1)^3, 2/3)),  nu <- 2
    bad step:   lambda <- lambda nu,  nu <- 2 nu

The first lambda is tau times the largest diagonal entry of H. After `max_trials` bad steps in a row, or a
step that changes nothing (rho = 0), it stops.

Reference: H. B. Nielsen, Damping Parameter in Marquardt's Method, IMM-REP-1999-05.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from graphopt.cpu_kernels import kernels
from graphopt.optimizer.algorithm import Outcome, Signals, Step, predicted_relative_decrease
from graphopt.optimizer.methods import Method
from graphopt.optimizer.options import LevenbergMarquardtOptions
from graphopt.solver.block_solver import BlockSolver
from graphopt.solver.trial import Damping


class LevenbergMarquardt:
    """Levenberg-Marquardt; see the module's header."""

    note = ""

    def __init__(self, options: LevenbergMarquardtOptions):
        self.options = options
        self._lambda = self._accepted_lambda = 0.0
        self._nu = 2.0
        self._has_accepted = False
        self.was_loosened = False
        """The damping goes on from where it is, also in a loop that starts anew."""

    def native_method(self) -> tuple[Any, Callable[[], None]]:
        """See `native_loop`."""
        options = self.options
        if self.was_loosened:  # it goes on: the first step takes this one
            options = replace(options, initial_lambda=self._lambda)
        method = kernels.Levenberg(options)
        method.damping, method.nu = self._lambda, self._nu

        def give_back() -> None:
            self._lambda, self._nu = method.damping, method.nu

        return method, give_back

    def start(self, solver: BlockSolver, chi2: float) -> None:
        """Remember the block solver."""
        self._solver = solver
        self._chi2 = chi2

    def damping(self) -> Damping:
        """Lambda."""
        return Damping(self._lambda)

    def resume(self) -> None:
        """Back to the damping of the last step that was accepted, or to the first one, of H as it is now."""
        self._lambda = self._accepted_lambda if self._has_accepted else self._first_lambda()
        self._nu = 2.0

    def loosen(self, tolerance: float) -> bool:
        """Down to a lambda that holds nothing back, if a step without promises more."""
        least = kernels.LoopConstants.LEAST_LAMBDA * self._solver.largest_diagonal()
        if self._lambda <= least or predicted_relative_decrease(self._solver, tolerance) <= tolerance:
            return False
        self._lambda = self._accepted_lambda = least
        self._nu = 2.0
        self.was_loosened = True
        return True

    def step(self, iteration: int, signals: Signals) -> Step:
        """Trials from one linearization until one lowers chi2."""
        solver, options = self._solver, self.options
        current = solver.linearize()
        if iteration == 0:
            self._lambda = self._accepted_lambda = self._first_lambda()
            self._nu = 2.0
            self._has_accepted = False
        trials, step_size = 0, np.inf
        while True:
            rho, chi2, size = self._trial(current)
            trials += 1
            if rho > 0.0:
                step_size, current = size, chi2
            finite = np.isfinite(self._lambda)
            if not rho < 0.0 or trials >= options.max_trials or not finite or signals.should_stop():
                break
        self._chi2 = current
        ended = trials >= options.max_trials or rho == 0.0 or not finite
        outcome = Outcome.NO_IMPROVEMENT if ended else Outcome.CONTINUE
        return Step(outcome, current, self._lambda, trials, step_size)

    def _first_lambda(self) -> float:
        return self.options.initial_lambda or self.options.tau * self._solver.largest_diagonal()

    def _trial(self, current: float) -> tuple[float, float, float]:
        """Try one damping: (rho, chi2 after the step, its size). A step with rho <= 0 is taken back."""
        solver = self._solver
        trial = solver.trial(Damping(self._lambda))
        if not trial.solved:
            self._reject()
            return -np.inf, current, np.inf
        rho = (current - trial.chi2) / (trial.gain + kernels.LoopConstants.GAIN_OFFSET)
        if rho > 0.0 and np.isfinite(trial.chi2):
            options = self.options
            self._accepted_lambda, self._has_accepted = self._lambda, True
            alpha = min(1.0 - (2.0 * rho - 1.0) ** 3, options.good_step_upper_scale)
            self._lambda *= max(options.good_step_lower_scale, alpha)
            self._nu = 2.0
            solver.discard_top()
            return rho, trial.chi2, trial.step_size
        self._reject()
        solver.pop()
        return (rho if np.isfinite(rho) else -np.inf), current, np.inf

    def _reject(self) -> None:
        self._lambda *= self._nu
        self._nu *= 2.0


METHOD = Method(LevenbergMarquardt, LevenbergMarquardtOptions)
