"""Edges that Python evaluates beside kernels: numbers of their vertices come, their part of H and b goes.

Nothing else crosses: estimates of their vertices are copied out of the records, contributions are summed on
the host in a fixed order and added by one kernel, H's diagonal is gathered again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphopt.solver.external import ExternalPlaces
from graphopt.vulkan.data.array import DeviceArray
from graphopt.vulkan.data.estimates import DeviceEstimates
from graphopt.vulkan.kernels.system import DampedSystem
from graphopt.vulkan.program import VECTOR_WORKGROUP, Program

WORDS = np.dtype(np.float64)


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


def _runs(rows: np.ndarray) -> list[tuple[int, int]]:
    """(first, count) of the runs of consecutive numbers in ascending ones."""
    breaks = np.flatnonzero(np.diff(rows) != 1) + 1
    return [(int(run[0]), len(run)) for run in np.split(rows, breaks) if len(run)]
