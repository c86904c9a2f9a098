"""Sorting, scans, segments, permutations and fingerprints on the device.

    sort = RadixSort(device, count, key_bits=bits_of(num_vertices))
    sort.record(recorder, keys)                # sort.keys ascending, sort.values where they came from; stable
    record_first(recorder, device, sort.keys, count, first, num_vertices)
    record_gather(recorder, device, rows, sort.values, count, row_bytes, target)

They record commands, allocate what they need between, and end with a barrier, so that they are parts of a
larger program. `recorder`: anything with dispatch, barrier and fill. Everything computes with integers, whose
sums do not depend on the order of additions: two runs give the same bits. No subgroup operations. Up to 2^31
items; with buffer addresses the buffers may be larger than 4 GiB. Shaders: `shaders/prim_*.comp`, which have
the formulas.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from graphopt.device.errors import DeviceError

MAX_COUNT = 1 << 31
_LARGE = 15  # the specialization constant of common.glsl
_LARGE_BYTES = 1 << 32
_SCAN_ITEMS = 8  # words per invocation
_DIGIT_BITS = 8
_SORT_ROUNDS = 16, 64  # keys per invocation: usually, and of many keys, whose table of counts would be large
_MANY_KEYS = 1 << 26
_HISTOGRAM_ROUNDS = 64
_GATHER_UNITS = 2048  # of a workgroup, about
_FINGERPRINT_GROUPS = 1024


def bits_of(num_values: int) -> int:
    """Bits of the numbers 0 .. num_values - 1, at least 1."""
    return max(1, int(num_values - 1).bit_length())


def workgroup_size(device: Any) -> int:
    """Invocations of a workgroup: 256, or 128 where the device has no more."""
    return 256 if device.info["max_workgroup_invocations"] >= 256 else 128


def _check_count(count: int, what: str) -> None:
    if not 0 <= count <= MAX_COUNT:
        raise DeviceError(f"{what} takes 0 to {MAX_COUNT} items, got {count}; cut the array.")


def _check_size(buffer: Any, nbytes: int, what: str) -> None:
    if buffer.size < nbytes:
        raise DeviceError(f"{what} has {buffer.size} bytes, expected at least {nbytes}.")


def _dispatch(
    recorder: Any,
    device: Any,
    name: str,
    buffers: tuple[Any, ...],
    params: tuple[int, ...],
    groups: int,
    constants: Mapping[int, int] | None = None,
) -> None:
    values = {0: workgroup_size(device), **(constants or {})}
    if any(buffer.size >= _LARGE_BYTES for buffer in buffers):
        values[_LARGE] = 1
    kernel = device.shader(name, "mixed", len(buffers), len(params), values)
    recorder.dispatch(kernel, buffers, params, groups)


class Scan:
    """Exclusive sums mod 2^32 of `count` uint32, recorded as often as wanted."""

    def __init__(self, device: Any, count: int):
        _check_count(count, "A scan")
        self._device, self.count = device, count
        self._tile = _SCAN_ITEMS * workgroup_size(device)
        self._levels: list[tuple[int, Any]] = []  # tiles and their sums
        tiles = -(-count // self._tile)
        while tiles > 1:
            self._levels.append((tiles, device.allocate(4 * tiles)))
            tiles = -(-tiles // self._tile)

    def record(self, recorder: Any, source: Any, result: Any = None) -> None:
        """result[i] = source[0] + ... + source[i - 1]; None: in place."""
        result = source if result is None else result
        _check_size(source, 4 * self.count, "The source of a scan")
        _check_size(result, 4 * self.count, "The result of a scan")
        self._record(recorder, source, result, self.count, 0)

    def _record(self, recorder: Any, source: Any, result: Any, count: int, level: int) -> None:
        if count == 0:
            return
        tiles, offsets = self._levels[level] if level < len(self._levels) else (1, source)
        params = count, tiles
        if tiles > 1:
            buffers = source, offsets
            _dispatch(recorder, self._device, "prim_tile_sums", buffers, params, tiles, {1: _SCAN_ITEMS})
            recorder.barrier()
            self._record(recorder, offsets, offsets, tiles, level + 1)
        constants = {1: _SCAN_ITEMS, 2: int(tiles > 1)}
        _dispatch(recorder, self._device, "prim_scan", (source, offsets, result), params, tiles, constants)
        recorder.barrier()


class RadixSort:
    """Stable sort of `count` pairs of a 32-bit key and a 32-bit value, recorded as often as wanted.

    Takes ceil(key_bits / 8) passes, each with two reads and one write of the keys, and 16 bytes of memory per
    pair (8 with one pass).
    """

    def __init__(self, device: Any, count: int, key_bits: int = 32):
        """key_bits: the keys are smaller than 2^key_bits; higher bits are not looked at."""
        _check_count(count, "A sort")
        if not 1 <= key_bits <= 32:
            raise DeviceError(f"key_bits is {key_bits}, expected 1 to 32.")
        self._device, self.count = device, count
        num_passes = -(-key_bits // _DIGIT_BITS)
        self._digits = [key_bits // num_passes + (k < key_bits % num_passes) for k in range(num_passes)]
        self._rounds = _SORT_ROUNDS[count > _MANY_KEYS]
        self._tiles = -(-count // (self._rounds * workgroup_size(device)))
        self._table = device.allocate(4 * self._tiles << max(self._digits))
        self._scans = {bits: Scan(device, self._tiles << bits) for bits in set(self._digits)}
        self._pairs = [
            (device.allocate(4 * count), device.allocate(4 * count)) for _ in range(min(num_passes, 2))
        ]
        self.keys, self.values = self._pairs[(num_passes - 1) % 2]

    def record(self, recorder: Any, keys: Any, values: Any = None) -> None:
        """Sort into `self.keys` and `self.values`; the arguments stay as they are.

        keys: (count,) uint32. values: (count,) uint32; None: 0, 1, 2, ..., so that `self.values` says where
        each key came from.
        """
        _check_size(keys, 4 * self.count, "The buffer of keys")
        if values is not None:
            _check_size(values, 4 * self.count, "The buffer of values")
        if self.count == 0:
            return
        shift = 0
        for number, bits in enumerate(self._digits):
            counts_values = number == 0 and values is None
            source = (
                (keys, keys if values is None else values) if number == 0 else self._pairs[(number - 1) % 2]
            )
            self._record_pass(recorder, source, self._pairs[number % 2], shift, bits, counts_values)
            shift += bits

    def _record_pass(
        self,
        recorder: Any,
        source: tuple[Any, Any],
        target: tuple[Any, Any],
        shift: int,
        bits: int,
        counts_values: bool,
    ) -> None:
        device, table, params = self._device, self._table, (self.count, self._tiles, shift)
        constants = {1: bits, 2: self._rounds}
        _dispatch(recorder, device, "prim_sort_count", (source[0], table), params, self._tiles, constants)
        recorder.barrier()
        self._scans[bits].record(recorder, table)
        constants[3] = int(counts_values)
        buffers = (*source, table, *target)
        _dispatch(recorder, device, "prim_sort_move", buffers, params, self._tiles, constants)
        recorder.barrier()


def record_first(recorder: Any, device: Any, keys: Any, count: int, first: Any, num_segments: int) -> None:
    """Where the segments of equal keys begin.

    keys: (count,) uint32, ascending. first: (num_segments + 1,) uint32, first[k] = number of keys below k:
    those of k are first[k] .. first[k + 1].
    """
    _check_count(count, "A search for segments")
    _check_count(num_segments, "A search for segments")
    _check_size(first, 4 * (num_segments + 1), "The buffer of first places")
    groups = num_segments // workgroup_size(device) + 1
    _dispatch(recorder, device, "prim_first", (keys, first), (count, num_segments), groups)
    recorder.barrier()


def record_histogram(recorder: Any, device: Any, keys: Any, count: int, counts: Any, num_bins: int) -> None:
    """counts[k] = how many keys are k, for k < num_bins; larger keys are not counted.

    keys: (count,) uint32 in any order. counts: (num_bins,) uint32.
    """
    _check_count(count, "A histogram")
    _check_size(counts, 4 * num_bins, "The buffer of counts")
    recorder.fill(counts)
    recorder.barrier()
    if count == 0:
        return
    shared_bins = 1 << min(11, math.ceil(math.log2(max(num_bins, 1))))
    groups = -(-count // (_HISTOGRAM_ROUNDS * workgroup_size(device)))
    constants = {1: shared_bins, 2: _HISTOGRAM_ROUNDS}
    _dispatch(recorder, device, "prim_histogram", (keys, counts), (count, num_bins), groups, constants)
    recorder.barrier()


def record_gather(
    recorder: Any, device: Any, source: Any, order: Any, count: int, row_bytes: int, target: Any
) -> None:
    """Row r of the target is row order[r] of the source.

    source: rows of `row_bytes` bytes. order: (count,) uint32. target: (count, row_bytes) uint8, and up to
    three bytes more, which become 0. Rows of a multiple of 16 bytes move fastest, then of 4.
    """
    _check_count(count, "A permutation")
    if not 0 < row_bytes < 1 << 28:
        raise DeviceError(f"row_bytes is {row_bytes}, expected 1 to {(1 << 28) - 1}.")
    _check_size(order, 4 * count, "The buffer of the order")
    _check_size(target, count * row_bytes, "The target of a permutation")
    if count == 0:
        return
    unit = 16 if row_bytes % 16 == 0 else 4 if row_bytes % 4 == 0 else 1
    width = row_bytes // unit
    rows = max(4, _GATHER_UNITS * (4 if unit == 1 else 1) // width // 4 * 4)
    constants = {1: unit, 2: rows}
    buffers = source, order, target
    _dispatch(recorder, device, "prim_gather", buffers, (count, width), -(-count // rows), constants)
    recorder.barrier()


class Fingerprint:
    """A number of 64 bits that two arrays share only by an accident of 2^-64 unless they are equal.

    The sum over words i of splitmix64's finalizer of 2^32 i + word, mod 2^64.
    """

    def __init__(self, device: Any, nbytes: int):
        """nbytes: length of the array, a multiple of 4."""
        if nbytes % 4 != 0:
            raise DeviceError(f"A fingerprint is taken of words: {nbytes} bytes are no multiple of 4.")
        _check_count(nbytes // 4, "A fingerprint")
        self._device, self._count = device, nbytes // 4
        per_group = 16 * workgroup_size(device)
        self._groups = max(1, min(_FINGERPRINT_GROUPS, self._count // per_group))
        self._partial = device.allocate(8 * self._groups)
        self.buffer = device.allocate(8)
        """(2,) uint32: the low half and the high half."""

    def record(self, recorder: Any, array: Any) -> None:
        """Of the first `nbytes` bytes of a buffer, into `self.buffer`."""
        _check_size(array, 4 * self._count, "The array of a fingerprint")
        params = self._count, self._groups
        buffers = array, self._partial
        _dispatch(recorder, self._device, "prim_fingerprint", buffers, params, self._groups, {1: 1})
        recorder.barrier()
        buffers = self._partial, self.buffer
        _dispatch(recorder, self._device, "prim_fingerprint", buffers, (self._groups, 1), 1, {1: 0})
        recorder.barrier()

    def value(self) -> int:
        """The number, once the program has run."""
        low, high = self._device.download(self.buffer, np.uint32, 2).tolist()
        return high << 32 | low
