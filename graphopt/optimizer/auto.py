"""`auto`: this library's own trust-region schedule.

Two ways to limit a step, chosen by the problem:

* **Dogleg** (`TrustRegion`), for poses and points without elimination. It starts with an unlimited radius,
  that is with Gauss-Newton, which takes pose graphs to their minimum in few iterations, and limits the step
  only when chi2 rises. A rejected step costs no new factorization: the shorter step is a point on the path
  from steepest descent to Gauss-Newton, and its predicted gain follows from scalar products.
* **Damping scaled by the diagonal of H** (`ScaledDamping`), where vertices are marginalized (bundle
  adjustment) or hold numbers of different units. It limits weak directions, such as a scale that nothing
  fixes, more than strong ones.

Where the first iterations gain little, the start is poor. Then a convex relaxation of the whole problem
(`solver.relaxation`) is solved, and its estimates are taken if chi2 is lower there: large loops that no local
method closes, and fewer iterations for the others.

All accept only steps that lower chi2, so the estimate is the best one at any time.

References: Powell 1970 (dogleg); Marquardt 1963; Nielsen IMM-REP-1999-05; Ceres Solver (initial radius 1e4).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from graphopt.optimizer.algorithm import Algorithm, Outcome, Signals, Step
from graphopt.optimizer.options import AutoOptions
from graphopt.optimizer.scaled_damping import ScaledDamping
from graphopt.optimizer.trust_region import TrustRegion
from graphopt.solver.block_solver import BlockSolver
from graphopt.solver.relaxation import relaxed_estimates
from graphopt.solver.structure import Structure

_POSES_AND_POINTS = frozenset({"VERTEX_SE2", "VERTEX_XY", "VERTEX_SE3:QUAT", "VERTEX_TRACKXYZ"})
_ROUNDING = 1e-18  # chi2 below this fraction of its start is rounding error


def has_uniform_units(structure: Structure) -> bool:
    """Every optimized vertex is a pose or a point of a map, and none is eliminated."""
    return structure.num_kept == structure.num_blocks and all(
        one.type.tag in _POSES_AND_POINTS
        for one, blocks in zip(structure.selection.vertex_sets, structure.vertex_blocks, strict=True)
        if (blocks >= 0).any()
    )


class Auto:
    """Chooses the algorithm when the problem is known."""

    def __init__(self, options: AutoOptions):
        self.options = options
        self.note = ""
        self._algorithm: Algorithm | None = None
        self._chi2 = 0.0
        self._relaxed = False

    def start(self, solver: BlockSolver, chi2: float) -> None:
        """Pick by what the block solver says about the problem."""
        self._solver = solver
        self._chi2 = chi2
        uniform = has_uniform_units(solver.structure)
        self._algorithm = TrustRegion(self.options) if uniform else ScaledDamping(self.options)
        self._algorithm.start(solver, chi2)

    def step(self, iteration: int, signals: Signals) -> Step:
        """One iteration of the chosen algorithm; the first one may end at the relaxation's estimates."""
        assert self._algorithm is not None
        step = self._algorithm.step(iteration, signals)
        if self._is_stuck(iteration, step.chi2):
            step = self._relax(step)
        if step.outcome is Outcome.CONTINUE and step.chi2 <= _ROUNDING * self._chi2:
            return replace(step, outcome=Outcome.CONVERGED)
        return step

    def _is_stuck(self, iteration: int, chi2: float) -> bool:
        """The first iteration gained little, or the third ended far from what noise alone explains."""
        if self._relaxed or not np.isfinite(self.options.relax_above):
            return False
        if iteration == 0:
            return chi2 > self.options.relax_above * self._chi2
        groups = self._solver.structure.groups
        return iteration == 2 and chi2 > sum(len(one.rows) * one.edge_set.type.residual_dim for one in groups)

    def _relax(self, step: Step) -> Step:
        """Go to the relaxation's estimates if chi2 is lower there than after `step`."""
        self._relaxed = True
        solver = self._solver
        estimates = relaxed_estimates(solver.structure)
        if estimates is None:
            return step
        solver.push()
        for one, estimate in zip(solver.structure.selection.vertex_sets, estimates, strict=True):
            one.estimate = estimate
        solver.refresh()
        chi2 = solver.chi2()
        if not chi2 < step.chi2:
            solver.pop()
            return step
        solver.discard_top()
        self.note = f"Went on from a convex relaxation, where chi2 is {chi2:.6g}."
        self._algorithm = TrustRegion(self.options)
        self._algorithm.start(solver, chi2)
        return Step(Outcome.CONTINUE, chi2, None, step.trials + 1)
