"""Arrays in memory that Vulkan and CUDA both see, for torch, jax and cupy.

    side = cuda_side(device)                       None where CUDA does not see the device
    memory = side.take(device, nbytes)             exported by Vulkan, imported by CUDA
    array = side.lend(device, memory, shape, program)   what a program, or a `write`, puts there
    kept = side.keep(device, numbers)              numbers of CUDA's where programs read them
    empty(shape, device="vulkan")                  memory that CUDA writes and programs read

Both APIs name a device by the same UUID. The program's end raises a timeline semaphore that both share; the
consumer's stream waits for it (`__dlpack__(stream=...)`), the host does not. Memory comes back when the last
consumer lets go of it, and is written again once what was then on that stream is done. Importing takes
0.3 ms: memory that came back serves the next array of its size.
"""

from __future__ import annotations

import math
import os
import threading
import weakref
from collections import deque
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from graphopt import foreign_arrays
from graphopt.cuda_driver import LEGACY_STREAM, PER_THREAD_STREAM, Cuda
from graphopt.device import open_device
from graphopt.device.listing import list_devices
from graphopt.errors import DeviceError, OptionError
from graphopt.foreign_arrays import CudaNumbers, assign

_CUDA = 2  # kDLCUDA
_PERMANENT_STREAMS = frozenset((LEGACY_STREAM, PER_THREAD_STREAM))
_MOST_IDLE = 8
"""Pieces of memory that wait for the next array."""
_MOST_BUSY = 4
"""Pieces that could serve if their consumers' streams were done, from which on that is waited for."""


_AT_THE_END = (DeviceError, AttributeError, TypeError)
"""The driver may have ended, or have failed."""


class _Owner:
    """Gives back what it has when it goes, `_release`."""

    def __del__(self, suppress: Any = suppress, errors: Any = _AT_THE_END) -> None:
        with suppress(*errors):  # these names are gone at the end of the process
            self._release()

    def _release(self) -> None:
        raise NotImplementedError


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


class _Memory(_Owner):
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
        self.written = 0
        """What the semaphore reaches when the last program that writes here is done."""

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

    def has(self, numbers: CudaNumbers) -> bool:
        """These are within it."""
        return self.address <= numbers.address and numbers.address + numbers.span <= self.address + self.size

    def is_free(self) -> bool:
        """Nobody works on it any more. With the context current."""
        if self._has_event and self._side.cuda.is_done(self._event):
            self.note_synchronized()
        return not self._streams

    def note_synchronized(self) -> None:
        """All streams are done."""
        self._streams, self._has_event = set(), False

    def _release(self) -> None:
        with self._side.context:
            if self._streams:
                self._side.cuda.call("cuCtxSynchronize")
            self._side.cuda.call("cuEventDestroy_v2", self._event)
            self._side.cuda.release_memory(self._handle, self.address)


class _Lease(_Owner):
    """As long as somebody has it the memory is not used for anything else."""

    def __init__(self, side: CudaSide, memory: _Memory):
        self.side, self.memory = side, memory
        self.streams: set[int] = set()

    def _release(self) -> None:
        self.memory.come_back(self.streams)
        self.side.returned.append(self.memory)


class KeptNumbers:
    """Numbers of another library in memory that programs read (`buffer`), until this goes."""

    def __init__(self, device: Any, lease: _Lease, numbers: CudaNumbers):
        """numbers: where they are in the memory of the lease."""
        self.device, self._lease, self.numbers = device, lease, numbers
        self.buffer = lease.memory.buffer
        self.offset = (numbers.address - lease.memory.address) // numbers.dtype.itemsize
        """Of the first number in the buffer, in numbers."""
        self._lent: CudaArray | None = None
        self.facts: dict[Any, Any] = {}
        """See `graph.columns.Elsewhere`."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and what each has."""
        return self.numbers.shape

    def strides(self) -> tuple[int, ...]:
        """In numbers."""
        return tuple(stride // self.numbers.dtype.itemsize for stride in self.numbers.strides)

    def fill(self, column: np.ndarray) -> None:
        """Copy them into an array of the host."""
        assign(column, self.numbers, "an array")

    def lend(self) -> CudaArray | None:
        """A copy of them, the same one each time; None of numbers with gaps."""
        numbers, side = self.numbers, self._lease.side
        if self._lent is None and numbers.span == 8 * math.prod(numbers.shape):
            memory = side.take(self.device, max(numbers.span, 16))
            side.copy(memory, numbers)
            self._lent = side.lend(self.device, memory, numbers.shape)
        return self._lent


class CudaSide(_Owner):
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
        self._empty: weakref.WeakSet[_Lease] = weakref.WeakSet()
        """Memory that consumers were given to write."""

    def _release(self) -> None:
        with self.context:
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
        memory.written = device.native.submit_exported(program)
        return CudaArray(self, _Lease(self, memory), shape, memory.written)

    def empty(self, device: Any, shape: tuple[int, ...]) -> CudaArray:
        """Memory to be written by who has the array; `keep` takes it as it is."""
        array = self.lend(device, self.take(device, max(8 * math.prod(shape), 16)), shape)
        self._empty.add(array._lease)
        return array

    def keep(self, device: Any, numbers: CudaNumbers) -> KeptNumbers | None:
        """Numbers as programs submitted from now on read them; None: of another device, or no floats.

        A copy, but of what is in memory of `empty`. The host waits for CUDA's legacy default stream.
        """
        size = numbers.dtype.itemsize
        if (
            numbers.device != self.ordinal
            or numbers.dtype not in (np.float64, np.float32)
            or not numbers.span
        ):
            return None
        if any(stride % size for stride in numbers.strides) or numbers.address % size:
            return None
        lease = next((lease for lease in list(self._empty) if lease.memory.has(numbers)), None)
        if lease is not None:
            with self.context:
                self.cuda.synchronize(LEGACY_STREAM)
            return KeptNumbers(device, lease, replace(numbers, keeps=lease))
        lease = _Lease(self, self.take(device, numbers.span))
        self.copy(lease.memory, numbers)
        return KeptNumbers(device, lease, replace(numbers, address=lease.memory.address, keeps=lease))

    def filled(self, device: Any, memory: _Memory, shape: tuple[int, ...]) -> KeptNumbers:
        """Memory of `take` that a program, which has ended, has filled row by row."""
        lease = _Lease(self, memory)
        strides = foreign_arrays.compact(shape, np.dtype(np.float64))
        numbers = CudaNumbers(memory.address, shape, strides, np.dtype(np.float64), self.ordinal, lease)
        return KeptNumbers(device, lease, numbers)

    def copy(self, memory: _Memory, numbers: CudaNumbers) -> None:
        """Copy numbers, gaps included, to the begin of memory of `take`; done when this returns."""
        if memory.written:  # nobody may have waited for that
            self.wait_on_stream(memory.written, LEGACY_STREAM)
        with self.context:
            self.cuda.copy(memory.address, numbers.address, numbers.span)


def empty(shape: int | tuple[int, ...], dtype: Any = np.float64, device: str | None = None) -> Any:
    """An array to fill and hand to a graph, which keeps this memory instead of a copy of it.

    device: None or "cpu" for a numpy array in the host's memory. Where a set of the graph is new, its column
    is this memory (`add_vertices`, `add_edges`): what is written there later changes the graph. It is float64
    of the column's whole shape; quaternions that are not unit are normalised in a copy. `torch.from_dlpack`
    and the like are the same memory.

    As of `optimize` ("vulkan", "vulkan:1"), if CUDA sees the device: an array on it for torch, cupy and jax,
    float64. Assigned to an array of a graph that was optimized there (`edge_set.measurement = tensor`), the
    solver reads this memory. Assign it again after each writing, and write only when the next optimization
    has ended: what the graph has of it in between is what is there when it looks.

    Raises `DeviceError` where CUDA does not see the device, `OptionError` for other numbers there.
    """
    if device in (None, "cpu"):
        return foreign_arrays.empty(shape, dtype)
    if np.dtype(dtype) != np.float64:
        raise OptionError(f"dtype is {np.dtype(dtype)}, expected float64: a graph's arrays on a device are.")
    opened = open_device(device)
    side = cuda_side(opened)
    if side is None:
        raise DeviceError(
            f"CUDA does not see device {device} ({opened.info['name']}): no memory is shared with it. Leave "
            "device out, for memory of the host."
        )
    return side.empty(opened, tuple(np.atleast_1d(shape).tolist()))


def device_with(ordinal: int) -> Any | None:
    """The open device that is this one of CUDA's, opened if need be; None: Vulkan does not see it."""
    key = os.getpid(), ordinal
    spec = _SPECS.get(key)
    if spec is None:
        spec = _SPECS[key] = _spec_of(ordinal)
    device = open_device(spec) if spec else None
    side = None if device is None else cuda_side(device)
    return device if side is not None and side.ordinal == ordinal else None


_SPECS: dict[tuple[int, int], str] = {}
"""By process and ordinal: what `open_device` takes, "" where Vulkan does not see the device."""


def _spec_of(ordinal: int) -> str:
    try:
        best = cuda_side(open_device("vulkan"))  # the one that most solve on, and the cheapest to ask
        if best is not None and best.ordinal == ordinal:
            return "vulkan"
        uuid = Cuda().uuid_of(ordinal).hex()
        return next((f"vulkan:{one.index}" for one in list_devices() if one.features["uuid"] == uuid), "")
    except DeviceError:  # no Vulkan
        return ""


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
