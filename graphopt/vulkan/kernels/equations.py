"""The numbers of (H + D) dx = b in device memory, and those of H, b and dx that the host sees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from graphopt.vulkan.data.array import DeviceArray
from graphopt.vulkan.data.layout import BlockLayout
from graphopt.vulkan.program import Context, Program
from graphopt.vulkan.programs import Programs


@dataclass(frozen=True, eq=False)
class Equations:
    """Buffers of one system; H is never changed, see `damping`."""

    context: Context
    layout: BlockLayout
    values: Any
    """Blocks of H; of a matrix-free product the diagonal ones only."""
    b: Any
    damping: Any
    """(HEADER + dim,) see `damping`."""
    dx: Any
    state: DeviceArray
    """8 uint32, see pcg_state.glsl."""

    @property
    def status(self) -> Any:
        """Buffer of the state."""
        return self.state.buffer


class HostNumbers:
    """H, b and dx as the host writes or reads them."""

    def __init__(self, context: Context, layout: BlockLayout, programs: Programs, *, host_writes: bool):
        """host_writes: H and b; else kernels do."""
        self._is_staged = context.device.memory_scheme == "staged"
        self._programs, self._host_writes = programs, host_writes
        self._values = DeviceArray(context, layout.values_size, is_mapped=host_writes)
        self._b = DeviceArray(context, layout.dim, is_mapped=host_writes)
        self.step = DeviceArray(context, layout.dim, is_mapped=False)
        """dx: written by a solution, or through `step.host`."""
        self._uploading: Any = None

    @property
    def buffers(self) -> tuple[Any, Any, Any]:
        """Of H, b and dx."""
        return self._values.buffer, self._b.buffer, self.step.buffer

    @property
    def values(self) -> np.ndarray:
        """(values_size,) float64: H; a copy where kernels have written it, else to be written."""
        return self._values.staging if self._host_writes else self._values.host

    @property
    def b(self) -> np.ndarray:
        """(dim,) float64: b, likewise."""
        return self._b.staging if self._host_writes else self._b.host

    @b.setter
    def b(self, right: np.ndarray) -> None:
        """Where kernels have written another one."""
        self._b.host = right

    def upload(self) -> None:
        """After `values` and `b` were written, which the host does where kernels do not."""
        self._values.commit()
        self._b.commit()
        if self._is_staged:
            self._uploading = self._programs.get("upload", self._record_upload).submit()

    def wait_upload(self) -> None:
        """Before `values` and `b` are written again: the copy of the last ones is done."""
        if self._uploading is not None:
            self._uploading.wait()
            self._uploading = None

    def _record_upload(self, program: Program) -> None:
        self._values.record_upload(program)
        self._b.record_upload(program)

    def note_linearized(self) -> None:
        """Kernels have written H and b anew."""
        self._values.note_written()
        self._b.note_written()
