"""Gauss-Newton as in g2o.

    H dx = b,    estimate <- estimate oplus dx

Every step is taken, whatever chi2 does. A system that is not positive definite ends it (g2o `Fail`).
In mixed precision a step that raises chi2 ends it, too: one from float32 may lead anywhere (`precision` then
goes on in double, where there is one).
"""

from __future__ import annotations

import numpy as np

from graphopt.optimizer.algorithm import Outcome, Signals, Step
from graphopt.optimizer.options import GaussNewtonOptions
from graphopt.solver.block_solver import BlockSolver
from graphopt.solver.trial import Damping

_ROUNDING = 1.0 + 1e-6  # more is no rounding of float32 at a minimum


class GaussNewton:
    """Gauss-Newton; see the module's header."""

    note = ""

    def __init__(self, options: GaussNewtonOptions):
        self.options = options

    def start(self, solver: BlockSolver, chi2: float) -> None:
        """Remember the block solver."""
        self._solver = solver
        self._chi2 = chi2

    def damping(self) -> Damping:
        """None at all."""
        return Damping(0.0)

    def resume(self) -> None:
        """There is nothing to forget."""

    def loosen(self, tolerance: float) -> bool:
        """No: its steps are never held back."""
        return False

    def step(self, iteration: int, signals: Signals) -> Step:
        """One full step; an estimate where chi2 is not finite is taken back."""
        solver = self._solver
        solver.linearize()
        trial = solver.trial(Damping(0.0))
        if not trial.solved:
            return Step(Outcome.LINEAR_SOLVER_FAILURE, self._chi2, None, 1)
        if not (np.isfinite(trial.step_size) and np.isfinite(trial.chi2)):
            solver.pop()
            return Step(Outcome.NON_FINITE, self._chi2, None, 1)
        if solver.precision == "mixed" and trial.chi2 > _ROUNDING * self._chi2:
            solver.pop()
            return Step(Outcome.NO_IMPROVEMENT, self._chi2, None, 1)
        solver.discard_top()
        self._chi2 = trial.chi2
        return Step(Outcome.CONTINUE, trial.chi2, None, 1, trial.step_size)
