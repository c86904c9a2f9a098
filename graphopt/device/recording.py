"""Recording programs for a Vulkan device, and submissions of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


class VulkanRecorder:
    """Collects the commands of a program; see `protocol.Recorder`. Every method returns the recorder."""

    def __init__(self, device: Any, label: str = ""):
        self._native = device.runtime.Recorder(device.native, label)
        self._device = device
        self._tables: dict[tuple[int, ...], Any] = {}

    def dispatch(
        self, kernel: Any, buffers: Sequence[Any], params: Sequence[int], groups: int
    ) -> VulkanRecorder:
        """Run `groups` workgroups; params are unsigned 32-bit integers in the shader's order."""
        if isinstance(kernel, TableKernel):
            kernel, buffers = kernel.native, (self._table_of(buffers),)
        self._native.dispatch(kernel, buffers, params, groups)
        return self

    def begin_unless(self, flag: Any, place: int = 0) -> VulkanRecorder:
        """Dispatches up to `end_unless` run only where a uint32 on the device is 0 when it gets here.

        flag: buffer with the number at byte `place`. Copies, fills and timestamps run anyway. Only where
        `info["conditional"]`; conditions cannot be nested.
        """
        self._native.begin_unless(flag, place)
        return self

    def end_unless(self) -> VulkanRecorder:
        """End of what `begin_unless` began."""
        self._native.end_unless()
        return self

    def begin_repeat(self) -> VulkanRecorder:
        """What is recorded from here to `end_repeat` runs more than once. Only where `info["repeats"]`.

        Repetitions cannot be nested, and have no timestamps.
        """
        self._native.begin_repeat()
        return self

    def end_repeat(self, times: int) -> VulkanRecorder:
        """End of what `begin_repeat` began, which runs `times` times, one after the other."""
        self._native.end_repeat(times)
        return self

    def _table_of(self, buffers: Sequence[Any]) -> Any:
        """A buffer with the addresses of others."""
        addresses = tuple(buffer.address for buffer in buffers)
        if addresses not in self._tables:
            for buffer in buffers:
                self._native.keep(buffer)
            self._tables[addresses] = self._device.upload(np.array(addresses, np.uint64))
        return self._tables[addresses]

    def barrier(self) -> VulkanRecorder:
        """Finish everything before, and make it visible to everything after."""
        self._native.barrier()
        return self

    def copy(
        self, source: Any, destination: Any, nbytes: int, source_offset: int = 0, destination_offset: int = 0
    ) -> VulkanRecorder:
        """Copy `nbytes` bytes from one buffer to another."""
        self._native.copy(source, destination, source_offset, destination_offset, nbytes)
        return self

    def fill(self, buffer: Any, value: int = 0) -> VulkanRecorder:
        """Set every 32-bit word of a buffer."""
        self._native.fill(buffer, value)
        return self

    def timestamp(self) -> VulkanRecorder:
        """Note the time once everything before is done."""
        self._native.timestamp()
        return self

    def finish(self) -> Any:
        """The program."""
        return self._native.finish()


@dataclass(frozen=True)
class TableKernel:
    """A kernel that finds the addresses of its buffers in another buffer."""

    native: Any


class VulkanTicket:
    """A submission. The device keeps its program until it is done: nobody has to wait for it."""

    def __init__(self, device: Any, program: Any):
        self._device = device
        self._native = device.runtime.Ticket(program)

    @property
    def done(self) -> bool:
        """Whether the device has finished it."""
        return self._native.done

    def wait(self, timeout: float | None = None) -> None:
        """Block, without the GIL, until it is finished; `DeviceLostError` after `timeout` seconds.

        None: 60, or 600 for a software driver. `Stopped` where the caller's watch says so, see
        `VulkanDevice.finishes`.
        """
        seconds = self._device.timeout if timeout is None else timeout
        if not self._device.finishes(self._native.finishes_within, seconds):
            self._native.lose(seconds)
