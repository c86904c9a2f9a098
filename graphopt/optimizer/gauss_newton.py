"""Gauss-Newton as in g2o.

    H dx = b,    estimate <- estimate oplus dx

Every step is taken, whatever chi2 does. A system that is not positive definite ends it (g2o `Fail`).
In mixed precision a step that raises chi2 ends it, too: one from float32 may lead anywhere (`precision` then
goes on in double, where there is one).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphopt.cpu_kernels import kernels
from graphopt.optimizer.algorithm import AlgorithmBase, Outcome, Signals, Step
from graphopt.optimizer.methods import Method
from graphopt.optimizer.options import GaussNewtonOptions
from graphopt.solver.trial import Damping

_ROUNDING = 1.0 + 1e-6  # more is no rounding of float32 at a minimum


class GaussNewton(AlgorithmBase):
    """Gauss-Newton; see the module's header."""

    def native_method(self) -> tuple[Any, Callable[[], None]]:
        """See `native_loop`."""
        return kernels.GaussNewton(), lambda: None

    def step(self, iteration: int, signals: Signals) -> Step:
        """One full step; an estimate where chi2 is not finite is taken back."""
        solver = self.solver
        solver.linearize()
        trial = solver.trial(Damping(0.0))
        if not trial.solved:
            return Step(Outcome.LINEAR_SOLVER_FAILURE, self.chi2, None, 1)
        if not (np.isfinite(trial.step_size) and np.isfinite(trial.chi2)):
            solver.pop()
            return Step(Outcome.NON_FINITE, self.chi2, None, 1)
        if solver.precision == "mixed" and trial.chi2 > _ROUNDING * self.chi2:
            solver.pop()
            return Step(Outcome.NO_IMPROVEMENT, self.chi2, None, 1)
        solver.discard_top()
        self.chi2 = trial.chi2
        return Step(Outcome.CONTINUE, trial.chi2, None, 1, trial.step_size)


METHOD = Method(GaussNewton, GaussNewtonOptions)
