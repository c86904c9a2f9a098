"""The damped normal equations on a device: everything between a linearisation and a step.

    [ H_pp + D_p   H_pl       ] [ x_p ]   [ b_p ]      S   = H_pp + D_p - H_pl (H_ll + D_l)^-1 H_pl'
    [ H_pl'        H_ll + D_l ] [ x_l ] = [ b_l ]      r   = b_p - H_pl (H_ll + D_l)^-1 b_l
                                                       S x_p = r,   x_l = (H_ll + D_l)^-1 (b_l - H_pl' x_p)

The damping D stays a vector of its own: H is never changed, so there is nothing to back up and restore
between trials of lambda, and what does not depend on lambda (queues, kernels, recorded programs, H and b on
the device) is reused.

Who writes H and b: the host, into `values` and `b` (then `upload`), or, `resident`, kernels. They can be
written as soon as the object exists: work queues, kernels and programs are prepared by a thread beside the
first linearisation; the first `solve` waits for it. What follows a solution on the device, such as moving the
estimates, is handed in as a `Tail` and becomes part of the same submission.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphopt.device import VulkanDevice
from graphopt.device.kompute import KomputeDevice
from graphopt.solver.trial import Damping
from graphopt.solver.vulkan.cholesky import TrialFactorization, factorization_on_device
from graphopt.solver.vulkan.configuration import Configuration
from graphopt.solver.vulkan.context import (
    ACCUMULATOR_BYTES,
    VECTOR_WORKGROUP,
    Context,
    Launch,
    Mirror,
    Readback,
    gather_scalars,
    record_step,
)
from graphopt.solver.vulkan.direct import HostSolver
from graphopt.solver.vulkan.equations import DeviceReals, Equations, SharedVector
from graphopt.solver.vulkan.layout import BlockLayout
from graphopt.solver.vulkan.pcg import Pcg, PcgOutcome, iterations_per_submission
from graphopt.solver.vulkan.products import symmetric_product
from graphopt.solver.vulkan.reduction import Reduction, SchurReduction, WholeReduction
from graphopt.solver.vulkan.sequence import Sequence
from graphopt.solver.vulkan.transfer import unpack_wide

PHASES = ("schur", "linear_solver", "landmarks", "update", "linearize")
FEWEST_ITERATIONS = 8
"""Conjugate gradient iterations of a trial's submission at least; more if the last trial took more."""


@dataclass(frozen=True, eq=False)
class Tail:
    """What runs after a solution, in the same submission."""

    key: Hashable
    """Equal for tails that record the same."""
    record: Callable[[Sequence], None]


class VulkanSystem:
    """H, b, and the step dx, on one device in one configuration."""

    def __init__(
        self,
        device: VulkanDevice | KomputeDevice,
        layout: BlockLayout,
        configuration: Configuration,
        precision: Any = "double",
        *,
        resident: bool = False,
        make_reduction: Callable[[Equations], Reduction] | None = None,
    ):
        """Reserve H and b now; prepare the rest in a thread.

        resident: kernels write H and b. make_reduction: instead of those from stored blocks, then `layout`
        may have diagonal blocks only.
        """
        self.context = Context(device, precision)
        self.layout = layout
        self.configuration = configuration.resolve(layout)
        self._asked = configuration.linear_solver
        self._make_reduction = make_reduction
        self._places: Any = None
        self._scalars = self.context.accumulators(2)
        self._scalars_back = self.context.device.allocate(2 * ACCUMULATOR_BYTES, "readback")
        storage = DeviceReals if resident else Mirror
        self._values: Any = storage(self.context, layout.values_size)
        self._b: Any = storage(self.context, layout.dim)
        self.diagonal = DeviceReals(self.context, layout.dim) if resident else None
        """Diagonal of H, where kernels write H; they write it too."""
        self.dx = np.zeros(layout.dim)
        """(dim,) the solution of `solve`; of a resident system see `step`."""
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
        self._uploading: Any = None
        self._programs: dict[Any, Any] = {}
        self.point: Hashable = None
        """What recorded programs depend on besides: where matrix-free products are linearised."""
        self.step = SharedVector(self.context, layout.dim)
        """dx on the device."""
        self.equations = Equations(
            self.context,
            layout,
            self._values.buffer,
            self._b.buffer,
            self.context.reals(layout.dim),
            self.step.buffer,
            self.context.device.allocate(32),
        )
        with_thread = ThreadPoolExecutor(1, "graphopt-prepare")
        self._ready: Future[None] = with_thread.submit(self._prepare)
        with_thread.shutdown(wait=False)

    # ---------------------------------------------------------------- host side

    @property
    def values(self) -> np.ndarray:
        """(values_size,) float64: H, written by linearisation; of a resident system a copy."""
        return self._values.host

    @property
    def b(self) -> np.ndarray:
        """(dim,) float64, written by linearisation; of a resident system a copy."""
        return self._b.host

    def note_linearized(self) -> None:
        """Kernels have written H and b anew, and H's diagonal."""
        for one in (self._values, self._b, self.diagonal):
            assert isinstance(one, DeviceReals)
            one.forget()

    def upload(self) -> None:
        """Call after writing `values` and `b`, which the host does where the system is not resident."""
        self._values.commit()
        self._b.commit()
        if self.context.device.memory_scheme == "staged":
            if "upload" not in self._programs:
                recorder = self.context.device.record()
                self._values.record_upload(recorder)
                self._b.record_upload(recorder)
                self._programs["upload"] = recorder.finish()
            self._uploading = self.context.device.submit(self._programs["upload"])

    def record_diagonal(self, sequence: Sequence) -> None:
        """H's diagonal into `diagonal`, and the largest absolute entries of it and of b to the host."""
        assert self.diagonal is not None
        context, dim = self.context, self.layout.dim
        if self._places is None:
            self._places = context.indices(self.layout.diagonal_scalars)
        groups = context.vector_groups(dim)
        partial = context.accumulators(2 * groups)
        kernel = context.shader("gather_diagonal", 5, 2, {0: VECTOR_WORKGROUP})
        own = self.equations
        buffers = (self._places, own.values, own.b, self.diagonal.buffer, partial)
        sequence.step([Launch(kernel, buffers, (dim, groups), groups)])
        sequence.step([gather_scalars(context, partial, groups, self._scalars, sums=False)])
        sequence.copy(self._scalars, self._scalars_back, 2 * ACCUMULATOR_BYTES)

    def largest_entries(self) -> tuple[float, float]:
        """Largest absolute entries of H's diagonal and of b, once `record_diagonal` has run."""
        words = self._scalars_back.array(np.dtype(np.float64), 0, 2).copy()
        diagonal, gradient = unpack_wide(words, self.context.precision == "double").tolist()
        return diagonal, gradient

    def wait_upload(self) -> None:
        """Before `values` and `b` are written again: the copy of the last ones is done."""
        if self._uploading is not None:
            self._uploading.wait()
            self._uploading = None

    def reset(self) -> None:
        """At the start of an optimization: forget where the conjugate gradients stopped last, and times."""
        if self._overlap_told:
            self.prepare_seconds = self.prepare_wait_seconds = 0.0
        self._kept_threshold = 0.0

    def forget_programs(self) -> None:
        """Record everything anew: kernels or buffers of a tail or of matrix-free products are others now."""
        self._programs.clear()

    def solve(self, damping: float | np.ndarray | Damping, tail: Tail | None = None) -> bool:
        """Solve (H + D) dx = b; damping: a number, (dim,), or its rule. False: not positive definite.

        With a tail, dx stays on the device.
        """
        self.wait_prepared()
        kind = self._set_damping(damping)
        if self.factorization is not None:
            solved = self._solve_on_device(self.factorization, kind, tail)
        elif self.host_solver is not None:
            solved = self._solve_direct(kind, damping, tail)
        else:
            solved = self._solve_pcg(kind, tail, damping if isinstance(damping, Damping) else None)
        if tail is None and solved:
            self.dx = self.step.host
        return solved

    def is_coarse(self, damping: Damping) -> bool:
        """Conjugate gradients stop at the damping's accuracy, before their own tolerance."""
        own = self.configuration.tolerance
        return self.configuration.linear_solver == "pcg" and self._tolerance(damping.accuracy) > own

    def _tolerance(self, accuracy: float | None) -> float:
        own = self.configuration.tolerance
        return own if accuracy is None else max(accuracy**2, own)

    def multiply(self, vector: np.ndarray) -> np.ndarray:
        """H times a vector (dim,), without damping."""
        self.wait_prepared()
        name = "multiply", self.point
        if name not in self._programs:
            self._programs[name] = self._record_multiply()
        program, x, y = self._programs[name]
        x.host[:] = vector
        x.commit()
        self.context.device.submit(program).wait()
        return y.array.astype(np.float64)

    def overlap(self) -> dict[str, float]:
        """Seconds of preparation beside the host's work, and waited for in `solve`; 0 after a reset."""
        self._overlap_told = self._ready.done()
        wait = self.prepare_wait_seconds
        return {"prepare_beside": max(0.0, self.prepare_seconds - wait), "prepare_wait": wait}

    # ---------------------------------------------------------------- preparation

    def wait_prepared(self) -> None:
        """Block until queues, kernels and buffers are there; raises what the preparation raised."""
        if not self._ready.done():
            start = time.perf_counter()
            self._ready.result()
            self.prepare_wait_seconds += time.perf_counter() - start
        self._ready.result()

    def _prepare(self) -> None:
        start = time.perf_counter()
        context, chosen = self.context, self.configuration
        self._rule = Mirror(context, 3)
        self._damping_vector: Mirror | None = None
        self.host_solver: HostSolver | None = None
        self.factorization: TrialFactorization | None = None
        self.reduction: Reduction | None = None
        if self._make_reduction is not None:
            self.reduction = self._make_reduction(self.equations)
        elif chosen.schur != "off":
            self.reduction = SchurReduction(self.equations, chosen)
        elif chosen.linear_solver == "pcg":
            self.reduction = WholeReduction(self.equations)
        if chosen.linear_solver == "pcg":
            self._make_pcg()
        else:
            self._make_direct()
        self.prepare_seconds = time.perf_counter() - start

    def _make_direct(self) -> None:
        """Cholesky on the device, or where `auto` finds that faster on the host."""
        layout = self.layout
        if isinstance(self.reduction, SchurReduction):
            layout = self.reduction.reduced
        self.factorization = factorization_on_device(
            self.context, layout, self.configuration.linear_solver, is_chosen=self._asked == "auto"
        )
        if self.factorization is None:
            self._make_host_solver()

    @property
    def factorized_on(self) -> str:
        """Where Cholesky runs: "device", "cpu", or "" for conjugate gradients."""
        self.wait_prepared()
        if self.factorization is not None:
            return "device"
        return "" if self.host_solver is None else "cpu"

    def _make_host_solver(self) -> None:
        name = self.configuration.linear_solver
        if self.reduction is None:
            self.host_solver = HostSolver(self.context, name, self.layout, None, 0)
            return
        assert isinstance(self.reduction, SchurReduction) and self.reduction.schur is not None
        matrix = self.reduction.schur.buffer, self.reduction.schur.size
        self.host_solver = HostSolver(
            self.context, name, self.reduction.reduced, matrix, self.layout.kept_dim
        )

    def _make_pcg(self) -> None:
        own = self.reduction
        assert own is not None and own.jacobi is not None
        self.pcg = Pcg(
            self.context,
            own.dims,
            own.jacobi.buffer,
            own.jacobi.offset,
            own.direction,
            self.equations.dx,
            own.num_dots,
            self.equations.status,
        )
        self._chunk = iterations_per_submission(self.context, own.bytes_per_product)

    # ---------------------------------------------------------------- damping

    def _set_damping(self, damping: float | np.ndarray | Damping) -> str:
        """Bring D's numbers or rule to the device; returns which of the programs makes it a vector."""
        if isinstance(damping, Damping):
            self._rule.host[:] = damping.value, damping.floor, min(damping.ceiling, LARGEST_CEILING)
            self._rule.commit()
            return "scaled" if damping.scaled else "scalar"
        if np.ndim(damping) == 0:
            self._rule.host[0] = damping
            self._rule.commit()
            return "scalar"
        if self._damping_vector is None:
            self._damping_vector = Mirror(self.context, self.layout.dim)
        self._damping_vector.host[:] = damping
        self._damping_vector.commit()
        return "vector"

    def _record_damping(self, sequence: Sequence, kind: str) -> None:
        own, dim = self.equations, self.layout.dim
        if kind == "vector":
            assert self._damping_vector is not None
            self._damping_vector.record_upload(sequence)
            sequence.barrier()
            sequence.copy(self._damping_vector.buffer, own.damping, dim * self.context.real.itemsize)
            sequence.barrier()
            return
        self._rule.record_upload(sequence)
        sequence.barrier()
        groups = -(-dim // VECTOR_WORKGROUP)
        if kind == "scalar":
            kernel = self.context.shader("set_damping", 2, 1, {0: VECTOR_WORKGROUP})
            buffers: tuple[Any, ...] = (self._rule.buffer, own.damping)
        else:
            assert self.diagonal is not None, "only a resident system has H's diagonal on the device"
            kernel = self.context.shader("scale_damping", 3, 1, {0: VECTOR_WORKGROUP})
            buffers = (self._rule.buffer, self.diagonal.buffer, own.damping)
        sequence.step([Launch(kernel, buffers, (dim,), groups)])

    # ---------------------------------------------------------------- conjugate gradients

    def _run(self, name: Any, record: Callable[[], Sequence]) -> None:
        """Run a sequence, recorded at its first use."""
        if self.point is not None:
            name = (name, self.point)
        if name not in self._programs:
            self._programs[name] = record()
        self._programs[name].run(self.device_seconds)

    def _solve_pcg(self, kind: str, tail: Tail | None, damping: Damping | None) -> bool:
        chosen = self.configuration
        self._set_rules(damping)
        count = self._iterations_at_once(tail)
        name = ("start", kind) if tail is None else ("start", kind, count, tail.key)
        self._run(name, lambda: self._record_pcg_start(kind, count, tail))
        outcome = self.pcg.outcome()
        is_finished = outcome.stopped and tail is not None
        while not outcome.stopped:
            more = (
                self._chunk if tail is None else min(self._chunk, max(FEWEST_ITERATIONS, outcome.iterations))
            )
            more += more % 2
            self._run(("more", more), lambda count=more: self._record_more(count))
            outcome = self.pcg.outcome()
        self.outcome = outcome
        if not outcome.is_definite or not np.isfinite(outcome.squared_norm):
            return False
        if chosen.absolute_tolerance:
            self._kept_threshold = 0.5 * outcome.squared_norm
        if not is_finished:
            self._run(("finish", tail and tail.key), lambda: self._record_finish(tail))
        self.step.note_device_wrote()
        return True

    def _set_rules(self, damping: Damping | None) -> None:
        limit = self.configuration.max_iterations or self.pcg.num_rows
        if damping is None or damping.accuracy is None:
            self.pcg.set_rules(self._tolerance(None), self._kept_threshold, limit)
        else:
            share = self._tolerance(damping.accuracy)
            self.pcg.set_rules(share, self._kept_threshold, limit, share, damping.worth)

    def _iterations_at_once(self, tail: Tail | None) -> int:
        """Iterations to submit before looking: about as many as the last run took."""
        if tail is None:
            return self._chunk
        last = 0 if self.outcome is None else self.outcome.iterations
        count = FEWEST_ITERATIONS
        while count <= last:
            count *= 2  # few different programs to record
        return min(count, self._chunk)

    def _record_pcg_start(self, kind: str, count: int = 0, tail: Tail | None = None) -> Sequence:
        sequence = Sequence(self.context).begin("schur")
        own = self.reduction
        assert own is not None
        self._record_damping(sequence, kind)
        self.pcg.record_reset(sequence)
        own.record(sequence, self.pcg.r[0])
        sequence.begin("linear_solver")
        own.record_jacobi(sequence)
        self.pcg.record_start(sequence)
        self.pcg.record_iterations(sequence, count or self._chunk, own.record_product)
        if tail is not None:
            sequence.barrier()
            self._record_tail(sequence, tail)
        return sequence.end()

    def _record_tail(self, sequence: Sequence, tail: Tail | None) -> None:
        """Back-substitution and what follows."""
        sequence.begin("landmarks")
        if self.reduction is not None:
            self.reduction.record_back_substitution(sequence)
        if tail is not None:
            tail.record(sequence)

    def _record_more(self, count: int) -> Sequence:
        sequence = Sequence(self.context).begin("linear_solver")
        assert self.reduction is not None
        self.pcg.record_iterations(sequence, count, self.reduction.record_product)
        return sequence.end()

    def _record_finish(self, tail: Tail | None = None) -> Sequence:
        sequence = Sequence(self.context)
        self._record_tail(sequence, tail)
        return sequence.end()

    # ---------------------------------------------------------------- Cholesky on the device

    def _solve_on_device(self, solver: TrialFactorization, kind: str, tail: Tail | None) -> bool:
        self._run(("factorize", kind, tail and tail.key), lambda: self._record_factorize(solver, kind, tail))
        self.step.note_device_wrote()
        return solver.is_definite

    def _record_factorize(self, solver: TrialFactorization, kind: str, tail: Tail | None) -> Sequence:
        sequence, own = Sequence(self.context).begin("schur"), self.equations
        self._record_damping(sequence, kind)
        sequence.fill(own.status)
        sequence.barrier()
        if self.reduction is None:
            sequence.begin("linear_solver")
            solver.record(sequence, own.values, own.damping, own.b, own.dx)
        else:
            assert isinstance(self.reduction, SchurReduction) and self.reduction.schur is not None
            self.reduction.record(sequence, solver.residual)
            sequence.begin("linear_solver")
            solver.record(sequence, self.reduction.schur.buffer, None, solver.residual, own.dx)
        solver.record_outcome(sequence, own.status)
        self._record_tail(sequence, tail)
        return sequence.end()

    # ---------------------------------------------------------------- Cholesky on the host

    def _solve_direct(self, kind: str, damping: float | np.ndarray | Damping, tail: Tail | None) -> bool:
        solver = self.host_solver
        assert solver is not None
        if self.reduction is None:
            if not self._solve_whole(solver, damping):
                return False
            if tail is not None:
                self._run(("tail", kind, tail.key), lambda: self._record_damped_tail(kind, tail))
            return True
        self._run(("reduce", kind), lambda: self._record_reduce(kind))
        if not solver.solve_reduced():
            return False
        self._run(("substitute", tail and tail.key), lambda: self._record_substitute(tail))
        self.step.note_device_wrote()
        return True

    def _solve_whole(self, solver: HostSolver, damping: float | np.ndarray | Damping) -> bool:
        """Factorize all of H."""
        values, b = self.values, self.b
        if isinstance(damping, Damping):
            damping = damping.of(values[self.layout.diagonal_scalars]) if damping.scaled else damping.value
        dx = np.empty(self.layout.dim)
        shift = np.ascontiguousarray(np.broadcast_to(damping, self.layout.dim), np.float64)
        if not solver.solve(values, shift, b, dx):
            return False
        self.step.host = dx
        return True

    def _record_damped_tail(self, kind: str, tail: Tail) -> Sequence:
        sequence = Sequence(self.context).begin("landmarks")
        self._record_damping(sequence, kind)
        tail.record(sequence)
        return sequence.end()

    def _record_reduce(self, kind: str) -> Sequence:
        assert self.host_solver is not None and self.reduction is not None
        sequence = Sequence(self.context).begin("schur")
        self._record_damping(sequence, kind)
        sequence.fill(self.equations.status)
        sequence.barrier()
        self.reduction.record(sequence, self.host_solver.residual)
        self.host_solver.record_readback(sequence, self.equations.status)
        return sequence.end()

    def _record_substitute(self, tail: Tail | None) -> Sequence:
        assert self.host_solver is not None
        sequence = Sequence(self.context).begin("landmarks")
        self.host_solver.record_step(sequence, self.equations.dx)
        self._record_tail(sequence, tail)
        return sequence.end()

    # ---------------------------------------------------------------- products with H

    def _record_multiply(self) -> tuple[Any, Mirror, Readback]:
        context, layout = self.context, self.layout
        x, y = Mirror(context, layout.dim), Readback(context, layout.dim)
        result = context.reals(layout.dim)
        recorder = context.device.record()
        x.record_upload(recorder)
        recorder.barrier()
        record = getattr(self.reduction, "record_whole_product", None)
        if record is not None:
            record(recorder, x.buffer, result)
        else:
            product = symmetric_product(context, layout)
            dots, status = context.accumulators(product.num_groups), self.equations.status
            record_step(recorder, product.chunk_launches(self._values.buffer, x.buffer, status))
            record_step(recorder, [product.product_launch(x.buffer, result, dots, status, None)])
        y.record(recorder, result)
        return recorder.finish(), x, y


LARGEST_CEILING = 1e38  # finite in float32
