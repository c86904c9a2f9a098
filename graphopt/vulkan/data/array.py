"""Arrays on the device, of one kind, and the ways of their numbers between host and device.

    write, fill, write_rows, read     now
    host                              float64 numbers, which move only when the other side has changed them
    staging, record_upload            what the host writes before each run of a program that takes it along
    record_download, downloaded       what a program brings back

Where host and device share memory, nothing is copied; in memory scheme "staged" numbers go through pinned
memory of the host, behind a resizable BAR ("rebar") the host writes the device's memory itself.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from functools import cached_property
from typing import Any, Literal

import numpy as np

from graphopt.cpu_kernels import kernels
from graphopt.switches import is_off
from graphopt.vulkan.program import Context, Places, Program

WIDE_BYTES = 8
"""Of a wide number: one float64, or two float32."""
WIDE = np.dtype(np.float64)
"""Of wide numbers as they come from the device: bit patterns for `unpack_wide`."""
Width = Literal["float64", "float32", "two_floats"]
"""Of a number on the device; two floats are its float32 and the rest."""


def pack_wide(values: np.ndarray, has_float64: bool) -> np.ndarray:
    """float64 as the device's wide numbers, 8 bytes each: themselves, or pairs (hi, lo) of float32."""
    values = np.ascontiguousarray(values, np.float64)
    if has_float64:
        return values
    pairs = np.empty((*values.shape, 2), np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        pairs[..., 0] = values
        pairs[..., 1] = values - pairs[..., 0]
    return pairs


def unpack_wide(words: np.ndarray, has_float64: bool) -> np.ndarray:
    """Wide numbers, as (n,) float64 bit patterns, back to float64."""
    if has_float64:
        return words
    found = np.empty((words.size, 1))
    kernels.unpad_rows(words, 1, "two_floats", np.ones(words.size, bool), found)
    return found[:, 0]


_SHARED: weakref.WeakKeyDictionary[Context, weakref.WeakValueDictionary[bytes, DeviceArray]] = (
    weakref.WeakKeyDictionary()
)
"""Of each solver."""
_SHARING = threading.Lock()


class DeviceArray:
    """A buffer of `count` numbers; see the module's header."""

    def __init__(self, context: Context, count: int, dtype: Any = None, *, is_mapped: bool = True):
        """dtype: of a number on the device, None: a real. is_mapped: the host may write in place.

        Where kernels write the numbers, they are better off in memory that only the device sees.
        """
        self._context, self._device = context, context.device
        self.count = int(count)
        self.dtype = np.dtype(dtype or context.real)
        self.nbytes = max(self.count * self.dtype.itemsize, 16)
        self._is_staged = not is_mapped or context.device.memory_scheme == "staged"
        self.buffer = context.device.allocate(self.nbytes, "device" if self._is_staged else "shared")
        self._host: np.ndarray | None = None

    @classmethod
    def of(cls, context: Context, values: np.ndarray, dtype: Any = np.uint32) -> DeviceArray:
        """An array with these numbers."""
        own = cls(context, values.size, dtype)
        own.write(values)
        return own

    @classmethod
    def shared(cls, context: Context, values: np.ndarray) -> DeviceArray:
        """An array of uint32 that nobody writes again: a solver's own with these numbers, if it has one.

        Places of vertices and of their blocks, by row and by destination, are often the same numbers.
        """
        values = np.ascontiguousarray(values, np.uint32)
        digest = digest_of(values)
        with _SHARING:
            known = _SHARED.setdefault(context, weakref.WeakValueDictionary())
            found = known.get(digest)
            if found is None:
                found = known[digest] = cls.of(context, values)
        return found

    @classmethod
    def places(cls, context: Context, values: np.ndarray) -> Places:
        """Places that generated kernels read, two numbers where they are regular."""
        step = None if is_off("regular_places") or len(values) < 3 else kernels.common_step(values)
        are_regular = step is not None and step >= 0
        stored = np.array([values[0], step]) if are_regular else values
        return Places(cls.shared(context, stored), are_regular)

    # ---------------------------------------------------------------- now

    def write(self, values: np.ndarray) -> None:
        """Write numbers from the start on."""
        self._device.write(self.buffer, np.ascontiguousarray(values, self.dtype))

    def fill(self, block_bytes: int, num_blocks: int, write: Callable[[int, np.ndarray], None]) -> None:
        """Let write(first block, bytes) put blocks where the device reads them, in few calls."""
        self._device.write_pieces(self.buffer, block_bytes, num_blocks, write)

    def write_rows(self, rows: np.ndarray, records: np.ndarray) -> None:
        """Write one record (k, ...) each at some places, counted in records."""
        self._device.write_rows(self.buffer, rows, np.ascontiguousarray(records, self.dtype))

    def read(self) -> np.ndarray:
        """A copy of the numbers."""
        return self._device.download(self.buffer, self.dtype, self.count)

    # ---------------------------------------------------------------- numbers of both sides

    @property
    def host(self) -> np.ndarray:
        """(count,) float64, not to be written: downloaded where a kernel has written since."""
        if self._host is None:
            self._host = self.read().astype(np.float64)
        return self._host

    @host.setter
    def host(self, values: np.ndarray) -> None:
        self.write(values)
        self._host = np.array(values, np.float64)

    def note_written(self) -> None:
        """Kernels have written other numbers."""
        self._host = None

    # ---------------------------------------------------------------- as parts of programs

    @cached_property
    def _upload_buffer(self) -> Any:
        return self._device.allocate(self.nbytes, "upload") if self._is_staged else self.buffer

    @cached_property
    def _mapped(self) -> np.ndarray:
        return self._upload_buffer.array(self.dtype, 0, self.count)

    @cached_property
    def staging(self) -> np.ndarray:
        """(count,) numbers that the host writes, and `commit` or `record_upload` take along.

        float64; the device's memory itself, where it is shared and holds float64. Memory behind a resizable
        BAR is slow to read, which linearisation does: it gets an ordinary array.
        """
        is_readable = self._is_staged or self._device.memory_scheme != "rebar"
        in_place = self.dtype == np.float64 and is_readable
        kind = self.dtype if self.dtype.kind == "u" else np.float64
        return self._mapped if in_place else np.zeros(self.count, kind)

    def commit(self) -> None:
        """After `staging` was written, before a program with its upload is run."""
        if self.staging is not self._mapped:
            np.copyto(self._mapped, self.staging, casting="same_kind")

    @property
    def leaving(self) -> Any:
        """Mapped buffer of what `record_upload` takes along."""
        return self._upload_buffer

    @property
    def arriving(self) -> Any:
        """Mapped buffer of what `record_download` brings."""
        return self._readback

    def record_upload(self, program: Program) -> bool:
        """Commit now, and record the copy into device memory, if one is needed: else False."""
        self.commit()
        if self._is_staged:
            program.copy(self._upload_buffer, self.buffer, self.nbytes)
        return self._is_staged

    @cached_property
    def _readback(self) -> Any:
        return self._device.allocate(self.nbytes, "readback")

    def record_download(self, program: Program) -> None:
        """Record the copy to the host."""
        program.copy(self.buffer, self._readback, self.nbytes)

    @property
    def downloaded(self) -> np.ndarray:
        """(count,) what the last run of `record_download` has brought."""
        return self._readback.array(self.dtype, 0, self.count)


def digest_of(*arrays: np.ndarray) -> bytes:
    """A fingerprint of the shapes and contents of arrays."""
    digests = [
        repr(array.shape).encode() + kernels.fingerprint(np.ascontiguousarray(array)) for array in arrays
    ]
    return b"".join(digests)
