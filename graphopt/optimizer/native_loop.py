"""g2o's algorithms on small systems, by the native loop; same numbers as `run` gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphopt.optimizer.algorithm import Algorithm, Outcome
from graphopt.optimizer.options import StopRules
from graphopt.optimizer.signals import StopSignals
from graphopt.optimizer.summary import Iteration, Summary
from graphopt.solver.block_solver import BlockSolver
from graphopt.solver.capabilities import native_loop_of


class NativeLoop:
    """A native loop and the algorithm whose state it continues."""

    def __init__(self, loop: Any, algorithm: Any):
        self._loop = loop
        self.algorithm = algorithm

    def run(self, rules: StopRules, summary: Summary, signals: StopSignals) -> Outcome:
        """Run all iterations and fill `summary`, or go on after those that it has.

        Returns how the last step ended; `Outcome.CONTINUE` after the last iteration or a request to stop.
        """
        method, give_back = self.algorithm.native_method()
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
        method, _ = self.algorithm.native_method()
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
    """The native loop for this algorithm and block solver, None if Python has to run the iterations.

    An algorithm has one whose class has a method `native_method() -> (method, give_back)`: the native method
    in the algorithm's present state, and what brings its state back. `multiplies` says whether it multiplies
    by H. A derived class may step in another way: one that is inherited does not count.
    """
    if "native_method" not in vars(type(algorithm)):
        return None
    loop = native_loop_of(solver, getattr(algorithm, "multiplies", False))
    return None if loop is None else NativeLoop(loop, algorithm)
