"""Arrays in memory that Vulkan and CUDA both see, for torch, jax and cupy.

    side = cuda_side(device)                       None where CUDA does not see the device
    memory = side.take(device, nbytes)             exported by Vulkan, imported by CUDA
    array = side.lend(device, memory, shape, program)   what a program, or a `write`, puts there

Both APIs name a device by the same UUID. The program's end raises a timeline semaphore that both share; the
consumer's stream waits for it (`__dlpack__(stream=...)`), the host does not. Memory comes back when the last
consumer lets go of it, and is written again once what was then on that stream is done. Importing takes
0.3 ms: memory that came back serves the next array of its size.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from contextlib import suppress
from typing import Any

import numpy as np

from graphopt.cuda_driver import LEGACY_STREAM, PER_THREAD_STREAM, Cuda
from graphopt.errors import DeviceError

_CUDA = 2  # kDLCUDA
_PERMANENT_STREAMS = frozenset((LEGACY_STREAM, PER_THREAD_STREAM))
_MOST_IDLE = 8
"""Pieces of memory that wait for the next array."""
_MOST_BUSY = 4
"""Pieces that could serve if their consumers' streams were done, from which on that is waited for."""


class CudaArray:
    """A (...) float64 array on a GPU, for other libraries: `torch.from_dlpack(array)`.

    What made it keeps numbers of its own; all that have the array share it.
    """

    dtype = np.dtype(np.float64)

    def __init__(self, side: CudaSide, lease: _Lease, shape: tuple[int, ...], value: int):
        self._side, self._lease, self._value = side, lease, value
        self.shape = shape
        """Row by row, without gaps."""

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<CudaArray float64 {self.shape} on CUDA device {self._side.ordinal}>"

    def __dlpack_device__(self) -> tuple[int, int]:
        """(kDLCUDA, ordinal)."""
        return _CUDA, self._side.ordinal

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A capsule "dltensor"; a CUDA stream waits for the numbers, as the array API says.

        stream: None or 1 the legacy default stream, 2 the thread's, -1 none, else a handle. Raises
        `BufferError` for another device and for copies, which the consumer makes.
        """
        del max_version  # consumers of later versions take this one
        if dl_device is not None and tuple(map(int, dl_device)) != self.__dlpack_device__():
            raise BufferError(f"The array is on CUDA device {self._side.ordinal}; copy it to {dl_device}.")
        if copy:
            raise BufferError("The array is given as it is. Copy what you have made of it.")
        if stream == 0 or isinstance(stream, bool):
            raise BufferError(f"stream is {stream}, expected 1, 2, -1 or a handle: 0 is ambiguous.")
        self._order(LEGACY_STREAM if stream is None else int(stream))
        return self._side.capsule(self._lease, self._lease.memory.address, self.shape, self._side.ordinal)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Version 3; ordered on the legacy default stream."""
        self._order(LEGACY_STREAM)
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self._lease.memory.address, False),
            "strides": None,
            "version": 3,
            "stream": LEGACY_STREAM,
        }

    def _order(self, stream: int) -> None:
        if stream == -1:
            self._lease.streams.add(0)  # on which one it is used is not known
        elif stream != LEGACY_STREAM or stream not in self._lease.streams:
            # others wait each time: a new stream may have the handle of one that is gone
            self._lease.streams.add(stream)
            self._side.wait_on_stream(self._value, stream)


class _Memory:
    """A buffer of Vulkan that CUDA has mapped."""

    def __init__(self, side: CudaSide, buffer: Any):
        self._side, self.buffer, self.size = side, buffer, buffer.size
        descriptor, nbytes = buffer.export_memory()
        with side.context:
            self._handle, self.address = side.cuda.import_memory(descriptor, nbytes, self.size)
            self._event = side.cuda.new_event()
        self._streams: set[int] = set()
        """On which consumers may still work on it."""
        self._has_event = False

    def come_back(self, streams: set[int]) -> None:
        """Its last consumer, on these streams, has let go of it.

        A stream that a program has made may be gone by now; the driver does not check. Of those that always
        exist an event says when they are done.
        """
        self._streams = streams
        self._has_event = len(streams) == 1 and streams <= _PERMANENT_STREAMS
        if self._has_event:
            (stream,) = streams
            with self._side.context:
                self._side.cuda.record(self._event, stream)

    def is_free(self) -> bool:
        """Nobody works on it any more. With the context current."""
        if self._has_event and self._side.cuda.is_done(self._event):
            self.note_synchronized()
        return not self._streams

    def note_synchronized(self) -> None:
        """All streams are done."""
        self._streams, self._has_event = set(), False

    def __del__(self) -> None:
        with suppress(DeviceError, AttributeError, TypeError):  # the driver may have ended, or have failed
            with self._side.context:
                if self._streams:
                    self._side.cuda.call("cuCtxSynchronize")
                self._side.cuda.call("cuEventDestroy_v2", self._event)
                self._side.cuda.release_memory(self._handle, self.address)


class _Lease:
    """As long as somebody has it the memory is not used for anything else."""

    def __init__(self, side: CudaSide, memory: _Memory):
        self._side, self.memory = side, memory
        self.streams: set[int] = set()

    def __del__(self) -> None:
        with suppress(DeviceError, AttributeError, TypeError):  # at the end of the process
            self.memory.come_back(self.streams)
            self._side.returned.append(self.memory)


class CudaSide:
    """What CUDA has of a Vulkan device."""

    def __init__(self, device: Any, cuda: Cuda, ordinal: int):
        self.cuda, self.ordinal, self.context = cuda, ordinal, cuda.context(ordinal)
        self.capsule = device.runtime.float64_capsule
        with self.context:
            self._semaphore = cuda.import_semaphore(device.native.export_semaphore())
        self.returned: deque[_Memory] = deque()
        """Not sorted into `_idle` yet: leases end in any thread, at any time."""
        self._idle: list[_Memory] = []
        self._lock = threading.Lock()

    def __del__(self) -> None:
        with suppress(DeviceError, AttributeError, TypeError), self.context:
            self.cuda.call("cuCtxSynchronize")
            self.cuda.call("cuDestroyExternalSemaphore", self._semaphore)

    def wait_on_stream(self, value: int, stream: int) -> None:
        """A stream waits until the device has reached a value."""
        with self.context:
            self.cuda.wait_on_stream(self._semaphore, value, stream)

    def take(self, device: Any, nbytes: int) -> _Memory:
        """Memory of at least so many bytes that nobody uses. `DeviceMemoryError` where there is none."""
        with self._lock:
            idle = self._idle
            while self.returned:
                idle.append(self.returned.popleft())
            free = self._free(nbytes) if idle else None
            if free is not None:
                idle.remove(free)
                return free
            del idle[: max(0, len(idle) - _MOST_IDLE)]
        return _Memory(self, device.allocate(nbytes, "exported"))

    def _free(self, nbytes: int) -> _Memory | None:
        """Idle memory that serves, after a wait where there is much of it."""
        busy: list[_Memory] = []
        with self.context:
            for memory in self._idle:
                if nbytes <= memory.size <= 2 * nbytes:
                    if memory.is_free():
                        return memory
                    busy.append(memory)
            if len(busy) < _MOST_BUSY:
                return None
            self.cuda.call("cuCtxSynchronize")
        for memory in self._idle:
            memory.note_synchronized()
        return busy[0]

    def lend(
        self, device: Any, memory: _Memory, shape: tuple[int, ...], program: Any | None = None
    ) -> CudaArray:
        """Memory of `take` as an array, once `program`, or what was written before, is done."""
        value = device.native.submit_exported(program)
        return CudaArray(self, _Lease(self, memory), shape, value)


_SIDES: weakref.WeakKeyDictionary[Any, CudaSide | None] = weakref.WeakKeyDictionary()
_FINDING = threading.Lock()


def cuda_side(device: Any) -> CudaSide | None:
    """What CUDA has of an open device; None where it does not see it, or there is no CUDA."""
    with _FINDING:
        if device not in _SIDES:
            _SIDES[device] = _found(device)
        return _SIDES[device]


def _found(device: Any) -> CudaSide | None:
    info = device.info
    if not (info.get("exports_memory") and info.get("exports_semaphore")):
        return None
    try:
        cuda = Cuda()
    except DeviceError:
        return None  # no driver
    ordinal = cuda.device_with(bytes.fromhex(info["uuid"]))
    return None if ordinal is None else CudaSide(device, cuda, ordinal)
