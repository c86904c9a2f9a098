"""Kompute as a device: the same protocol over the package `kp`, for people who already run it.

    pip install graphopt[kompute]                      graphopt.optimize(graph, device="kompute")

kp 0.9.0 binds no compute-to-compute barriers, no device features, no buffer addresses and no offsets. So
kernels are the storage-buffer variant, every step between two barriers is a submission of its own that is
waited for, and copies and fills happen on the host, in tensors that it sees. Slower than the device "vulkan";
same answers.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from graphopt.device.errors import DeviceError, DeviceMemoryError
from graphopt.device.listing import find_device, list_devices
from graphopt.device.protocol import Driver, Precision, Usage
from graphopt.device.spirv import compile_generated
from graphopt.device.spirv import load as load_spirv

_MAX_GROUPS = 65535  # in one dimension, on every device
_ROW_OF_GROUPS = 32768
_MAX_BYTES = 2**32 - 4  # kp counts with 32 bits


def _kp() -> Any:
    try:
        return importlib.import_module("kp")
    except ImportError as error:
        raise DeviceError(
            "device='kompute' needs the package kp. Install it with: pip install graphopt[kompute]; "
            "or use device='vulkan', which needs no package."
        ) from error


class KomputeBuffer:
    """A tensor of 32-bit words in memory that the host sees."""

    def __init__(self, manager: Any, kp: Any, nbytes: int):
        self.size = nbytes
        self.tensor = manager.tensor_t(np.zeros(max(1, -(-nbytes // 4)), np.uint32), kp.TensorTypes.host)
        self.is_mapped = True

    def array(self, dtype: Any, offset: int, count: int) -> np.ndarray:
        """View of `count` elements from byte `offset` on."""
        dtype = np.dtype(dtype)
        end = offset + count * dtype.itemsize
        if end > self.size:
            raise DeviceError(f"A view of {count} {dtype} from byte {offset} goes past the end.")
        return self.tensor.data().view(np.uint8)[offset:end].view(dtype)


class KomputeKernel:
    """A specialised shader; kp builds the pipeline when it knows the buffers."""

    def __init__(self, name: str, code: bytes, constants: Mapping[int, int]):
        if sorted(constants) != list(range(len(constants))):
            raise DeviceError(
                f"Kernel '{name}': kp numbers specialization constants 0, 1, ..., got {sorted(constants)}."
            )
        self.name = name
        self.code = code
        self.constants = np.array([constants[k] for k in range(len(constants))], np.uint32)


class KomputeRecorder:
    """Collects steps; see `protocol.Recorder`. The program runs one after the other, and waits for each."""

    def __init__(self, device: KomputeDevice):
        self._device = device
        self._steps: list[Callable[[], None]] = []
        self._dispatches: list[tuple[Any, np.ndarray]] = []
        self._algorithms: dict[Any, Any] = {}

    def dispatch(
        self, kernel: KomputeKernel, buffers: Sequence[Any], params: Sequence[int], groups: int
    ) -> KomputeRecorder:
        """Run `groups` workgroups of a kernel."""
        if groups == 0:
            return self
        width = groups if groups <= _MAX_GROUPS else _ROW_OF_GROUPS
        shape = (width, -(-groups // width), 1)
        key = (kernel, tuple(map(id, buffers)), shape)
        push = np.array(params, np.uint32)
        if key not in self._algorithms:
            tensors = [buffer.tensor for buffer in buffers]
            self._algorithms[key] = self._device.manager.algorithm(
                tensors, kernel.code, list(shape), kernel.constants, push
            )
        self._dispatches.append((self._algorithms[key], push))
        return self

    def barrier(self) -> KomputeRecorder:
        """End a step."""
        if self._dispatches:
            self._steps.append(self._device.step_of(self._dispatches))
            self._dispatches = []
        return self

    def copy(
        self, source: Any, destination: Any, nbytes: int, source_offset: int = 0, destination_offset: int = 0
    ) -> KomputeRecorder:
        """Copy bytes, on the host."""
        self.barrier()
        target = destination.array(np.uint8, destination_offset, nbytes)
        origin = source.array(np.uint8, source_offset, nbytes)
        self._steps.append(lambda: np.copyto(target, origin))
        return self

    def fill(self, buffer: Any, value: int = 0) -> KomputeRecorder:
        """Set every 32-bit word of a buffer, on the host."""
        self.barrier()
        words = buffer.tensor.data()
        self._steps.append(lambda: words.fill(value))
        return self

    def timestamp(self) -> KomputeRecorder:
        """Programs are timed by the host, as a whole."""
        return self

    def finish(self) -> KomputeProgram:
        """The program."""
        self.barrier()
        return KomputeProgram(self._steps)


class KomputeProgram:
    """Steps that run one after the other."""

    def __init__(self, steps: list[Callable[[], None]]):
        self._steps = steps
        self._seconds = 0.0

    def run(self) -> None:
        """Run all steps and wait."""
        start = time.perf_counter()
        for step in self._steps:
            step()
        self._seconds = time.perf_counter() - start

    def timestamps(self) -> list[float]:
        """Begin and end of the last run [ns]."""
        return [0.0, 1e9 * self._seconds]


class KomputeTicket:
    """A submission that is over: kp's asynchronous evaluation blocks anyway."""

    done = True

    def wait(self, timeout: float | None = None) -> None:
        """Return at once."""


class KomputeDevice:
    """A device opened by kp; see `protocol.Device`."""

    access = "storage"
    memory_scheme = "single"
    is_lost = False  # kp does not say
    submits_whole_programs = False

    def __init__(self, index: int = 0):
        """index: as in `list_devices`, which is the driver's order."""
        self._kp = _kp()
        known = list_devices()
        if not 0 <= index < len(known):
            raise DeviceError(f"Vulkan device {index} does not exist: there are {len(known)}.")
        self.index = index
        self.spec = f"kompute:{index}"
        self.info: dict[str, Any] = {
            **known[index].features,
            "buffer_address": False,
            "conditional": False,
            "repeats": False,
        }
        self.manager = self._kp.Manager(index)
        self._kernels: dict[Any, KomputeKernel] = {}
        self._allocated = 0

    @property
    def name(self) -> str:
        """The driver's name for it."""
        return self.info["name"]

    @property
    def has_float64(self) -> bool:
        """Whether kernels may compute in float64: drivers that have it let it pass unasked."""
        return self.info["float64"]

    def allocate(self, nbytes: int, usage: Usage = "device") -> KomputeBuffer:
        """A buffer; all usages are memory that the host sees."""
        if nbytes > min(_MAX_BYTES, self.info["max_storage_range"]):
            raise DeviceMemoryError(
                f"kompute: {nbytes} bytes were asked for; a tensor has at most "
                f"{min(_MAX_BYTES, self.info['max_storage_range'])}. Use device='vulkan' or schur='implicit'."
            )
        self._allocated += nbytes
        return KomputeBuffer(self.manager, self._kp, nbytes)

    def upload(self, array: np.ndarray) -> KomputeBuffer:
        """A new buffer with the contents of an array."""
        array = np.ascontiguousarray(array)
        buffer = self.allocate(max(4, array.nbytes))
        buffer.array(array.dtype, 0, array.size)[:] = array.ravel()
        return buffer

    def write(self, buffer: KomputeBuffer, array: np.ndarray, offset: int = 0) -> None:
        """Write an array into a buffer from byte `offset` on, at once."""
        flat = np.ascontiguousarray(array).reshape(-1)
        buffer.array(flat.dtype, offset, flat.size)[:] = flat

    def write_pieces(
        self,
        buffer: KomputeBuffer,
        piece_bytes: int,
        num_pieces: int,
        write: Callable[[int, np.ndarray], None],
    ) -> None:
        """Let write(first piece, bytes) put all pieces of equal size into a buffer."""
        if num_pieces * piece_bytes > 0:
            write(0, buffer.array(np.dtype(np.uint8), 0, num_pieces * piece_bytes))

    def write_rows(self, buffer: KomputeBuffer, rows: np.ndarray, records: np.ndarray) -> None:
        """Write record k, of equal sizes, at place rows[k], counted in records."""
        flat = np.ascontiguousarray(records).reshape(len(rows), -1).view(np.uint8)
        count = (int(np.max(rows, initial=-1)) + 1) * flat.shape[1]
        buffer.array(np.dtype(np.uint8), 0, count).reshape(-1, flat.shape[1])[rows] = flat

    def flush(self) -> None:
        """Nothing: everything is written at once."""

    def read(self, wanted: Sequence[tuple[KomputeBuffer, int, np.ndarray]]) -> None:
        """Copy parts of buffers: (buffer, first byte, array to fill)."""
        for buffer, offset, array in wanted:
            array.reshape(-1)[:] = buffer.array(array.dtype, offset, array.size)

    def download(self, buffer: KomputeBuffer, dtype: Any, count: int) -> np.ndarray:
        """A copy of the first `count` elements of a buffer."""
        return buffer.array(dtype, 0, int(count)).copy()

    def shader(
        self, name: str, precision: Precision, num_buffers: int, num_params: int, constants: Mapping[int, int]
    ) -> KomputeKernel:
        """Kernel of `shaders/<name>.comp`, specialised; equal arguments return the same kernel."""
        key = (name, precision, tuple(sorted(constants.items())))
        if key not in self._kernels:
            self._kernels[key] = KomputeKernel(name, load_spirv(name, "storage", precision), constants)
        return self._kernels[key]

    def generated(self, kernel: Any, constants: Mapping[int, int] | None = None) -> KomputeKernel:
        """Kernel of a `codegen.gpu.GpuKernel`; equal arguments return the same kernel."""
        values = {**kernel.constants, **(constants or {})}
        key = (kernel.source, tuple(sorted(values.items())))
        if key not in self._kernels:
            code = compile_generated(kernel.name, kernel.source, "storage", kernel.precision)
            self._kernels[key] = KomputeKernel(kernel.name, code, values)
        return self._kernels[key]

    start_shader, start_generated = shader, generated
    """kp makes pipelines when they are recorded."""

    def record(self, label: str = "") -> KomputeRecorder:
        """A new recorder; kp has no use for the label."""
        return KomputeRecorder(self)

    def step_of(self, dispatches: Sequence[tuple[Any, np.ndarray]]) -> Callable[[], None]:
        """Function that runs independent dispatches in one sequence."""
        sequence = self.manager.sequence()
        for algorithm, push in dispatches:
            sequence.record(self._kp.OpAlgoDispatch(algorithm, push))
        return lambda: sequence.eval()

    def submit(self, program: KomputeProgram) -> KomputeTicket:
        """Run a program to its end."""
        program.run()
        return KomputeTicket()

    def memory_statistics(self) -> dict[str, int]:
        """Bytes asked for since the device was opened; kp does not say what it released."""
        return {"used": self._allocated, "allocations": 0}


DRIVER = Driver(lambda which: KomputeDevice(find_device(which)))
