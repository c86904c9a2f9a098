"""Arrays reach the device and come back bit by bit, in few submissions, through memory that is kept."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from vulkan_devices import shared_device

from graphopt.device import DeviceError, VulkanDevice

MiB = 1 << 20


@pytest.fixture(params=["staged", "single", "rebar"])
def device(request):
    """A device under the validation layer, in each way of sharing arrays; no message may be left."""
    opened = VulkanDevice(validation=True, memory_scheme=request.param)
    assert opened.memory_scheme == request.param
    yield opened
    assert opened.messages == []


def random_bytes(seed: int, count: int) -> np.ndarray:
    """(count,) uint8."""
    return np.random.default_rng(seed).integers(0, 256, count, np.uint8)


@pytest.mark.parametrize("count", [1, 3, 4097, 8 * MiB - 1, 8 * MiB, 8 * MiB + 5, 41 * MiB])
def test_arrays_of_any_length_come_back(device, count):
    """Also such that are no multiple of a piece, and when their source changes at once."""
    source = random_bytes(count, count)
    expected = source.copy()
    buffer = device.upload(source)
    source[:] = 0
    np.testing.assert_array_equal(device.download(buffer, np.uint8, count), expected)


def test_many_arrays_cost_no_submission_each():
    """A hundred writes and one program: the timeline advances by one."""
    device = VulkanDevice(memory_scheme="staged")
    arrays = [random_bytes(k, 1000 + k) for k in range(100)]
    buffers = [device.upload(array) for array in arrays]
    assert device.native.num_submissions == 0
    device.submit(device.record().finish()).wait()
    assert device.native.num_submissions == 1
    results = [np.empty_like(array) for array in arrays]
    device.read([(buffer, 0, result) for buffer, result in zip(buffers, results, strict=True)])
    assert device.native.num_submissions == 2
    for array, result in zip(arrays, results, strict=True):
        np.testing.assert_array_equal(result, array)


def test_writes_and_programs_keep_their_order(device):
    """Write, program, write over it, program: each program sees what was written before it."""
    buffer, seen = device.allocate(64), [device.allocate(64) for _ in range(4)]
    for step, buffer_ in enumerate(seen):
        if buffer.is_mapped:
            device.native.wait_idle()
        device.write(buffer, np.full(16, step, np.uint32))
        device.submit(device.record().copy(buffer, buffer_, 64).finish())
    for step, buffer_ in enumerate(seen):
        assert set(device.download(buffer_, np.uint32, 16)) == {step}


def test_overlapping_writes_keep_their_order(device):
    """The later of two writes to the same bytes wins, within one submission."""
    buffer = device.upload(np.zeros(100, np.uint8))
    for step in range(1, 20):
        device.write(buffer, np.full(30, step, np.uint8), 3 * step)
    expected = np.zeros(100, np.uint8)
    for step in range(1, 20):
        expected[3 * step : 3 * step + 30] = step
    np.testing.assert_array_equal(device.download(buffer, np.uint8, 100), expected)


def test_parts_of_buffers_travel_together(device):
    """`read` takes parts at any place, small and large ones in one call."""
    large, small = random_bytes(1, 19 * MiB), random_bytes(2, 1000)
    buffers = device.upload(large), device.upload(small)
    wanted = [
        (buffers[1], 7, np.empty(100, np.uint8)),
        (buffers[0], 4 * MiB + 3, np.empty(12 * MiB, np.uint8)),
        (buffers[1], 0, np.empty(1000, np.uint8)),
    ]
    device.read(wanted)
    np.testing.assert_array_equal(wanted[0][2], small[7:107])
    np.testing.assert_array_equal(wanted[1][2], large[4 * MiB + 3 : 16 * MiB + 3])
    np.testing.assert_array_equal(wanted[2][2], small)


def test_pieces_are_written_where_the_device_takes_them(device):
    """`write_pieces` calls for whole pieces, in order, also for such that are larger than a chunk."""
    for piece, count in ((24, 1000), (3 * MiB, 7), (9 * MiB, 2)):
        expected = random_bytes(piece, piece * count)
        seen = []

        def write(first: int, out: np.ndarray, piece=piece, expected=expected, seen=seen) -> None:
            assert out.size % piece == 0
            seen.append((first, out.size // piece))
            out[:] = expected[first * piece : first * piece + out.size]

        buffer = device.allocate(piece * count, "shared" if device.memory_scheme != "staged" else "device")
        device.write_pieces(buffer, piece, count, write)
        assert [first for first, _ in seen] == np.cumsum([0] + [n for _, n in seen[:-1]]).tolist()
        np.testing.assert_array_equal(device.download(buffer, np.uint8, piece * count), expected)


def test_rows_are_written_at_their_places(device):
    """`write_rows` puts records anywhere, and leaves the others."""
    table = random_bytes(5, 50 * 12).reshape(50, 12)
    buffer = device.upload(table)
    rows, records = np.array([7, 3, 49, 0]), random_bytes(6, 4 * 12).reshape(4, 12)
    device.write_rows(buffer, rows, records)
    table[rows] = records
    np.testing.assert_array_equal(device.download(buffer, np.uint8, table.size).reshape(50, 12), table)


def test_pinned_memory_is_bounded_kept_and_accounted():
    """300 MiB up and down take at most 120 MiB of pinned memory each way, which the next ones use again."""
    device = VulkanDevice(memory_scheme="staged")
    staging = 1
    for _ in range(2):
        for k in range(3):
            array = random_bytes(k, 50 * MiB)
            buffer = device.upload(array)
            np.testing.assert_array_equal(device.download(buffer, np.uint8, array.size), array)
        statistics = device.memory_statistics()
        assert staging <= statistics["staging"] <= 240 * MiB  # more where the device is behind
        staging = statistics["staging"]
        assert statistics["used"] == 50 * MiB
        assert statistics["reserved"] >= statistics["used"] + staging
    del buffer
    assert device.memory_statistics()["used"] == 0


def test_an_upload_that_nobody_uses_is_forgotten():
    """A buffer that is dropped before its contents travelled leaves nothing behind."""
    device = VulkanDevice(memory_scheme="staged")
    device.upload(np.arange(1000))
    assert device.memory_statistics()["allocations"] == 0
    assert device.download(device.upload(np.arange(5)), np.int64, 5)[4] == 4


def test_threads_transfer_at_the_same_time():
    """Uploads and downloads of several threads, with programs between, do not mix."""
    device = VulkanDevice(validation=True, memory_scheme="staged")
    errors: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            for k in range(8):
                array = random_bytes(100 * seed + k, 100_000 + 700_000 * (k % 3))
                first, second = device.upload(array), device.allocate(array.size)
                device.submit(device.record().copy(first, second, array.size).finish())
                np.testing.assert_array_equal(device.download(second, np.uint8, array.size), array)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors[0]
    assert device.messages == []


def test_ranges_past_the_end_are_refused():
    """With the numbers, before anything is written."""
    device = shared_device("address")
    buffer = device.allocate(64)
    with pytest.raises(DeviceError, match="64 bytes from place 4 on go past the end of a buffer of 64"):
        device.write(buffer, np.zeros(64, np.uint8), 4)
    with pytest.raises(DeviceError, match="past the end"):
        device.read([(buffer, 1, np.empty(64, np.uint8))])
    with pytest.raises(DeviceError, match="past the end"):
        device.runtime.StagedBytes(device.native, 16).send(buffer, [(0, 60, 16)])
    staged = device.runtime.StagedBytes(device.native, 16)
    staged.send(buffer, [(0, 0, 16)])
    with pytest.raises(DeviceError, match="sent already"):
        staged.array()
