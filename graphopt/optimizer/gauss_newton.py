"""Gauss-Newton as in g2o.

    H dx = b,    estimate <- estimate oplus dx

Every step is taken, whatever chi2 does. A system that is not positive definite ends it (g2o `Fail`).
"""

from __future__ import annotations

import numpy as np

from graphopt.optimizer.algorithm import Outcome, Signals, Step
from graphopt.optimizer.options import GaussNewtonOptions
from graphopt.solver.block_solver import BlockSolver


class GaussNewton:
    """Gauss-Newton; see the module's header."""

    note = ""

    def __init__(self, options: GaussNewtonOptions):
        self.options = options

    def start(self, solver: BlockSolver, chi2: float) -> None:
        """Remember the block solver."""
        self._solver = solver
        self._chi2 = chi2

    def step(self, iteration: int, signals: Signals) -> Step:
        """One full step; an estimate where chi2 is not finite is taken back."""
        solver = self._solver
        solver.linearize()
        if not solver.solve(0.0):
            return Step(Outcome.LINEAR_SOLVER_FAILURE, self._chi2, None, 1)
        step_size = float(np.abs(solver.dx).max())
        if not np.isfinite(step_size):
            return Step(Outcome.NON_FINITE, self._chi2, None, 1)
        solver.push()
        solver.update()
        chi2 = solver.chi2()
        if not np.isfinite(chi2):
            solver.pop()
            return Step(Outcome.NON_FINITE, self._chi2, None, 1)
        solver.discard_top()
        self._chi2 = chi2
        return Step(Outcome.CONTINUE, chi2, None, 1, step_size)
