"""The damping D on a device: a vector of its own, so H is never changed.

    D = value                                       "scalar"
    D = clip(value H_ii, floor, ceiling) by row     "scaled", where kernels write H
    D = numbers of the host                         "vector"

Of a rule three numbers go up, and a kernel makes D of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphopt.solver.trial import Damping
from graphopt.vulkan.data.array import DeviceArray
from graphopt.vulkan.program import VECTOR_WORKGROUP, Context, Program

LARGEST_CEILING = 1e38  # finite in float32


class DeviceDamping:
    """The vector, and the ways to it."""

    def __init__(self, context: Context, dim: int):
        self._context, self._dim = context, dim
        self._rule = DeviceArray(context, 3)  # value, floor, ceiling
        self._vector = DeviceArray(context, dim, is_mapped=False)
        self._spare: Any = None
        self.diagonal: tuple[Any, int, Any] | None = None
        """Places of H's diagonal, the length of their runs, and in which buffer; once kernels write H."""

    @property
    def buffer(self) -> Any:
        """(dim,) D."""
        return self._vector.buffer

    def set(self, damping: float | np.ndarray | Damping) -> str:
        """Bring D's numbers or rule to the device; returns the kind that `record` needs."""
        if isinstance(damping, Damping):
            self._rule.staging[:] = damping.value, damping.floor, min(damping.ceiling, LARGEST_CEILING)
            kind = "scaled" if damping.scaled else "scalar"
        elif np.ndim(damping) == 0:
            self._rule.staging[0] = damping
            kind = "scalar"
        else:
            self._vector.staging[:] = damping
            self._vector.commit()
            return "vector"
        self._rule.commit()
        return kind

    def record(self, program: Program, kind: str) -> None:
        """Make D of what `set` has brought."""
        if kind == "vector":
            self._vector.record_upload(program)
            program.barrier()
            return
        if self._rule.record_upload(program):
            program.barrier()
        context, dim, rule = self._context, self._dim, self._rule.buffer
        groups = -(-dim // VECTOR_WORKGROUP)
        if kind == "scaled":
            assert self.diagonal is not None, "only where kernels write H its diagonal is on the device"
            places, runs, values = self.diagonal
            buffers, constants = (rule, places, values, self.buffer), {1: runs}
            program.step([context.launch("scale_damping", buffers, (dim,), groups, constants)])
        else:
            program.step([context.launch("set_damping", (rule, self.buffer), (dim,), groups)])

    def scratch(self, nbytes: int) -> Any:
        """A buffer for what runs between solves: that of D, which each solve makes anew, if it has room."""
        if self._vector.nbytes >= nbytes:
            return self.buffer
        if self._spare is None or self._spare.size < nbytes:
            self._spare = self._context.device.allocate(nbytes)
        return self._spare
