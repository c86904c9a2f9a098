"""The loop that all algorithms share: iterations, stop rules, callback, time, summary."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from graphopt.errors import Stopped
from graphopt.optimizer.algorithm import Algorithm, Outcome, Step, is_below_zero
from graphopt.optimizer.meter import MeteredSolver
from graphopt.optimizer.native_loop import NativeLoop, native_loop_for
from graphopt.optimizer.options import StopRules
from graphopt.optimizer.precision import PrecisionGuard
from graphopt.optimizer.signals import StopSignals, UsersCode
from graphopt.optimizer.summary import Iteration, Summary, TerminationType
from graphopt.solver.block_solver import BlockSolver

Callback = Callable[[Iteration], object]

ENDINGS = {
    Outcome.CONVERGED: TerminationType.CONVERGENCE,
    Outcome.NO_IMPROVEMENT: TerminationType.NO_IMPROVEMENT,
    Outcome.GIVEN_UP: TerminationType.SLOW_PROGRESS,
    Outcome.UNBOUNDED: TerminationType.UNBOUNDED,
    Outcome.LINEAR_SOLVER_FAILURE: TerminationType.LINEAR_SOLVER_FAILURE,
    Outcome.NON_FINITE: TerminationType.NON_FINITE,
}


def run(
    algorithm: Algorithm,
    rules: StopRules,
    solver: BlockSolver,
    summary: Summary,
    signals: StopSignals,
    callback: Callback | None = None,
) -> Summary:
    """Optimize until something ends it; fills `summary` and leaves the estimates in the graph.

    Raises `Interrupted` after Ctrl-C, where the signals say so.
    """
    native = native_loop_for(algorithm, solver) if callback is None else None
    if native is not None:
        _run_native(native, rules, solver, summary, signals)
    else:
        _run_in_python(algorithm, rules, solver, summary, signals, callback)
    if summary.is_usable and is_below_zero(summary.final_chi2, summary.initial_chi2):
        summary.termination = TerminationType.UNBOUNDED
    signals.raise_if_interrupted(summary)
    return summary


def _run_in_python(
    algorithm: Algorithm,
    rules: StopRules,
    solver: BlockSolver,
    summary: Summary,
    signals: StopSignals,
    callback: Callback | None,
) -> None:
    metered = MeteredSolver(solver, summary.seconds)
    try:
        with signals.catching_interrupts():
            try:
                with signals.watching():
                    _loop(algorithm, rules, metered, summary, signals, callback)
            except (Stopped, KeyboardInterrupt) as error:
                if isinstance(error, KeyboardInterrupt):  # in the program's own code
                    signals.note_interrupt()
                _end_within_a_step(metered, summary, signals)
    finally:
        metered.linearize_trials(False)
        _take_back(metered)
        metered.finish()


def _take_back(solver: MeteredSolver) -> None:
    """After an end in the middle of a trial: back to the last accepted estimate."""
    while solver.depth > 0:
        solver.pop()


def _end_within_a_step(solver: MeteredSolver, summary: Summary, signals: StopSignals) -> None:
    """Native code has ended early: what the step had begun is taken back, what it had accepted stays.

    Before the first chi2 was there, it stays NaN: a device may take long for it.
    """
    _take_back(solver)
    if np.isfinite(summary.initial_chi2):
        summary.final_chi2 = solver.chi2()
    assert signals.reason is not None
    summary.termination = signals.reason


def _run_native(
    native: NativeLoop, rules: StopRules, solver: BlockSolver, summary: Summary, signals: StopSignals
) -> None:
    """All iterations without Python between them."""
    native.algorithm.start(solver, np.nan)
    try:
        with signals.catching_interrupts():
            outcome = run_to_the_end(native, rules, summary, signals)
    finally:
        solver.finish()
    summary.termination = ENDINGS.get(outcome, TerminationType.NO_CONVERGENCE)
    if outcome is Outcome.NON_FINITE:
        overflow = "" if summary.iterations else "chi2 overflows: the errors are too large."
        summary.message = solver.first_non_finite() or overflow
    elif _name_non_finite(summary, solver):
        pass
    elif signals.reason is not None and outcome is Outcome.CONTINUE:
        summary.termination = signals.reason


def run_to_the_end(native: NativeLoop, rules: StopRules, summary: Summary, signals: StopSignals) -> Outcome:
    """All iterations of a native loop, also those after an end that damping made; see `NativeLoop.run`."""
    end = PrematureStopGuard(native.algorithm, rules)
    outcome = native.run(rules, summary, signals)
    while outcome in ENDINGS and (left := rules.max_iterations - len(summary.iterations)) > 0:
        last = Step(outcome, summary.final_chi2, None, 0)
        if signals.reason is not None or not end.may_go_on(ENDINGS[outcome], last):
            break
        outcome = native.run(replace(rules, max_iterations=left), summary, signals)
    return outcome


def _loop(
    algorithm: Algorithm,
    rules: StopRules,
    solver: MeteredSolver,
    summary: Summary,
    signals: StopSignals,
    callback: Callback | None,
) -> None:
    linearizes_trials = callback is None or not getattr(callback, "looks_at_graph", True)
    chi2 = solver.start() if rules.max_iterations > 0 else solver.chi2()
    summary.initial_chi2 = summary.final_chi2 = chi2
    if not np.isfinite(chi2):
        summary.termination = TerminationType.NON_FINITE
        summary.message = solver.first_non_finite() or "chi2 overflows: the errors are too large."
        return
    algorithm.start(solver, chi2)
    guard = PrecisionGuard(solver, algorithm, summary)
    end = PrematureStopGuard(algorithm, rules)
    for number in range(rules.max_iterations):
        if signals.should_stop():
            break
        guard.before()
        solver.linearize_trials(linearizes_trials and number + 1 < rules.max_iterations)
        start = time.perf_counter()
        step = algorithm.step(number, signals)
        summary.final_chi2 = step.chi2
        summary.seconds["restart"] += step.restart_seconds
        done = Iteration(number, step.chi2, step.lambda_, step.trials, time.perf_counter() - start)
        summary.iterations.append(done)
        if callback is not None:
            if getattr(callback, "looks_at_graph", True):
                solver.finish()
            _tell(callback, done, signals)
        ending = ending_after(step, chi2, rules, solver)
        if end.may_go_on(ending, step):
            ending = None
        if signals.reason is None:
            ending = guard.after(step, chi2, ending, is_last=number + 1 == rules.max_iterations)
        if ending is not None:
            summary.termination = ending
            if ending is TerminationType.NON_FINITE:
                summary.message = solver.first_non_finite() or ""
            else:
                _name_non_finite(summary, solver)
            break
        chi2 = step.chi2
    if algorithm.note not in summary.message:
        summary.message = f"{summary.message} {algorithm.note}".strip()
    if signals.reason is not None and summary.termination is TerminationType.NO_CONVERGENCE:
        summary.termination = signals.reason


def _name_non_finite(summary: Summary, solver: BlockSolver) -> bool:
    """Whether no step was found because a Jacobian is not finite; then the summary says of which edge."""
    ending = summary.termination
    if ending is TerminationType.NO_IMPROVEMENT:
        if np.isfinite(solver.largest_gradient()) and np.isfinite(solver.largest_diagonal()):
            return False
    elif ending is not TerminationType.LINEAR_SOLVER_FAILURE:
        return False
    message = solver.first_non_finite()
    if message is not None:
        summary.termination, summary.message = TerminationType.NON_FINITE, message
    return message is not None


class PrematureStopGuard:
    """Doubts an end by `function_tolerance` where damping may be what made the last decrease small.

    Once the algorithm has loosened its damping, the next end holds unless chi2 has fallen by more than the
    tolerance in between.
    """

    def __init__(self, algorithm: Algorithm, rules: StopRules):
        self._algorithm, self._tolerance = algorithm, rules.function_tolerance
        self._chi2 = np.inf

    def may_go_on(self, ending: TerminationType | None, step: Step) -> bool:
        """The run ends after `step`, but there is more to gain, and the next step will try."""
        settled = (TerminationType.CONVERGENCE, TerminationType.NO_IMPROVEMENT)
        if ending not in settled or self._tolerance == 0.0 or step.settles_chi2:
            return False
        if not step.chi2 < (1.0 - self._tolerance) * self._chi2:
            return False
        if not self._algorithm.loosen(self._tolerance):
            return False
        self._chi2 = step.chi2
        return True


def _tell(callback: Callback, done: Iteration, signals: StopSignals) -> None:
    with UsersCode():
        if callback(done) is False:
            signals.ask(TerminationType.USER_STOP)


def ending_after(step: Step, before: float, rules: StopRules, solver: BlockSolver) -> TerminationType | None:
    """Why to stop after this step, None to go on. A tolerance of 0 never stops."""
    if step.outcome in ENDINGS:
        return ENDINGS[step.outcome]
    accepted = np.isfinite(step.step_size)
    if accepted and rules.function_tolerance > 0.0 and not step.settles_chi2:
        if abs(before - step.chi2) <= rules.function_tolerance * abs(before):
            return TerminationType.CONVERGENCE
    if accepted and rules.step_tolerance > 0.0 and step.step_size <= rules.step_tolerance:
        return TerminationType.CONVERGENCE
    if rules.gradient_tolerance > 0.0 and solver.largest_gradient() <= rules.gradient_tolerance:
        return TerminationType.CONVERGENCE
    return None
