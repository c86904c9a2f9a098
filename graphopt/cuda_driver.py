"""CUDA's driver (libcuda), loaded when it is first asked for: the calls that arrays of GPUs need.

Structures: cuda.h 11.2 and later. Memory and semaphores of Vulkan come as file descriptors.
"""

from __future__ import annotations

import ctypes
import functools
import os
import struct
from typing import Any

from graphopt.errors import DeviceError

LEGACY_STREAM = 1  # of dlpack: CUDA's legacy default stream, with which plain copies are in order
PER_THREAD_STREAM = 2
_NOT_READY = 600  # CUDA_ERROR_NOT_READY
_OPAQUE_FD, _TIMELINE_FD = 1, 9  # CU_EXTERNAL_{MEMORY,SEMAPHORE}_HANDLE_TYPE_...
_DEDICATED = 1  # CUDA_EXTERNAL_MEMORY_DEDICATED
_NO_TIMING = 2  # CU_EVENT_DISABLE_TIMING


class _Context:
    """A device's primary context, current within `with`."""

    def __init__(self, cuda: Cuda, device: int):
        self._cuda, self._handle = cuda, _primary_context(device)
        self._popped = ctypes.byref(ctypes.c_void_p())

    def __enter__(self) -> None:
        self._cuda.call("cuCtxPushCurrent_v2", self._handle)

    def __exit__(self, *error: object) -> None:
        self._cuda.call("cuCtxPopCurrent_v2", self._popped)


@functools.cache
def _library() -> Any:
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise DeviceError(
            f"An array is on a CUDA device, and its driver is not there: {error}. Copy the array to the host."
        ) from None
    if (code := library.cuInit(0)) != 0:
        raise DeviceError(f"An array is on a CUDA device, and the driver does not start: error {code}.")
    return library


@functools.cache
def _primary_context(device: int) -> ctypes.c_void_p:
    """Retained until the process ends: it is the one that torch, jax and cupy use as well."""
    handle, context = ctypes.c_int(), ctypes.c_void_p()
    cuda = Cuda()
    cuda.call("cuDeviceGet", ctypes.byref(handle), device)
    cuda.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), handle)
    return context


class Cuda:
    """The driver's functions that are called. `DeviceError` where there is no driver."""

    def __init__(self) -> None:
        self._driver = _library()

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function; `DeviceError` with its code and name where it fails."""
        code = getattr(self._driver, name)(*arguments)
        if code != 0:
            text = ctypes.c_char_p()
            self._driver.cuGetErrorName(code, ctypes.byref(text))
            known = (text.value or b"unknown").decode()
            raise DeviceError(f"An array of a CUDA device: {name} failed with {known} ({code}).")

    def context(self, device: int) -> _Context:
        """What makes a device's primary context current within `with`, as often as wanted."""
        return _Context(self, device)

    def device_of(self, address: int) -> int:
        """Ordinal of the device that an address belongs to."""
        ordinal = ctypes.c_int()
        attribute = 9  # CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
        self.call("cuPointerGetAttribute", ctypes.byref(ordinal), attribute, ctypes.c_uint64(address))
        return ordinal.value

    def device_with(self, uuid: bytes) -> int | None:
        """Ordinal of the device with this UUID, which Vulkan names too; None: CUDA does not see it."""
        count = ctypes.c_int()
        self.call("cuDeviceGetCount", ctypes.byref(count))
        return next((ordinal for ordinal in range(count.value) if self.uuid_of(ordinal) == uuid), None)

    def uuid_of(self, ordinal: int) -> bytes:
        """16 bytes that name a device to all APIs."""
        handle, found = ctypes.c_int(), ctypes.create_string_buffer(16)
        self.call("cuDeviceGet", ctypes.byref(handle), ordinal)
        self.call("cuDeviceGetUuid", found, handle)
        return found.raw

    # ---------------------------------------------------------------- with the device's context current

    def copy(self, target: int, source: int, nbytes: int) -> None:
        """Copy between addresses of the device, after the legacy default stream; done when this returns."""
        self.call(
            "cuMemcpyDtoDAsync_v2",
            ctypes.c_uint64(target),
            ctypes.c_uint64(source),
            ctypes.c_size_t(nbytes),
            ctypes.c_void_p(LEGACY_STREAM),
        )
        self.synchronize(LEGACY_STREAM)

    def copy_to_host(self, target: int, source: int, nbytes: int) -> None:
        """Copy from an address of the device to the host's memory; done when this returns."""
        self.call(
            "cuMemcpyDtoH_v2", ctypes.c_void_p(target), ctypes.c_uint64(source), ctypes.c_size_t(nbytes)
        )

    def synchronize(self, stream: int) -> None:
        """Wait for a stream."""
        self.call("cuStreamSynchronize", ctypes.c_void_p(stream))

    def import_memory(self, descriptor: int, nbytes: int, size: int) -> tuple[ctypes.c_void_p, int]:
        """Memory of `nbytes` that Vulkan has exported, and the address of its first `size` bytes.

        Takes the descriptor over. Given back by `release_memory`.
        """
        memory, address = ctypes.c_void_p(), ctypes.c_uint64()
        wanted = struct.pack("<i4xi12xQI64x4x", _OPAQUE_FD, descriptor, nbytes, _DEDICATED)
        self._import("cuImportExternalMemory", memory, wanted, descriptor)
        part = struct.pack("<QQI64x4x", 0, size, 0)
        try:
            self.call("cuExternalMemoryGetMappedBuffer", ctypes.byref(address), memory, part)
        except DeviceError:
            self.call("cuDestroyExternalMemory", memory)
            raise
        return memory, address.value

    def release_memory(self, memory: ctypes.c_void_p, address: int) -> None:
        """Give back what `import_memory` has returned."""
        self.call("cuMemFree_v2", ctypes.c_uint64(address))
        self.call("cuDestroyExternalMemory", memory)

    def import_semaphore(self, descriptor: int) -> ctypes.c_void_p:
        """A timeline semaphore that Vulkan has exported. Takes the descriptor over."""
        semaphore = ctypes.c_void_p()
        wanted = struct.pack("<i4xi12xI64x4x", _TIMELINE_FD, descriptor, 0)
        self._import("cuImportExternalSemaphore", semaphore, wanted, descriptor)
        return semaphore

    def _import(self, name: str, made: ctypes.c_void_p, wanted: bytes, descriptor: int) -> None:
        try:
            self.call(name, ctypes.byref(made), wanted)
        except DeviceError:
            os.close(descriptor)
            raise

    def wait_on_stream(self, semaphore: ctypes.c_void_p, value: int, stream: int) -> None:
        """What is put on a stream from now on waits until a semaphore reaches a value; the host does not."""
        parameters = struct.pack("<Q136x", value)
        self.call(
            "cuWaitExternalSemaphoresAsync", ctypes.byref(semaphore), parameters, 1, ctypes.c_void_p(stream)
        )

    def new_event(self) -> ctypes.c_void_p:
        """For `record` and `is_done`."""
        event = ctypes.c_void_p()
        self.call("cuEventCreate", ctypes.byref(event), _NO_TIMING)
        return event

    def record(self, event: ctypes.c_void_p, stream: int) -> None:
        """The event happens once all is done that is on a stream now."""
        self.call("cuEventRecord", event, ctypes.c_void_p(stream))

    def is_done(self, event: ctypes.c_void_p) -> bool:
        """Whether a recorded event has happened."""
        code = self._driver.cuEventQuery(event)
        if code == _NOT_READY:
            return False
        self.call("cuEventQuery", event)
        return True
