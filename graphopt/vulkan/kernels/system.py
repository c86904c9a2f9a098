"""The damped normal equations on a device: everything between a linearisation and a step.

    [ H_pp + D_p   H_pl       ] [ x_p ]   [ b_p ]      S   = H_pp + D_p - H_pl (H_ll + D_l)^-1 H_pl'
    [ H_pl'        H_ll + D_l ] [ x_l ] = [ b_l ]      r   = b_p - H_pl (H_ll + D_l)^-1 b_l
                                                       S x_p = r,   x_l = (H_ll + D_l)^-1 (b_l - H_pl' x_p)

The damping D stays beside H, which is never changed, so there is nothing to back up and restore
between trials of lambda, and what does not depend on lambda (queues, kernels, recorded programs, H and b on
the device) is reused. A `TrialSolver` gets from lambda to dx: `iterations`, or one of `factorize`.

Who writes H and b: the host, into `values` and `b` (then `upload`), or kernels. They can be written as soon
as the object exists: work queues, kernels and programs are prepared by a thread beside the first
linearisation; the first `solve` waits for it. What follows a solution on the device, such as moving the
estimates, is a program of its own, the tail, which `solve` appends: one submission with conjugate gradients.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from graphopt.linear.table import iterates
from graphopt.solver.trial import Damping
from graphopt.vulkan.cholesky import factorization_on_device
from graphopt.vulkan.data.array import WIDE, DeviceArray, unpack_wide
from graphopt.vulkan.data.layout import BlockLayout
from graphopt.vulkan.kernels.blocks import record_stored_product
from graphopt.vulkan.kernels.damping import HEADER, DeviceDamping
from graphopt.vulkan.kernels.equations import Equations, HostNumbers
from graphopt.vulkan.kernels.factorize import DeviceFactor, HostReduced, HostWhole
from graphopt.vulkan.kernels.iterations import Iterations
from graphopt.vulkan.kernels.pcg import PcgOutcome, Reduction
from graphopt.vulkan.kernels.reduction import SchurReduction, WholeReduction
from graphopt.vulkan.kernels.sums import gather_diagonal, gather_scalars
from graphopt.vulkan.kernels.trial_solver import TrialSolver
from graphopt.vulkan.plan.configuration import Configuration
from graphopt.vulkan.program import Context, InThread, Launch, Program
from graphopt.vulkan.programs import Programs
from graphopt.vulkan.set_up import Deferred, SetUp
from graphopt.vulkan.speculation import Speculation, SpeculativeTrial

PHASES = ("schur", "linear_solver", "landmarks", "update", "linearize")
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
        self.device_seconds: dict[str, float] = dict.fromkeys(PHASES, 0.0)
        """Time on the device since the start, by phase (timestamps of the device)."""
        self.programs = Programs(context, self.device_seconds)
        self._host_writes = host_writes
        self._numbers = HostNumbers(context, layout, self.programs, host_writes=host_writes)
        self.step = self._numbers.step
        """dx: written by `solve`, or through `step.host`."""
        self.damping = DeviceDamping(context, layout.dim)
        values, b, dx = self._numbers.buffers
        state = DeviceArray(context, 8, np.uint32, is_mapped=False)
        self._places: tuple[Any, int, Any] | None = None
        """Of H's diagonal, the length of their runs, and in which buffer; once kernels write H."""
        self.equations = Equations(context, layout, values, b, self.damping.buffer, dx, state)
        self._diagonal: np.ndarray | None = None  # on the host, once it was asked for
        self._largest = DeviceArray(context, 2, WIDE)  # |H_ii| and |b_i|, accumulators
        self.prepare_seconds = 0.0
        """Time that the preparation took, in its own thread."""
        self.prepare_wait_seconds = 0.0
        """How long the first solve waited for it; the rest of it ran beside the host's work."""
        self._overlap_told = False
        self._scratch: Any = None
        self.speculation = Speculation()
        self._no_tail = Program(context)
        self._set_up = set_up
        start = InThread if set_up is None else set_up.start
        self._ready = start("graphopt-prepare", self._prepare, make_reduction)

    # ---------------------------------------------------------------- preparation

    def prepare_meanwhile(self) -> None:
        """What the caller prepares itself, now that the device has something to do."""
        if isinstance(self._ready, Deferred):
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

    @property
    def is_prepared(self) -> bool:
        """Nobody has to wait for queues, kernels and buffers."""
        return self._ready.done()

    def overlap(self) -> dict[str, float]:
        """Seconds of preparation beside the host's work, and waited for in `solve`; 0 after a reset."""
        self._overlap_told = self._ready.done()
        wait = self.prepare_wait_seconds
        return {"prepare_beside": max(0.0, self.prepare_seconds - wait), "prepare_wait": wait}

    def _prepare(self, make_reduction: MakeReduction | None) -> None:
        start = time.perf_counter()
        chosen, equations = self.configuration, self.equations
        self.reduction: Reduction | None = None
        self.iterations: Iterations | None = None
        self._factoring: TrialSolver | None = None
        if make_reduction is not None:
            self.reduction = make_reduction(equations)
        elif chosen.schur != "off":
            self.reduction = SchurReduction(equations, chosen)
        elif iterates(chosen.linear_solver):
            self.reduction = WholeReduction(equations)
        if iterates(chosen.linear_solver):
            assert self.reduction is not None
            parts = equations, self.reduction, chosen, self.damping, self.programs
            self.iterations = Iterations(*parts)
        self._method: TrialSolver = self.iterations or self._make_factoring()
        self.prepare_seconds = time.perf_counter() - start

    def _make_factoring(self) -> TrialSolver:
        """Cholesky on the device, or where `auto` finds that faster on the host."""
        chosen, reduction = self.configuration, self.reduction
        assert reduction is None or isinstance(reduction, SchurReduction)
        layout = self.layout if reduction is None else reduction.reduced
        factorization = factorization_on_device(
            self.context, layout, chosen.linear_solver, is_chosen=chosen.is_chosen
        )
        equations, shared = self.equations, (self.damping, self.programs)
        if factorization is not None:
            return DeviceFactor(equations, reduction, factorization, *shared)
        if reduction is not None:
            return HostReduced(equations, reduction, chosen.linear_solver, *shared)
        return HostWhole(equations, self._numbers, chosen.linear_solver, *shared)

    @property
    def factorized_on(self) -> str:
        """Where Cholesky runs: "device", "cpu", or "" for conjugate gradients."""
        self.wait_prepared()
        return self._method.factorized_on

    @property
    def method(self) -> TrialSolver:
        """How it is solved now."""
        self.wait_prepared()
        return self._method

    # ---------------------------------------------------------------- H and b

    @property
    def values(self) -> np.ndarray:
        """(values_size,) float64: H; a copy where kernels have written it, else to be written."""
        return self._numbers.values

    @property
    def b(self) -> np.ndarray:
        """(dim,) float64: b, likewise."""
        return self._numbers.b

    @b.setter
    def b(self, right: np.ndarray) -> None:
        self._numbers.b = right

    def upload(self) -> None:
        """Call after writing `values` and `b`, which the host does where kernels do not."""
        self._numbers.upload()

    def wait_upload(self) -> None:
        """Before `values` and `b` are written again: the copy of the last ones is done."""
        self._numbers.wait_upload()

    def note_linearized(self, point: Hashable = None) -> None:
        """Kernels have written H and b anew, and H's diagonal. point: what programs from edges depend on."""
        self.programs.point = point
        self._numbers.note_linearized()
        self._diagonal = None

    @property
    def diagonal(self) -> np.ndarray:
        """(dim,) float64: diagonal of H, where kernels have written it."""
        if self._diagonal is None:
            self.programs.run("read diagonal", self._record_read_diagonal)
            self._diagonal = self._read.downloaded.astype(np.float64)
        return self._diagonal

    @cached_property
    def _read(self) -> DeviceArray:
        """Where `diagonal` comes from."""
        return DeviceArray(self.context, self.layout.dim, is_mapped=False)

    def _record_read_diagonal(self, program: Program) -> None:
        launch = self.diagonal_launch(self._read.buffer, self.layout.dim)
        program.phase("linearize").step([launch])
        self._read.record_download(program)

    def diagonal_launch(self, target: Any, num_rows: int, first: int = 0, largest: Any = None) -> Launch:
        """See `gather_diagonal`; of kernels' H."""
        if self._places is None:
            table, runs = self.layout.diagonal_places
            self._places = self.context.indices(table), runs, self.equations.values
        places, runs, values = self._places
        read = (places, values, self.equations.b)
        return gather_diagonal(self.context, read, target, num_rows, first, runs, largest)

    def diagonal_is(self, places: Any, values: Any) -> None:
        """Where the entries of H's diagonal are, if not in H: (dim,) uint32, and the numbers."""
        self._places = places, 0, values

    def record_diagonal(self, program: Program, *, finds_largest: bool = True, keeps: bool = True) -> None:
        """What follows a linearisation by kernels, or numbers added to it.

        finds_largest: the absolute entries of H's diagonal and of b, to the host. keeps: H's diagonal, for D.
        """
        context, dim = self.context, self.layout.dim
        partial = context.accumulators(2 * context.vector_groups(dim))
        target = self.damping.buffer if keeps else None
        program.step([self.diagonal_launch(target, dim, HEADER, partial)])
        if finds_largest:
            groups = context.vector_groups(dim)
            program.step([gather_scalars(context, partial, groups, self._largest.buffer, sums=False)])
            self._largest.record_download(program)

    def _record_kept_diagonal(self, program: Program) -> None:
        self.record_diagonal(program, finds_largest=False)

    def largest_entries(self) -> tuple[float, float]:
        """Largest absolute entries of H's diagonal and of b, once `record_diagonal` has run."""
        words = self._largest.downloaded.copy()
        diagonal, gradient = unpack_wide(words, self.context.precision == "double").tolist()
        return diagonal, gradient

    def scratch(self, nbytes: int) -> Any:
        """A buffer for what runs between solves."""
        self.speculation.discard_trial(self.device_seconds)  # more iterations of it would need what is there
        inverse = self.reduction.landmark_inverse if self._ready.done() and self.reduction else None
        if inverse is not None and inverse.buffer.size >= nbytes:
            return inverse.buffer  # each trial makes it anew
        if self._scratch is None or self._scratch.size < nbytes:
            self._scratch = self.context.device.allocate(nbytes)
        return self._scratch

    # ---------------------------------------------------------------- solution

    @property
    def dx(self) -> np.ndarray:
        """(dim,) the solution of `solve`."""
        return self.step.host

    @property
    def outcome(self) -> PcgOutcome | None:
        """How the last run of the conjugate gradients ended."""
        self.wait_prepared()
        return None if self.iterations is None else self.iterations.outcome

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
        if not self._ready.done() or self.iterations is None:
            return
        self.iterations.reset()
        self.configuration, self._method = self._planned, self.iterations  # each goes the same way

    def begin(self, damping: Damping, tail: Program) -> None:
        """Submit what `solve` will, if it is asked for the same next, and it begins with one submission."""
        self.speculation.discard_trial(self.device_seconds)
        self._set_damping(damping)
        self._method.set_rules(damping)
        program = self._method.first_program(tail)
        if program is not None:
            self.speculation.begin_trial(SpeculativeTrial(damping, tail, program, program.submit()))

    def is_coarse(self, damping: Damping) -> bool:
        """Conjugate gradients stop at the damping's accuracy, before their tolerance."""
        return self._method.is_coarse(damping)

    def solve(
        self,
        damping: float | np.ndarray | Damping,
        tail: Program | None = None,
        meanwhile: Callable[[], Program | None] | None = None,
    ) -> bool:
        """Solve (H + D) dx = b; damping: a number, (dim,), or its rule. False: not positive definite.

        tail: runs after a solution, in the same submission where that can be. meanwhile: called while the
        device works on a trial that is one program; returns the tail of the trial after it, if it is known.
        """
        self.wait_prepared()
        tail = tail or self._no_tail
        solved = self._solve(damping, tail, meanwhile)
        if isinstance(self._method, Iterations) and self._method.is_given_up:
            self._factor_from_now_on()
            solved = self._solve(damping, tail) if solved is None else solved
        if solved:
            self.step.note_written()
        return bool(solved)

    def solve_again(self, right: np.ndarray) -> np.ndarray | None:
        """x (dim,) with the factor of the last `solve`, which went well; None: it takes a whole trial."""
        self.wait_prepared()
        return self._method.solve_again(right)

    def _solve(
        self,
        damping: float | np.ndarray | Damping,
        tail: Program,
        meanwhile: Callable[[], Program | None] | None = None,
    ) -> bool | None:
        """None: by something else."""
        begun = self.speculation.take_trial(damping, tail, self.device_seconds)
        if begun is None:
            self._set_damping(damping)
            self._method.set_rules(damping if isinstance(damping, Damping) else None)
        program = self._method.first_program(tail)
        running = None if begun is None else begun.running
        if program is not None and (begun is None or begun.program is not program):
            if running is not None:
                running.wait(self.device_seconds)
            running = program.submit()
        if meanwhile is not None and self._method.is_one_program:
            following = meanwhile()
            if following is not None:
                next_trial = self._method.first_program(following)
                assert next_trial is not None
                next_trial.prepare()
        if running is not None:
            running.wait(self.device_seconds)
        return self._method.finish(tail, damping)

    def _set_damping(self, damping: float | np.ndarray | Damping) -> None:
        """After a vector of the host H's diagonal has to be there again, where a rule asks for it."""
        if isinstance(damping, Damping) and damping.scaled:
            assert not self._host_writes, "H's diagonal is on the device where kernels write H"
            if self.damping.has_vector:
                self.programs.get("diagonal", self._record_kept_diagonal).run()
                self.damping.has_vector = False
        self.damping.set(damping)

    def _factor_from_now_on(self) -> None:
        """For the rest of this optimization."""
        self.configuration = replace(self.configuration, linear_solver="cholesky")
        self._factoring = self._factoring or self._make_factoring()
        self._method = self._factoring

    # ---------------------------------------------------------------- products with H

    def multiply(self, vector: np.ndarray) -> np.ndarray:
        """H times a vector (dim,), without damping."""
        self.wait_prepared()
        if not hasattr(self, "_x"):
            self._x, self._y = (DeviceArray(self.context, self.layout.dim) for _ in range(2))
        self._x.staging[:] = vector
        self._x.commit()
        self.programs.run("multiply", self._record_multiply)
        return self._y.downloaded.astype(np.float64)

    def _record_multiply(self, program: Program) -> None:
        equations, x, y = self.equations, self._x.buffer, self._y.buffer
        self._x.record_upload(program.phase("linear_solver"))
        program.barrier()
        if self.reduction is None:
            record_stored_product(program, equations, x, y)
        else:
            self.reduction.record_whole_product(program, x, y)
        self._y.record_download(program)
