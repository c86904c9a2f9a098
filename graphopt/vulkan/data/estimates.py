"""Estimates and parameters on the device: one record per row, 16-byte aligned.

Estimates exist in several versions, so that a step can be taken back: `oplus` reads the current version and
writes a free one, `push` only notes which one is current. Two versions suffice for any number of trials.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from graphopt.codegen.gpu import float32_record_dim, record_dim
from graphopt.cpu_kernels import kernels
from graphopt.device import DeviceMemoryError
from graphopt.device.cuda_arrays import CudaArray, CudaSide, KeptNumbers
from graphopt.problem.structure import Structure
from graphopt.problem.working import WorkingEstimates
from graphopt.vulkan.data.array import (
    WIDE,
    WIDE_BYTES,
    DeviceArray,
    Width,
    digest_of,
    pack_wide,
    unpack_wide,
)
from graphopt.vulkan.data.foreign import ForeignColumns, kept_of, take_column, without_owner
from graphopt.vulkan.program import VECTOR_WORKGROUP, Context, Launch, Program, built


class RecordSet:
    """Records of one vertex or parameter set, in one version; in mixed precision with a float32 copy."""

    def __init__(self, context: Context, num_rows: int, dim: int, order: np.ndarray | None = None):
        """order: (num_rows,) uint32, the graph's row of each record, None: the same."""
        self._device, self._order = context.device, order
        self._has_float64 = context.device.has_float64
        self._width: Width = "float64" if self._has_float64 else "two_floats"
        self.num_rows, self._dim, self._record = num_rows, dim, record_dim(dim)
        self.wide = DeviceArray(context, num_rows * self._record, WIDE)
        self.digest = b""
        """Of the graph's numbers that these were made from; empty: of none, a kernel has written them."""
        self.wide_digest = b""
        """The same of `wide` alone, whose float32 copy may be older; or where these were brought to."""
        self._packing: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        self.narrow: DeviceArray | None = None
        if context.precision == "mixed":
            self.narrow = DeviceArray(context, num_rows * float32_record_dim(dim), np.float32)

    @property
    def buffers(self) -> list[Any]:
        """The records', then their float32 copy's."""
        return [self.wide.buffer, *([] if self.narrow is None else [self.narrow.buffer])]

    @property
    def nbytes(self) -> int:
        """Device memory."""
        return self.wide.nbytes + (0 if self.narrow is None else self.narrow.nbytes)

    def write(self, values: np.ndarray, digest: bytes) -> None:
        """Take (n, dim) numbers, made from numbers of the graph with this digest."""
        self.digest = self.wide_digest = digest
        self._fill(self.wide, values, self._record, self._width)
        if self.narrow is not None:
            self._fill(self.narrow, values, float32_record_dim(self._dim), "float32")

    def take(self, context: Context, kept: KeptNumbers, digest: bytes) -> None:
        """As `write`, of numbers that are on the device."""
        self.digest = self.wide_digest = b""
        double, columns = Context(context.device, "double"), range(self._dim)
        places = self.num_rows, None if self._order is None else double.indices(self._order)
        layout = 0, 1, self._record
        launches = [take_column(double, kept, columns, places, self.wide.buffer, layout)]
        if self.narrow is not None:
            layout = 0, 1, float32_record_dim(self._dim)
            launches.append(take_column(context, kept, columns, places, self.narrow.buffer, layout))
        Program(context).barrier().step(launches).run()
        self.digest = self.wide_digest = digest

    def note_written(self) -> None:
        """A kernel has written other numbers."""
        self.digest = self.wide_digest = b""

    def packing(self, memory: Any) -> Any:
        """A program that writes the numbers into memory of `device.cuda_arrays`, row by row without gaps."""
        program = self._packing.get(memory)
        if program is None:
            launch = self._packing_launch(Context(self._device, "double"), memory.buffer)
            recorder = self._device.record("estimates for CUDA").barrier()
            recorder.dispatch(built(launch.kernel), launch.buffers, launch.params, launch.groups)
            program = self._packing[memory] = recorder.barrier().finish()
        return program

    def lent(self, side: CudaSide) -> CudaArray:
        """The numbers as an array of CUDA's."""
        memory = side.take(self._device, max(WIDE_BYTES * self.num_rows * self._dim, 16))
        return side.lend(self._device, memory, (self.num_rows, self._dim), self.packing(memory))

    def kept(self, side: CudaSide) -> KeptNumbers:
        """A copy of the numbers, as what `CudaSide.keep` returns."""
        memory = side.take(self._device, max(WIDE_BYTES * self.num_rows * self._dim, 16))
        self._device.submit(self.packing(memory)).wait()
        return side.filled(self._device, memory, (self.num_rows, self._dim))

    def _packing_launch(self, context: Context, target: Any) -> Launch:
        groups = -(-self.num_rows * self._dim // VECTOR_WORKGROUP)
        if self._order is None:
            params = (self.num_rows, self._dim, self._record, self._dim)
            return context.launch("pack_estimates", (self.wide.buffer, target), params, groups)
        columns = context.indices(np.arange(self._dim))
        buffers = (self.wide.buffer, context.indices(self._places), columns, target)
        params = (self.num_rows, self._dim, 1, 0, self._record, 0, 1, self._dim)
        return context.launch("take_column", buffers, params, groups)

    @cached_property
    def _places(self) -> np.ndarray:
        """(num_rows,) uint32: record of each row of the graph."""
        assert self._order is not None
        return kernels.invert_order(self._order)

    def _fill(self, target: DeviceArray, values: np.ndarray, record: int, width: Width) -> None:
        values = np.ascontiguousarray(values, np.float64)
        target.fill(
            record * (4 if width == "float32" else WIDE_BYTES),
            self.num_rows,
            lambda first, out: kernels.pad_rows(values, record, first, width, out, self._order),
        )

    @property
    def row_bytes(self) -> int:
        """From one record to the next."""
        return self._record * WIDE_BYTES

    def unpack(self, words: np.ndarray) -> np.ndarray:
        """(k, dim) float64 numbers of downloaded records, as float64 bit patterns."""
        return unpack_wide(words, self._has_float64).reshape(-1, self._record)[:, : self._dim]

    def write_rows(self, rows: np.ndarray, values: np.ndarray) -> None:
        """Take the (k, dim) numbers of some rows of the graph."""
        if self._order is not None:
            rows = self._places[rows]
        records = np.zeros((len(rows), self._record))
        records[:, : self._dim] = values
        self.wide.write_rows(rows, pack_wide(records, self._has_float64).view(WIDE))
        if self.narrow is not None:
            narrow = np.zeros((len(rows), float32_record_dim(self._dim)), np.float32)
            narrow[:, : self._dim] = values
            self.narrow.write_rows(rows, narrow)

    def record_copy(self, program: Program, target: RecordSet) -> None:
        """Copy all records."""
        program.copy(self.wide.buffer, target.wide.buffer, self.wide.nbytes)
        if self.narrow is not None and target.narrow is not None:
            program.copy(self.narrow.buffer, target.narrow.buffer, self.narrow.nbytes)

    def bring(self, words: np.ndarray, chosen: np.ndarray, values: np.ndarray) -> None:
        """Take what `wide.read` has brought into the chosen rows (n,) of float64 numbers (n, dim)."""
        kernels.unpad_rows(words, self._record, self._width, chosen, values, self._order)


class DeviceParameters:
    """The parameter sets that edges refer to."""

    def __init__(self, context: Context, structure: Structure):
        self._sets = structure.selection.parameter_sets
        used = {number for group in (*structure.groups, *structure.terms) for number in group.parameter_sets}
        self.records = {
            number: RecordSet(context, len(self._sets[number]), self._sets[number].type.storage_dim)
            for number in sorted(used)
        }
        self.refresh()

    def rebind(self, structure: Structure) -> None:
        """The parameter sets are those of another graph; `refresh` takes their numbers."""
        self._sets = structure.selection.parameter_sets

    def are_graphs(self, numbers: Iterable[int]) -> bool:
        """These sets are here as the graph has them."""
        return all(self.records[n].digest == digest_of(self._sets[n].values) for n in numbers)

    def refresh(self) -> bool:
        """Take the graph's values where they have changed; False: nowhere."""
        changed = False
        for number, records in self.records.items():
            digest = digest_of(self._sets[number].values)
            if records.digest != digest:
                records.write(self._sets[number].values, digest)
                changed = True
        return changed


class DeviceEstimates:
    """The vertex sets that edges refer to, in versions."""

    def __init__(self, context: Context, structure: Structure):
        self._context = context
        groups = (*structure.groups, *structure.external, *structure.terms)
        self.numbers = sorted({number for group in groups for number in group.vertex_sets})
        """Vertex sets that are on the device."""
        self._orders = structure.row_orders
        self._bind(structure)
        offsets = {number: structure.vertex_offsets[number] for number in self.numbers}
        self._is_optimized = {
            number: self._of_graph(number, offset >= 0) for number, offset in offsets.items()
        }
        self.moving = [number for number in self.numbers if structure.num_free[number] > 0]
        """Of these, the ones with optimized vertices."""
        self.offsets = {
            number: DeviceArray.shared(context, _offsets(offsets[number])) for number in self.numbers
        }
        """Per set (n,) uint32: first scalar in dx, or NOTHING."""
        kept_dim = structure.kept_dim
        self.has_kept = {  # where nothing is optimized, -1 is the largest number without a sign
            number: int(offset.view(np.uint64).min(initial=kept_dim)) < kept_dim
            for number, offset in offsets.items()
        }
        """By vertex set: some optimized vertex stays."""
        self.kept_offsets = {
            number: self.offsets[number]
            if offset.max(initial=-1) < kept_dim
            else DeviceArray.shared(context, _offsets(np.where(offset < kept_dim, offset, -1)))
            for number, offset in offsets.items()
            if self.has_kept[number]
        }
        """The same with NOTHING for vertices that Schur eliminates; of sets that have others."""
        self._versions: list[dict[int, RecordSet]] = [
            {number: self._new_records(number) for number in self.numbers}
        ]
        self._stack: list[int] = []
        self.current = 0
        """Version that holds the estimates."""
        self.held = -1
        """Version at which H is linearised, if it is; it is not written either."""
        self._old_narrow: set[int] = set()
        """Versions that a solver in double has written, which leaves their float32 copies as they were."""
        self.refresh()

    def _bind(self, structure: Structure) -> None:
        sets = structure.selection.vertex_sets
        self._sets = {number: sets[number] for number in self.numbers}
        self.working = {number: WorkingEstimates(sets[number], keeps_array=False) for number in self.numbers}
        self.foreign = ForeignColumns(self._context)
        """Columns of sets for other libraries."""
        for number, vertex_set in self._sets.items():
            self.foreign.offer(vertex_set, estimate=without_owner(self._pack, number))

    def rebind(self, structure: Structure) -> None:
        """The vertex sets are those of another graph; `refresh` takes their numbers."""
        self._bind(structure)

    def _new_records(self, number: int) -> RecordSet:
        dim, order = self.working[number].type.storage_dim, self._orders.get(number)
        return RecordSet(self._context, len(self._sets[number]), dim, order)

    def _of_graph(self, number: int, numbers: np.ndarray) -> np.ndarray:
        """(n,) bool by the graph's rows, from those by record."""
        order = self._orders.get(number)
        if order is None or numbers.all():
            return numbers
        found = np.empty_like(numbers)
        found[order] = numbers
        return found

    def version(self, which: int) -> dict[int, RecordSet]:
        """Records by vertex set."""
        return self._versions[which]

    def buffers_of(self, versions: Sequence[int], others: Sequence[int]) -> dict[Any, Any]:
        """By each buffer of some versions, that of other ones, which take their places."""
        return {
            before: after
            for which, other in zip(versions, others, strict=True)
            for number in self.moving
            for before, after in zip(
                self._versions[which][number].buffers, self._versions[other][number].buffers, strict=True
            )
        }

    def _is_own(self, number: int) -> bool:
        """The numbers on the device are the graph's, not another form of them."""
        return self._sets[number].type.working is None

    def _pack(self, number: int, digest: bytes, memory: Any) -> Any:
        """See `foreign.Pack`: from the records, where these are the graph's numbers."""
        records = self._versions[self.current][number]
        is_here = records.wide_digest == digest and self._is_own(number)
        return records.packing(memory) if is_here else None

    def are_graphs(self, numbers: Iterable[int]) -> bool:
        """The current version of these vertex sets has the graph's numbers."""
        here = self._versions[self.current]
        return all(here[n].wide_digest == self._sets[n].fingerprint("estimate") for n in numbers)

    def free_version(self) -> int:
        """A version that is neither current nor remembered; made if there is none."""
        taken = {self.current, self.held, *self._stack}
        for which in range(len(self._versions)):
            if which not in taken:
                return which
        first = self._versions[0]
        moved = {number: self._new_records(number) for number in self.moving}
        self._versions.append({**first, **moved})  # sets without optimized vertices are the same in all
        return len(self._versions) - 1

    def free_after(self, target: int) -> int | None:
        """What `free_version` will be once H is linearised at `target`, if it is there already."""
        taken = {target, *self._stack}
        return next((which for which in range(len(self._versions)) if which not in taken), None)

    def hold(self) -> None:
        """H is linearised at the current version."""
        self.held = self.current

    def arrive(self, which: int, *, in_double: bool = False) -> None:
        """A kernel has written a version; it is the current one now. in_double: without float32 copies."""
        self.current = which
        self._old_narrow.discard(which)
        if in_double and self._context.precision == "mixed":
            self._old_narrow.add(which)
        for number in self.moving:
            self._versions[which][number].note_written()

    def push(self) -> None:
        """Remember the current version."""
        self._stack.append(self.current)

    def pop(self) -> None:
        """Return to the version of the last push."""
        self.current = self._stack.pop()

    def discard_top(self) -> None:
        """Forget the last push."""
        self._stack.pop()

    def refresh(self) -> bool:
        """Take the graph's estimates; False: they are those that are here."""
        digests = {number: vertex_set.fingerprint("estimate") for number, vertex_set in self._sets.items()}
        here = self._versions[self.current]
        changed = [number for number in self.numbers if here[number].digest != digests[number]]
        if changed and self.current in (*self._stack, self.held):  # what was remembered stays
            self.current = self.free_version()
            here, changed = self._versions[self.current], self.numbers
        if self.current in self._old_narrow:
            self._old_narrow.discard(self.current)
            changed = self.numbers
        for number in changed:
            kept = kept_of(self._context.device, self._sets[number], "estimate")
            if kept is not None and self._is_own(number):
                here[number].take(self._context, kept, digests[number])
                continue
            self.working[number].read()
            here[number].write(self.working[number].array, digests[number])
        return bool(changed)

    def download(self) -> None:
        """Bring the current version into the working arrays of the host, all of it or nothing.

        Where the graph's are on the device, and nobody has looked at them here, they stay there.
        """
        here = self._versions[self.current]
        stay = {number for number in self.moving if self._stays(number)}
        come = [number for number in self.moving if number not in stay]
        brought = [np.empty(here[number].wide.count, WIDE) for number in come]
        buffers = [here[number].wide.buffer for number in come]
        self._context.device.read(
            [(buffer, 0, words) for buffer, words in zip(buffers, brought, strict=True)]
        )
        for number, words in zip(come, brought, strict=True):
            chosen, own = self._is_optimized[number], self._sets[number]
            if self._is_own(number) and (chosen.all() or own.elsewhere("estimate") is not None):
                own.overwrite_estimate()
                chosen = np.ones_like(chosen)
            here[number].bring(words, chosen, self.working[number].array)
        for number in self.moving:
            records = here[number]
            records.note_written()
            if self._is_own(number):  # else the graph's numbers make others, a little off
                records.wide_digest = self._sets[number].fingerprint("estimate")
            if self.current not in self._old_narrow:
                records.digest = records.wide_digest

    def _stays(self, number: int) -> bool:
        """Give the graph the current version of a vertex set as numbers on the device, where it has such."""
        own, device = self._sets[number], self._context.device
        side = self.foreign.side()
        if side is None or not self._is_own(number) or kept_of(device, own, "estimate") is None:
            return False
        try:
            kept = self._versions[self.current][number].kept(side)
        except DeviceMemoryError:
            return False
        return own.stays_elsewhere("estimate", kept)

    def receive(self, number: int, rows: np.ndarray, numbers: np.ndarray) -> None:
        """Bring downloaded numbers (k, dim) of some rows of a vertex set into the graph."""
        optimized = self._is_optimized[number][rows]
        rows = rows[optimized]
        self.working[number].array[rows] = numbers[optimized]
        self.working[number].write(rows)

    def leave_remembered(self) -> None:
        """Go to a copy of the current version where that is remembered or held, since it is to be changed."""
        if self.current not in (*self._stack, self.held):
            return
        source, which = self.current, self.free_version()
        program = Program(self._context)
        for number in self.moving:
            self._versions[source][number].record_copy(program, self._versions[which][number])
        program.run()
        self.arrive(which, in_double=source in self._old_narrow)

    def take(self, number: int, rows: np.ndarray) -> None:
        """Take the graph's numbers of some rows of a vertex set into the current version."""
        records = self._versions[self.current][number]
        self.working[number].read(rows)
        records.write_rows(rows, self.working[number].array[rows])
        records.note_written()

    def finish(self) -> None:
        """Bring the estimates into the graph, where they are not there."""
        if not self.are_graphs(self.moving):
            self.download()
            for number in self.moving:
                self.working[number].write()

    @property
    def nbytes(self) -> int:
        """Device memory."""
        distinct = {id(array): array for version in self._versions for array in version.values()}
        return sum(array.nbytes for array in distinct.values())


def _offsets(offsets: np.ndarray) -> np.ndarray:
    """As uint32; -1 becomes NOTHING."""
    return offsets.astype(np.uint32)
