"""NCCL between ranks with a GPU of their own: bytes of all ranks, from device to device.

    Vulkan buffer -> file descriptor -> CUDA pointer         the same memory, no copy
    ncclAllGather                                            [ rank 0 | rank 1 | ... ] on every device

The driver has to export memory (VK_KHR_external_memory_fd), the GPU is found in CUDA by its UUID, and NCCL
comes with `pip install graphopt[nccl]` or with the system. Only bytes move here: what is a sum is added by
our own kernels in the order of the ranks, so that results do not depend on how NCCL goes about it.

References: Vulkan 1.3, "Memory Allocation, External Memory Handle Types"; CUDA driver API, "External Resource
Interoperability"; NCCL user guide, "Collective Communication Functions".
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from graphopt.distributed.communicator import Communicator, agreed, together
from graphopt.errors import DeviceError

MISSING = (
    "NCCL (libnccl.so.2) was not found: pip install 'graphopt[nccl]', or the system's, "
    "or use transport='host'."
)
_OPAQUE_FD, _DEDICATED, _NON_BLOCKING = 1, 1, 1  # of cuda.h: handle and flag of memory, flag of a stream


class _MemoryHandle(ctypes.Structure):
    """CUDA_EXTERNAL_MEMORY_HANDLE_DESC with a file descriptor."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("fd", ctypes.c_longlong),  # a union of 16 bytes, at 8
        ("unused", ctypes.c_longlong),
        ("size", ctypes.c_ulonglong),
        ("flags", ctypes.c_uint),
        ("reserved", ctypes.c_uint * 16),
    )


class _MemoryRange(ctypes.Structure):
    """CUDA_EXTERNAL_MEMORY_BUFFER_DESC."""

    _fields_ = (
        ("offset", ctypes.c_ulonglong),
        ("size", ctypes.c_ulonglong),
        ("flags", ctypes.c_uint),
        ("reserved", ctypes.c_uint * 16),
    )


class _UniqueId(ctypes.Structure):
    """ncclUniqueId."""

    _fields_ = (("internal", ctypes.c_byte * 128),)


def open_library(name: str) -> ctypes.CDLL:
    """A shared library by name; NCCL's of the Python package first. `OSError` where there is none."""
    if name.startswith("libnccl"):
        spec = importlib.util.find_spec("nvidia.nccl") if importlib.util.find_spec("nvidia") else None
        for folder in () if spec is None else spec.submodule_search_locations or ():
            if (Path(folder) / "lib" / name).exists():
                return ctypes.CDLL(str(Path(folder) / "lib" / name))
    return ctypes.CDLL(name)


class Libraries:
    """CUDA's driver and NCCL."""

    def __init__(self) -> None:
        # else ranks that are threads read each other's buffers, which are imported for their own GPU only
        os.environ.setdefault("NCCL_P2P_DIRECT_DISABLE", "1")
        try:
            self.cuda = open_library("libcuda.so.1")
        except OSError as error:
            raise DeviceError(
                f"CUDA's driver (libcuda.so.1) was not found; NCCL needs an NVIDIA GPU. ({error})"
            ) from error
        try:
            self.nccl = open_library("libnccl.so.2")
        except OSError as error:
            raise DeviceError(f"{MISSING} ({error})") from error
        self.nccl.ncclGetErrorString.restype = ctypes.c_char_p
        self.check(self.cuda.cuInit(0), "starting CUDA")

    def check(self, code: int, what: str) -> None:
        """`DeviceError` for an error of CUDA's driver."""
        if code:
            name = ctypes.c_char_p()
            self.cuda.cuGetErrorName(code, ctypes.byref(name))
            known = (name.value or b"an unknown error").decode()
            raise DeviceError(f"NCCL cannot be used: {what} failed with {known} ({code}).")

    def check_nccl(self, code: int, what: str) -> None:
        """`DeviceError` for an error of NCCL."""
        if code:
            said = (self.nccl.ncclGetErrorString(code) or b"").decode()
            raise DeviceError(
                f"NCCL: {what} failed: {said} ({code}). NCCL_DEBUG=WARN in the environment says more; "
                "transport='host' does without."
            )

    def device_of(self, uuid: str) -> int:
        """CUDA's handle of the GPU that Vulkan calls by this UUID (32 hexadecimal digits)."""
        count, found = ctypes.c_int(), []
        self.check(self.cuda.cuDeviceGetCount(ctypes.byref(count)), "counting CUDA's devices")
        for index in range(count.value):
            device, own = ctypes.c_int(), ctypes.create_string_buffer(16)
            self.check(self.cuda.cuDeviceGet(ctypes.byref(device), index), "asking for a CUDA device")
            self.check(self.cuda.cuDeviceGetUuid_v2(own, device), "asking for a device's UUID")
            if own.raw.hex() == uuid:
                return device.value
            found.append(own.raw.hex())
        raise DeviceError(
            f"CUDA does not have the Vulkan device with UUID {uuid}; it has {', '.join(found) or 'none'}. "
            "CUDA_VISIBLE_DEVICES may hide it."
        )


@lru_cache
def libraries() -> Libraries:
    """Both, opened once per process; `DeviceError` where one is missing."""
    return Libraries()


class NcclRank:
    """This rank in NCCL's communicator of all ranks, on the GPU of a Vulkan device."""

    def __init__(self, device: Any, comm: Communicator, unique_id: bytes):
        """Collective; unique_id: of rank 0's `new_unique_id`."""
        self.libraries = own = libraries()
        self.device, self.size = device, comm.size
        self.uuid: str = device.info["uuid"]
        number = own.device_of(self.uuid)
        context, self._stream, self._communicator = (ctypes.c_void_p() for _ in range(3))
        own.check(own.cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), number), "opening CUDA's device")
        weakref.finalize(self, own.cuda.cuDevicePrimaryCtxRelease_v2, number)
        self._context = context
        self.is_closed = False
        with self.current():
            create = own.cuda.cuStreamCreate(ctypes.byref(self._stream), _NON_BLOCKING)
            own.check(create, "making a CUDA stream")
            name = _UniqueId.from_buffer_copy(unique_id)
            begun = own.nccl.ncclCommInitRank(ctypes.byref(self._communicator), comm.size, name, comm.rank)
            own.check_nccl(begun, "meeting the other ranks")
        self._finalizer = weakref.finalize(self, _close, own, context, self._stream, self._communicator)

    @contextmanager
    def current(self) -> Iterator[None]:
        """CUDA calls of this thread are for this GPU; what was before comes back."""
        own = self.libraries
        own.check(own.cuda.cuCtxPushCurrent_v2(self._context), "choosing CUDA's device")
        try:
            yield
        finally:
            own.cuda.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))

    def gather(self, mine: SharedMemory, gathered: SharedMemory, nbytes: int) -> Any:
        """The native `Gather`: the first bytes of `mine` of all ranks come into `gathered`, by rank."""
        own = self.libraries
        functions = (
            own.cuda.cuCtxPushCurrent_v2,
            own.cuda.cuCtxPopCurrent_v2,
            own.cuda.cuStreamQuery,
            own.nccl.ncclAllGather,
        )
        calls = [ctypes.cast(function, ctypes.c_void_p).value for function in functions]
        place = [self._context.value, self._stream.value, self._communicator.value]
        return self.device.runtime.Gather(calls, place, mine.pointer, gathered.pointer, nbytes)

    def close(self) -> None:
        """Leave, also with something under way that will never end: another rank is gone."""
        self.is_closed = True
        self._finalizer()


def _close(
    own: Libraries, context: ctypes.c_void_p, stream: ctypes.c_void_p, communicator: ctypes.c_void_p
) -> None:
    own.cuda.cuCtxPushCurrent_v2(context)
    own.nccl.ncclCommAbort(communicator)  # waits for nobody, unlike ncclCommDestroy
    own.cuda.cuStreamDestroy_v2(stream)
    own.cuda.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))


class SharedMemory:
    """A device buffer that Vulkan and CUDA both have."""

    def __init__(self, ranks: NcclRank, nbytes: int):
        self.buffer = ranks.device.allocate(max(nbytes, 16), "exported")
        own, memory, pointer = ranks.libraries, ctypes.c_void_p(), ctypes.c_uint64()
        descriptor, size = self.buffer.export_memory()
        handle = _MemoryHandle(_OPAQUE_FD, descriptor, 0, size, _DEDICATED)
        with ranks.current():
            code = own.cuda.cuImportExternalMemory(ctypes.byref(memory), ctypes.byref(handle))
            if code:
                os.close(descriptor)  # CUDA's only once it took it
            own.check(code, f"importing {size} bytes of {ranks.device.name} into CUDA")
            which = _MemoryRange(0, self.buffer.size)
            mapped = own.cuda.cuExternalMemoryGetMappedBuffer
            code = mapped(ctypes.byref(pointer), memory, ctypes.byref(which))
            if code:
                own.cuda.cuDestroyExternalMemory(memory)
            own.check(code, "mapping imported memory")
        self.pointer: int = pointer.value
        weakref.finalize(self, _release, ranks, memory, pointer)


def _release(ranks: NcclRank, memory: ctypes.c_void_p, pointer: ctypes.c_uint64) -> None:
    cuda = ranks.libraries.cuda
    with ranks.current():
        cuda.cuMemFree_v2(pointer)
        cuda.cuDestroyExternalMemory(memory)


def new_unique_id() -> bytes:
    """A name for ranks to meet under; rank 0's."""
    name = _UniqueId()
    libraries().check_nccl(libraries().nccl.ncclGetUniqueId(ctypes.byref(name)), "naming the ranks' meeting")
    return bytes(name)


_ranks: weakref.WeakKeyDictionary[Any, NcclRank] = weakref.WeakKeyDictionary()
"""By communicator: meeting takes NCCL a good part of a second."""


def nccl_rank(comm: Communicator, device: Any) -> NcclRank:
    """This rank's way to the others by NCCL. Collective.

    device: the rank's `VulkanDevice`, None where it computes on the CPU. `DeviceError` on all ranks where it
    cannot be had, with the first rank's reason.
    """
    place = "" if device is None else f"{comm.host_of()} {device.info['uuid']}"
    told = comm.share((_obstacle(device), place))
    reasons = [f"rank {rank}: {reason}" for rank, (reason, _) in enumerate(told) if reason is not None]
    reasons += _sharing([place for _, place in told])
    if reasons:
        raise agreed(DeviceError(f"transport='nccl' cannot be used: {reasons[0]}"))
    known = _ranks.get(comm)
    is_known = known is not None and known.device is device and not known.is_closed
    if not all(comm.share(is_known)):
        unique_id = comm.share(together(comm, lambda: new_unique_id() if comm.rank == 0 else b""))[0]
        known = _ranks[comm] = together(comm, lambda: NcclRank(device, comm, unique_id))
    assert known is not None
    return known


def _obstacle(device: Any) -> str | None:
    """Why a rank cannot take part."""
    if device is None:
        return "it computes on the CPU, or has no edges. NCCL needs a GPU for every rank."
    if not device.info.get("exports_memory"):
        return (
            f"the driver of {device.name} does not export memory to CUDA (VK_KHR_external_memory_fd). "
            "Use transport='host'."
        )
    try:
        libraries().device_of(device.info["uuid"])
    except DeviceError as error:
        return str(error)
    return None


def _sharing(places: list[str]) -> list[str]:
    """Ranks that have one GPU together, which NCCL refuses."""
    for rank, place in enumerate(places):
        if place in places[:rank]:
            return [f"ranks {places.index(place)} and {rank} share one GPU. Give each its own."]
    return []
