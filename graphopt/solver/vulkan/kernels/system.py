"""The damped normal equations on a device: everything between a linearisation and a step.

    [ H_pp + D_p   H_pl       ] [ x_p ]   [ b_p ]      S   = H_pp + D_p - H_pl (H_ll + D_l)^-1 H_pl'
    [ H_pl'        H_ll + D_l ] [ x_l ] = [ b_l ]      r   = b_p - H_pl (H_ll + D_l)^-1 b_l
                                                       S x_p = r,   x_l = (H_ll + D_l)^-1 (b_l - H_pl' x_p)

The damping D stays a vector of its own: H is never changed, so there is nothing to back up and restore
between trials of lambda, and what does not depend on lambda (queues, kernels, recorded programs, H and b on
the device) is reused. Where `auto` iterates with an S that is stored, the iterations of a solve that take
longer than factoring S is expected to are given up, and the rest of the optimization factors it: the first
steps of an optimization need few iterations, the last ones many.

Who writes H and b: the host, into `values` and `b` (then `upload`), or kernels. They can be written as soon
as the object exists: work queues, kernels and programs are prepared by a thread beside the first
linearisation; the first `solve` waits for it. What follows a solution on the device, such as moving the
estimates, is a program of its own, the tail, which `solve` appends: one submission with conjugate gradients.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any

import numpy as np

from graphopt.device import VulkanDevice
from graphopt.device.figures import device_figures
from graphopt.solver.trial import Damping
from graphopt.solver.vulkan.ahead import TrialAhead
from graphopt.solver.vulkan.cholesky import TrialFactorization, expected_seconds, factorization_on_device
from graphopt.solver.vulkan.data.array import WIDE, DeviceArray, unpack_wide
from graphopt.solver.vulkan.data.layout import BlockLayout
from graphopt.solver.vulkan.kernels.blocks import record_stored_product
from graphopt.solver.vulkan.kernels.equations import Equations
from graphopt.solver.vulkan.kernels.factor_pcg import AT_ONCE, FactorPcg
from graphopt.solver.vulkan.kernels.factorize import HostSolver
from graphopt.solver.vulkan.kernels.pcg import Pcg, PcgOutcome, Reduction, iterations_per_submission
from graphopt.solver.vulkan.kernels.reduction import SchurReduction, WholeReduction
from graphopt.solver.vulkan.kernels.sums import gather_scalars
from graphopt.solver.vulkan.plan.configuration import Configuration
from graphopt.solver.vulkan.plan.passes import Pass
from graphopt.solver.vulkan.program import VECTOR_WORKGROUP, Context, Launch, Program, Running, in_thread
from graphopt.solver.vulkan.set_up import Later, SetUp

PHASES = ("schur", "linear_solver", "landmarks", "update", "linearize")
FEWEST_ITERATIONS = 8
"""Conjugate gradient iterations of a trial's submission at least; more if the last trial took more."""
LEAST_PATIENCE, MOST_PATIENCE, _PATIENCE_SHARE = 10, 30, 4
"""Of conjugate gradients; as in native/src/linear/pcg.cpp."""
LARGEST_CEILING = 1e38  # finite in float32
LEAST_FACTORED = 5e-4
"""Seconds of conjugate gradients in one solve from which on a factorization is thought of."""
WORTH_FACTORING = 1.5
"""Times the expected seconds of a factorization that they must take: the next solve may be an easier one."""
_SPARE = 2
"""Times the iterations of the trial before, in a submission whose device skips those that are not needed.

On an H200 that takes 1.6 us for each of them, and a further submission 60.
"""
_DISPATCHES = 8  # that take as long as the four of an iteration with a stored S: vectors move meanwhile
MakeReduction = Callable[[Equations], Reduction]


class DampedSystem:
    """H, b, and the step dx, on one device in one configuration."""

    def __init__(
        self,
        context: Context,
        layout: BlockLayout,
        configuration: Configuration,
        make_reduction: MakeReduction | None = None,
        *,
        host_writes: bool = True,
        set_up: SetUp | None = None,
    ):
        """Reserve H and b now; prepare the rest as `set_up` says, None: in a thread.

        make_reduction: instead of those from stored blocks, then `layout` may have diagonal blocks only.
        host_writes: H and b; else kernels do, which also leave its largest entries with `record_diagonal`.
        """
        self.context, self.layout = context, layout
        self.configuration = self._planned = configuration.resolve(layout)
        self._host_writes = host_writes
        self._values = DeviceArray(context, layout.values_size, is_mapped=host_writes)
        self._b = DeviceArray(context, layout.dim, is_mapped=host_writes)
        self.step = DeviceArray(context, layout.dim, is_mapped=False)
        """dx: written by `solve`, or through `step.host`."""
        self.outcome: PcgOutcome | None = None
        """How the last run of the conjugate gradients ended."""
        self.device_seconds: dict[str, float] = dict.fromkeys(PHASES, 0.0)
        """Time on the device since the start, by phase (timestamps of the device)."""
        self.prepare_seconds = 0.0
        """Time that the preparation took, in its own thread."""
        self.prepare_wait_seconds = 0.0
        """How long the first solve waited for it; the rest of it ran beside the host's work."""
        self._overlap_told = False
        self._kept_threshold = 0.0
        self._is_first = True
        """No conjugate gradients have run in this optimization."""
        self._first_iterations = 0  # of the first solve of the optimization before
        self._factor_seconds: float | None = None  # expected, once iterations take long
        self._direct: tuple[TrialFactorization | None, HostSolver | None] | None = None  # of the last run
        self._uploading: Any = None
        self._ahead: TrialAhead | None = None
        self._programs: dict[Hashable, Program] = {}
        self._point: Hashable = None
        self._rule = DeviceArray(context, 3)  # of the damping: value, floor, ceiling
        self._damping = DeviceArray(context, layout.dim, is_mapped=False)
        self._diagonal: np.ndarray | None = None  # on the host, once it was asked for
        self._places: tuple[Any, int, Any] | None = None  # of H's diagonal, their runs, and in which array
        self._spare: Any = None
        self._largest = DeviceArray(context, 2, WIDE)  # |H_ii| and |b_i|, accumulators
        self._status = DeviceArray(context, 8, np.uint32, is_mapped=False)
        self.equations = Equations(
            context,
            layout,
            self._values.buffer,
            self._b.buffer,
            self._damping.buffer,
            self.step.buffer,
            self._status,
        )
        self._no_tail = Program(context)
        self._set_up = set_up
        start = in_thread if set_up is None else set_up.start
        self._ready = start("graphopt-prepare", self._prepare, make_reduction)

    # ---------------------------------------------------------------- preparation

    def prepare_meanwhile(self) -> None:
        """What the caller prepares itself, now that the device has something to do."""
        if isinstance(self._ready, Later):
            self._ready.result()

    def wait_prepared(self) -> None:
        """Block until queues, kernels and buffers are there; raises what the preparation raised."""
        if not self._ready.done():
            start = time.perf_counter()
            self._ready.result()
            self.prepare_wait_seconds += time.perf_counter() - start
        self._ready.result()
        if self._set_up is not None:
            self._set_up.note_done()
            self._set_up = None

    def overlap(self) -> dict[str, float]:
        """Seconds of preparation beside the host's work, and waited for in `solve`; 0 after a reset."""
        self._overlap_told = self._ready.done()
        wait = self.prepare_wait_seconds
        return {"prepare_beside": max(0.0, self.prepare_seconds - wait), "prepare_wait": wait}

    def _prepare(self, make_reduction: MakeReduction | None) -> None:
        start = time.perf_counter()
        chosen, equations = self.configuration, self.equations
        self.reduction: Reduction | None = None
        self.host_solver: HostSolver | None = None
        self.factorization: TrialFactorization | None = None
        if make_reduction is not None:
            self.reduction = make_reduction(equations)
        elif chosen.schur != "off":
            self.reduction = SchurReduction(equations, chosen)
        elif chosen.linear_solver == "pcg":
            self.reduction = WholeReduction(equations)
        if chosen.linear_solver == "pcg":
            assert self.reduction is not None
            self.pcg = self._make_pcg(self.reduction)
            self._skips = self.context.has_conditions and not self._may_factor
            self._chunk = iterations_per_submission(
                self.context, self.reduction.bytes_per_product, skips=self._skips
            )
        else:
            self._make_direct()
        self.prepare_seconds = time.perf_counter() - start

    def _make_pcg(self, reduction: Reduction) -> Pcg:
        kind, equations = self.configuration.preconditioner, self.equations
        if kind not in ("factor", "clusters"):
            return Pcg(equations, reduction)
        if isinstance(reduction, SchurReduction):
            assert reduction.schur is not None
            return FactorPcg(equations, reduction, reduction.reduced, (reduction.schur.buffer, None), kind)
        return FactorPcg(equations, reduction, self.layout, (equations.values, equations.damping), kind)

    def _make_direct(self) -> None:
        """Cholesky on the device, or where `auto` finds that faster on the host."""
        chosen, reduction = self.configuration, self.reduction
        layout = reduction.reduced if isinstance(reduction, SchurReduction) else self.layout
        self.factorization = factorization_on_device(
            self.context, layout, chosen.linear_solver, is_chosen=chosen.is_chosen
        )
        if self.factorization is None:
            self.host_solver = HostSolver(self.context, chosen.linear_solver, self.layout, reduction)

    @property
    def factorized_on(self) -> str:
        """Where Cholesky runs: "device", "cpu", or "" for conjugate gradients."""
        self.wait_prepared()
        if self.factorization is not None:
            return "device"
        return "" if self.host_solver is None else "cpu"

    # ---------------------------------------------------------------- H and b

    @property
    def values(self) -> np.ndarray:
        """(values_size,) float64: H; a copy where kernels have written it, else to be written."""
        return self._values.staging if self._host_writes else self._values.host

    @property
    def b(self) -> np.ndarray:
        """(dim,) float64: b, likewise."""
        return self._b.staging if self._host_writes else self._b.host

    @property
    def diagonal(self) -> np.ndarray:
        """(dim,) float64: diagonal of H, where kernels have written it."""
        if self._diagonal is None:
            found = DeviceArray(self.context, self.layout.dim, is_mapped=False)
            Program(self.context).step([self.diagonal_launch(found.buffer, self.layout.dim)]).run()
            self._diagonal = found.read().astype(np.float64)
        return self._diagonal

    def diagonal_launch(self, target: Any, num_rows: int) -> Launch:
        """The first entries of H's diagonal into a buffer; once `record_diagonal` has told where they are."""
        context, groups = self.context, self.context.vector_groups(num_rows)
        assert self._places is not None
        places, runs, values = self._places
        buffers = (places, values, self.equations.b, target, context.accumulators(2 * groups))
        return context.launch("gather_diagonal", buffers, (num_rows, groups), groups, {1: runs})

    def upload(self) -> None:
        """Call after writing `values` and `b`, which the host does where kernels do not."""
        self._values.commit()
        self._b.commit()
        if self.context.device.memory_scheme == "staged":
            self._uploading = self.program("upload", self._record_upload).submit()

    def wait_upload(self) -> None:
        """Before `values` and `b` are written again: the copy of the last ones is done."""
        if self._uploading is not None:
            self._uploading.wait()
            self._uploading = None

    def _record_upload(self, program: Program) -> None:
        self._values.record_upload(program)
        self._b.record_upload(program)

    def note_linearized(self, point: Hashable = None) -> None:
        """Kernels have written H and b anew, and H's diagonal. point: what programs from edges depend on."""
        self._point = point
        self._values.note_written()
        self._b.note_written()
        self._diagonal = None

    def record_diagonal(self, program: Program, places: Any = None, values: Any = None) -> None:
        """The largest absolute entries of H's diagonal and of b to the host; of kernels' H.

        places, values: where its entries are, None: in H.
        """
        context, dim, equations = self.context, self.layout.dim, self.equations
        if self._places is None:
            table, runs = (places, 0) if places is not None else self.layout.diagonal_places
            own = table if places is not None else context.indices(table)
            self._places = own, runs, values or equations.values
        own, runs, source = self._places
        groups = context.vector_groups(dim)
        partial = context.accumulators(2 * groups)
        buffers = (own, source, equations.b, equations.b, partial)
        constants = {1: runs, 2: 0}
        program.step([context.launch("gather_diagonal", buffers, (dim, groups), groups, constants)])
        program.step([gather_scalars(context, partial, groups, self._largest.buffer, sums=False)])
        self._largest.record_download(program)

    def largest_entries(self) -> tuple[float, float]:
        """Largest absolute entries of H's diagonal and of b, once `record_diagonal` has run."""
        words = self._largest.downloaded.copy()
        diagonal, gradient = unpack_wide(words, self.context.precision == "double").tolist()
        return diagonal, gradient

    # ---------------------------------------------------------------- solution

    @property
    def dx(self) -> np.ndarray:
        """(dim,) the solution of `solve`."""
        return self.step.host

    def describe(self) -> dict[str, Any]:
        """What solves what, where."""
        device = self.context.device
        return {
            "linear_solver": self.configuration.linear_solver,
            "factorized_on": self.factorized_on,
            "schur": self.configuration.schur,
            "device": device.spec,
            "device_name": device.name,
            "precision": self.context.precision,
            "seconds": self.overlap(),
        }

    def reset(self) -> None:
        """At the start of an optimization: forget where the conjugate gradients stopped last, and times."""
        if self._overlap_told:
            self.prepare_seconds = self.prepare_wait_seconds = 0.0
        self._kept_threshold, self._is_first = 0.0, True
        pcg = getattr(self, "pcg", None) if self._ready.done() else None
        if isinstance(pcg, FactorPcg):
            pcg.forget()
        if self.configuration != self._planned:  # every optimization takes the same way
            self._direct = self.factorization, self.host_solver
            self.configuration, self.factorization, self.host_solver = self._planned, None, None

    def forget_programs(self) -> None:
        """Record everything anew: kernels or buffers of a tail or of matrix-free products are others now."""
        self._programs.clear()

    @property
    def is_prepared(self) -> bool:
        """Nobody has to wait for queues, kernels and buffers."""
        return self._ready.done()

    def begin(self, damping: Damping, tail: Program) -> None:
        """Submit what `solve` will, if it is asked for the same next, and it begins with one submission."""
        self.drop()
        if self.factorization is None and (self.host_solver is not None or isinstance(self.pcg, FactorPcg)):
            return
        kind = self.set_damping(damping)
        if self.factorization is not None:
            program = self._factorized_program(self.factorization, kind, tail)
        else:
            self._set_rules(damping)
            program = self._trial_program(kind, tail)
        self._ahead = TrialAhead(damping, tail, kind, program, program.submit())

    @property
    def begun(self) -> Running | None:
        """What `begin` has submitted and `solve` not taken."""
        return None if self._ahead is None else self._ahead.running

    def drop(self) -> None:
        """Wait for what `begin` has submitted and forget it."""
        if self._ahead is not None:
            self._ahead.running.wait(self.device_seconds)
            self._ahead = None

    def solve(self, damping: float | np.ndarray | Damping, tail: Program | None = None) -> bool:
        """Solve (H + D) dx = b; damping: a number, (dim,), or its rule. False: not positive definite.

        tail: runs after a solution, in the same submission where that can be.
        """
        self.wait_prepared()
        if self._ahead is not None and not self._ahead.is_of(damping, tail):
            self.drop()
        kind = self.set_damping(damping) if self._ahead is None else self._ahead.kind
        tail = tail or self._no_tail
        solved = None
        if self.factorization is None and self.host_solver is None:
            solved = self._solve_pcg(kind, tail, damping if isinstance(damping, Damping) else None)
        if solved is None:
            solved = self._solve_factored(kind, tail, damping)
        if solved:
            self.step.note_written()
        return solved

    def _solve_factored(self, kind: str, tail: Program, damping: float | np.ndarray | Damping) -> bool:
        if self.factorization is not None:
            return self._solve_on_device(self.factorization, kind, tail)
        assert self.host_solver is not None
        if self.reduction is None:
            return self._solve_whole(self.host_solver, kind, tail, damping)
        return self._solve_reduced(self.host_solver, kind, tail)

    def program(self, key: Hashable, record: Callable[..., None], *arguments: Any) -> Program:
        """The program that record(program, *arguments) makes, recorded at its first use."""
        key = key, self._point
        if key not in self._programs:
            program = Program(self.context)
            record(program, *arguments)
            self._programs[key] = program
        return self._programs[key]

    def _run(self, key: Hashable, record: Callable[..., None], *arguments: Any) -> None:
        self.program(key, record, *arguments).run(self.device_seconds)

    def _run_or_take(self, program: Program) -> None:
        """Run a trial's first program, or wait for it where it was submitted ahead."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.running.wait(self.device_seconds)
        if ahead is None or ahead.program is not program:
            program.run(self.device_seconds)

    # ---------------------------------------------------------------- damping

    def set_damping(self, damping: float | np.ndarray | Damping) -> str:
        """Bring D's numbers or rule to the device; returns which of the programs makes it a vector."""
        if isinstance(damping, Damping):
            self._rule.staging[:] = damping.value, damping.floor, min(damping.ceiling, LARGEST_CEILING)
            kind = "scaled" if damping.scaled else "scalar"
        elif np.ndim(damping) == 0:
            self._rule.staging[0] = damping
            kind = "scalar"
        else:
            self._damping.staging[:] = damping
            self._damping.commit()
            return "vector"
        self._rule.commit()
        return kind

    def record_damping(self, program: Program, kind: str, *, is_here: bool = False) -> None:
        """Make D of what `set_damping` has brought. is_here: a kernel has written the rule instead."""
        if kind == "vector":
            self._damping.record_upload(program)
            program.barrier()
            return
        if not is_here:
            self._rule.record_upload(program)
            program.barrier()
        dim, rule, damping = self.layout.dim, self._rule.buffer, self._damping.buffer
        groups = -(-dim // VECTOR_WORKGROUP)
        if kind == "scaled":
            assert self._places is not None, "only where kernels write H its diagonal is on the device"
            places, runs, values = self._places
            buffers, constants = (rule, places, values, damping), {1: runs}
            program.step([self.context.launch("scale_damping", buffers, (dim,), groups, constants)])
        else:
            program.step([self.context.launch("set_damping", (rule, damping), (dim,), groups)])

    def scratch(self, nbytes: int) -> Any:
        """A buffer for what runs between solves: that of D, which each solve makes anew, if it has room."""
        self.drop()  # more iterations of its trial would need D
        if self._damping.nbytes >= nbytes:
            return self._damping.buffer
        if self._spare is None or self._spare.size < nbytes:
            self._spare = self.context.device.allocate(nbytes)
        return self._spare

    # ---------------------------------------------------------------- conjugate gradients

    def is_coarse(self, damping: Damping) -> bool:
        """Conjugate gradients stop at the damping's accuracy, before their tolerance tolerance."""
        tolerance = self.configuration.tolerance
        return self.configuration.linear_solver == "pcg" and self._tolerance(damping.accuracy) > tolerance

    def _tolerance(self, accuracy: float | None) -> float:
        tolerance = self.configuration.tolerance
        return tolerance if accuracy is None else max(accuracy**2, tolerance)

    def _solve_pcg(self, kind: str, tail: Program, damping: Damping | None) -> bool | None:
        """None: it takes too long, and S is to be factored."""
        if self._ahead is None:
            self._set_rules(damping)
        if isinstance(self.pcg, FactorPcg):
            return self._solve_by_factor(self.pcg, kind, tail)
        may_stop = self._iterations_at_once()[1]
        self._run_or_take(self._trial_program(kind, tail))
        outcome = self.pcg.outcome()
        is_done = outcome.stopped and may_stop
        while not outcome.stopped:
            if self._factor_if_faster(outcome.iterations):
                return None
            more = min(self._chunk, max(FEWEST_ITERATIONS, outcome.iterations))
            more += more % 2
            self._run(("more", more), self._record_more, more)
            outcome = self.pcg.outcome()
        if self._is_first:
            self._first_iterations = outcome.iterations
        self.outcome, self._is_first = outcome, False
        if not outcome.is_definite or not np.isfinite(outcome.squared_norm):
            return False
        if self.configuration.absolute_tolerance:
            self._kept_threshold = 0.5 * outcome.squared_norm
        if not is_done:
            self._run(("end", tail), self.record_end, tail)
        self._factor_if_faster(outcome.iterations)
        return True

    def _trial_program(self, kind: str, tail: Program) -> Program:
        """The first submission of a trial with conjugate gradients; `tail` is part of it if it may end it."""
        count, may_stop = self._iterations_at_once()
        last = tail if may_stop else None
        return self.program(("trial", kind, count, last), self._record_trial, kind, count, last)

    @property
    def _may_factor(self) -> bool:
        """Iterations may be given up for a factorization."""
        is_formed = self.configuration.schur == "explicit" and isinstance(self.reduction, SchurReduction)
        return is_formed and self._planned.may_factor and isinstance(self.context.device, VulkanDevice)

    def _factor_if_faster(self, iterations: int) -> bool:
        """Factor S from now on, if these iterations are expected to have been slower.

        Expected, not measured: every run on a device takes the same way.
        """
        reduction, device = self.reduction, self.context.device
        if not self._may_factor:
            return False
        assert isinstance(reduction, SchurReduction) and isinstance(device, VulkanDevice)
        iteration = Pass(nbytes=0.5 * reduction.bytes_per_product, dispatches=_DISPATCHES)
        spent = iterations * iteration.seconds(device_figures(device), self.context.precision)
        if spent < LEAST_FACTORED:
            return False
        if self._factor_seconds is None:
            self._factor_seconds = expected_seconds(device, reduction.reduced)
        if spent <= WORTH_FACTORING * self._factor_seconds:
            return False
        self.configuration = replace(self.configuration, linear_solver="cholesky")
        if self._direct is None:
            self._make_direct()
        else:
            self.factorization, self.host_solver = self._direct
        return True

    def _solve_by_factor(self, pcg: FactorPcg, kind: str, tail: Program) -> bool:
        """Conjugate gradients from a factor; a new one if that of before leads nowhere in time."""
        outcome = self._iterate_from(pcg, kind)
        if not (outcome.stopped and pcg.is_good(outcome)) and not pcg.is_due:
            pcg.is_due = True
            outcome = self._iterate_from(pcg, kind)
        self.outcome, solved = outcome, pcg.is_good(outcome)
        pcg.note(solved=solved)
        if solved:
            self._run(("end", tail), self.record_end, tail)
        return solved

    def _iterate_from(self, pcg: FactorPcg, kind: str) -> PcgOutcome:
        """Until the end, or until a factor of before is given up."""
        count = 2 if pcg.is_due else AT_ONCE
        self._run(("trial", kind, count, None, pcg.is_due), self._record_trial, kind, count, None)
        outcome = pcg.outcome()
        while not outcome.stopped and not pcg.takes_too_long(outcome):
            self._run(("more", AT_ONCE), self._record_more, AT_ONCE)
            outcome = pcg.outcome()
        return outcome

    def _set_rules(self, damping: Damping | None) -> None:
        limit = self.configuration.max_iterations or self.pcg.num_rows
        if damping is None or damping.accuracy is None:
            self.pcg.set_rules(self._tolerance(None), self._kept_threshold, limit)
        else:
            share = self._tolerance(damping.accuracy)
            self.pcg.set_rules(share, self._kept_threshold, limit, share, damping.worth, self._patience())

    def _patience(self) -> int:
        """Iterations before their gain counts: soft modes come late, as late as in the solve before."""
        if self._is_first:
            return MOST_PATIENCE
        assert self.outcome is not None
        return min(max(self.outcome.iterations // _PATIENCE_SHARE, LEAST_PATIENCE), MOST_PATIENCE)

    def _iterations_at_once(self) -> tuple[int, bool]:
        """Iterations to submit before looking: about as many as the last run took; whether they may suffice.

        Where they will not, what follows the solution would run in vain.
        """
        last = 0 if self.outcome is None else self.outcome.iterations
        if self._skips and self._is_first:
            last = self._first_iterations
        count = FEWEST_ITERATIONS
        while count <= (_SPARE * last if self._skips else last):
            count *= 2  # few different programs to record
        count = min(count, self._chunk)
        return count, last < count

    def _record_trial(self, program: Program, kind: str, iterations: int, tail: Program | None) -> None:
        """A whole trial, from lambda to what the host reads, as one program."""
        reduction = self.reduction
        assert reduction is not None
        self.record_damping(program.phase("schur"), kind)
        self.pcg.record_reset(program)
        reduction.record(program, self.pcg.r[0])
        reduction.record_jacobi(program.phase("linear_solver"))
        self.pcg.record_start(program)
        self.pcg.record_iterations(program, iterations, reduction.record_product)
        if tail is not None:
            self.record_end(program.barrier(), tail)

    def _record_more(self, program: Program, count: int) -> None:
        assert self.reduction is not None
        self.reduction.record_again(program.phase("linear_solver"))
        self.pcg.record_iterations(program, count, self.reduction.record_product)

    def record_end(self, program: Program, tail: Program) -> None:
        """Back-substitution and what follows."""
        program.phase("landmarks")
        if self.reduction is not None:
            self.reduction.record_back_substitution(program)
        program.append(tail)

    # ---------------------------------------------------------------- Cholesky on the device

    def _solve_on_device(self, solver: TrialFactorization, kind: str, tail: Program) -> bool:
        self._run_or_take(self._factorized_program(solver, kind, tail))
        return solver.is_definite

    def _factorized_program(self, solver: TrialFactorization, kind: str, tail: Program) -> Program:
        return self.program(("factorize", kind, tail), self._record_factorized, solver, kind, tail)

    @property
    def rule(self) -> Any:
        """Buffer of the damping's number and limits, reals."""
        return self._rule.buffer

    @property
    def largest(self) -> Any:
        """Buffer of the largest entries of H's diagonal and of b, accumulators."""
        return self._largest.buffer

    def note_solved(self) -> None:
        """Kernels have written dx."""
        self.step.note_written()

    def record_factorized(self, program: Program, kind: str, tail: Program, *, is_here: bool) -> None:
        """As `solve` with a factorization on the device does it. is_here: as of `record_damping`."""
        assert self.factorization is not None
        self._record_factorized(program, self.factorization, kind, tail, is_here=is_here)

    def _record_factorized(
        self,
        program: Program,
        solver: TrialFactorization,
        kind: str,
        tail: Program,
        *,
        is_here: bool = False,
    ) -> None:
        """A whole trial with a factorization of H + D, or of S."""
        equations, reduction = self.equations, self.reduction
        self.record_damping(program.phase("schur"), kind, is_here=is_here)
        program.fill(equations.status).barrier()
        matrix, damping, rhs = equations.values, equations.damping, equations.b
        if reduction is not None:
            assert isinstance(reduction, SchurReduction) and reduction.schur is not None
            reduction.record(program, solver.residual)
            matrix, damping, rhs = reduction.schur.buffer, None, solver.residual
        solver.record(program.phase("linear_solver"), matrix, damping, rhs, equations.dx)
        solver.record_outcome(program, equations.status)
        self.record_end(program, tail)

    # ---------------------------------------------------------------- Cholesky on the host

    def _solve_reduced(self, solver: HostSolver, kind: str, tail: Program) -> bool:
        """Factorize S."""
        self._run(("reduce", kind), self._record_reduce, solver, kind)
        if not solver.solve_reduced(self._status):
            return False
        self._run(("substitute", tail), self._record_substitute, solver, tail)
        return True

    def _record_reduce(self, program: Program, solver: HostSolver, kind: str) -> None:
        assert self.reduction is not None
        self.record_damping(program.phase("schur"), kind)
        program.fill(self._status.buffer).barrier()
        self.reduction.record(program, solver.residual.buffer)
        solver.record_readback(program)
        self._status.record_download(program)

    def _record_substitute(self, program: Program, solver: HostSolver, tail: Program) -> None:
        solver.record_step(program.phase("landmarks"), self.step.buffer)
        self.record_end(program, tail)

    def _solve_whole(
        self, solver: HostSolver, kind: str, tail: Program, damping: float | np.ndarray | Damping
    ) -> bool:
        """Factorize all of H."""
        values, b = self.values, self.b
        if isinstance(damping, Damping):
            damping = damping.of(values[self.layout.diagonal_scalars]) if damping.scaled else damping.value
        dx = np.empty(self.layout.dim)
        shift = np.ascontiguousarray(np.broadcast_to(damping, self.layout.dim), np.float64)
        if not solver.solve(values, shift, b, dx):
            return False
        self.step.staging[:] = dx
        self.step.commit()
        self._run(("tail", kind, tail), self._record_damped_tail, kind, tail)
        return True

    def _record_damped_tail(self, program: Program, kind: str, tail: Program) -> None:
        self.step.record_upload(program.phase("landmarks"))
        self.record_damping(program, kind)
        program.append(tail)

    # ---------------------------------------------------------------- products with H

    def multiply(self, vector: np.ndarray) -> np.ndarray:
        """H times a vector (dim,), without damping."""
        self.wait_prepared()
        if not hasattr(self, "_factor"):
            self._factor, self._product = (DeviceArray(self.context, self.layout.dim) for _ in range(2))
        self._factor.staging[:] = vector
        self._factor.commit()
        self._run("multiply", self._record_multiply)
        return self._product.downloaded.astype(np.float64)

    def _record_multiply(self, program: Program) -> None:
        equations, x, y = self.equations, self._factor.buffer, self._product.buffer
        self._factor.record_upload(program.phase("linear_solver"))
        program.barrier()
        if self.reduction is None:
            record_stored_product(program, equations, x, y)
        else:
            self.reduction.record_whole_product(program, x, y)
        self._product.record_download(program)
