"""Edges that Python evaluates beside kernels: numbers of their vertices come, their part of H and b goes.

Nothing else crosses: estimates of their vertices are copied out of the records, contributions are summed on
the host in a fixed order and added by one kernel, H's diagonal is gathered again. What a library computes on
the same device (`DeviceExternal.on_cuda`) stays there, and is summed there in a fixed order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphopt.device.cuda_arrays import CudaArray, CudaSide, cuda_side
from graphopt.foreign_arrays import CudaNumbers
from graphopt.solver.external import ExternalPlaces, Terms
from graphopt.vulkan.data.array import DeviceArray
from graphopt.vulkan.data.estimates import DeviceEstimates
from graphopt.vulkan.kernels.system import DampedSystem
from graphopt.vulkan.program import VECTOR_WORKGROUP, Launch, Program

WORDS = np.dtype(np.float64)
_MOST_TERMS = 64
"""That one invocation adds up."""


class DeviceExternal:
    """Implements `ExternalPart` for the device-resident block solver."""

    def __init__(self, system: DampedSystem, estimates: DeviceEstimates, places: ExternalPlaces):
        self._system, self._estimates, self._places = system, estimates, places
        context = system.context
        self._values = DeviceArray(context, len(places.values))
        self._b = DeviceArray(context, len(places.b))
        self._at_values = context.indices(places.values) if len(places.values) else None
        self._at_b = context.indices(places.b) if len(places.b) else None
        self._adding: Program | None = None
        self._back: Any = None
        self._reading: dict[int, Any] = {}

    # ---------------------------------------------------------------- estimates

    def read_estimates(self) -> None:
        """See `ExternalPart`."""
        estimates, version = self._estimates, self._estimates.current
        if version not in self._reading:
            self._reading[version] = self._record_reading(version)
        program = self._reading[version]
        if program is None:
            return
        program.run()
        at = 0
        for number, rows in self._moving():
            records = estimates.version(version)[number]
            count = len(rows) * records.row_bytes
            words = self._back.array(WORDS, at, count // WORDS.itemsize)
            estimates.receive(number, rows, records.unpack(words.copy()))
            at += count

    def _moving(self) -> list[tuple[int, np.ndarray]]:
        """Vertex sets that have optimized vertices; the others are as the graph has them."""
        moving = self._estimates.moving
        return [(number, rows) for number, rows in self._places.vertices.items() if number in moving]

    def _record_reading(self, version: int) -> Any:
        """Copies of runs of consecutive records into one buffer; None if there are none."""
        copies, at = [], 0
        for number, rows in self._moving():
            records = self._estimates.version(version)[number]
            for first, count in _runs(rows):
                nbytes = count * records.row_bytes
                copies.append((records.wide.buffer, nbytes, first * records.row_bytes, at))
                at += nbytes
        if not copies:
            return None
        context = self._system.context
        if self._back is None:
            self._back = context.device.allocate(at, "readback")
        program = Program(context)
        for source, nbytes, source_offset, target_offset in copies:
            program.copy(source, self._back, nbytes, source_offset, target_offset)
        return program

    def write_estimates(self, number: int, rows: np.ndarray) -> None:
        """See `ExternalPart`."""
        self._estimates.take(number, rows)

    # ---------------------------------------------------------------- H and b

    def add(self, values: np.ndarray, b: np.ndarray) -> None:
        """See `ExternalPart`."""
        for mirror, numbers in ((self._values, values), (self._b, b)):
            mirror.staging[:] = numbers
            mirror.commit()
        if self._adding is None:
            self._adding = self._record_adding()
        self._adding.run(self._system.device_seconds)
        self._system.note_linearized(0)

    def _record_adding(self) -> Program:
        context, equations = self._system.context, self._system.equations
        program = Program(context).phase("linearize")
        self._values.record_upload(program)
        self._b.record_upload(program)
        program.barrier()
        parts = ((self._at_values, self._values, equations.values), (self._at_b, self._b, equations.b))
        counts = (len(self._places.values), len(self._places.b))
        adding = [
            context.launch(
                "add_entries", (at, numbers.buffer, target), (count,), -(-count // VECTOR_WORKGROUP)
            )
            for (at, numbers, target), count in zip(parts, counts, strict=True)
            if count
        ]
        self._system.record_diagonal(program.step(adding))
        return program

    def on_cuda(self, ordinal: int, terms: Terms) -> CudaExternal | None:
        """See `ExternalPart`."""
        device = self._system.context.device
        if not device.has_float64:
            return None
        side = cuda_side(device)
        if side is None or side.ordinal != ordinal:
            return None
        return CudaExternal(self._system, self._estimates, self._places, terms, side)


class CudaExternal:
    """Implements `CudaPart`."""

    def __init__(
        self,
        system: DampedSystem,
        estimates: DeviceEstimates,
        places: ExternalPlaces,
        terms: Terms,
        side: CudaSide,
    ):
        self._system, self._estimates, self._side = system, estimates, side
        context, equations = system.context, system.equations
        self._memory = side.take(context.device, max(WORDS.itemsize * len(terms.b), 16))
        sums: list[Launch] = []
        adding: list[Launch] = []
        for own, at, target in (
            (terms.values, places.values, equations.values),
            (terms.b, places.b, equations.b),
        ):
            if len(at):
                launches = self._launches(own, at, target)
                sums.append(launches[0])
                adding.append(launches[1])
        self._adding = Program(context).phase("linearize").barrier().step(sums).step(adding)
        system.record_diagonal(self._adding)

    def _launches(self, terms: np.ndarray, places: np.ndarray, target: Any) -> tuple[Launch, Launch]:
        """Sums of few terms each, and these into H or b."""
        context = self._system.context
        kept = np.flatnonzero(terms >= 0)
        term = kept[np.argsort(terms[kept], kind="stable")]
        counts = np.bincount(terms[kept], minlength=len(places))
        parts = -(-counts // _MOST_TERMS)
        sizes = np.full(parts.sum(), _MOST_TERMS)
        last = np.cumsum(parts)[parts > 0] - 1
        sizes[last] = (counts - (parts - 1) * _MOST_TERMS)[parts > 0]
        sums = context.device.allocate(max(WORDS.itemsize * len(sizes), 16))
        first = context.indices(np.concatenate([[0], np.cumsum(sizes)]))
        buffers = (first, context.indices(term), self._memory.buffer, sums)
        groups = -(-len(sizes) // VECTOR_WORKGROUP)
        summing = context.launch("sum_terms", buffers, (len(sizes),), groups, nbytes=12.0 * len(term))
        first = context.indices(np.concatenate([[0], np.cumsum(parts)]))
        buffers = (context.indices(places), first, sums, target)
        groups = -(-len(places) // VECTOR_WORKGROUP)
        return summing, context.launch("add_sums", buffers, (len(places),), groups)

    def estimates(self, number: int) -> CudaArray:
        """See `CudaPart`."""
        records = self._estimates.version(self._estimates.current)[number]
        return records.lent(self._side)

    def add(self, numbers: CudaNumbers) -> None:
        """See `CudaPart`."""
        self._side.copy(self._memory, numbers)
        self._adding.run(self._system.device_seconds)
        self._system.note_linearized(0)


def _runs(rows: np.ndarray) -> list[tuple[int, int]]:
    """(first, count) of the runs of consecutive numbers in ascending ones."""
    breaks = np.flatnonzero(np.diff(rows) != 1) + 1
    return [(int(run[0]), len(run)) for run in np.split(rows, breaks) if len(run)]
