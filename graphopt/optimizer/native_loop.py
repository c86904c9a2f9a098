"""g2o's algorithms on small systems, by the native loop; same numbers as `run` gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from graphopt.cpu_kernels import kernels
from graphopt.optimizer.algorithm import Algorithm, Outcome
from graphopt.optimizer.dogleg import Dogleg
from graphopt.optimizer.gauss_newton import GaussNewton
from graphopt.optimizer.levenberg_marquardt import LevenbergMarquardt
from graphopt.optimizer.options import StopRules
from graphopt.optimizer.signals import StopSignals
from graphopt.optimizer.summary import Iteration, Summary
from graphopt.solver.block_solver import BlockSolver
from graphopt.solver.small import native_loop


class NativeLoop:
    """A native loop and the algorithm whose state it continues."""

    def __init__(self, loop: Any, algorithm: Algorithm):
        self._loop = loop
        self.algorithm = algorithm

    def run(self, rules: StopRules, summary: Summary, signals: StopSignals) -> Outcome:
        """Run all iterations and fill `summary`, or go on after those that it has.

        Returns how the last step ended; `Outcome.CONTINUE` after the last iteration or a request to stop.
        """
        method, give_back = _METHODS[type(self.algorithm)](self.algorithm)
        result = self._loop.run(method, rules, signals.should_stop, signals.patience)
        give_back()
        return _noted(result, summary)

    def run_rounds(
        self, rules: StopRules, summary: Summary, signals: StopSignals, judging: Mapping[str, Any]
    ) -> tuple[Outcome, int]:
        """Rounds of iterations, each from the algorithm's first state, and how many of them ran.

        Between them observations are judged: `judging` has the other arguments of `SmallLoop.run_rounds`.
        `summary` gets the last round's iterations and the seconds of all.
        """
        method, _ = _METHODS[type(self.algorithm)](self.algorithm)
        result, rounds = self._loop.run_rounds(
            method, rules, signals.should_stop, signals.patience, **judging
        )
        return _noted(result, summary), rounds


def _noted(result: Any, summary: Summary) -> Outcome:
    done = len(summary.iterations)
    if not done:
        summary.initial_chi2 = summary.final_chi2 = result.initial_chi2
    summary.iterations += [Iteration(number, *step) for number, step in enumerate(result.steps, done)]
    if summary.iterations:
        summary.final_chi2 = summary.iterations[-1].chi2
    for name in ("linearize", "solve", "update"):
        summary.seconds[name] += getattr(result, f"{name}_seconds")
    return Outcome[result.ending] if result.ending else Outcome.CONTINUE


def native_loop_for(algorithm: Algorithm, solver: BlockSolver) -> NativeLoop | None:
    """The native loop for this algorithm and block solver, None if Python has to run the iterations."""
    if type(algorithm) not in _METHODS:
        return None
    loop = native_loop(solver, type(algorithm) is Dogleg)
    return None if loop is None else NativeLoop(loop, algorithm)


def _levenberg(algorithm: LevenbergMarquardt) -> tuple[Any, Any]:
    options = algorithm.options
    if algorithm.was_loosened:  # it goes on: the first step takes this one
        options = replace(options, initial_lambda=algorithm._lambda)
    method = kernels.Levenberg(options)
    method.damping, method.nu = algorithm._lambda, algorithm._nu

    def give_back() -> None:
        algorithm._lambda, algorithm._nu = method.damping, method.nu

    return method, give_back


def _gauss_newton(algorithm: GaussNewton) -> tuple[Any, Any]:
    return kernels.GaussNewton(), lambda: None


def _dogleg(algorithm: Dogleg) -> tuple[Any, Any]:
    method = kernels.Dogleg(algorithm.options)
    method.delta, method.damping = algorithm._delta, algorithm._lambda
    method.was_positive_definite = algorithm._was_positive_definite

    def give_back() -> None:
        algorithm._delta, algorithm._lambda = method.delta, method.damping
        algorithm._was_positive_definite = method.was_positive_definite

    return method, give_back


_METHODS: dict[type, Any] = {
    LevenbergMarquardt: _levenberg,
    GaussNewton: _gauss_newton,
    Dogleg: _dogleg,
}
