"""Multi-start: other methods from the same start, for problems with many minima.

Where a descent leads depends on its steps. On a graph with wrong loop closures or a folded start, each of
Gauss-Newton, Levenberg-Marquardt and dogleg ends in another minimum, and none is always best. So where `auto`
cannot know that it is in the right one, g2o's methods run from the start as well, and the lowest point of all
is kept.

Each candidate stops where it ends by itself, where it falls slowly below all others (it is faster to go on
from there), or where it can hardly win any more: it has done as many steps as `auto` did, and the largest
of the last decreases, `_PATIENCE_OF_DESCENT` times over, would not bring it below the best, or twice as many
steps have not. On maps of poses and points it goes on within a tenth of the best: plateaus differ there.

Small systems run to their end, in the native loop: a thousand iterations there take milliseconds.

The best point is on the solver's stack all the time: whatever ends the search early, it is returned to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from graphopt.optimizer.algorithm import Algorithm, Outcome
from graphopt.optimizer.dogleg import Dogleg
from graphopt.optimizer.gauss_newton import GaussNewton
from graphopt.optimizer.levenberg_marquardt import LevenbergMarquardt
from graphopt.optimizer.native_loop import NativeLoop, native_loop_for
from graphopt.optimizer.options import (
    DoglegOptions,
    GaussNewtonOptions,
    LevenbergMarquardtOptions,
    StopRules,
)
from graphopt.optimizer.run import PrematureStopGuard, ending_after, run_to_the_end
from graphopt.optimizer.signals import StopSignals
from graphopt.optimizer.summary import Summary
from graphopt.problem.structure import Structure
from graphopt.solver.block_solver import BlockSolver
from graphopt.solver.capabilities import capabilities_of, restore
from graphopt.solver.cpu import SMALL_DIM
from graphopt.types.robust_kernels import robust_kernel

CANDIDATES: dict[str, Callable[[], Algorithm]] = {
    "gn": lambda: GaussNewton(GaussNewtonOptions()),
    "dogleg": lambda: Dogleg(DoglegOptions()),
    "lm": lambda: LevenbergMarquardt(LevenbergMarquardtOptions()),
}
_SLOW = 1e-6  # relative decrease at which a candidate that is best hands over
_CONVERGED = 1e-9  # relative decrease at which any has ended
_FEW = 10  # iterations before a candidate is judged by its decreases, at least
_RECENT = 5  # decreases that are looked at
_PATIENCE_OF_DESCENT = 100  # decreases like the recent ones that a candidate may still need
_SMALL_RULES = StopRules(20_000, function_tolerance=1e-12)
_NEAR = 0.1  # of its chi2: nearer to the best, poses and points of a map may do all iterations
_LONGEST = 2  # times the steps before it is judged: then a candidate that is not near has had its time
_PATIENCE = 15  # iterations of Gauss-Newton without a new lowest point
_SAME = 3  # first steps that show that two candidates are one


@dataclass(frozen=True)
class MultiStartResult:
    """What was found."""

    winner: str | None
    """Name of the candidate that found the lowest point; None: nobody found a lower one."""
    chi2: float
    """At the estimates."""
    num_steps: int
    """Linearizations of all candidates."""


class MultiStart:
    """Runs candidates from one start; see the module's header."""

    def __init__(
        self, solver: BlockSolver, start: list[np.ndarray], signals: StopSignals, max_iterations: int
    ):
        self._solver, self._start, self._signals = solver, start, signals
        self._max_iterations = max_iterations
        self._best = np.inf
        self._winner: str | None = None
        self._num_steps = 0
        self._patience, self._near = _FEW, 0.0
        is_small = (
            solver.structure.dim <= SMALL_DIM and solver.structure.num_kept == solver.structure.num_blocks
        )
        self._is_small = is_small and capabilities_of(getattr(solver, "inner", solver)).native_loop
        """All candidates run to their end; from Python where native loops are switched off."""
        self._chi2s: dict[str, list[float]] = {}
        """Of each candidate, from the start on."""

    def run(self, chi2: float, num_steps: int, same_as_newton: bool, has_plateaus: bool) -> MultiStartResult:
        """Find out if anybody gets below `chi2`, that of the present estimates, and go there.

        num_steps: that were taken to the present estimates; candidates may do as many before they are judged.
        same_as_newton: Gauss-Newton and dogleg would only do again what was done.
        has_plateaus: chi2 may rest for long and fall again, as in maps of poses and points; not in bundles.
        """
        self._best = chi2
        self._patience = max(num_steps, _FEW)
        self._near = _NEAR if has_plateaus else 0.0
        self._solver.push()
        for name in ["lm"] if same_as_newton else CANDIDATES:
            if not self._signals.should_stop():
                self._try(name)
        self._solver.pop()
        return MultiStartResult(self._winner, self._best, self._num_steps)

    def _try(self, name: str) -> None:
        """Run one candidate."""
        solver = self._solver
        restore(solver, self._start)
        candidate = CANDIDATES[name]()
        native = native_loop_for(candidate, getattr(solver, "inner", solver))
        if native is not None:
            return self._run_native(name, native)
        chi2s = self._chi2s[name] = [solver.chi2()]
        candidate.start(solver, chi2s[0])
        guard = PrematureStopGuard(candidate, _SMALL_RULES) if self._is_small else None
        for number in range(_SMALL_RULES.max_iterations if self._is_small else self._max_iterations):
            step = candidate.step(number, self._signals)
            self._num_steps += 1
            chi2s.append(step.chi2)
            if step.chi2 < (1.0 - _SLOW) * self._best:
                self._keep(name, step.chi2)
            if guard is None:
                is_over = step.outcome is not Outcome.CONTINUE or self._is_over(name)
            else:
                ending = ending_after(step, chi2s[-2], _SMALL_RULES, solver)
                is_over = ending is not None and not guard.may_go_on(ending, step)
            if is_over or self._signals.should_stop():
                return

    def _run_native(self, name: str, native: NativeLoop) -> None:
        summary = Summary(0, 0, name)
        native.algorithm.start(self._solver, np.nan)
        run_to_the_end(native, _SMALL_RULES, summary, self._signals)
        self._num_steps += len(summary.iterations)
        if summary.final_chi2 < (1.0 - _SLOW) * self._best:
            self._keep(name, summary.final_chi2)

    def _is_over(self, name: str) -> bool:
        """There is nothing more to expect from a candidate."""
        chi2s = self._chi2s[name]
        change = abs(chi2s[-2] - chi2s[-1])
        if change <= (_SLOW if chi2s[-1] <= self._best else _CONVERGED) * chi2s[-2]:
            return True
        if name == "dogleg" and len(chi2s) == _SAME + 1 and self._newton_was_a_descent():
            if np.allclose(chi2s, self._chi2s["gn"][: _SAME + 1], rtol=1e-9, atol=0.0):
                return True  # it would do the same again
        return len(chi2s) > self._patience and self._is_hopeless(name, chi2s)

    def _newton_was_a_descent(self) -> bool:
        chi2s = self._chi2s["gn"]
        falls = -np.diff(chi2s)
        return len(chi2s) > _SAME and bool((falls >= -_SLOW * chi2s[-1]).all())

    def _keep(self, name: str, chi2: float) -> None:
        """The present estimates are the best so far."""
        self._solver.discard_top()
        self._solver.push()
        self._best, self._winner = chi2, name

    def _is_hopeless(self, name: str, chi2s: list[float]) -> bool:
        """It will not get below the best."""
        if len(chi2s) > _LONGEST * self._patience and chi2s[-1] > (1.0 + self._near) * self._best:
            return True
        if name == "gn":  # chi2 may rise and fall again
            return len(chi2s) - 1 - int(np.argmin(chi2s)) >= _PATIENCE
        largest = -float(np.diff(chi2s[-_RECENT - 1 :]).min())
        return chi2s[-1] - max(_PATIENCE_OF_DESCENT * largest, self._near * chi2s[-1]) > self._best


def has_convex_kernels(structure: Structure) -> bool:
    """No kernel of an active edge makes minima of its own."""
    return all(_is_convex(number) for number in {group.kernel for group in structure.groups})


def has_unbounded_kernels(structure: Structure) -> bool:
    """No kernel of an active edge has a largest value."""
    return all(_is_unbounded(number) for number in {group.kernel for group in structure.groups})


@cache
def _is_unbounded(number: int) -> bool:
    """rho(e^2) still grows by more than 1 % from e = 10^3 to 10^6, as Cauchy's logarithm does."""
    if number == 0:
        return True
    near, far = robust_kernel(number).function(np.array([1e6, 1e12]), np.ones(2))[0]
    return bool(far > 1.01 * near)


@cache
def _is_convex(number: int) -> bool:
    """rho(e^2) is convex in e: its slope 2 e rho'(e^2) never falls."""
    if number == 0:
        return True
    error = np.geomspace(1e-3, 1e3, 601)
    with np.errstate(all="ignore"):
        slope = error * robust_kernel(number).function(error * error, np.ones_like(error))[1]
    return bool(np.all(np.diff(slope) >= -1e-12 * np.abs(slope[1:])))
