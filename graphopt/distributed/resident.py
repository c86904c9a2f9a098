"""A rank on a Vulkan device, which keeps everything but the messages.

That is edges, estimates, H or what products need of it, inverses of H_ll, and all vectors of the conjugate
gradients.

    linearize    1 submission, and the parts of b and of diag(H) that other ranks share to the host
    linearized   1: their sums
    reduce       1, and the parts of b_s and of the diagonal blocks that other ranks share
    start        1
    advance      1 per iteration: sums up; vectors, s = J r, w = S_r s; shared rows of w down
    solution, substitute_and_move   1 each: x of shared rows; landmarks, oplus, chi2

Numbers come back into pinned memory that stays mapped. The block solver is that of one device
(`vulkan`): its schedule, its reduction and its products, on the rank's own edges.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from graphopt.device.listing import native_module
from graphopt.distributed.interface import Interface, Places
from graphopt.distributed.messages import (
    DeviceMessage,
    DeviceSum,
    HostMessage,
    HostSum,
    Message,
    OnDevice,
    Rows,
    Sum,
)
from graphopt.distributed.part import RankPart, diagonal_places
from graphopt.distributed.pcg import Submissions
from graphopt.distributed.protocol import TAIL, Iterating
from graphopt.distributed.scattering import Share
from graphopt.linear.options import SolverOptions
from graphopt.problem.segments import runs
from graphopt.problem.structure import Structure
from graphopt.solver.create import create_block_solver
from graphopt.solver.trial import Damping, Trial
from graphopt.vulkan.data.array import DeviceArray
from graphopt.vulkan.data.layout import first_of_each
from graphopt.vulkan.kernels.blocks import BlockInverse, row_table
from graphopt.vulkan.kernels.damping import HEADER, DeviceDamping
from graphopt.vulkan.kernels.pcg import INDEFINITE
from graphopt.vulkan.kernels.reduction import record_back_substitution
from graphopt.vulkan.program import Launch, Program
from graphopt.vulkan.solver import ResidentBlockSolver


class ResidentPart(RankPart):
    """A rank's edges on a device, of which it multiplies with S_r."""

    def __init__(self, share: Share, structure: Structure, solver: ResidentBlockSolver):
        super().__init__(share, structure)
        self.solver: Any = solver
        self._share = share

    @classmethod
    def of(cls, share: Share, structure: Structure, options: SolverOptions) -> ResidentPart | None:
        """None where this device, or one without a compiler, keeps nothing."""
        schur = "implicit" if structure.has_schur else "off"
        own = replace(options, linear_solver="pcg", schur=schur)
        if schur == "off":
            own = replace(own, preconditioner="schur_jacobi")
        solver = create_block_solver(share.graph, structure, own)
        return cls(share, structure, solver) if isinstance(solver, ResidentBlockSolver) else None

    def in_double(self) -> ResidentPart | None:
        """The same edges and estimates in float64; itself, where it computes so; None: it cannot."""
        if self.solver.precision == "double":
            return self
        twin = self.solver.in_double()
        return None if twin is None else ResidentPart(self._share, self._structure, twin)

    def iterating(self, shared: Interface, dims: np.ndarray, of_h: bool) -> Iterating:
        """On the device; the preconditioner is that of its reduction."""
        return ResidentIterating(self, shared)


class ResidentIterating:
    """Implements `iterating.Iterating` on a device."""

    def __init__(self, part: ResidentPart, shared: Interface):
        self._part, self._solver, self._shared = part, part.solver, shared
        self._system = system = part.solver.system
        system.wait_prepared()
        self._context = context = system.context
        assert system.reduction is not None and system.iterations is not None
        self._reduction, self._equations = system.reduction, system.equations
        self._pcg = system.iterations.pcg
        self._dims = dims = self._reduction.dims
        self._first = first = first_of_each(dims.astype(np.int64) ** 2)
        self._dim = int(dims.sum())
        self._groups = context.vector_groups(self._dim)

        own = partial(DeviceArray, context)
        rows, numbers = shared.rows.size, shared.numbers.size
        self._x, self._total = own(max(rows, 1), is_mapped=False), own(max(rows, 1))
        self._message: Message = HostMessage(context, rows)
        self._reduced: Sum = HostSum(context, rows + numbers)
        self._parts, self._sums = own(2 * rows, is_mapped=False), own(2 * rows)
        """Of b, then of H's diagonal, in shared rows."""
        self._damping = DeviceDamping(context, self._dim)
        """D of all ranks, in rows of this one: of H's diagonal ..."""
        self._given = DeviceDamping(context, self._dim)
        """... or as given."""
        self._taken = self._damping
        """The one of both that the last elimination took."""
        every = (shared.rows, shared.owned, shared.numbers)
        self._places = {places: OnDevice.of(context, places) for places in every}
        self._after_rows = context.indices(rows + shared.numbers.message)
        self._diagonal_rows = (
            context.indices(HEADER + shared.rows.own),
            context.indices(rows + shared.rows.message),
        )
        """In `_damping`, and in `_parts`."""
        self._of_damping = context.indices(HEADER + np.arange(self._dim))
        self._is_owned = context.indices(shared.is_owned)
        self._d, self._q = context.reals(self._dim), context.reals(self._dim)
        self._dots = context.accumulators(self._groups)

        size = int((dims.astype(np.int64) ** 2).sum())
        self._blocks, self._spare = context.reals(size), context.reals(size)
        self._all_numbers = context.indices(np.arange(size))
        self._on_diagonal = context.indices(diagonal_places(dims))
        self._jacobi = BlockInverse(context, dims, first, first_of_each(dims.astype(np.int64)), first)
        self._jacobi_rows = context.indices(row_table(dims, self._jacobi.offset))
        self._clear(
            self._parts.buffer, self._reduced.buffer, self._message.buffer, self._x.buffer, self._spare
        )
        self._clear(self._pcg.scalars.buffer)  # beta 0: products leave A s in q

    def _clear(self, *buffers: Any) -> None:
        """Places of other ranks stay 0."""
        program = Program(self._context)
        for buffer in buffers:
            program.fill(buffer)
        program.run()

    @property
    def device(self) -> Any:
        """Where it is."""
        return self._context.device

    @property
    def bytes_told(self) -> tuple[int, int]:
        """Of the rows of a message, and of what an elimination gives."""
        rows, numbers = self._shared.rows.size, self._shared.numbers.size
        return rows * self._context.real.itemsize, (rows + numbers) * self._context.real.itemsize

    def tell_by(self, way: Callable[..., Rows], way_of_sums: Callable[..., Rows] | None) -> None:
        """Let rows of messages, and what eliminations give, go other ways than through the host.

        way(context, count, extra) makes one for so many numbers. To be called before anything was reduced.
        """
        rows, numbers = self._shared.rows.size, self._shared.numbers.size
        self._message = DeviceMessage(self._context, way(self._context, rows, TAIL), rows)
        self._clear(self._message.buffer)
        if way_of_sums is not None:
            self._reduced = DeviceSum(way_of_sums(self._context, rows + numbers, 0))
            self._clear(self._reduced.buffer)

    # ---------------------------------------------------------------- parts of programs

    def _copy(self, count: int, start: Any, end: Any, source: Any, target: Any) -> list[Launch]:
        """target[end] = source[start]."""
        if not count:
            return []
        context = self._context
        groups = context.vector_groups(count)
        return [context.launch("copy_entries", (start, end, source, target), (count, groups), groups)]

    def _pack(self, places: Places, values: Any, message: Any) -> list[Launch]:
        own = self._places[places]
        return self._copy(own.count, own.own, own.message, values, message)

    def _unpack(self, places: Places, message: Any, values: Any) -> list[Launch]:
        own = self._places[places]
        return self._copy(own.count, own.message, own.own, message, values)

    def _message_program(self, turn: int) -> Program:
        """What is the same in the first and in later iterations: found out once, and never run alone."""
        return self._system.programs.get(("ranks: message", turn), self._record_message, turn)

    def _record_message(self, program: Program, turn: int) -> None:
        """s = J r; w = S_r s; and what others have to know of it."""
        context, pcg, status = self._context, self._pcg, self._equations.status
        places, packed = self._reduction.packing or (self._is_owned, self._dots)
        vectors = (pcg.r[0], self._is_owned, pcg.u, self._dots, places, packed)
        buffers, rows = (self._jacobi_rows, self._jacobi.buffer, *vectors), (self._dim, self._groups)
        packs = {1: int(self._reduction.packing is not None)}
        program.phase("linear_solver")
        program.step([context.launch("ranks_precondition", buffers, rows, self._groups, packs)])
        self._reduction.record_product(program, pcg, 0)
        program.barrier()
        message = self._message.buffer
        params = (self._shared.rows.size, self._groups, self._reduction.num_dots)
        ends = context.launch("ranks_scalars", (self._dots, pcg.dots_dq, status, message), params, 1)
        program.step([*self._pack(self._shared.rows, pcg.q, message), ends])
        self._message.record_sent(program, turn)

    # ---------------------------------------------------------------- Iterating

    def linearize(self) -> np.ndarray:
        """H, b and its diagonal stay."""
        chi2 = self._solver.linearize()
        self._system.programs.get("ranks: linearize", self._record_parts).run()
        self._solver.wait_linearized()
        return np.concatenate([self._parts.downloaded[: 2 * self._shared.rows.size], [chi2]])

    def _record_parts(self, program: Program) -> None:
        system, parts = self._system, self._parts
        program.step([system.diagonal_launch(self._damping.buffer, self._dim, HEADER)])
        count, places = len(self._shared.rows.own), self._diagonal_rows
        diagonal = self._copy(count, *places, self._damping.buffer, parts.buffer)
        program.step([*self._pack(self._shared.rows, self._equations.b, parts.buffer), *diagonal])
        parts.record_download(program)

    def linearized(self, total: np.ndarray) -> None:
        """b where this rank owns the row; H's diagonal, for D and for blocks that are not definite."""
        rows, owned, staging = self._shared.rows.size, self._shared.owned.message, self._sums.staging
        staging[:rows] = 0.0
        staging[owned] = total[owned]
        staging[rows:] = total[rows:-1]
        self._sums.commit()
        self._system.programs.get("ranks: linearized", self._record_sums).submit()

    def _record_sums(self, program: Program) -> None:
        self._sums.record_upload(program)
        program.barrier()
        of_damping, of_sums = self._diagonal_rows
        count = len(self._shared.rows.own)
        diagonal = self._copy(count, of_sums, of_damping, self._sums.buffer, self._damping.buffer)
        program.step([*self._unpack(self._shared.rows, self._sums.buffer, self._equations.b), *diagonal])

    def kept(self, name: str) -> np.ndarray:
        """From the device."""
        source, first = (self._equations.b, 0) if name == "b" else (self._damping.buffer, HEADER)
        numbers = self.device.download(source, self._context.real, first + self._dim)
        return numbers[first:].astype(np.float64)

    def largest(self, name: str) -> float:
        """Of the device's own diagonal and of b; no part of the diagonal is larger than that of all ranks."""
        self._system.programs.get("ranks: largest", self._system.record_diagonal).run()
        diagonal, gradient = self._system.largest_entries()
        return gradient if name == "b" else max(diagonal, float(self.kept("diagonal").max(initial=0.0)))

    def reduce(self, damping: Damping | np.ndarray) -> np.ndarray:
        """Eliminate."""
        self._target, self._tail = self._solver.prepare_move()
        if isinstance(damping, Damping):
            self._taken = self._damping
            self._taken.set(damping)
            self._system.damping.set(damping, given_rows=self._dim)
        else:
            self._taken = self._given
            self._taken.set(damping[: self._dim])
            self._system.damping.set(damping)
        self._system.programs.get(("ranks: reduce", self._taken), self._record_reduce, self._taken).run()
        failed = self._equations.state.downloaded[INDEFINITE] != 0
        return np.concatenate([self._reduced.sent(), [float(failed)]])

    def _record_reduce(self, program: Program, damping: DeviceDamping) -> None:
        equations, shared, sent = self._equations, self._shared, self._reduced.buffer
        program.phase("schur").fill(equations.status)
        damping.record(program)
        self._system.damping.record(program)
        buffers, rows = (
            (damping.buffer, self._is_owned, self._system.damping.buffer),
            (self._dim, self._groups),
        )
        program.step([self._context.launch("ranks_damping", buffers, rows, self._groups)])
        self._reduction.record(program, self._pcg.r[0])
        program.barrier()
        found = self._reduction.record_blocks(program)
        program.barrier()
        sizes = self._dims.astype(np.int64) ** 2
        start = self._context.indices(runs(np.asarray(found.offset, np.int64), sizes))
        program.step(self._copy(int(sizes.sum()), start, self._all_numbers, found.buffer, self._blocks))
        own = self._places[shared.numbers]
        blocks = self._copy(own.count, own.own, self._after_rows, self._blocks, sent)
        program.step([*self._pack(shared.rows, self._pcg.r[0], sent), *blocks])
        self._reduced.record_sent(program)
        equations.state.record_download(program)

    def start(self, total: np.ndarray) -> np.ndarray:
        """Take b_s and the blocks of all ranks."""
        self._reduced.take(total[:-1])
        self._number = 0
        self._system.programs.get(("ranks: start", self._taken), self._record_start, self._taken).run()
        return self._message.sent()

    def _record_start(self, program: Program, damping: DeviceDamping) -> None:
        equations, shared, reduced = self._equations, self._shared, self._reduced
        reduced.record_taken(program.phase("linear_solver"))
        for vector in (self._d, self._q, self._pcg.x):
            program.fill(vector)
        program.barrier()
        own = self._places[shared.numbers]
        blocks = reduced.added(own.count, self._after_rows, own.own, self._blocks)
        own = self._places[shared.rows]
        rows = reduced.added(own.count, own.message, own.own, self._pcg.r[0])
        places = self._of_damping, self._on_diagonal
        diagonal = self._copy(self._dim, *places, self._damping.buffer, self._spare)
        program.step([*rows, *blocks, *diagonal])
        spare = self._spare
        program.step(self._jacobi.launches(self._blocks, damping.buffer, equations.status, spare=spare))
        program.append(self._message_program(0))

    def advance(self, total: np.ndarray, alpha: float, beta: float) -> np.ndarray:
        """One submission."""
        self._message.take(total, alpha, beta)
        self._advance_program(self._number).run()
        self._number += 1
        return self._message.sent()

    def _advance_program(self, number: int) -> Program:
        """Of iteration 0, 1, ...: it takes the message of that number, and leaves the next."""
        turn = number % self._message.turns
        return self._system.programs.get(("ranks: advance", turn), self._record_advance, turn)

    def submissions(self) -> Submissions:
        """`advance` for native code."""
        device = self._context.device
        programs = [self._advance_program(number).recorded for number in range(self._message.turns)]
        is_double = self._context.precision == "double"
        ways = self._message.natively()
        return Submissions(native_module(), programs, *ways, is_double, device.timeout)

    def _record_advance(self, program: Program, turn: int) -> None:
        pcg, message = self._pcg, self._message
        places = self._places[self._shared.rows]
        message.record_taken(program.phase("linear_solver"), turn, places, pcg.q)
        buffers = (message.scalars, pcg.u, pcg.q, self._d, self._q, pcg.x, pcg.r[0])
        params = (self._dim, self._groups, message.first)
        program.step([self._context.launch("ranks_update", buffers, params, self._groups)])
        program.append(self._message_program((turn + 1) % message.turns))

    def solution(self) -> np.ndarray:
        """What this rank owns."""
        if not self._shared.rows.size:
            return np.empty(0)
        self._system.programs.get("ranks: solution", self._record_solution).run()
        return self._x.downloaded.astype(np.float64)

    def _record_solution(self, program: Program) -> None:
        program.step(self._pack(self._shared.owned, self._pcg.x, self._x.buffer))
        self._x.record_download(program)

    def substitute(self, total: np.ndarray) -> None:
        """Without what follows."""
        self._finish(total, None)

    def substitute_and_move(self, total: np.ndarray) -> Trial:
        """With what follows, in the same submission."""
        self._finish(total, self._tail)
        return self._solver.arrive(self._target)

    def _finish(self, total: np.ndarray, tail: Program | None) -> None:
        self._total.staging[: len(total)] = total
        self._total.commit()
        program = self._system.programs.get(("ranks: finish", tail), self._record_finish, tail)
        program.run(self._system.device_seconds)
        self._system.step.note_written()

    def _record_finish(self, program: Program, tail: Program | None) -> None:
        self._total.record_upload(program.phase("landmarks"))
        program.barrier()
        if self._shared.rows.size:
            program.step(self._unpack(self._shared.rows, self._total.buffer, self._pcg.x))
        record_back_substitution(program, self._reduction)
        if tail is not None:
            program.append(tail)
