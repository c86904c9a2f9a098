"""The damped normal equations on a device: everything between a linearisation and a step.

    [ H_pp + D_p   H_pl       ] [ x_p ]   [ b_p ]      S   = H_pp + D_p - H_pl (H_ll + D_l)^-1 H_pl'
    [ H_pl'        H_ll + D_l ] [ x_l ] = [ b_l ]      r   = b_p - H_pl (H_ll + D_l)^-1 b_l
                                                       S x_p = r,   x_l = (H_ll + D_l)^-1 (b_l - H_pl' x_p)

The damping D stays a vector of its own: H is never changed, so there is nothing to back up and restore
between trials of lambda, and what does not depend on lambda (queues, kernels, recorded programs, H and b on
the device) is reused.

`values` and `b` can be written as soon as the object exists. Work queues, kernels and programs are prepared
by a thread beside the first linearisation; the first `solve` waits for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from graphopt.device import VulkanDevice
from graphopt.device.kompute import KomputeDevice
from graphopt.solver.vulkan.configuration import Configuration
from graphopt.solver.vulkan.context import VECTOR_WORKGROUP, Context, Launch, Mirror, Readback, record_step
from graphopt.solver.vulkan.direct import HostSolver
from graphopt.solver.vulkan.gpu_queues import SchurLookup
from graphopt.solver.vulkan.inverse import BlockInverse
from graphopt.solver.vulkan.layout import BlockLayout
from graphopt.solver.vulkan.pcg import Pcg, PcgOutcome, iterations_per_submission
from graphopt.solver.vulkan.products import (
    NORMAL,
    LandmarkProduct,
    RowProduct,
    SymmetricProduct,
    symmetric_product,
    symmetric_uses,
)
from graphopt.solver.vulkan.schur import SchurBlocks, explicit_schur, schur_diagonal
from graphopt.solver.vulkan.sequence import Sequence


class VulkanSystem:
    """H, b, and the step dx, on one device in one configuration."""

    def __init__(
        self,
        device: VulkanDevice | KomputeDevice,
        layout: BlockLayout,
        configuration: Configuration,
        precision: Any = "double",
    ):
        """Reserve and map H and b now; prepare the rest in a thread."""
        self.context = Context(device, precision)
        self.layout = layout
        self.configuration = configuration.resolve(layout)
        self._values = Mirror(self.context, layout.values_size)
        self._b = Mirror(self.context, layout.dim)
        self.dx = np.zeros(layout.dim)
        self.outcome: PcgOutcome | None = None
        """How the last run of the conjugate gradients ended."""
        self.device_seconds = {"schur": 0.0, "linear_solver": 0.0, "landmarks": 0.0}
        """Time on the device since the start, by phase (timestamps of the device)."""
        self.prepare_seconds = 0.0
        """Time that the preparation took, in its own thread."""
        self.prepare_wait_seconds = 0.0
        """How long the first solve waited for it; the rest of it ran beside the host's work."""
        self._overlap_told = False
        self._kept_threshold = 0.0
        self._uploading: Any = None
        self._programs: dict[Any, Any] = {}
        with_thread = ThreadPoolExecutor(1, "graphopt-prepare")
        self._ready: Future[None] = with_thread.submit(self._prepare)
        with_thread.shutdown(wait=False)

    # ---------------------------------------------------------------- host side

    @property
    def values(self) -> np.ndarray:
        """(values_size,) float64: H, written by linearisation."""
        return self._values.host

    @property
    def b(self) -> np.ndarray:
        """(dim,) float64, written by linearisation."""
        return self._b.host

    def upload(self) -> None:
        """Call after writing `values` and `b`."""
        self._values.commit()
        self._b.commit()
        if self.context.device.memory_scheme == "staged":
            if "upload" not in self._programs:
                recorder = self.context.device.record()
                self._values.record_upload(recorder)
                self._b.record_upload(recorder)
                self._programs["upload"] = recorder.finish()
            self._uploading = self.context.device.submit(self._programs["upload"])

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

    def solve(self, damping: float | np.ndarray) -> bool:
        """Solve (H + D) dx = b; damping: one number or (dim,). False: not positive definite."""
        self._wait_prepared()
        self._set_damping(damping)
        kind = "scalar" if np.ndim(damping) == 0 else "vector"
        if self.host_solver is not None:
            return self._solve_direct(kind)
        return self._solve_pcg(kind)

    def multiply(self, vector: np.ndarray) -> np.ndarray:
        """H times a vector (dim,), without damping."""
        self._wait_prepared()
        if "multiply" not in self._programs:
            self._programs["multiply"] = self._record_multiply()
        program, x, y = self._programs["multiply"]
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

    def _wait_prepared(self) -> None:
        if not self._ready.done():
            start = time.perf_counter()
            self._ready.result()
            self.prepare_wait_seconds += time.perf_counter() - start
        self._ready.result()  # raises what the preparation raised

    def _prepare(self) -> None:
        start = time.perf_counter()
        context, layout, chosen = self.context, self.layout, self.configuration
        self._lambda = Mirror(context, 1)
        self._damping = Mirror(context, layout.dim)
        self._dx_buffer = context.reals(layout.dim)
        self._dx_back = Readback(context, layout.dim)
        self.host_solver: HostSolver | None = None
        self.schur: SchurBlocks | SchurLookup | None = None
        self.landmark_inverse: BlockInverse | None = None
        self._status = context.device.allocate(32)
        if chosen.schur == "off":
            self._prepare_whole()
        else:
            self._prepare_schur()
        self.prepare_seconds = time.perf_counter() - start

    def _prepare_whole(self) -> None:
        """No elimination: the whole H."""
        context, layout = self.context, self.layout
        if self.configuration.linear_solver != "pcg":
            self.host_solver = HostSolver(context, self.configuration.linear_solver, layout, None, 0)
            return
        self._product: RowProduct | SymmetricProduct = symmetric_product(context, layout)
        source, scalar = layout.diagonal_offset, layout.scalar[:-1]
        self._jacobi = BlockInverse(context, layout.dims, source, scalar)
        self._make_pcg(layout.dims, context.reals(layout.dim))

    def _prepare_schur(self) -> None:
        context, layout, chosen = self.context, self.layout, self.configuration
        first = layout.num_kept
        kept = layout.kept()
        self.landmark_inverse = BlockInverse(
            context, layout.dims[first:], layout.diagonal_offset[first:], layout.scalar[first:-1]
        )
        inverse_offset = self.landmark_inverse.offset
        self._landmarks = LandmarkProduct(context, layout, inverse_offset)
        self._work = context.reals(layout.dim)
        items = layout.items
        uses = np.full(len(items), NORMAL, np.uint8)
        if chosen.schur == "explicit":
            self.schur, self.reduced = explicit_schur(context, layout, inverse_offset, chosen.work_queues)
            self._reduction = RowProduct(context, layout, items, uses, first)
            if chosen.linear_solver != "pcg":
                size = (self.schur.buffer, self.schur.size)
                self.host_solver = HostSolver(context, chosen.linear_solver, self.reduced, size, kept.dim)
                return
            self._product = symmetric_product(context, self.reduced)
            self._jacobi = BlockInverse(context, kept.dims, self.reduced.diagonal_offset, kept.scalar[:-1])
        else:
            own = np.arange(len(kept.row_idx))
            blocks = np.concatenate([own, items])
            all_uses = np.concatenate([symmetric_uses(kept.row_idx, kept.col), uses])
            self._reduction = self._product = RowProduct(context, layout, blocks, all_uses, first)
            source = kept.diagonal_offset
            if chosen.preconditioner == "hschur":
                self.schur = schur_diagonal(context, layout, inverse_offset)
                source = self.schur.offset
            self._jacobi = BlockInverse(context, kept.dims, source, kept.scalar[:-1])
        self._make_pcg(kept.dims, self._work)

    def _make_pcg(self, dims: np.ndarray, d: Any) -> None:
        jacobi = self._jacobi
        num_dots = self._product.num_groups
        self.pcg = Pcg(self.context, dims, jacobi.buffer, jacobi.offset, d, self._dx_buffer, num_dots)
        self._status = self.pcg.status
        size = (
            self.schur.size
            if self.configuration.schur == "explicit" and self.schur
            else self.layout.values_size
        )
        self._chunk = iterations_per_submission(self.context, 2.0 * size * self.context.real.itemsize)

    # ---------------------------------------------------------------- recording

    def _record_product(self, recorder: Any, pcg: Pcg, parity: int) -> None:
        """Record q = A d with the parts of d'q."""
        values, damping = self._values.buffer, self._damping.buffer
        if self.configuration.schur == "implicit":
            assert self.landmark_inverse is not None
            inverse = self.landmark_inverse.buffer
            step = self._landmarks.launches(values, inverse, pcg.d, pcg.status, base=None, parity=parity)
            record_step(recorder, step)
        elif self.configuration.schur == "explicit":
            assert self.schur is not None
            values, damping = self.schur.buffer, None  # S has the damping in it
        record_step(recorder, self._product.chunk_launches(values, pcg.d, pcg.status, parity))
        self._product.product_launch(pcg.d, pcg.q, pcg.dots_dq, pcg.status, damping, parity).record(recorder)

    def _record_reduction(self, sequence: Sequence, residual: Any) -> None:
        """Inverses of H_ll, S or its diagonal, and the reduced right-hand side."""
        assert self.landmark_inverse is not None
        values, damping, status = self._values.buffer, self._damping.buffer, self._status
        inverse = self.landmark_inverse.buffer
        sequence.fill(self._work)
        sequence.step(self.landmark_inverse.launches(values, damping, status))
        step = self._landmarks.launches(
            values, inverse, self._work, status, base=self._b.buffer, product=False
        )
        if self.schur is not None:
            step += self.schur.pair_launches(values, inverse, damping)
        sequence.step(step)
        step = self._reduction.chunk_launches(values, self._work, status)
        if self.schur is not None:
            step += self.schur.combine_launches(values, damping)
        sequence.step(step)
        sequence.step([self._reduction.residual_launch(self._b.buffer, residual, status)])

    def _record_back_substitution(self, sequence: Sequence) -> None:
        if self.landmark_inverse is not None:
            step = self._landmarks.launches(
                self._values.buffer,
                self.landmark_inverse.buffer,
                self._dx_buffer,
                self._status,
                base=self._b.buffer,
            )
            sequence.step(step)
        self._dx_back.record(sequence, self._dx_buffer)

    def _record_damping(self, sequence: Sequence, kind: str) -> None:
        if kind == "vector":
            self._damping.record_upload(sequence)
            sequence.barrier()
            return
        self._lambda.record_upload(sequence)
        sequence.barrier()
        dim = self.layout.dim
        kernel = self.context.shader("set_damping", 2, 1, {0: VECTOR_WORKGROUP})
        buffers = (self._lambda.buffer, self._damping.buffer)
        sequence.step([Launch(kernel, buffers, (dim,), -(-dim // VECTOR_WORKGROUP))])

    def _record_pcg_start(self, kind: str) -> Sequence:
        sequence = Sequence(self.context).begin("schur")
        self._record_damping(sequence, kind)
        self.pcg.record_reset(sequence)
        values, damping = self._values.buffer, self._damping.buffer
        if self.configuration.schur == "off":
            sequence.copy(self._b.buffer, self.pcg.r[0], self.layout.dim * self.context.real.itemsize)
        else:
            self._record_reduction(sequence, self.pcg.r[0])
        sequence.begin("linear_solver")
        diagonal, shift = (values, damping) if self.schur is None else (self.schur.buffer, None)
        sequence.step(self._jacobi.launches(diagonal, shift, self._status))
        self.pcg.record_start(sequence)
        self.pcg.record_iterations(sequence, self._chunk, self._record_product)
        return sequence.end()

    def _record_multiply(self) -> tuple[Any, Mirror, Readback]:
        context, layout = self.context, self.layout
        x, y = Mirror(context, layout.dim), Readback(context, layout.dim)
        product = symmetric_product(context, layout)
        result, dots = context.reals(layout.dim), context.accumulators(product.num_groups)
        recorder = context.device.record()
        x.record_upload(recorder)
        recorder.barrier()
        record_step(recorder, product.chunk_launches(self._values.buffer, x.buffer, self._status))
        record_step(recorder, [product.product_launch(x.buffer, result, dots, self._status, None)])
        y.record(recorder, result)
        return recorder.finish(), x, y

    # ---------------------------------------------------------------- solving

    def _set_damping(self, damping: float | np.ndarray) -> None:
        if np.ndim(damping) == 0:
            self._lambda.host[0] = damping
            self._lambda.commit()
        else:
            self._damping.host[:] = damping
            self._damping.commit()

    def _run(self, name: Any, record: Callable[[], Sequence]) -> None:
        """Run a sequence, recorded at its first use."""
        if name not in self._programs:
            self._programs[name] = record()
        self._programs[name].run(self.device_seconds)

    def _solve_pcg(self, kind: str) -> bool:
        chosen = self.configuration
        limit = chosen.max_iterations or self.pcg.num_rows
        self.pcg.set_rules(chosen.tolerance, self._kept_threshold, limit)
        self._run(("start", kind), lambda: self._record_pcg_start(kind))
        outcome = self.pcg.outcome()
        while not outcome.stopped:
            self._run("more", self._record_more)
            outcome = self.pcg.outcome()
        self.outcome = outcome
        if not outcome.is_definite or not np.isfinite(outcome.squared_norm):
            return False
        if chosen.absolute_tolerance:
            self._kept_threshold = 0.5 * outcome.squared_norm
        self._run("finish", self._record_finish)
        self.dx[:] = self._dx_back.array
        return True

    def _record_more(self) -> Sequence:
        sequence = Sequence(self.context).begin("linear_solver")
        self.pcg.record_iterations(sequence, self._chunk, self._record_product)
        return sequence.end()

    def _record_finish(self) -> Sequence:
        sequence = Sequence(self.context).begin("landmarks")
        self._record_back_substitution(sequence)
        return sequence.end()

    def _solve_direct(self, kind: str) -> bool:
        solver = self.host_solver
        assert solver is not None
        if self.configuration.schur == "off":
            damping = (
                self._damping.host if kind == "vector" else np.full(self.layout.dim, self._lambda.host[0])
            )
            return solver.solve(self.values, damping, self.b, self.dx)
        self._run(("reduce", kind), lambda: self._record_reduce(kind))
        if not solver.solve_reduced():
            return False
        self._run("substitute", self._record_substitute)
        self.dx[:] = self._dx_back.array
        return True

    def _record_reduce(self, kind: str) -> Sequence:
        assert self.host_solver is not None
        sequence = Sequence(self.context).begin("schur")
        self._record_damping(sequence, kind)
        sequence.fill(self._status)
        sequence.barrier()
        self._record_reduction(sequence, self.host_solver.residual)
        self.host_solver.record_readback(sequence, self._status)
        return sequence.end()

    def _record_substitute(self) -> Sequence:
        assert self.host_solver is not None
        sequence = Sequence(self.context).begin("landmarks")
        self.host_solver.record_step(sequence, self._dx_buffer)
        self._record_back_substitution(sequence)
        return sequence.end()
