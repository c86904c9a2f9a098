"""Watches a run in mixed precision, and goes on in double where float32 decides its result.

    probe at an estimate, in double:   (H + 1e-12 diag(H)) dx = b,   left = dx' (D dx + b) / chi2

The damping holds back nothing that matters: `left` is what one step promises to lower chi2 by, as a share.

* At the end. A run that stops by itself is probed once. If more than `LARGEST_SHARE` is left, it goes on in
  double from there, until it stops again. So a result in mixed precision is one that double would have kept.
  A run that `max_iterations` ends is not probed: that takes as long as many iterations, and nothing can
  follow.
* On the way. Where chi2 falls slowly for some iterations, or rises, or takes many trials, a step is taken in
  both precisions from the same estimate. Where double's lowers chi2 by much more, float32 is what holds the
  run up. Otherwise (a curved valley) the next look is taken later, after twice as many iterations.

Only the probe at the end costs an ordinary run anything. Where the device has no float64, or no memory for
it, there is nothing to go on in: then the summary says what float32's own probe promises.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from graphopt.errors import DeviceError
from graphopt.optimizer.algorithm import Algorithm, Step
from graphopt.optimizer.meter import MeteredSolver
from graphopt.optimizer.summary import Summary, TerminationType
from graphopt.solver.block_solver import BlockSolver
from graphopt.solver.trial import Damping

LARGEST_SHARE = 1e-6
"""Of chi2, that a result in mixed precision may leave to one step in double."""
_PROBED = 0.1
"""Of what may be left: how closely a probe finds out."""
_PROBE, _CAUTIOUS, _FLOAT32 = 1e-12, 1e-8, 1e-7
"""Dampings: the least for double, one for curved valleys, and as little as float32 makes use of."""
_ROUNDING = 1e-12  # of chi2 at the start: what is left is measured against no less
_SLOW, _RATIO, _NUM_SLOW = 1e-2, 0.3, 4  # relative decreases in a row that are small and do not fall
_NOTHING = 1e-9  # relative decrease of an iteration that does nothing
_MANY_TRIALS = 3
_FIRST_LOOK = {"fails": 1, "creeps": _NUM_SLOW}  # iterations done; the next look is after twice as many
_MORE, _MUCH_MORE = 1.1, 2.0  # double's decrease over float32's, of steps damped equally and not


@dataclass(frozen=True)
class _Found:
    """What a probe found."""

    solved: bool
    left: float
    """Predicted decrease, relative to chi2; infinite if not solved."""
    decrease: float
    """Actual decrease of chi2; 0 where it rose."""


class PrecisionGuard:
    """See the module's header; does nothing in double."""

    def __init__(self, solver: MeteredSolver, algorithm: Algorithm, summary: Summary):
        self._solver, self._algorithm, self._summary = solver, algorithm, summary
        self._active = solver.precision == "mixed" and getattr(algorithm, "checks_precision", True)
        self._shares: list[float] = []
        self._damping = Damping(0.0)
        self._next = dict(_FIRST_LOOK)

    def before(self) -> None:
        """Call before each iteration."""
        if self._active:
            self._damping = self._algorithm.damping()

    def after(
        self, step: Step, before: float, ending: TerminationType | None, is_last: bool
    ) -> TerminationType | None:
        """Call after each iteration; returns why to stop now, None: go on, maybe in double from here.

        before: chi2 before the step. ending: why the run would stop. is_last: it may do no more iterations.
        """
        if not self._active:
            return ending
        if ending is not None:
            return self._at_end(step.chi2, ending, is_last)
        if is_last:
            self._tell_unfinished(step, before)
            return None
        sign = self._sign_of_trouble(step, before)
        if sign is not None and len(self._shares) >= self._next[sign]:
            self._next[sign] = 2 * len(self._shares)
            self._look(step.chi2)
        return None

    # ---------------------------------------------------------------- at the end

    def _tell_unfinished(self, step: Step, before: float) -> None:
        gained = (before - step.chi2) / before if before > 0.0 else 0.0
        self._summary.precision_note = (
            "max_iterations ended the run in float32 before a minimum, so nothing was checked in double: its "
            f"last step took off {gained:.1e} of chi2. Where such a run ends depends on rounding; allow more "
            "iterations, or use precision='double'."
        )

    def _at_end(self, chi2: float, ending: TerminationType, is_last: bool) -> TerminationType | None:
        double = self._double()
        damping = _FLOAT32 if double is None else _PROBE
        found = self._probe(double or self._solver.inner, self._scaled(damping, chi2), chi2)
        if found.left <= LARGEST_SHARE or (
            ending is TerminationType.LINEAR_SOLVER_FAILURE and not found.solved
        ):
            return ending
        left = f"{found.left:.1e} of chi2" if found.solved else "an unknown part of chi2"
        if double is None:
            self._tell_stuck(left)
        elif is_last:
            self._summary.precision_note = (
                f"Float32 ended above the minimum in the last iteration that was allowed: one step in double "
                f"promises to take off another {left}. Allow more iterations, or use precision='double'."
            )
        else:
            self._switch(double, f"float32 would have stopped where a step in double promised {left} more")
            return None
        return ending

    def _tell_stuck(self, left: str) -> None:
        gradient = self._solver.largest_gradient()
        self._summary.precision_note = (
            f"Float32 may have ended above the minimum: {left} is left by its own model, and the largest "
            f"entry of b is {gradient:.3g}. {self._why_not} Use device='cpu' to go on in double."
        )

    # ---------------------------------------------------------------- on the way

    def _sign_of_trouble(self, step: Step, before: float) -> str | None:
        share = (before - step.chi2) / before if before > 0.0 else 0.0
        self._shares.append(share)
        if abs(share) < _NOTHING:
            return None  # rounding at a minimum, or stuck for good: it will end, and be probed then
        if step.trials >= _MANY_TRIALS or share < 0.0:
            return "fails"
        recent = self._shares[-_NUM_SLOW:]
        creeps = len(recent) == _NUM_SLOW and max(recent) < _SLOW and recent[-1] > _RATIO * recent[-2]
        return "creeps" if creeps else None

    def _look(self, chi2: float) -> None:
        """Compare a step in both precisions: as the algorithm damps it, then hardly damped."""
        double = self._double()
        if double is None:
            return
        single = self._solver.inner
        own = exact = 0.0
        for damping in (self._damping, self._algorithm.damping()):
            own = max(own, self._probe(single, damping, chi2).decrease)
            exact = max(exact, self._probe(double, damping, chi2).decrease)
            if self._is_more(exact, own, chi2, double, _MORE):
                return
        own = max(own, self._probe(single, self._scaled(_FLOAT32, chi2), chi2).decrease)
        for damping in (_CAUTIOUS, _PROBE):
            exact = max(exact, self._probe(double, self._scaled(damping, chi2), chi2).decrease)
            if self._is_more(exact, own, chi2, double, _MUCH_MORE):
                return

    def _is_more(self, exact: float, own: float, chi2: float, double: BlockSolver, factor: float) -> bool:
        """Double's decrease exceeds float32's by this factor: go on in double."""
        if exact <= max(factor * own, own + LARGEST_SHARE * chi2):
            return False
        a, b = own / chi2, exact / chi2
        self._switch(double, f"a step in float32 lowered chi2 by {a:.1e} of it, one in double by {b:.1e}")
        return True

    # ---------------------------------------------------------------- parts

    def _double(self) -> BlockSolver | None:
        """The double solver; None, and `_why_not` says why, if there is none."""
        self._why_not = "This device has no float64."
        start = time.perf_counter()
        try:
            return self._solver.in_double()
        except DeviceError as error:
            self._why_not = f"A solver in double could not be made: {error}"
            return None
        finally:
            self._summary.seconds["verify"] += time.perf_counter() - start

    def _scaled(self, value: float, chi2: float) -> Damping:
        """As little damping as `value` says, solved as exactly as the algorithm does."""
        worth = _PROBED * LARGEST_SHARE * chi2
        return Damping(value, True, 1e-6, 1e32, self._algorithm.damping().accuracy, worth)

    def _probe(self, solver: BlockSolver, damping: Damping, chi2: float) -> _Found:
        """A step at the estimates, taken back."""
        start = time.perf_counter()
        solver.linearize()
        trial = solver.trial(damping)
        if trial.solved:
            solver.pop()
        self._summary.seconds["verify"] += time.perf_counter() - start
        if not (trial.solved and np.isfinite(trial.gain)):
            return _Found(False, np.inf, 0.0)
        scale = max(chi2, _ROUNDING * self._summary.initial_chi2, np.finfo(float).tiny)
        decrease = chi2 - trial.chi2 if trial.chi2 < chi2 else 0.0
        return _Found(True, max(trial.gain, 0.0) / scale, decrease)

    def _switch(self, double: BlockSolver, reason: str) -> None:
        number = len(self._summary.iterations)
        self._solver.exchange(double)
        self._algorithm.resume()
        self._active = False
        self._summary.switched_at = number
        self._summary.precision = "double"
        self._summary.precision_note = f"Went on in double at iteration {number}: {reason}."
