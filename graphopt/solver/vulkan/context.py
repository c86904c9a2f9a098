"""Device, precision and small helpers that all parts of the solver share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from graphopt.device import VulkanDevice
from graphopt.device.kompute import KomputeDevice
from graphopt.errors import SolverError

NOTHING = 0xFFFFFFFF
"""An offset that is not there; `NOTHING` of common.glsl."""
VECTOR_WORKGROUP = 128
MAX_VECTOR_GROUPS = 512
"""Workgroups of vector kernels at most: each of them adds up the partial sums of all."""
SUBMISSION_SECONDS = 0.5
"""Aim for the longest submission: watchdogs of drivers wait 2 s and more."""
BYTES_PER_SECOND = {"discrete": 1.5e11, "integrated": 2e10, "cpu": 2e9}
"""Assumed of a slow device of each kind; others count as integrated."""
LARGE_BYTES = 1 << 32
MAX_QUEUE_ITEMS = 1 << 30
"""Queues are arrays of uint32, which must stay below 4 GiB."""
LARGE = 15  # the specialization constant of common.glsl
ACCUMULATOR_BYTES = 8  # one float64 or two float32


def check_queue(num_items: int, what: str) -> None:
    """Raise where a work queue is longer than the kernels can count."""
    if num_items >= MAX_QUEUE_ITEMS:
        raise SolverError(
            f"The work queue of {what} has {num_items} items; a queue may have {MAX_QUEUE_ITEMS - 1}. "
            "Use schur='implicit', which needs one item per block of H."
        )


@dataclass(frozen=True, eq=False)
class Launch:
    """One dispatch: kernel, buffers, parameters, number of workgroups."""

    kernel: Any
    buffers: tuple[Any, ...]
    params: tuple[int, ...]
    groups: int
    nbytes: float = 0.0
    """Bytes it moves, where that is much."""

    def record(self, recorder: Any) -> None:
        """Add it to a program."""
        recorder.dispatch(self.kernel, self.buffers, self.params, self.groups)


def record_step(recorder: Any, launches: Sequence[Launch]) -> None:
    """Record launches that do not depend on each other, then a barrier."""
    for launch in launches:
        launch.record(recorder)
    recorder.barrier()


class Context:
    """A device used in one precision."""

    def __init__(self, device: VulkanDevice | KomputeDevice, precision: Literal["double", "mixed"]):
        self.device = device
        self.precision: Literal["double", "mixed"] = precision
        self.real = np.dtype(np.float64 if precision == "double" else np.float32)
        bandwidth = BYTES_PER_SECOND.get(device.info["kind"], BYTES_PER_SECOND["integrated"])
        self.submission_bytes = SUBMISSION_SECONDS * bandwidth
        """Bytes that one submission may move."""
        self._large = False  # a buffer of reals takes 4 GiB or more: kernels made from then on allow for it

    @property
    def is_large(self) -> bool:
        """A buffer of reals takes 4 GiB or more."""
        return self._large

    def reals(self, count: int) -> Any:
        """A device buffer of `count` reals."""
        return self.device.allocate(self.note_size(max(count, 1) * self.real.itemsize))

    def note_size(self, nbytes: int) -> int:
        """Call with the size of a buffer of reals before kernels that read it are made."""
        self._large = self._large or nbytes >= LARGE_BYTES
        return nbytes

    def accumulators(self, count: int) -> Any:
        """A device buffer of `count` accumulators."""
        return self.device.allocate(max(count, 1) * ACCUMULATOR_BYTES)

    def indices(self, array: np.ndarray) -> Any:
        """A device buffer with an array as uint32."""
        return self.device.upload(np.ascontiguousarray(array, np.uint32))

    def shader(self, name: str, num_buffers: int, num_params: int, constants: Mapping[int, int]) -> Any:
        """Kernel of a shader in this precision."""
        if self._large:
            constants = {**constants, LARGE: 1}
        return self.device.shader(name, self.precision, num_buffers, num_params, constants)

    def cut(self, run: tuple[int, int], nbytes: float) -> list[tuple[int, int, float]]:
        """Cut a run of workgroups by the budget of a submission: (begin, end, bytes) of each piece."""
        first, last = run
        count = min(last - first, int(nbytes / self.submission_bytes) + 1)
        bounds = [first + (last - first) * at // max(count, 1) for at in range(count + 1)]
        return [(begin, end, nbytes / count) for begin, end in pairwise(bounds)]

    def vector_groups(self, num_rows: int) -> int:
        """Workgroups of a vector kernel over `num_rows` scalars."""
        return max(1, min(MAX_VECTOR_GROUPS, -(-num_rows // VECTOR_WORKGROUP)))

    def download(self, buffer: Any, count: int) -> np.ndarray:
        """Contents of a buffer of reals, as float64."""
        return self.device.download(buffer, self.real, count).astype(np.float64)


def gather_scalars(context: Context, partial: Any, num_groups: int, result: Any, *, sums: bool) -> Launch:
    """Two scalars from the parts of workgroups: the sum or the largest of the first, the largest second."""
    kernel = context.shader("gather_scalars", 2, 1, {0: VECTOR_WORKGROUP, 1: int(sums)})
    return Launch(kernel, (partial, result), (num_groups,), 1)


class Mirror:
    """An array that the host writes and the device reads.

    `host` is float64. It is the device's memory itself where host and device share it and compute in float64;
    else `commit` converts or copies it, and `record_upload` moves it where the device is fast.
    """

    def __init__(self, context: Context, count: int):
        nbytes = context.note_size(max(count, 1) * context.real.itemsize)
        scheme = context.device.memory_scheme
        self.buffer = context.device.allocate(nbytes, "device" if scheme == "staged" else "shared")
        self._staging = context.device.allocate(nbytes, "upload") if scheme == "staged" else None
        self._nbytes = nbytes
        self._mapped = (self._staging or self.buffer).array(context.real, 0, count)
        # Memory behind a resizable BAR is slow to read, which linearisation does: it gets an ordinary array.
        in_place = context.real == np.float64 and scheme != "rebar"
        self.host = self._mapped if in_place else np.zeros(count)

    def commit(self) -> None:
        """Call after writing `host`, before a program that uploads or reads it."""
        if self.host is not self._mapped:
            np.copyto(self._mapped, self.host, casting="same_kind")

    def record_upload(self, recorder: Any) -> None:
        """Record the copy into device memory, if one is needed."""
        if self._staging is not None:
            recorder.copy(self._staging, self.buffer, self._nbytes)


class Readback:
    """An array that the device writes and the host reads."""

    def __init__(self, context: Context, count: int):
        self._nbytes = max(count, 1) * context.real.itemsize
        self.buffer = context.device.allocate(self._nbytes, "readback")
        self.array = self.buffer.array(context.real, 0, count)

    def record(self, recorder: Any, source: Any) -> None:
        """Record the copy from a device buffer."""
        recorder.copy(source, self.buffer, self._nbytes)
