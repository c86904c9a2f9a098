"""Preconditioned conjugate gradients on the device, with g2o's stop rule (thesis, algorithm 5).

    r = b, u = J r, dn = r'u, d0 = tolerance dn, beta = 0
    until dn <= d0:  d = u + beta d;  q = A u + beta q;  alpha = dn / d'q    the end of the product A u
                     x += alpha d;  r -= alpha q;  u = J r;  beta = r'u / dn;  dn = r'u    `pcg_update`

J is block-Jacobi. q = A d by its recurrence (Chronopoulos and Gear 1989), so that nothing stands between the
product and the end of the vectors' update but d'q: an iteration is the product, whose last kernel also makes
d, q and the parts of d'q, and one vector kernel, whose last workgroup sums up r'u. A program holds many
iterations; each kernel returns at once when the flag on the device says that a stop rule was met, and a
device that can skips launches by that flag. Where less than a solution to the tolerance will do, a run also
stops when iterations no longer gain much: see pcg_end.glsl. All sums have a fixed order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from graphopt.vulkan.data.array import DeviceArray
from graphopt.vulkan.kernels.blocks import BlockInverse, Follows, row_table
from graphopt.vulkan.kernels.equations import Equations
from graphopt.vulkan.program import Context, Launch, Program

MAX_ITERATIONS_PER_SUBMISSION = 64
MOST_SKIPPED = 128
"""The same where the device skips those that are not needed."""
PAIRS_AT_ONCE = 2
"""Pairs of iterations between two of its looks at the flag."""
INDEFINITE = 4  # place in status; pcg_state.glsl
_NUM_SCALARS = 10  # likewise
_NUM_SETTINGS, _FIRST_SETTING = 5, 3  # among them


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


def iterations_per_submission(context: Context, bytes_per_iteration: float, *, skips: bool) -> int:
    """Even number of iterations for one submission: few where they are long, unless it may skip them."""
    affordable = context.submission_bytes / max(bytes_per_iteration, 1.0)
    worthwhile = max(8.0, BYTES_PER_SUBMISSION / max(bytes_per_iteration, 1.0))
    most = MOST_SKIPPED if skips else min(MAX_ITERATIONS_PER_SUBMISSION, worthwhile)
    return int(max(2.0, min(most, affordable) // 2 * 2))


class Reduction(Protocol):
    """What is solved, see `reduction`."""

    dims: np.ndarray
    """Dimensions of the block rows of A."""
    direction: Any
    """Buffer of u; its first rows are those of A."""
    num_dots: int
    """Parts of d'q that a product leaves."""
    bytes_per_product: float
    packing: tuple[Any, Any] | None
    """Places of u in packed records, and these, where products read it from there."""

    @property
    def jacobi(self) -> BlockInverse | None:
        """Block-Jacobi; None where no conjugate gradients run."""
        ...

    @property
    def landmark_inverse(self) -> BlockInverse | None:
        """Of eliminated blocks, made anew by each trial."""
        ...

    def record(self, program: Program, residual: Any) -> None:
        """Everything that depends on the damping, and r."""
        ...

    def record_blocks(self, program: Program) -> Any:
        """Make the diagonal blocks of A without damping, see `reduction.DiagonalBlocks`."""
        ...

    def record_jacobi(self, program: Program) -> None:
        """Invert the diagonal blocks of A."""
        ...

    def record_product(self, program: Program, pcg: Pcg, ping_pong: int) -> None:
        """d = u + beta d, q = A u + beta q and the parts of d'q, without last barrier."""
        ...

    def record_again(self, program: Program) -> None:
        """Before iterations that go on where a tail may have run in between."""
        ...

    def record_back_substitution(self, program: Program) -> None:
        """The eliminated part of dx."""
        ...

    def record_whole_product(self, program: Program, x: Any, y: Any) -> None:
        """y = H x over all rows, without damping, with last barrier."""
        ...


class Pcg:
    """Buffers and launches of the iteration; the product A u is given as a function that records it."""

    def __init__(self, equations: Equations, reduction: Reduction):
        context, dims, jacobi = equations.context, reduction.dims, reduction.jacobi
        assert jacobi is not None
        self._context, self._num_dots = context, reduction.num_dots
        self.num_rows = int(dims.sum())
        self._dim = int(dims[0]) if len(dims) and (dims == dims[0]).all() else 0
        self.num_groups = context.vector_groups(self.num_rows)
        self.u, self.x = reduction.direction, equations.dx
        self.d = context.reals(self.num_rows)
        self.r = (context.reals(self.num_rows), context.reals(self.num_rows))
        self.q = context.reals(self.num_rows)
        self.dots_dq = context.accumulators(reduction.num_dots)
        self.dots_rs = context.accumulators(self.num_groups)
        self.packing = reduction.packing
        self._jacobi = jacobi.buffer
        self._jacobi_rows = context.indices(row_table(dims, jacobi.offset))
        self.scalars = DeviceArray(context, _NUM_SCALARS, is_mapped=False)
        self.status = equations.state
        self._settings = DeviceArray(context, _NUM_SETTINGS)

    def set_rules(
        self,
        tolerance: float,
        max_iterations: int,
        share: float = 0.0,
        worth: float = 0.0,
        patience: int = 0,
    ) -> None:
        """Before a run: the stop rules. share, worth 0: g2o's rule only.

        share, worth: of the quadratic model 2 b'x - x'A x, relative and absolute, what may be left, once
        `patience` iterations have run.
        """
        self._settings.staging[:] = tolerance, share, worth, max_iterations, patience
        self._settings.commit()

    def record_reset(self, program: Program) -> None:
        """Clear the state; before anything that may note an indefinite block."""
        program.fill(self.status.buffer)
        self._settings.record_upload(program)
        program.barrier()
        size = self._context.real.itemsize
        nbytes = _NUM_SETTINGS * size
        program.copy(self._settings.buffer, self.scalars.buffer, nbytes, 0, _FIRST_SETTING * size).barrier()

    def record_start(self, program: Program) -> None:
        """Set x = 0 and the first direction, from the residual in r[0]."""
        places, packed = self.packing or (self._jacobi_rows, self.d)
        vectors = (self.r[0], self.x, self.u, self.dots_rs, places, packed)
        packs, buffers = {1: int(self.packing is not None)}, (self._jacobi_rows, self._jacobi, *vectors)
        params = (self.num_rows, self.num_groups)
        program.step([self._context.launch("pcg_init", buffers, params, self.num_groups, packs)])
        program.step([self._start()])

    def record_iterations(self, program: Program, count: int, record_pair: Callable[[], None]) -> None:
        """`count` (even) iterations, two of which `record_pair` records, and the readback of the state."""
        whole, rest = divmod(count // 2, PAIRS_AT_ONCE)
        for times, pairs in ((whole, PAIRS_AT_ONCE), (int(rest > 0), rest)):
            if times:
                with program.repeated(times), program.unless(self.status.buffer, 0), program.repeated(pairs):
                    record_pair()
        self._record_state(program)

    def record_pair(self, program: Program, record_product: Callable[[Program, Pcg, int], None]) -> None:
        """Two iterations; record_product(program, pcg, ping_pong) is a `Reduction`'s."""
        for ping_pong in (0, 1):
            record_product(program, self, ping_pong)
            program.barrier().step([self._update(ping_pong)])

    def _record_state(self, program: Program) -> None:
        self.status.record_download(program)
        self.scalars.record_download(program)

    def _start(self) -> Launch:
        buffers = (self.dots_rs, self.scalars.buffer, self.status.buffer)
        return self._context.launch("pcg_start", buffers, (self.num_groups,), 1)

    def outcome(self) -> PcgOutcome:
        """The state after the last program."""
        status = self.status.downloaded
        squared_norm = float(self.scalars.downloaded[0])
        return PcgOutcome(int(status[2]), squared_norm, not status[INDEFINITE], bool(status[0]))

    @property
    def follows(self) -> Follows:
        """What the end of a product reads to make d, and q in the place of A u."""
        return self.d, self.scalars.buffer

    def _update(self, ping_pong: int) -> Launch:
        """All of an iteration but its product."""
        places, packed = self.packing or (self._jacobi_rows, self.dots_dq)
        buffers = (
            self._jacobi_rows,
            self._jacobi,
            self.dots_dq,
            self.scalars.buffer,
            self.status.buffer,
            self.d,
            self.q,
            self.r[ping_pong],
            self.r[1 - ping_pong],
            self.x,
            self.u,
            self.dots_rs,
            places,
            packed,
        )
        params = (self.num_rows, self.num_groups, ping_pong, self._num_dots)
        constants = {1: self._dim, 2: int(self.packing is not None)}
        return self._context.launch("pcg_update", buffers, params, self.num_groups, constants)
