"""Arrays on their way to the device: in pieces, in the device's width, and only when they have changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

import numpy as np

from graphopt.cpu_kernels import kernels
from graphopt.solver.vulkan.context import Context

WIDE_BYTES = 8
"""Of a wide number: one float64, or two float32."""
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
    pairs = words.view(np.float32).reshape(-1, 2).astype(np.float64)
    return pairs[:, 0] + pairs[:, 1]


class DeviceArray:
    """A buffer that the host writes now and then; kernels only read it."""

    def __init__(self, context: Context, nbytes: int):
        self._device = context.device
        self.nbytes = max(int(nbytes), 16)
        is_staged = context.device.memory_scheme == "staged"
        self.buffer = context.device.allocate(self.nbytes, "device" if is_staged else "shared")
        self._digest = b""

    def write(self, pieces: Iterable[np.ndarray], digest: bytes = b"") -> None:
        """Write arrays one after the other from the start on; digest: of the contents, see `holds`."""
        at = 0
        for piece in pieces:
            self._device.write(self.buffer, piece, at)
            at += piece.nbytes
        self._digest = digest

    def fill(self, block_bytes: int, num_blocks: int, write: Callable[[int, np.ndarray], None]) -> None:
        """Let write(first block, bytes) put blocks where the device reads them, in few calls."""
        self._device.write_pieces(self.buffer, block_bytes, num_blocks, write)

    def write_rows(self, rows: np.ndarray, records: np.ndarray) -> None:
        """Write one record (k, ...) each at some places, counted in records."""
        self._device.write_rows(self.buffer, rows, records)
        self._digest = b""

    def holds(self, digest: bytes) -> bool:
        """These are the contents that were written last."""
        return bool(digest) and self._digest == digest


def array_of(context: Context, values: np.ndarray) -> DeviceArray:
    """A device array with these contents."""
    result = DeviceArray(context, values.nbytes)
    result.write([values])
    return result


def digest_of(*arrays: np.ndarray) -> bytes:
    """A fingerprint of the shapes and contents of arrays."""
    digests = [repr(one.shape).encode() + kernels.fingerprint(np.ascontiguousarray(one)) for one in arrays]
    return b"".join(digests)
