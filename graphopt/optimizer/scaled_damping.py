"""Levenberg-Marquardt with Marquardt's scaling; one half of `auto`.

(H + lambda diag(H)) dx = b
rho = (chi2 - chi2_new) / (dx' (lambda diag(H) dx + b))
rho > 0.75: lambda <- lambda / 5         rho > 0.5:  lambda <- lambda / 3
rho < 0.25: lambda <- 2 lambda           rejected:   lambda <- lambda nu,  nu <- 2 nu
accepted after a rejection: lambda <- lambda max(1/3, 1 - (2 rho - 1)^3), nu <- 2 (Nielsen)
rejected below the lambda of the last accepted step: back to that one

Lambda falls fast: points far away move along their rays by about 1 / sqrt(lambda), so while chi2 falls by
them, a lambda that falls slowly sets the pace. An occasional rejected step costs less than that.
"""

from __future__ import annotations

import numpy as np

from graphopt.optimizer.algorithm import Outcome, Signals, Step, predicted_relative_decrease
from graphopt.optimizer.momentum import Decreases, Momentum
from graphopt.optimizer.options import AutoOptions
from graphopt.solver.block_solver import BlockSolver
from graphopt.solver.trial import Damping, Trial

_INITIAL_LAMBDA = 1e-4  # 1 / initial_trust_region_radius of Ceres
SMALLEST_DIAGONAL, LARGEST_DIAGONAL = 1e-6, 1e32
"""min_lm_diagonal, max_lm_diagonal of Ceres."""
_LARGEST_LAMBDA = 1e32
_SMALLEST_LAMBDA = 1e-16
RESUMED_LAMBDA = 1e-8
"""Directions weaker than this, beside diag(H), are those that float32 does not resolve."""
_WEAK = 1e-10  # lambda that holds back no direction in which chi2 could fall noticeably
_MOST_SMALL = 10  # small decreases in a row that are an end, whatever the model promises
_UNSOLVABLE, _LARGEST_FLOOR = 4.0, 1e-12  # lambda stays above this much of one that left H + D indefinite
_ACCEPT = 1e-3  # min_relative_decrease of Ceres
_NO_GAIN = 1e-14  # predicted gain relative to chi2 that rounding hides
_ACCURACY = 0.3  # of conjugate gradients, times the root of chi2's last relative decrease
_FINEST, _COARSEST = 1e-3, 0.05  # accuracy; 0.1, eta of Ceres, takes as many iterations in more steps
_WORTH = 0.1  # of the decrease that ends a run: what conjugate gradients may leave


class ScaledDamping:
    """Levenberg-Marquardt with diagonal scaling; see the module's header."""

    note = ""

    def __init__(self, options: AutoOptions):
        self.options = options

    def start(self, solver: BlockSolver, chi2: float) -> None:
        """Remember the block solver; also starts again at a new estimate."""
        self._solver = solver
        self._momentum = Momentum(solver) if solver.structure.has_kernels else None
        self._begin(chi2)

    def damping_at_start(self, chi2: float) -> Damping:
        """Of the first trial after a start with this chi2."""
        self._begin(chi2)
        return self.damping(self._accuracy)

    def _begin(self, chi2: float) -> None:
        self._chi2 = chi2
        self._lambda = _INITIAL_LAMBDA
        self._nu = 2.0
        self.was_limited = False
        """Some step was rejected."""
        self._accuracy = _COARSEST
        self._was_coarse = False
        self._weakest, self._predicted = np.inf, np.inf
        self._num_small = self._num_slow = 0
        self._recent = Decreases()
        self._floor = _SMALLEST_LAMBDA
        self._accepted_lambda = 0.0
        """Of the last accepted step."""
        self._has_probed = False
        """A weak lambda was tried where chi2 fell little, and chi2 rose: it is not tried again."""

    def has_settled(self, decrease: float, tolerance: float) -> bool:
        """Whether a decrease of chi2, absolute like `tolerance`, ends the run.

        It must be small, and so must what the model promised with a weak lambda; if it was not weak, the next
        step's will be. Landmarks that recede for ever promise much and gain little: some small decreases in a
        row are an end as well, where what they continue to is small, and a weak lambda was tried; and so are
        those below `slow_tolerance` whose lambda was weak all along.
        """
        self._num_small = self._num_small + 1 if decrease <= tolerance else 0
        slow = self.options.slow_tolerance * self._chi2
        self._num_slow = self._num_slow + 1 if self._weakest <= _WEAK and decrease <= slow else 0
        self._recent.append(decrease)
        if self._momentum is not None and not self._momentum.has_settled(decrease, tolerance):
            return False
        if self._num_slow >= _MOST_SMALL and self._recent.are_over(slow):
            return True
        if not self._num_small:
            return False
        if self._weakest > _WEAK and self._num_small < _MOST_SMALL:
            if self._num_small == 1 and not self._has_probed:
                self._lambda, self._nu = min(self._lambda, _WEAK), 2.0
            return False
        if self._weakest <= _WEAK and self._predicted <= tolerance:
            return True
        if self._num_small < _MOST_SMALL or not self._recent.are_over(tolerance):
            return False
        if self._weakest <= _WEAK or self._has_probed:
            return True  # they are small by themselves, not by damping
        self._lambda, self._nu = _WEAK, 2.0
        return False

    def refine(self) -> bool:
        """Solve the next step as finely as ever; False: the last one was."""
        if not self._was_coarse:
            return False
        self._accuracy = _FINEST
        return True

    def damping(self, accuracy: float = _FINEST) -> Damping:
        """Lambda diag(H)."""
        worth = _WORTH * self.options.function_tolerance * self._chi2
        return Damping(self._lambda, True, SMALLEST_DIAGONAL, LARGEST_DIAGONAL, accuracy, worth)

    def resume(self) -> None:
        """Start below what float32 resolves; rejected steps raise lambda soon."""
        self._lambda = min(self._lambda, RESUMED_LAMBDA)
        self._nu = 2.0
        self._accuracy = _FINEST

    def loosen(self, tolerance: float) -> bool:
        """Hardly damped, if such a step promises more; never with elimination, where landmarks may recede."""
        structure = self._solver.structure
        if (
            structure.num_kept < structure.num_blocks
            or predicted_relative_decrease(self._solver, tolerance) <= tolerance
        ):
            return False
        self._lambda = _SMALLEST_LAMBDA
        self._nu = 2.0
        return True

    def step(self, iteration: int, signals: Signals) -> Step:
        """Raise lambda until chi2 falls enough."""
        solver = self._solver
        current = self._chi2 = solver.linearize()
        trial, solved = 0, False
        self._weakest, self._predicted = np.inf, np.inf
        while trial < self.options.max_trials and self._lambda < _LARGEST_LAMBDA:
            if trial and signals.should_stop():
                return Step(Outcome.CONTINUE, current, self._lambda, trial)
            trial += 1
            found = solver.trial(self.damping(self._accuracy))
            self._was_coarse = found.is_coarse and self._accuracy > _FINEST
            if not found.solved:
                self._floor = min(_UNSOLVABLE * self._lambda, _LARGEST_FLOOR)
                self._reject()
                continue
            if not solved:  # where H + D was indefinite before, nothing weaker can be solved
                self._weakest, self._predicted = self._lambda if trial == 1 else 0.0, found.gain
            solved = True
            self._has_probed |= self._num_small > 0 and self._weakest <= _WEAK and not found.chi2 <= current
            if self._accepts(found, current, trial):
                chi2 = found.chi2
                if self._momentum is not None:
                    chi2 = self._momentum.carry(current, chi2)
                return Step(Outcome.CONTINUE, chi2, self._lambda, trial, found.step_size)
            if found.gain <= _NO_GAIN * current:
                break
        outcome = Outcome.NO_IMPROVEMENT if solved else Outcome.LINEAR_SOLVER_FAILURE
        if solved and self._num_small:
            outcome = Outcome.CONVERGED  # this step was only to see whether the last one was small by damping
        return Step(outcome, current, self._lambda, trial)

    def _accepts(self, found: Trial, current: float, trial: int) -> bool:
        """Keep the step of a trial, or take it back; adapts lambda."""
        rho = (current - found.chi2) / found.gain if found.gain > 0.0 else -np.inf
        if np.isfinite(found.chi2) and rho > _ACCEPT:
            self._solver.discard_top()
            self._accepted_lambda = self._lambda
            self._lambda = max(self._lambda * _factor(rho, trial), self._floor)
            self._nu = 2.0
            fell = max(1.0 - found.chi2 / current, 0.0) if current > 0.0 else 0.0
            self._accuracy = float(np.clip(_ACCURACY * np.sqrt(fell), _FINEST, _COARSEST))
            return True
        self._solver.pop()
        self._reject()
        return False

    def _reject(self) -> None:
        self.was_limited = True
        if self._lambda < self._accepted_lambda:
            self._lambda = self._accepted_lambda
            return
        self._lambda *= self._nu
        self._nu *= 2.0


def _factor(rho: float, trial: int) -> float:
    """What an accepted step with actual over predicted gain rho does to lambda."""
    if trial > 1:
        return max(1.0 / 3.0, 1.0 - (2.0 * rho - 1.0) ** 3)
    if rho > 0.5:
        return 0.2 if rho > 0.75 else 1.0 / 3.0
    return 1.0 if rho > 0.25 else 2.0
