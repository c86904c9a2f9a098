"""A trial by conjugate gradients: how many iterations to submit, when they are done, when to factor instead.

A submission holds about as many iterations as the last trial took, rounded up, and what follows the solution
where they may suffice. Where `auto` iterates with an S that is stored, the iterations of a solve that take
longer than factoring S is expected to are given up, and the rest of the optimization factors it: the first
steps of an optimization need few iterations, the last ones many.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from graphopt.cpu_kernels import kernels
from graphopt.device.figures import device_figures
from graphopt.solver.trial import Damping
from graphopt.vulkan.cholesky import expected_seconds
from graphopt.vulkan.kernels.damping import DeviceDamping
from graphopt.vulkan.kernels.equations import Equations
from graphopt.vulkan.kernels.pcg import Pcg, PcgOutcome, Reduction, iterations_per_submission
from graphopt.vulkan.kernels.reduction import SchurReduction, record_back_substitution
from graphopt.vulkan.plan.configuration import Configuration
from graphopt.vulkan.plan.passes import PassCost
from graphopt.vulkan.program import Program
from graphopt.vulkan.programs import Programs

FEWEST_ITERATIONS = 8
"""Conjugate gradient iterations of a trial's submission at least; more if the last trial took more."""
LEAST_FACTORED = 5e-4
"""Seconds of conjugate gradients in one solve from which on a factorization is thought of."""
WORTH_FACTORING = 1.5
"""Times the expected seconds of a factorization that they must take: the next solve may be an easier one."""
_SPARE = 2
"""Times the iterations of the trial before, in a submission whose device skips those that are not needed.

On an H200 that takes 1.6 us for each of them, and a further submission 60.
"""
_DISPATCHES = 8  # that take as long as the four of an iteration with a stored S: vectors move meanwhile


class Iterations:
    """Implements `trial_solver.TrialSolver`."""

    factorized_on = ""
    is_one_program = False

    def __init__(
        self,
        equations: Equations,
        reduction: Reduction,
        configuration: Configuration,
        damping: DeviceDamping,
        programs: Programs,
    ):
        self._equations, self.reduction, self._configuration = equations, reduction, configuration
        self._damping, self._programs = damping, programs
        self.pcg = Pcg(equations, reduction)
        is_formed = configuration.schur == "explicit" and isinstance(reduction, SchurReduction)
        context = equations.context
        self._may_factor = is_formed and configuration.may_factor and context.device.submits_whole_programs
        self._skips = context.has_conditions and not self._may_factor
        self._chunk = iterations_per_submission(context, reduction.bytes_per_product, skips=self._skips)
        self.outcome: PcgOutcome | None = None
        """How the last run ended."""
        self._is_first = True
        """None has run in this optimization."""
        self._first_count = 0  # of the first solve of the optimization before
        self._may_stop = False  # within the first submission
        self._factor_seconds: float | None = None  # expected, once iterations take long
        self.is_given_up = False
        """A factorization is expected to be faster, in the rest of this optimization."""

    def reset(self) -> None:
        """At the start of an optimization: forget how the last one went."""
        self._is_first, self.is_given_up = True, False

    # ---------------------------------------------------------------- a trial

    def set_rules(self, damping: Damping | None) -> None:
        """Before a trial: when to stop."""
        limit = self._configuration.max_iterations or self.pcg.num_rows
        if damping is None or damping.accuracy is None:
            self.pcg.set_rules(self._tolerance(None), limit)
        else:
            share = self._tolerance(damping.accuracy)
            self.pcg.set_rules(share, limit, share, damping.worth, self._patience())

    def first_program(self, tail: Program) -> Program | None:
        """The first submission of a trial; `tail` is part of it if it may end it."""
        count, self._may_stop = self._count_at_once()
        last = tail if self._may_stop else None
        return self._programs.get(("trial", count, last), self.record_trial, count, last)

    def finish(self, tail: Program, damping: object) -> bool | None:
        """What is left of it; None: it takes too long, and is given up."""
        outcome = self.pcg.outcome()
        is_done = outcome.stopped and self._may_stop
        while not outcome.stopped:
            if self._factor_if_faster(outcome.iterations):
                return None
            more = min(self._chunk, max(FEWEST_ITERATIONS, outcome.iterations))
            more += more % 2
            self._programs.run(("more", more), self.record_more, more)
            outcome = self.pcg.outcome()
        if self._is_first:
            self._first_count = outcome.iterations
        self.outcome, self._is_first = outcome, False
        if not outcome.is_definite or not np.isfinite(outcome.squared_norm):
            return False
        if not is_done:
            self._programs.run(("end", tail), self._record_end, tail)
        self._factor_if_faster(outcome.iterations)
        return True

    def solve_again(self, right: np.ndarray) -> None:
        """There is no factor."""

    def _factor_if_faster(self, iterations: int) -> bool:
        """Give up, if these iterations are expected to have been slower than a factorization.

        Expected, not measured: every run on a device takes the same way.
        """
        reduction, context = self.reduction, self._equations.context
        if not self._may_factor:
            return False
        assert isinstance(reduction, SchurReduction)
        iteration = PassCost(nbytes=0.5 * reduction.bytes_per_product, dispatches=_DISPATCHES)
        spent = iterations * iteration.seconds(device_figures(context.device), context.precision)
        if spent < LEAST_FACTORED:
            return False
        if self._factor_seconds is None:
            self._factor_seconds = expected_seconds(context.device, reduction.reduced)
        self.is_given_up = spent > WORTH_FACTORING * self._factor_seconds
        return self.is_given_up

    # ---------------------------------------------------------------- rules

    def is_coarse(self, damping: Damping) -> bool:
        """They stop at the damping's accuracy, before their tolerance."""
        return self._tolerance(damping.accuracy) > self._configuration.tolerance

    def _tolerance(self, accuracy: float | None) -> float:
        tolerance = self._configuration.tolerance
        return tolerance if accuracy is None else max(accuracy**2, tolerance)

    def _patience(self) -> int:
        """Iterations before their gain counts: soft modes come late, as late as in the solve before."""
        if self._is_first:
            return kernels.patience_after(-1)
        assert self.outcome is not None
        return kernels.patience_after(self.outcome.iterations)

    def _count_at_once(self) -> tuple[int, bool]:
        """Iterations to submit before looking: about as many as the last run took; whether they may suffice.

        Where they will not, what follows the solution would run in vain.
        """
        last = 0 if self.outcome is None else self.outcome.iterations
        if self._skips and self._is_first:
            last = self._first_count
        count = FEWEST_ITERATIONS
        while count <= (_SPARE * last if self._skips else last):
            count *= 2  # few different programs to record
        count = min(count, self._chunk)
        return count, last < count

    # ---------------------------------------------------------------- programs

    def record_trial(self, program: Program, iterations: int, tail: Program | None) -> None:
        """A whole trial, from lambda to what the host reads, as one program."""
        self._programs.add_part(program, "start of iterations", self._record_start)
        self._record_iterations(program, iterations)
        if tail is not None:
            self._record_end(program.barrier(), tail)

    def _record_start(self, program: Program) -> None:
        reduction = self.reduction
        self._damping.record(program.phase("schur"))
        self.pcg.record_reset(program)
        reduction.record(program, self.pcg.r[0])
        reduction.record_jacobi(program.phase("linear_solver"))
        self.pcg.record_start(program)

    def record_more(self, program: Program, count: int) -> None:
        """Iterations that go on."""
        self.reduction.record_again(program.phase("linear_solver"))
        self._record_iterations(program, count)

    def _record_iterations(self, program: Program, count: int) -> None:
        product = self.reduction.record_product
        pair = partial(self._programs.add_part, program, "two iterations", self.pcg.record_pair, product)
        self.pcg.record_iterations(program, count, pair)

    def _record_end(self, program: Program, tail: Program) -> None:
        self._programs.add_part(program, "end of iterations", record_back_substitution, self.reduction)
        program.append(tail)
