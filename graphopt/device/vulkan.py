"""Vulkan devices: any GPU with a Vulkan 1.2 driver, and software drivers for tests.

libvulkan is opened at run time. Kernels take 64-bit buffer addresses in push constants where the device has
them, else descriptor sets of storage buffers; arithmetic is float64 where the device has it, else float32
with two- float sums. Memory comes from large blocks, sub-allocated by two-level segregated fit.
"""

from __future__ import annotations

import os
import struct
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphopt.device import spirv
from graphopt.device.errors import DeviceError, DeviceLostError
from graphopt.device.protocol import Precision, Usage
from graphopt.disk_cache import cache_directory

_TIMEOUT = 60.0  # [s] a program is split long before it runs this long
_TIMEOUT_CPU = 600.0  # [s] software drivers compile kernels when they first run, on cores that others use too


def native_module() -> Any:
    """`graphopt._vulkan`, or an error that says how to get it."""
    try:
        from graphopt import _vulkan
    except ImportError as error:
        raise DeviceError(
            "graphopt was built without Vulkan. Install its headers (Debian: apt-get install libvulkan-dev) "
            "and reinstall graphopt, or use device='cpu'."
        ) from error
    return _vulkan


@dataclass(frozen=True)
class DeviceInfo:
    """What `graphopt devices` shows about one device."""

    index: int
    name: str
    driver: str
    kind: str
    """discrete, integrated, virtual, cpu or other."""
    memory_bytes: int
    """Size of the largest device-local heap."""
    subgroup_sizes: tuple[int, int]
    """Smallest and largest."""
    features: Mapping[str, Any]
    """Everything the runtime knows: features, limits, heaps."""

    def notes(self) -> list[str]:
        """Which features are missing and what is slower or off because of it."""
        missing = []
        if not self.features["float64"]:
            missing.append("no shaderFloat64: precision is mixed (float32 with two-float sums)")
        if not self.features["buffer_address"]:
            limit = self.features["max_storage_range"] / 2**20
            missing.append(f"no bufferDeviceAddress: storage buffers of at most {limit:.0f} MiB each")
        if not self.features["subgroup_size_control"]:
            missing.append("no subgroupSizeControl: the driver chooses the subgroup size")
        if self.kind == "cpu":
            missing.append("a software driver: for tests, slower than device='cpu'")
        return missing

    def describe(self) -> dict[str, Any]:
        """The same as plain data: `device` is what `--device` takes, `detail` one line about it."""
        smallest, largest = self.subgroup_sizes
        subgroups = f"subgroups of {smallest}" + (f" to {largest}" if largest != smallest else "")
        parts = [self.kind, f"{self.memory_bytes / 2**30:.1f} GiB", subgroups, self.driver, *self.notes()]
        return {
            "device": f"vulkan:{self.index}",
            "name": self.name,
            "detail": "; ".join(parts),
            "driver": self.driver,
            "kind": self.kind,
            "memory_bytes": self.memory_bytes,
            "subgroup_sizes": list(self.subgroup_sizes),
            "notes": self.notes(),
            "features": dict(self.features),
        }


def validation_asked() -> bool:
    """Whether GRAPHOPT_VALIDATION=1 asks for the validation layer."""
    return os.environ.get("GRAPHOPT_VALIDATION", "") not in ("", "0")


def list_devices() -> list[DeviceInfo]:
    """Every device with Vulkan 1.2, in the driver's order. Empty where there is a loader but no driver."""
    infos = []
    for index, info in enumerate(native_module().list_devices(validation_asked())):
        local = [heap["size"] for heap in info["heaps"] if heap["device_local"]]
        infos.append(
            DeviceInfo(
                index=index,
                name=info["name"],
                driver=f"{info['driver']} {info['driver_info']}".strip(),
                kind=info["kind"],
                memory_bytes=max(local, default=0),
                subgroup_sizes=(info["min_subgroup_size"], info["max_subgroup_size"]),
                features=info,
            )
        )
    return infos


def find_device(which: int | str | None) -> int:
    """Index of a device given by index, part of its name, or None: the first GPU, else the first."""
    devices = list_devices()
    if not devices:
        raise DeviceError("No Vulkan 1.2 device was found. Install the GPU's driver, or use device='cpu'.")
    if which is None:
        order = {"discrete": 0, "integrated": 1, "virtual": 2, "other": 3, "cpu": 4}
        return min(devices, key=lambda d: (order[d.kind], d.index)).index
    if isinstance(which, int) or which.isdigit():
        if not 0 <= int(which) < len(devices):
            raise DeviceError(
                f"Vulkan device {which} does not exist: there are {len(devices)}. {_table(devices)}"
            )
        return int(which)
    hits = [d for d in devices if which.lower() in d.name.lower()]
    if len(hits) != 1:
        raise DeviceError(f"'{which}' names {len(hits)} Vulkan devices, expected 1. {_table(devices)}")
    return hits[0].index


def _table(devices: Iterable[DeviceInfo]) -> str:
    return "Present: " + "; ".join(f"{d.index}: {d.name}" for d in devices) + "."


class VulkanRecorder:
    """Collects the commands of a program; see `protocol.Recorder`. Every method returns the recorder."""

    def __init__(self, device: VulkanDevice):
        self._native = device.runtime.Recorder(device.native)
        self._device = device
        self._kept: list[Any] = []
        self._tables: dict[tuple[int, ...], Any] = {}

    def dispatch(
        self, kernel: Any, buffers: Sequence[Any], params: Sequence[int], groups: int
    ) -> VulkanRecorder:
        """Run `groups` workgroups; params are unsigned 32-bit integers in the shader's order."""
        if isinstance(kernel, _TableKernel):
            kernel, buffers = kernel.native, [self._table_of(buffers)]
        self._native.dispatch(kernel, list(buffers), struct.pack(f"<{len(params)}I", *params), groups)
        return self

    def _table_of(self, buffers: Sequence[Any]) -> Any:
        """A buffer with the addresses of others."""
        addresses = tuple(buffer.address for buffer in buffers)
        if addresses not in self._tables:
            self._kept += buffers
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
        program = self._native.finish()
        if self._kept:
            weakref.finalize(program, self._kept.clear)  # the program itself knows their addresses only
        return program


@dataclass(frozen=True)
class _TableKernel:
    """A kernel that finds the addresses of its buffers in another buffer."""

    native: Any


class VulkanTicket:
    """A submission; keeps its program alive until it is done."""

    def __init__(self, device: VulkanDevice, program: Any):
        self._device = device
        self._program = program
        with device.noting_loss():
            self._native = device.runtime.Ticket(program)

    @property
    def done(self) -> bool:
        """Whether the device has finished it."""
        return self._native.done

    def wait(self, timeout: float | None = None) -> None:
        """Block, without the GIL, until it is finished; `DeviceLostError` after `timeout` seconds.

        None: 60, or 600 for a software driver.
        """
        with self._device.noting_loss():
            self._native.wait(self._device.timeout if timeout is None else timeout)


class VulkanDevice:
    """One opened Vulkan device; see `protocol.Device`. Several may be open at once."""

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
        "subgroup_size_control". For tests;
            added to those in GRAPHOPT_MASK_FEATURES (separated by commas).
        memory_scheme: "single", "staged" or "rebar"; empty: single where host and device share memory, else
        staged.
        """
        self.runtime = native_module()
        masked = {name for name in os.environ.get("GRAPHOPT_MASK_FEATURES", "").split(",") if name}
        cache = cache_directory()
        self.index = find_device(which)
        self.spec = f"vulkan:{self.index}"
        self.native = self.runtime.Device(
            self.index,
            validation_asked() if validation is None else validation,
            masked | set(masked_features),
            memory_scheme,
            "" if cache is None else str(cache),
        )
        self.info: dict[str, Any] = self.native.describe()
        self.timeout = _TIMEOUT_CPU if self.info["kind"] == "cpu" else _TIMEOUT
        self.is_lost = False
        """A program did not finish, or the driver gave the device up."""
        self._kernels: dict[Any, Any] = {}

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
    def messages(self) -> list[str]:
        """Warnings and errors of the validation layer, of all devices opened with it."""
        return self.native.messages()

    def allocate(self, nbytes: int, usage: Usage = "device") -> Any:
        """A buffer from the memory pool, released when nothing refers to it any more."""
        return self.native.allocate(nbytes, usage)

    def upload(self, array: np.ndarray) -> Any:
        """A new buffer that only kernels touch, with the contents of an array."""
        array = np.ascontiguousarray(array)
        if array.nbytes == 0:
            return self.allocate(4)
        if self.memory_scheme == "single":
            buffer = self.allocate(array.nbytes, "shared")
            buffer.array(array.dtype, 0, array.size)[:] = array.ravel()
            return buffer
        staging = self.allocate(array.nbytes, "upload")
        staging.array(array.dtype, 0, array.size)[:] = array.ravel()
        buffer = self.allocate(array.nbytes)
        self.submit(self.record().copy(staging, buffer, array.nbytes).finish()).wait()
        return buffer

    def download(self, buffer: Any, dtype: Any, count: int) -> np.ndarray:
        """A copy of the first `count` elements of a buffer."""
        nbytes = int(count) * np.dtype(dtype).itemsize
        staging = self.allocate(nbytes, "readback")
        self.submit(self.record().copy(buffer, staging, nbytes).finish()).wait()
        return staging.array(np.dtype(dtype), 0, int(count)).copy()

    def kernel(
        self,
        code: bytes,
        *,
        name: str,
        num_buffers: int,
        num_params: int,
        constants: Mapping[int, int] | None = None,
        subgroup_size: int = 0,
    ) -> Any:
        """Kernel from SPIR-V of this device's access variant.

        constants: specialization constants, id -> unsigned value. subgroup_size: required size, 0: the
        driver's.
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
            subgroup_size,
        )

    def shader(
        self, name: str, precision: Precision, num_buffers: int, num_params: int, constants: Mapping[int, int]
    ) -> Any:
        """Kernel of `shaders/<name>.comp`, specialised; equal arguments return the same kernel."""
        if precision == "double" and not self.has_float64:
            raise DeviceError(f"{self.name} has no float64; use precision='mixed'.")
        key = (name, precision, tuple(sorted(constants.items())))
        if key not in self._kernels:
            code = spirv.load(name, self.access, precision)
            self._kernels[key] = self.kernel(
                code, name=name, num_buffers=num_buffers, num_params=num_params, constants=constants
            )
        return self._kernels[key]

    def generated(self, kernel: Any, constants: Mapping[int, int] | None = None) -> Any:
        """Kernel of a `codegen.gpu.GpuKernel`; equal arguments return the same kernel.

        constants: specialization constants instead of the kernel's own, id -> unsigned value.
        """
        if kernel.arithmetic != "two_float" and not self.has_float64:
            raise DeviceError(
                f"{self.name} has no float64; make kernel '{kernel.name}' with arithmetic='two_float'."
            )
        values = {**kernel.constants, **(constants or {})}
        key = (kernel.source, tuple(sorted(values.items())))
        if key not in self._kernels:
            code = spirv.compile_generated(kernel.name, kernel.source, self.access, kernel.precision)
            by_table = kernel.has_table and self.access == "address"
            native = self.kernel(
                code,
                name=kernel.name,
                num_buffers=1 if by_table else len(kernel.buffers),
                num_params=len(kernel.params),
                constants=values,
            )
            self._kernels[key] = _TableKernel(native) if by_table else native
        return self._kernels[key]

    def record(self) -> VulkanRecorder:
        """A new recorder."""
        return VulkanRecorder(self)

    def submit(self, program: Any) -> VulkanTicket:
        """Start a program after those submitted before it; returns at once."""
        return VulkanTicket(self, program)

    @contextmanager
    def noting_loss(self) -> Iterator[None]:
        """Whoever opens this device after a `DeviceLostError` inside gets a new one."""
        try:
            yield
        except DeviceLostError:
            self.is_lost = True
            raise

    def memory_statistics(self) -> dict[str, int]:
        """Bytes `reserved` from the driver, `used`, `peak_used`; numbers of `blocks` and `allocations`."""
        return self.native.memory_statistics()

    def save_pipeline_cache(self) -> None:
        """Write the pipeline cache to disk now instead of when the device is closed."""
        self.native.save_pipeline_cache()
