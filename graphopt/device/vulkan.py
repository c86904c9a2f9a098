"""Vulkan devices: any GPU with a Vulkan 1.2 driver, and software drivers for tests.

libvulkan is opened at run time. Kernels take 64-bit buffer addresses in push constants where the device has
them, else descriptor sets of storage buffers; arithmetic is float64 where the device has it, else float32
with two-float sums. Memory comes from large blocks, sub-allocated by two-level segregated fit; arrays travel
through pinned memory that lives as long as the device.
"""

from __future__ import annotations

import os
import time
import warnings
import weakref
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from graphopt import disk_cache
from graphopt.cpu_kernels import kernels
from graphopt.device.built import BuiltOnce
from graphopt.device.errors import DeviceError, DeviceLostError
from graphopt.device.listing import find_device, native_module, validation_asked
from graphopt.device.protocol import Precision, Usage
from graphopt.device.recording import TableKernel, VulkanRecorder, VulkanTicket
from graphopt.device.spirv import compile_generated
from graphopt.device.spirv import load as load_spirv
from graphopt.errors import Stopped

_TIMEOUT = 60.0  # [s] a program is split long before it runs this long
_WAIT = 0.02  # [s] between two questions whether to stop
_TIMEOUT_CPU = 600.0  # [s] software drivers compile kernels when they first run, on cores that others use too

MOST_KERNELS = 1000
MOST_ON_CPU = 250  # llvmpipe's machine code of a kernel takes 1.6 MB of the host's memory
"""Of a device that are kept for who asks next: a solver of many edge types has some hundred, and drivers take
up to a MiB for each. Programs keep those that they launch."""


class VulkanDevice:
    """One opened Vulkan device; see `protocol.Device`. Several may be open at once."""

    submits_whole_programs = True

    def __init__(
        self,
        which: int | str | None = None,
        *,
        validation: bool | None = None,
        masked_features: Iterable[str] = (),
        memory_scheme: str = "",
    ):
        """Open a device.

        which: index, part of the name, or None for the best one.
        validation: run under the Vulkan validation layer; `messages` collects what it says. None:
        GRAPHOPT_VALIDATION. masked_features: treat these as missing: "float64", "buffer_address",
        "subgroup_size_control", "conditional", "exports_memory", "exports_semaphore", "imports_host".
        For tests; added to those in GRAPHOPT_MASK_FEATURES (separated by commas).
        memory_scheme: "single", "staged" or "rebar"; empty: single where host and device share memory, else
        staged.
        """
        self.runtime = native_module()
        masked = {name for name in os.environ.get("GRAPHOPT_MASK_FEATURES", "").split(",") if name}
        self.index = find_device(which)
        self.spec = f"vulkan:{self.index}"
        self.native = self.runtime.Device(
            self.index,
            validation_asked() if validation is None else validation,
            masked | set(masked_features),
            memory_scheme,
        )
        if (pipelines := disk_cache.load(self.native.pipeline_cache_name)) is not None:
            self.native.create_pipeline_cache(pipelines)
        weakref.finalize(self, _save_pipeline_cache, self.native)
        self.info: dict[str, Any] = self.native.describe()
        self.timeout = _TIMEOUT_CPU if self.info["kind"] == "cpu" else _TIMEOUT
        most = min(MOST_KERNELS, MOST_ON_CPU) if self.info["kind"] == "cpu" else MOST_KERNELS
        self.num_abandoned = 0
        """Waits that were ended early: who had submitted what they waited for may find it running."""
        self._kernels: BuiltOnce[Any] = BuiltOnce(most)
        self._users: dict[Hashable, set[int]] = {}
        """By key of a generated kernel the `GpuKernel` objects that it was built for, by `id`."""

    @property
    def name(self) -> str:
        """The driver's name for it."""
        return self.info["name"]

    @property
    def has_float64(self) -> bool:
        """Whether kernels may compute in float64."""
        return self.info["float64"]

    @property
    def access(self) -> str:
        """How kernels reach buffers: "address" or "storage"."""
        return "address" if self.info["buffer_address"] else "storage"

    @property
    def memory_scheme(self) -> str:
        """How host and device share arrays: "single", "staged" or "rebar"."""
        return self.native.memory_scheme

    @property
    def is_lost(self) -> bool:
        """A program did not finish in time, or the driver gave the device up.

        Nothing on it can be trusted any more: every submission, upload and download raises the first
        `DeviceLostError` again. `open_device` opens it anew.
        """
        return self.native.is_lost

    @property
    def messages(self) -> list[str]:
        """Warnings and errors of the validation layer, of all devices opened with it."""
        return self.native.messages()

    def allocate(self, nbytes: int, usage: Usage = "device") -> Any:
        """A buffer from the memory pool, released when nothing refers to it any more."""
        return self.native.allocate(nbytes, usage)

    def import_host(self, array: np.ndarray) -> Any:
        """The memory of an array as a buffer, which programs of this device copy from and to.

        array: contiguous; begins and ends at multiples of `info["host_alignment"]` bytes (0: the driver
        cannot). It is kept as long as the buffer. `DeviceError` otherwise.
        """
        return self.native.import_host(array)

    def upload(self, array: np.ndarray) -> Any:
        """A new buffer that only kernels touch, with the contents of an array; see `write`."""
        array = np.ascontiguousarray(array)
        buffer = self.allocate(array.nbytes, "shared" if self.memory_scheme == "single" else "device")
        self.write(buffer, array)
        return buffer

    def write(self, buffer: Any, array: np.ndarray, offset: int = 0) -> None:
        """Write an array into a buffer from byte `offset` on, before every program submitted from now on.

        The array may change as soon as this returns. Where the host sees the buffer, it is written at once:
        no program that is still running may use it. Else the array is copied into pinned memory, which is
        kept for the next one, and travels with the next submission (or before, in pieces of 8 MiB), after
        everything submitted earlier: any number of arrays costs no wait and no submission of its own.
        """
        self.native.upload(buffer, np.ascontiguousarray(array), offset)

    def write_pieces(
        self, buffer: Any, piece_bytes: int, num_pieces: int, write: Callable[[int, np.ndarray], None]
    ) -> None:
        """Let write(first piece, bytes) put pieces of equal size where the device takes them from.

        It is called for as many pieces at a time as fit, with a (n * piece_bytes,) uint8 array, in order.
        Else as `write`.
        """
        if num_pieces == 0 or piece_bytes == 0:
            return
        if buffer.is_mapped:
            write(0, buffer.array(np.dtype(np.uint8), 0, num_pieces * piece_bytes))
            return
        step = self.runtime.MAX_STAGED // piece_bytes
        for first in range(0, num_pieces, max(step, 1)):
            nbytes = min(max(step, 1), num_pieces - first) * piece_bytes
            if step == 0:
                whole = np.empty(nbytes, np.uint8)
                write(first, whole)
                self.native.upload(buffer, whole, first * piece_bytes)
                continue
            staged = self.runtime.StagedBytes(self.native, nbytes)
            write(first, staged.array())
            staged.send(buffer, [(0, first * piece_bytes, nbytes)])

    def write_rows(self, buffer: Any, rows: np.ndarray, records: np.ndarray) -> None:
        """Write record k, of equal sizes, at place rows[k], counted in records. Else as `write`.

        rows: (n,) integers. records: (n, ...).
        """
        flat = np.ascontiguousarray(records).reshape(len(rows), -1).view(np.uint8)
        size = flat.shape[1]
        step = max(1, self.runtime.MAX_STAGED // max(size, 1))
        for first in range(0, len(rows), step):
            part, places = flat[first : first + step], rows[first : first + step]
            if buffer.is_mapped or size > self.runtime.MAX_STAGED:
                for record, row in zip(part, places.tolist(), strict=True):
                    self.native.upload(buffer, record, row * size)
                continue
            staged = self.runtime.StagedBytes(self.native, part.size)
            staged.array()[:] = part.reshape(-1)
            staged.send(buffer, [(k * size, row * size, size) for k, row in enumerate(places.tolist())])

    def flush(self) -> None:
        """Start what `write` has collected, without waiting for the next submission."""
        self.native.flush()

    def download(self, buffer: Any, dtype: Any, count: int) -> np.ndarray:
        """A copy of the first `count` elements of a buffer, after everything submitted before."""
        array = np.empty(int(count), dtype)
        self.read([(buffer, 0, array)])
        return array

    def read(self, wanted: Sequence[tuple[Any, int, np.ndarray]]) -> None:
        """Copy parts of buffers, (buffer, first byte, array to fill), after everything submitted before.

        All of them travel together: a few small ones cost one submission and one wait.
        """
        # of a lost device `download` says so
        arrives = self.native.is_lost or self.finishes(self.native.finishes_within, self.timeout)
        if not (arrives and self.native.download(list(wanted), self.timeout)):
            running = self.native.running()
            text = f"The device {self.name} did not answer within {self.timeout:.0f} s; it ran {running}."
            self.native.note_loss(text, running)
            raise DeviceLostError(text, device=self.name, running=running)

    def finishes(self, wait: Callable[[float], bool], timeout: float) -> bool:
        """Whether wait(seconds), which says whether something was done by then, says so within `timeout`.

        Between waits of `_WAIT` seconds Python handles its signals and the caller's watch is asked whether to
        stop. After `Stopped` and Ctrl-C what was submitted runs on; it keeps its buffers, and writes to them.
        """
        end = time.monotonic() + timeout
        try:
            while not wait(max(min(_WAIT, end - time.monotonic()), 0.0)):
                if time.monotonic() >= end:
                    return False
                kernels.check_stop()
        except (Stopped, KeyboardInterrupt):
            self.num_abandoned += 1
            raise
        return True

    def kernel(
        self,
        code: bytes,
        *,
        name: str,
        num_buffers: int,
        num_params: int,
        constants: Mapping[int, int] | None = None,
    ) -> Any:
        """Kernel from SPIR-V of this device's access variant.

        constants: specialization constants, id -> unsigned value.
        """
        by_address = self.access == "address"
        return self.runtime.Kernel(
            self.native,
            name,
            code,
            by_address,
            num_buffers,
            4 * num_params,
            dict(constants or {}),
        )

    def shader(
        self, name: str, precision: Precision, num_buffers: int, num_params: int, constants: Mapping[int, int]
    ) -> Any:
        """Kernel of `shaders/<name>.comp`, specialised; equal arguments return the same kernel."""
        return self._kernels.get(*self._shader(name, precision, num_buffers, num_params, constants))

    def start_shader(
        self, name: str, precision: Precision, num_buffers: int, num_params: int, constants: Mapping[int, int]
    ) -> Any:
        """As `shader`; where it is not built yet a `Future` of it, which another thread builds."""
        return self._kernels.start(*self._shader(name, precision, num_buffers, num_params, constants))

    def _shader(
        self, name: str, precision: Precision, num_buffers: int, num_params: int, constants: Mapping[int, int]
    ) -> tuple[Hashable, Callable[[], Any]]:
        """Key, and what builds it."""
        if precision == "double" and not self.has_float64:
            raise DeviceError(f"{self.name} has no float64; use precision='mixed'.")

        def make() -> Any:
            code = load_spirv(name, self.access, precision)
            return self.kernel(
                code, name=name, num_buffers=num_buffers, num_params=num_params, constants=constants
            )

        return (name, precision, tuple(sorted(constants.items()))), make

    def generated(self, kernel: Any, constants: Mapping[int, int] | None = None) -> Any:
        """Kernel of a `codegen.gpu.GpuKernel`; equal arguments return the same kernel.

        constants: specialization constants instead of the kernel's own, id -> unsigned value.
        """
        return self._kernels.get(*self._generated(kernel, constants))

    def start_generated(self, kernel: Any, constants: Mapping[int, int] | None = None) -> Any:
        """As `generated`; where it is not built yet a `Future` of it, which another thread builds."""
        return self._kernels.start(*self._generated(kernel, constants))

    def _generated(
        self, kernel: Any, constants: Mapping[int, int] | None
    ) -> tuple[Hashable, Callable[[], Any]]:
        """Key, and what builds it."""
        if kernel.arithmetic != "two_float" and not self.has_float64:
            raise DeviceError(
                f"{self.name} has no float64; make kernel '{kernel.name}' with arithmetic='two_float'."
            )
        values = {**kernel.constants, **(constants or {})}
        key = (kernel.source, tuple(sorted(values.items())))
        users = self._users.setdefault(key, set())
        if id(kernel) not in users:
            users.add(id(kernel))
            weakref.finalize(kernel, _forget, weakref.ref(self), key, id(kernel)).atexit = False

        def make() -> Any:
            code = compile_generated(kernel.name, kernel.source, self.access, kernel.precision)
            by_table = kernel.has_table and self.access == "address"
            native = self.kernel(
                code,
                name=kernel.name,
                num_buffers=1 if by_table else len(kernel.buffers),
                num_params=len(kernel.params),
                constants=values,
            )
            return TableKernel(native) if by_table else native

        return key, make

    def record(self, label: str = "") -> VulkanRecorder:
        """A new recorder; label: what errors call the program."""
        return VulkanRecorder(self, label)

    def submit(self, program: Any) -> VulkanTicket:
        """Start a program after those submitted before it; returns at once."""
        return VulkanTicket(self, program)

    def memory_statistics(self) -> dict[str, int]:
        """Bytes taken from the driver and used, in all memory of this device.

        reserved: all that the driver gave. used, peak_used: buffers that exist, and the most there were at a
        time. cached: of reserved, in blocks without any buffer, kept for the next (at most an eighth of
        the heap, 4 GiB on the device, 256 MiB pinned). staging: of reserved, the pinned memory of transfers.
        blocks, allocations: numbers of them.
        """
        return self.native.memory_statistics()

    def save_pipeline_cache(self) -> None:
        """Write the pipeline cache to disk now, not when the device is closed; warn where that fails."""
        _save_pipeline_cache(self.native)


def _forget(device: weakref.ref[VulkanDevice], key: Hashable, user: int) -> None:
    """A `GpuKernel` is gone, with its edge type: nobody asks for its pipeline again."""
    opened = device()
    users = None if opened is None else opened._users.get(key)
    if opened is None or users is None:
        return
    users.discard(user)
    if not users:
        opened._users.pop(key, None)
        opened._kernels.forget(key)


def _save_pipeline_cache(native: Any) -> None:
    try:
        pipelines = native.take_pipeline_cache()
        error = disk_cache.store(native.pipeline_cache_name, pipelines) if pipelines else None
    except DeviceError as refusal:
        error = refusal
    if error is not None:
        warnings.warn(
            f"The pipeline cache was not saved: {error}. The next process builds its kernels again.",
            RuntimeWarning,
            stacklevel=1,
        )
