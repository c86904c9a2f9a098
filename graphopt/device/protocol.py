"""What a device offers to the solvers: memory, kernels, recorded programs.

buffer  = device.allocate(nbytes, "device")
kernel  = device.shader("row_product", "double", num_buffers=7, num_params=2, constants={0: 128})
program = device.record().dispatch(kernel, buffers, params, groups).barrier().finish()
device.write(buffer, array)             # travels with the next submission, without a wait of its own
ticket  = device.submit(program)        # asynchronous; several may be in flight, they run in order
ticket.wait()
device.read([(buffer, 0, array), ...])  # many arrays, one trip
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np

Usage = Literal["device", "upload", "readback", "shared", "exported"]
Precision = Literal["double", "mixed"]


class Buffer(Protocol):
    """A range of device memory."""

    @property
    def size(self) -> int:
        """Length in bytes."""
        ...

    @property
    def is_mapped(self) -> bool:
        """Whether `array` works: the host sees this memory."""
        ...

    def array(self, dtype: Any, offset: int, count: int) -> np.ndarray:
        """View of `count` elements from byte `offset` on; writes go to the device's memory."""
        ...


class Ticket(Protocol):
    """A submission."""

    @property
    def done(self) -> bool:
        """Whether the device has finished it."""
        ...

    def wait(self, timeout: float = ...) -> None:
        """Block until finished; `DeviceLostError` after `timeout` seconds or when the device is lost."""
        ...


class Recorder(Protocol):
    """Collects the commands of a program. Commands between two barriers may run at the same time."""

    def dispatch(self, kernel: Any, buffers: Sequence[Any], params: Sequence[int], groups: int) -> Recorder:
        """Run `groups` workgroups of a kernel."""
        ...

    def barrier(self) -> Recorder:
        """Finish everything before, and make it visible to everything after."""
        ...

    def copy(self, source: Any, destination: Any, nbytes: int) -> Recorder:
        """Copy the first `nbytes` bytes."""
        ...

    def fill(self, buffer: Any, value: int = 0) -> Recorder:
        """Set every 32-bit word of a buffer."""
        ...

    def timestamp(self) -> Recorder:
        """Note the time; `program.timestamps()` returns them in nanoseconds after a run."""
        ...

    def finish(self) -> Any:
        """The program: recorded once, submitted often."""
        ...


class Device(Protocol):
    """One opened device, and what it can do."""

    spec: str
    """What `open_device` opens it with: "vulkan:0"."""
    submits_whole_programs: bool
    """A program is one submission, however many steps it has. Else each step is waited for, so that `auto`
    keeps to the host what would take many steps."""

    @property
    def info(self) -> dict[str, Any]:
        """Features and limits by name.

        kind ("discrete", "integrated", "cpu", ...), driver_info, heaps (size, device_local), conditional
        (`Recorder.begin_unless`), repeats (`Recorder.begin_repeat`), max_storage_range [byte],
        max_storage_buffers, max_workgroup_invocations,
        max_shared_memory [byte].
        """
        ...

    @property
    def memory_scheme(self) -> str:
        """How host and device share arrays.

        "single": mapped buffers; "staged": a host buffer and a device buffer with copies between them;
        "rebar": as staged, but the host writes straight into device memory.
        """
        ...

    @property
    def name(self) -> str:
        """The driver's name for it."""
        ...

    @property
    def has_float64(self) -> bool:
        """Whether kernels may compute in float64."""
        ...

    @property
    def access(self) -> str:
        """How kernels reach buffers: "address" or "storage"."""
        ...

    @property
    def is_lost(self) -> bool:
        """It takes no more work; every call raises the first `DeviceLostError` again."""
        ...

    # ---------------------------------------------------------------- memory

    def allocate(self, nbytes: int, usage: Usage = "device") -> Any:
        """Memory from the pool; `DeviceMemoryError` where there is none."""
        ...

    def upload(self, array: np.ndarray) -> Any:
        """A new buffer that only kernels touch, with the contents of an array; see `write`."""
        ...

    def download(self, buffer: Any, dtype: Any, count: int) -> np.ndarray:
        """A copy of the first `count` elements of a buffer, after everything submitted before."""
        ...

    def write(self, buffer: Any, array: np.ndarray, offset: int = 0) -> None:
        """Write an array before every program that is submitted from now on; it may change at once."""
        ...

    def write_pieces(
        self, buffer: Any, piece_bytes: int, num_pieces: int, write: Callable[[int, np.ndarray], None]
    ) -> None:
        """As `write`; write(first piece, bytes) puts pieces of equal size where the device takes them."""
        ...

    def write_rows(self, buffer: Any, rows: np.ndarray, records: np.ndarray) -> None:
        """As `write`, record k at place rows[k]."""
        ...

    def flush(self) -> None:
        """Start what was written, without waiting for the next submission."""
        ...

    def read(self, wanted: Sequence[tuple[Any, int, np.ndarray]]) -> None:
        """Copy (buffer, first byte, array to fill) after everything submitted before, in one round trip."""
        ...

    def memory_statistics(self) -> dict[str, int]:
        """Bytes that buffers use now (`used`), and what else the device knows."""
        ...

    # ---------------------------------------------------------------- kernels

    def shader(
        self, name: str, precision: Precision, num_buffers: int, num_params: int, constants: Mapping[int, int]
    ) -> Any:
        """Kernel of a shader in `shaders/`, specialised; equal arguments return the same kernel."""
        ...

    def generated(self, kernel: Any, constants: Mapping[int, int] | None = None) -> Any:
        """Kernel of a `codegen.gpu.GpuKernel`; `constants` replace its own specialization constants."""
        ...

    def start_shader(
        self, name: str, precision: Precision, num_buffers: int, num_params: int, constants: Mapping[int, int]
    ) -> Any:
        """As `shader`, or a `Future` of the kernel where it is being built."""
        ...

    def start_generated(self, kernel: Any, constants: Mapping[int, int] | None = None) -> Any:
        """As `generated`, or a `Future` of the kernel where it is being built."""
        ...

    # ---------------------------------------------------------------- programs

    def record(self, label: str = "") -> Any:
        """A new `Recorder`; errors call its program by the label."""
        ...

    def submit(self, program: Any) -> Any:
        """Start a program after those submitted before it; returns its `Ticket`."""
        ...


@dataclass(frozen=True)
class Driver:
    """A row of the table of what opens devices (`graphopt.device.DRIVERS`)."""

    open: Callable[[str | None], Device]
    """(index or part of the name, None: the best one) -> the device."""
