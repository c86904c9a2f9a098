"""`auto`: this library's own trust-region schedule.

Two ways to limit a step, chosen by the problem:

* **Dogleg** (`TrustRegion`), for poses and points without elimination. It starts with an unlimited radius, that is with
  Gauss-Newton, which takes pose graphs to their minimum in few iterations, and limits the step only when chi2 rises.
  A rejected step costs no new factorization: the shorter step is a point on the path from steepest descent to
  Gauss-Newton, and its predicted gain follows from scalar products.
* **Damping scaled by the diagonal of H** (`ScaledDamping`), where vertices are marginalized (bundle adjustment) or hold
  numbers of different units. It limits weak directions, such as a scale that nothing fixes, more than strong ones.

Both accept only steps that lower chi2, so the estimate is the best one at any time.

References: Powell 1970 (dogleg); Marquardt 1963; Nielsen IMM-REP-1999-05; Ceres Solver (initial radius 1e4).
"""

from __future__ import annotations

from graphopt.optimizer.algorithm import Algorithm, Outcome, Signals, Step
from graphopt.optimizer.options import AutoOptions
from graphopt.optimizer.scaled_damping import ScaledDamping
from graphopt.optimizer.trust_region import TrustRegion
from graphopt.solver.block_solver import BlockSolver
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
        self._algorithm: Algorithm | None = None
        self._negligible = 0.0

    def start(self, solver: BlockSolver, chi2: float) -> None:
        """Pick by what the block solver says about the problem."""
        self._algorithm = (
            TrustRegion(self.options) if has_uniform_units(solver.structure) else ScaledDamping(self.options)
        )
        self._algorithm.start(solver, chi2)
        self._negligible = _ROUNDING * chi2

    def step(self, iteration: int, signals: Signals) -> Step:
        """One iteration of the chosen algorithm."""
        assert self._algorithm is not None
        step = self._algorithm.step(iteration, signals)
        if step.outcome is Outcome.CONTINUE and step.chi2 <= self._negligible:
            return Step(Outcome.CONVERGED, step.chi2, step.lambda_, step.trials, step.step_size)
        return step

    def finish(self) -> float | None:
        """The last estimate is the best one."""
        return None
