"""Preconditioned conjugate gradients on the device, with g2o's stop rule (thesis, algorithm 5).

    r = b, d = s = J r, dn = r's, d0 = max(tolerance dn, kept)
    until dn <= d0:  q = A d;  alpha = dn / d'q;  x += alpha d;  r -= alpha q;  s = J r;  beta = r's / dn;  d
    = s + beta d

J is block-Jacobi. A program holds many iterations; each kernel returns at once when the flag on the device
says that a stop rule was met. Where less than a solution to the tolerance will do, a run also stops when
iterations no longer gain much: see pcg_direction.comp. An iteration is the product and three vector kernels.
All sums have a fixed order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphopt.solver.vulkan.context import VECTOR_WORKGROUP, Context, Launch, Mirror, Readback, record_step
from graphopt.solver.vulkan.inverse import row_table
from graphopt.solver.vulkan.sequence import Tape

MAX_ITERATIONS_PER_SUBMISSION = 64

INDEFINITE = 4  # place in status; pcg_state.glsl
_NUM_SCALARS = 10  # likewise


@dataclass(frozen=True)
class PcgOutcome:
    """How a run ended."""

    iterations: int
    squared_norm: float
    """r' J r at the end."""
    is_definite: bool
    """False: a d' A d or a pivot was not positive."""
    stopped: bool


BYTES_PER_SUBMISSION = 2.5e9
"""Traffic worth a submission: waiting costs 40 us; iterations recorded past the stop flag take time, too."""


def iterations_per_submission(context: Context, bytes_per_iteration: float) -> int:
    """Even number of iterations for one submission: few where they are long."""
    worthwhile = max(8.0, BYTES_PER_SUBMISSION / max(bytes_per_iteration, 1.0))
    affordable = context.submission_bytes / max(bytes_per_iteration, 1.0)
    return int(max(2.0, min(MAX_ITERATIONS_PER_SUBMISSION, worthwhile, affordable) // 2 * 2))


class Pcg:
    """Buffers and launches of the iteration; the product A d is given as a function that records it."""

    def __init__(
        self,
        context: Context,
        dims: np.ndarray,
        jacobi: Any,
        jacobi_offset: np.ndarray,
        d: Any,
        x: Any,
        num_dots: int,
        status: Any,
    ):
        """dims: of the block rows; jacobi: inverted diagonal blocks; d, x: their first rows are used.

        num_dots: parts of d'q that the product leaves in `dots_dq`. status: 8 uint32, see pcg_state.glsl.
        """
        self._context = context
        self.num_rows = int(dims.sum())
        self._dim = int(dims[0]) if len(dims) and (dims == dims[0]).all() else 0
        self.num_groups = context.vector_groups(self.num_rows)
        self.d, self.x = d, x
        self.r = (context.reals(self.num_rows), context.reals(self.num_rows))
        self.s = context.reals(self.num_rows)
        self.q = context.reals(self.num_rows)
        self._num_dots = num_dots
        self.dots_dq = context.accumulators(num_dots)
        self.dots_rs = context.accumulators(self.num_groups)
        self._jacobi = jacobi
        self._jacobi_rows = context.indices(row_table(dims, jacobi_offset))
        self.scalars = context.reals(_NUM_SCALARS)
        self.status = status
        self._settings = Mirror(context, 4)
        self._limits = context.device.allocate(16, "shared")
        self._status_back = context.device.allocate(32, "readback")
        self._scalars_back = Readback(context, _NUM_SCALARS)

    def set_rules(
        self,
        tolerance: float,
        kept_threshold: float,
        max_iterations: int,
        share: float = 0.0,
        worth: float = 0.0,
    ) -> None:
        """Before a run: the stop rules. kept_threshold 0: none; share, worth 0: g2o's rule only.

        share, worth: of the quadratic model 2 b'x - x'A x, relative and absolute, what may be left.
        """
        self._settings.host[:] = tolerance, kept_threshold, share, worth
        self._settings.commit()
        self._limits.array(np.dtype(np.uint32), 0, 1)[0] = max_iterations

    def record_reset(self, recorder: Any) -> None:
        """Clear the state; before anything that may note an indefinite block."""
        recorder.fill(self.status)
        self._settings.record_upload(recorder)
        recorder.barrier()
        place = 3 * self._context.real.itemsize
        recorder.copy(self._settings.buffer, self.scalars, 4 * self._context.real.itemsize, 0, place)
        recorder.barrier()

    def record_start(self, recorder: Any) -> None:
        """Set x = 0 and the first direction, from the residual in r[0]."""
        constants = {0: VECTOR_WORKGROUP}
        init = self._context.shader("pcg_init", 7, 2, constants)
        buffers = (self._jacobi_rows, self._jacobi, self.r[0], self.x, self.d, self.dots_rs, self.s)
        record_step(recorder, [Launch(init, buffers, (self.num_rows, self.num_groups), self.num_groups)])
        start = self._context.shader("pcg_start", 3, 1, constants)
        record_step(
            recorder, [Launch(start, (self.dots_rs, self.scalars, self.status), (self.num_groups,), 1)]
        )

    def record_iterations(
        self, recorder: Any, count: int, record_product: Callable[[Any, Pcg, int], None]
    ) -> None:
        """`count` (even) iterations and the readback of the state.

        record_product(recorder, pcg, parity) records q = A d and the parts of d'q (`dots_dq`), without last
        barrier.
        """
        two = Tape()
        for parity in (0, 1):
            record_product(two, self, parity)
            two.barrier()
            record_step(two, [self._update(parity)])
            record_step(two, [self._direction(parity)])
        for _ in range(count // 2):
            two.record(recorder)
        recorder.copy(self.status, self._status_back, 32)
        self._scalars_back.record(recorder, self.scalars)

    def outcome(self) -> PcgOutcome:
        """The state after the last program."""
        status = self._status_back.array(np.dtype(np.uint32), 0, 8)
        return PcgOutcome(
            int(status[2]), float(self._scalars_back.array[0]), not status[INDEFINITE], bool(status[0])
        )

    def _update(self, parity: int) -> Launch:
        kernel = self._context.shader("pcg_update", 12, 4, {0: VECTOR_WORKGROUP, 1: self._dim})
        buffers = (
            self._jacobi_rows,
            self._jacobi,
            self.dots_dq,
            self.scalars,
            self.status,
            self.d,
            self.q,
            self.r[parity],
            self.r[1 - parity],
            self.x,
            self.s,
            self.dots_rs,
        )
        params = (self.num_rows, self.num_groups, parity, self._num_dots)
        return Launch(kernel, buffers, params, self.num_groups)

    def _direction(self, parity: int) -> Launch:
        kernel = self._context.shader("pcg_direction", 6, 3, {0: VECTOR_WORKGROUP})
        buffers = (self.dots_rs, self.scalars, self.status, self.s, self.d, self._limits)
        return Launch(kernel, buffers, (self.num_rows, self.num_groups, parity), self.num_groups)
