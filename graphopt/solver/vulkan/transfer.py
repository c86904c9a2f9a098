"""Arrays on their way to the device: in pieces, in the device's width, and only when they have changed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from graphopt.solver.vulkan.context import Context

BYTES = np.dtype(np.uint8)
STAGING_BYTES = 1 << 26
WIDE_BYTES = 8
"""Of a wide number: one float64, or two float32."""


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
        self._is_staged = context.device.memory_scheme == "staged"
        self.nbytes = max(int(nbytes), 16)
        self.buffer = context.device.allocate(self.nbytes, "device" if self._is_staged else "shared")
        self._digest = b""

    def write(self, pieces: Iterable[np.ndarray], digest: bytes = b"") -> None:
        """Write arrays one after the other from the start on; digest: of the contents, see `holds`."""
        at = 0
        staging: Any = None
        for piece in pieces:
            flat = np.ascontiguousarray(piece).reshape(-1).view(np.uint8)
            if not self._is_staged:
                self.buffer.array(BYTES, at, flat.size)[:] = flat
                at += flat.size
                continue
            for start in range(0, flat.size, STAGING_BYTES):
                part = flat[start : start + STAGING_BYTES]
                if staging is None or staging.size < part.size:
                    staging = self._device.allocate(part.size, "upload")
                staging.array(BYTES, 0, part.size)[:] = part
                recorder = self._device.record()
                recorder.copy(staging, self.buffer, part.size, 0, at)
                self._device.submit(recorder.finish()).wait()
                at += part.size
        self._digest = digest

    def write_rows(self, rows: np.ndarray, records: np.ndarray) -> None:
        """Write one record (k, ...) each at some places, counted in records."""
        flat = np.ascontiguousarray(records).reshape(len(rows), -1).view(np.uint8)
        staging = self._device.allocate(flat.size, "upload")
        staging.array(BYTES, 0, flat.size)[:] = flat.reshape(-1)
        recorder, size = self._device.record(), flat.shape[1]
        for place, row in enumerate(rows.tolist()):
            recorder.copy(staging, self.buffer, size, place * size, row * size)
        self._device.submit(recorder.finish()).wait()
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
    """A fingerprint of the contents of arrays."""
    digest = hashlib.blake2b(digest_size=16)
    for array in arrays:
        digest.update(repr(array.shape).encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.digest()
