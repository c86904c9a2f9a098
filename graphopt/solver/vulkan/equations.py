"""The numbers of (H + D) dx = b in device memory, and how they get there and back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from graphopt.solver.vulkan.context import Context, Mirror, Readback
from graphopt.solver.vulkan.layout import BlockLayout


class Reals(Protocol):
    """A buffer of reals."""

    buffer: Any


@dataclass(frozen=True, eq=False)
class Equations:
    """Buffers of one system; the damping D is a vector of its own, H is never changed."""

    context: Context
    layout: BlockLayout
    values: Any
    """Blocks of H; of a matrix-free product the diagonal ones only."""
    b: Any
    damping: Any
    dx: Any
    status: Any
    """8 uint32, see pcg_state.glsl."""


class DeviceReals:
    """Reals that kernels write; the host may look at them."""

    def __init__(self, context: Context, count: int):
        self._context = context
        self._count = count
        self.buffer = context.reals(count)
        self._back: tuple[Readback, Any] | None = None
        self._host: np.ndarray | None = None

    @property
    def host(self) -> np.ndarray:
        """(count,) float64: a copy, downloaded when first asked for."""
        if self._host is None:
            self._host = self.download()
        return self._host

    def forget(self) -> None:
        """Kernels have written other numbers."""
        self._host = None

    def download(self) -> np.ndarray:
        """(count,) float64, a copy."""
        if self._back is None:
            back = Readback(self._context, self._count)
            recorder = self._context.device.record()
            back.record(recorder, self.buffer)
            self._back = back, recorder.finish()
        back, program = self._back
        self._context.device.submit(program).wait()
        return back.array.astype(np.float64)


class SharedVector:
    """A vector that device and host both read and write; it moves only when the other side asks."""

    def __init__(self, context: Context, count: int):
        self._context = context
        self._device = DeviceReals(context, count)
        self.buffer = self._device.buffer
        self._count = count
        self._host = np.zeros(count)
        self._host_is_old = False
        self._upload: tuple[Mirror, Any] | None = None

    def note_device_wrote(self) -> None:
        """The buffer has new numbers."""
        self._host_is_old = True

    @property
    def host(self) -> np.ndarray:
        """(count,) float64, not to be written."""
        if self._host_is_old:
            self._host = self._device.download()
            self._host_is_old = False
        return self._host

    @host.setter
    def host(self, values: np.ndarray) -> None:
        if self._upload is None:
            mirror = Mirror(self._context, self._count)
            recorder = self._context.device.record()
            mirror.record_upload(recorder)
            recorder.barrier()
            recorder.copy(mirror.buffer, self.buffer, self._count * self._context.real.itemsize)
            self._upload = mirror, recorder.finish()
        mirror, program = self._upload
        mirror.host[:] = values
        mirror.commit()
        self._context.device.submit(program).wait()
        self._host = np.array(values, np.float64)
        self._host_is_old = False
