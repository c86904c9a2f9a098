"""Primitives on the device equal numpy, for every size around the borders of workgroups and tiles."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vulkan_devices import shared_device

from graphopt.device import DeviceError
from graphopt.device.primitives import (
    Fingerprint,
    RadixSort,
    Scan,
    bits_of,
    record_first,
    record_gather,
    record_histogram,
)

SIZES = [0, 1, 2, 255, 256, 257, 2047, 2048, 2049, 4095, 4096, 4097, 20_001]


@pytest.fixture(params=["address", "storage"])
def device(request):
    """One device per access variant; no validation message may be left after a test."""
    opened = shared_device(request.param)
    yield opened
    assert opened.messages == []


def run(device, record):
    """Record, submit, wait."""
    recorder = device.record()
    record(recorder)
    device.submit(recorder.finish()).wait()


def up(device, array):
    """A buffer with an array, which may be empty."""
    return device.upload(array) if len(array) else device.allocate(4)


@pytest.mark.parametrize("count", [*SIZES, 2048 * 2048 + 3])
def test_scan_is_the_exclusive_sum(device, count):
    """Also over three levels, and where the sum passes 2^32."""
    values = np.random.default_rng(count).integers(0, 1 << 32, count, np.uint32)
    source, result, scan = up(device, values), device.allocate(4 * count), Scan(device, count)
    run(device, lambda recorder: scan.record(recorder, source, result))
    expected = np.cumsum(values, dtype=np.uint64) - values
    np.testing.assert_array_equal(device.download(result, np.uint32, count), expected.astype(np.uint32))
    run(device, lambda recorder: scan.record(recorder, source))
    np.testing.assert_array_equal(device.download(source, np.uint32, count), expected.astype(np.uint32))


@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize("bits", [1, 7, 8, 9, 23, 32])
def test_sort_is_stable(device, count, bits):
    """Pairs with equal keys stay in order; the input stays as it was."""
    rng = np.random.default_rng(count + bits)
    distinct = min(1 << bits, max(2, count // 3))
    keys = (rng.integers(0, distinct, count) * ((1 << bits) // distinct)).astype(np.uint32)
    source, sort = up(device, keys), RadixSort(device, count, bits)
    run(device, lambda recorder: sort.record(recorder, source))
    order = np.argsort(keys, kind="stable")
    np.testing.assert_array_equal(device.download(sort.values, np.uint32, count), order)
    np.testing.assert_array_equal(device.download(sort.keys, np.uint32, count), keys[order])
    np.testing.assert_array_equal(device.download(source, np.uint32, count), keys)


def test_sort_carries_values_of_the_caller(device):
    """And runs again with other contents in the same buffers."""
    rng = np.random.default_rng(3)
    keys, values = rng.integers(0, 500, (2, 5000), np.uint32)
    buffers, sort = (device.upload(keys), device.upload(values)), RadixSort(device, 5000, bits_of(500))
    recorder = device.record()
    sort.record(recorder, *buffers)
    program = recorder.finish()
    for _ in range(2):
        device.submit(program).wait()
        order = np.argsort(keys, kind="stable")
        np.testing.assert_array_equal(device.download(sort.values, np.uint32, 5000), values[order])
        keys, values = rng.integers(0, 500, (2, 5000), np.uint32)
        for buffer, array in zip(buffers, (keys, values), strict=True):
            if buffer.is_mapped:
                device.native.wait_idle()
            device.write(buffer, array)


def test_two_sorts_by_two_keys_are_a_lexicographic_sort(device):
    """Stability, used: by the second key, then by the first."""
    first, second = np.random.default_rng(5).integers(0, 40, (2, 3000), np.uint32)
    by_second, by_first = RadixSort(device, 3000, 6), RadixSort(device, 3000, 6)
    keys = device.allocate(4 * 3000)
    buffers = device.upload(first), device.upload(second)

    def record(recorder):
        by_second.record(recorder, buffers[1])
        record_gather(recorder, device, buffers[0], by_second.values, 3000, 4, keys)
        by_first.record(recorder, keys, by_second.values)

    run(device, record)
    order = device.download(by_first.values, np.uint32, 3000)
    np.testing.assert_array_equal(order, np.lexsort((second, first)))


@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize("num_segments", [0, 1, 255, 256, 3000])
def test_first_places_of_segments(device, count, num_segments):
    """Also of segments without any key."""
    rng = np.random.default_rng(count)
    keys = np.sort(rng.integers(0, max(1, num_segments // 2), count)).astype(np.uint32)
    buffer, first = up(device, keys), device.allocate(4 * (num_segments + 1))
    run(device, lambda recorder: record_first(recorder, device, buffer, count, first, num_segments))
    expected = np.searchsorted(keys, np.arange(num_segments + 1), "left")
    np.testing.assert_array_equal(device.download(first, np.uint32, num_segments + 1), expected)


@pytest.mark.parametrize("count", [0, 1, 257, 16_384, 16_385, 70_001])
@pytest.mark.parametrize("num_bins", [1, 3, 2048, 2049, 10_000])
def test_histogram_counts(device, count, num_bins):
    """In shared memory and without; keys past the last bin are not counted."""
    keys = np.random.default_rng(count).integers(0, num_bins + 2, count, np.uint32)
    buffer, counts = up(device, keys), device.allocate(4 * num_bins)
    run(device, lambda recorder: record_histogram(recorder, device, buffer, count, counts, num_bins))
    expected = np.bincount(keys, minlength=num_bins)[:num_bins]
    np.testing.assert_array_equal(device.download(counts, np.uint32, num_bins), expected)


@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 257, 2049])
@pytest.mark.parametrize("row_bytes", [1, 2, 3, 4, 5, 12, 16, 17, 20, 48, 100, 9001])
def test_rows_of_any_width_are_gathered(device, count, row_bytes):
    """Bytes, words and quads; what follows the last row is 0 up to the word's end."""
    rng = np.random.default_rng(row_bytes)
    rows = rng.integers(0, 256, (count + 3, row_bytes), np.uint8)
    order = rng.integers(0, count + 3, count, np.uint32)
    nbytes = -(-count * row_bytes // 4) * 4
    source, buffer, target = device.upload(rows), up(device, order), device.allocate(nbytes)
    run(device, lambda recorder: record_gather(recorder, device, source, buffer, count, row_bytes, target))
    found = device.download(target, np.uint8, nbytes)
    np.testing.assert_array_equal(found[: count * row_bytes].reshape(count, row_bytes), rows[order])
    assert not found[count * row_bytes :].any()


def test_buffers_past_4_gib_are_addressed_with_64_bits(monkeypatch):
    """The kernels that large buffers get compute the same on small ones."""
    monkeypatch.setattr("graphopt.device.primitives._LARGE_BYTES", 0)
    device = shared_device("address")
    keys = np.random.default_rng(1).integers(0, 300, 5000, np.uint32)
    buffer, sort = device.upload(keys), RadixSort(device, 5000, 9)
    first, counts = device.allocate(1204), device.allocate(1200)
    scan, fingerprint = Scan(device, 5000), Fingerprint(device, 20_000)

    def record(recorder):
        sort.record(recorder, buffer)
        record_first(recorder, device, sort.keys, 5000, first, 300)
        record_histogram(recorder, device, buffer, 5000, counts, 300)
        fingerprint.record(recorder, buffer)
        scan.record(recorder, buffer)

    run(device, record)
    order = np.argsort(keys, kind="stable")
    np.testing.assert_array_equal(device.download(sort.values, np.uint32, 5000), order)
    np.testing.assert_array_equal(
        device.download(first, np.uint32, 301), np.searchsorted(keys[order], np.arange(301))
    )
    np.testing.assert_array_equal(device.download(counts, np.uint32, 300), np.bincount(keys, minlength=300))
    np.testing.assert_array_equal(device.download(buffer, np.uint32, 5000), np.cumsum(keys) - keys)
    assert fingerprint.value() == fingerprint_of(keys)
    assert device.messages == []


def fingerprint_of(words: np.ndarray) -> int:
    """The definition."""
    x = words.astype(np.uint64) | np.arange(len(words), dtype=np.uint64) << np.uint64(32)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ x >> np.uint64(shift)) * np.uint64(factor)
    return int(np.sum(x ^ x >> np.uint64(31), dtype=np.uint64))


@pytest.mark.parametrize("count", [0, 1, 256, 4097, 1_000_003])
def test_fingerprints_follow_their_definition(device, count):
    """And see one changed bit, and two words that changed places."""
    words = np.random.default_rng(count).integers(0, 1 << 32, count, np.uint32)
    values = []
    for version in range(3 if count > 1 else 1):
        changed = words.copy()
        if version == 1:
            changed[count // 2] ^= 1 << 17
        if version == 2:
            changed[:2] = words[1::-1]
        fingerprint, buffer = Fingerprint(device, 4 * count), up(device, changed)
        run(device, lambda recorder, one=fingerprint, buffer=buffer: one.record(recorder, buffer))
        assert fingerprint.value() == fingerprint_of(changed)
        values.append(fingerprint.value())
    assert len(set(values)) == len(values)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 9000), st.integers(1, 32), st.integers(0, 1 << 30))
def test_views_of_random_graphs(count, bits, seed):
    """Sort, first places and histogram agree with each other and with numpy for random sizes."""
    device = shared_device("address")
    rng = np.random.default_rng(seed)
    num = min(1 << bits, 5000)
    keys = rng.integers(0, num, count, np.uint32)
    source, sort = up(device, keys), RadixSort(device, count, bits)
    first, counts = device.allocate(4 * (num + 1)), device.allocate(4 * num)

    def record(recorder):
        sort.record(recorder, source)
        record_first(recorder, device, sort.keys, count, first, num)
        record_histogram(recorder, device, source, count, counts, num)

    run(device, record)
    np.testing.assert_array_equal(
        device.download(sort.values, np.uint32, count), np.argsort(keys, kind="stable")
    )
    bounds = device.download(first, np.uint32, num + 1)
    np.testing.assert_array_equal(np.diff(bounds), device.download(counts, np.uint32, num))
    assert bounds[-1] == count


def test_wrong_sizes_are_refused():
    """With the numbers, before anything is recorded."""
    device = shared_device("address")
    small = device.allocate(16)
    with pytest.raises(DeviceError, match="0 to 2147483648 items, got 2147483649"):
        Scan(device, (1 << 31) + 1)
    with pytest.raises(DeviceError, match="key_bits is 33"):
        RadixSort(device, 4, 33)
    with pytest.raises(DeviceError, match="has 16 bytes, expected at least 20"):
        RadixSort(device, 5).record(device.record(), small)
    with pytest.raises(DeviceError, match="no multiple of 4"):
        Fingerprint(device, 7)
    with pytest.raises(DeviceError, match="row_bytes is 0"):
        record_gather(device.record(), device, small, small, 1, 0, small)
