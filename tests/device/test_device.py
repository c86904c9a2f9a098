"""The device layer: memory, kernels, programs, errors."""

from __future__ import annotations

import json
import threading
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import python
from vulkan_devices import shared_device

from graphopt import disk_cache, pyglslang
from graphopt.device import (
    DeviceError,
    DeviceLostError,
    DeviceMemoryError,
    VulkanDevice,
    list_devices,
    open_device,
)

INCLUDE = Path(__file__).resolve().parents[2] / "shaders" / "include"

# out[i] = factor * in[i], `rounds` times over.
SCALE = """#version 450
#extension GL_GOOGLE_include_directive : require
#define NUM_BUFFERS 2
#include "common.glsl"
PARAMETERS(uint count; uint rounds;)
layout(constant_id = 1) const uint FACTOR = 1;
INPUT(0, uint, source)
INOUT(1, uint, result)
void main() {
  const uint i = WORKGROUP * WORKGROUP_SIZE + LANE;
  if (i >= push.count) return;
  uint x = source.at[i];
  for (uint k = 0; k < push.rounds; ++k) x = x * FACTOR + (k & 0u);
  result.at[i] = x;
}
"""


def scale_kernel(device: VulkanDevice, factor: int):
    """The kernel of SCALE for a device."""
    defines = {f"GRAPHOPT_{device.access.upper()}": "1", "GRAPHOPT_MIXED": "1"}
    code = pyglslang.compile_source(SCALE, include=[INCLUDE], defines=defines)
    return device.kernel(code, name="scale", num_buffers=2, num_params=2, constants={0: 32, 1: factor})


@pytest.fixture(params=["address", "storage"])
def device(request):
    """One device per access variant; no validation message may be left after a test."""
    opened = shared_device(request.param)
    yield opened
    assert opened.messages == []


def test_a_vulkan_device_is_there_and_described():
    """The suite does not pass on a machine without Vulkan."""
    first = list_devices()[0]
    assert first.memory_bytes > 0 and first.name and first.driver
    assert 4 <= first.subgroup_sizes[0] <= first.subgroup_sizes[1] <= 128
    entry = json.loads(json.dumps(first.describe()))
    assert entry["device"] == "vulkan:0" and entry["name"] == first.name and entry["detail"]


def test_devices_are_chosen_by_index_and_name():
    """`vulkan`, `vulkan:0`, `vulkan:<part of the name>` open devices; errors list what is there."""
    name = list_devices()[0].name
    assert open_device("vulkan:0").name == name
    assert open_device(f"vulkan:{name.upper()}").name == name
    for wrong in ("vulkan:99", "vulkan:no such device", "cuda"):
        with pytest.raises(DeviceError, match=r"vulkan|Vulkan"):
            open_device(wrong)


def test_masked_features_look_missing():
    """A masked feature is neither reported nor used."""
    device = VulkanDevice(masked_features=["float64", "buffer_address", "subgroup_size_control"])
    assert not device.has_float64 and device.access == "storage"
    assert not device.info["subgroup_size_control"]
    with pytest.raises(DeviceError, match="mixed"):
        device.shader("subtract_from", "double", 2, 1, {})
    with pytest.raises(DeviceError, match="cannot be masked"):
        VulkanDevice(masked_features=["raytracing"])


def test_kernels_take_buffers_parameters_and_constants(device):
    """A specialised kernel sees its buffers, parameters and constants, also beyond one row of workgroups."""
    count = 70000 * 32 if device.info["kind"] != "cpu" else 66000 * 32
    source = device.upload(np.arange(count, dtype=np.uint32))
    result = device.allocate(4 * count)
    kernel = scale_kernel(device, 3)
    program = device.record().dispatch(kernel, [source, result], [count, 1], -(-count // 32)).finish()
    device.submit(program).wait()
    np.testing.assert_array_equal(
        device.download(result, np.uint32, count), np.arange(count, dtype=np.uint32) * np.uint32(3)
    )


def test_barriers_order_dependent_dispatches(device):
    """Fifty dependent dispatches in one program give 3^50 mod 2^32; timestamps grow."""
    buffers = [device.upload(np.ones(8, np.uint32)), device.allocate(32)]
    kernel = scale_kernel(device, 3)
    recorder = device.record().timestamp()
    for step in range(50):
        recorder.dispatch(kernel, [buffers[step % 2], buffers[1 - step % 2]], [8, 1], 1).barrier()
    program = recorder.timestamp().finish()
    device.submit(program).wait()
    assert program.num_dispatches == 50
    first, last = program.timestamps()
    assert first == 0.0 and last > 0.0
    assert set(device.download(buffers[0], np.uint32, 8)) == {pow(3, 50, 2**32)}


def test_several_programs_in_flight_run_in_order(device):
    """A program submitted many times without waiting, and tickets waited for out of order."""
    value = device.upload(np.ones(4, np.uint32))
    kernel = scale_kernel(device, 5)
    program = device.record().dispatch(kernel, [value, value], [4, 1], 1).finish()
    tickets = [device.submit(program) for _ in range(20)]
    tickets[-1].wait()
    assert all(ticket.done for ticket in tickets)
    tickets[0].wait()
    assert device.download(value, np.uint32, 1)[0] == pow(5, 20, 2**32)


def test_fill_and_partial_copies(device):
    """Fill sets every word; a copy takes ranges."""
    source, target = device.upload(np.arange(64, dtype=np.uint32)), device.allocate(256)
    program = device.record().fill(target, 7).barrier().copy(source, target, 16, 8, 32).finish()
    device.submit(program).wait()
    expected = np.full(64, 7, np.uint32)
    expected[8:12] = np.arange(2, 6)
    np.testing.assert_array_equal(device.download(target, np.uint32, 64), expected)


def test_misuse_raises_with_numbers(device):
    """Wrong counts, ranges past the end, unmapped memory and finished recorders are errors, not crashes."""
    buffer = device.allocate(64, "device")
    recorder = device.record()
    with pytest.raises(DeviceError, match="takes 2 buffers and 8 bytes"):
        recorder.dispatch(scale_kernel(device, 1), [buffer], [1, 1], 1)
    with pytest.raises(DeviceError, match="past the end"):
        recorder.copy(buffer, buffer, 128)
    with pytest.raises(DeviceError, match="not visible to the host"):
        buffer.array(np.dtype(np.uint32), 0, 1)
    with pytest.raises(DeviceError, match="expected device, upload"):
        device.allocate(4, "shard")
    recorder.finish()
    with pytest.raises(DeviceError, match="finished"):
        recorder.barrier()
    with pytest.raises(DeviceError, match="not SPIR-V"):
        device.kernel(b"nonsense", name="x", num_buffers=0, num_params=0)


def test_memory_grows_is_reused_and_given_back():
    """Statistics follow allocations; empty blocks are kept up to a bound, and given back when asked."""
    device = VulkanDevice()
    buffers = [device.allocate(1 << 20) for _ in range(40)]
    large = device.allocate(100 << 20)
    statistics = device.memory_statistics()
    assert statistics["allocations"] == 41
    assert statistics["used"] == (40 << 20) + (100 << 20) <= statistics["reserved"]
    addresses = sorted(b.address for b in buffers)
    assert all(b - a >= 1 << 20 for a, b in pairwise(addresses))
    del large, buffers
    statistics = device.memory_statistics()
    assert statistics["used"] == statistics["allocations"] == 0
    assert statistics["peak_used"] == 140 << 20
    heap = max(h["size"] for h in device.info["heaps"])
    assert 0 < statistics["cached"] == statistics["reserved"] <= min(heap // 8, 4 << 30)
    again = device.allocate(100 << 20)
    assert device.memory_statistics()["reserved"] == statistics["reserved"]
    del again
    device.native.trim()
    assert device.memory_statistics()["reserved"] == 0


def test_a_thousand_rounds_leave_nothing_behind():
    """Kernels, programs and buffers are released with their last owner."""
    device = VulkanDevice()
    kernel = scale_kernel(device, 2)
    for _ in range(1000):
        buffer = device.allocate(1000)
        device.submit(device.record().dispatch(kernel, [buffer, buffer], [4, 1], 1).finish()).wait()
    del buffer
    assert device.memory_statistics()["allocations"] == 0


def test_what_is_left_of_a_full_device_is_handed_out():
    """Less than a block of the pool is free: small buffers take it, until they are refused as well."""
    device = VulkanDevice()
    heap = max(h["size"] for h in device.info["heaps"])
    device.allocate(200 << 20)  # the next block of the pool would have twice this size
    held = []
    with pytest.raises(DeviceMemoryError):
        for _ in range(2 * heap // (300 << 20)):
            held.append(device.allocate(300 << 20))
    small = [device.allocate(1 << 20) for _ in range(16)]
    assert device.memory_statistics()["allocations"] == len(held) + len(small)


def test_out_of_memory_says_how_much_and_what_helps():
    """The error is also a MemoryError and the device works on."""
    device = VulkanDevice()
    heap = max(h["size"] for h in device.info["heaps"])
    with pytest.raises(DeviceMemoryError, match=r"(?s)were asked for.*are free.*implicit.*mixed") as caught:
        device.allocate(4 * heap)
    assert isinstance(caught.value, MemoryError)
    device.allocate(1024)


def test_a_device_that_does_not_answer_is_an_error():
    """A wait that times out raises DeviceLostError with the number of dispatches."""
    device = VulkanDevice()
    count = 1 << 16
    buffer = device.upload(np.zeros(count, np.uint32))
    kernel = scale_kernel(device, 3)
    rounds = 400 if device.info["kind"] == "cpu" else 200_000
    recorder = device.record()
    for _ in range(20):
        recorder.dispatch(kernel, [buffer, buffer], [count, rounds], count // 32).barrier()
    ticket = device.submit(recorder.finish())
    if not ticket.done:  # a driver that runs programs inside submit has nothing to wait for
        with pytest.raises(DeviceLostError, match="20 dispatches"):
            ticket.wait(0.0)
    device.native.wait_idle()
    assert ticket.done


def test_devices_of_one_process_are_independent():
    """Two open devices, used from two threads at once, give both answers."""
    results = {}

    def work(factor: int) -> None:
        device = VulkanDevice()
        value = device.upload(np.ones(64, np.uint32))
        program = device.record().dispatch(scale_kernel(device, factor), [value, value], [64, 1], 2).finish()
        for _ in range(10):
            device.submit(program).wait()
        results[factor] = int(device.download(value, np.uint32, 1)[0])

    threads = [threading.Thread(target=work, args=(factor,)) for factor in (3, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {3: 3**10, 7: 7**10}


def test_the_validation_layer_is_listening():
    """A kernel that reads undeclared push constants is reported: no messages elsewhere mean something."""
    script = f"""
import graphopt
from graphopt import pyglslang
from graphopt.device import VulkanDevice
source = {SCALE!r}
code = pyglslang.compile_source(source, include=[{str(INCLUDE)!r}],
                                defines={{"GRAPHOPT_ADDRESS": "1", "GRAPHOPT_MIXED": "1"}})
device = VulkanDevice(validation=True)
device.kernel(code, name="wrong", num_buffers=1, num_params=0)
assert any("ush" in message for message in device.messages), device.messages
"""
    python("-c", script)


def test_pipeline_cache_is_kept_on_disk(tmp_path, monkeypatch):
    """It is written once per device and driver, read by the next one, and survives a broken file."""
    monkeypatch.setenv("GRAPHOPT_CACHE_DIR", str(tmp_path))
    device = VulkanDevice()
    scale_kernel(device, 11)
    device.save_pipeline_cache()
    (path,) = tmp_path.glob("pipelines-*.bin")
    assert path.name == device.native.pipeline_cache_name
    before = path.read_bytes()
    device.save_pipeline_cache()  # nothing new
    again = VulkanDevice()
    scale_kernel(again, 11)
    del again
    assert path.read_bytes() == before
    path.write_bytes(b"broken")
    last = VulkanDevice()
    scale_kernel(last, 12)
    del last  # an owner that goes keeps what it has built
    assert disk_cache.load(path.name)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(1, 1 << 22)), max_size=120))
def test_tlsf_never_overlaps_and_merges_what_is_free(steps):
    """Any order of steps leaves disjoint ranges, no lost byte, and one range when all is free."""
    tlsf = shared_device("address").runtime.Tlsf(1 << 24)
    live: dict[int, int] = {}
    for release, size in steps:
        if release and live:
            tlsf.free(sorted(live)[size % len(live)])
            del live[sorted(live)[size % len(live)]]
        else:
            offset = tlsf.allocate(size)
            if offset is None:
                assert size > tlsf.largest_free
                continue
            assert offset % 256 == 0 and offset + size <= tlsf.capacity
            assert all(offset + size <= o or o + s <= offset for o, s in live.items())
            live[offset] = size
        assert tlsf.consistent()
    for offset in list(live):
        tlsf.free(offset)
    assert tlsf.consistent() and tlsf.used == 0 and tlsf.largest_free == tlsf.capacity
    with pytest.raises(ValueError):
        tlsf.free(0)


def test_parameters_below_zero_are_refused(device):
    """They are unsigned 32-bit integers; nothing reaches the device."""
    with pytest.raises(TypeError, match="incompatible function arguments"):
        device.record().dispatch(scale_kernel(device, 1), [device.allocate(4)] * 2, [-1, 0], 1)


def test_a_device_is_opened_once_per_process(monkeypatch):
    """By any of its names; other settings have their own; a lost one is opened again."""
    first = open_device("vulkan")
    assert open_device("vulkan:0") is first and open_device(f"vulkan:{first.name}") is first
    monkeypatch.setenv("GRAPHOPT_MASK_FEATURES", "buffer_address")
    masked = open_device("vulkan")
    assert masked is not first and masked.access == "storage"
    monkeypatch.delenv("GRAPHOPT_MASK_FEATURES")
    assert open_device("vulkan") is first
    first.native.note_loss("The device did not answer.", "")
    again = open_device("vulkan")
    assert again is not first and not again.is_lost


def test_threads_share_a_device():
    """Optimizations in several threads give the same bits as one after the other."""
    from concurrent.futures import ThreadPoolExecutor

    from graphopt.evaluate import datasets
    from graphopt.optimizer import optimize

    def final(seed):
        graph = datasets.ba(cameras=4, points=40, camera="bal", seed=seed)
        return optimize(graph, "lm", 3, device="vulkan", linear_solver="pcg", schur="implicit").final_chi2

    expected = [final(seed) for seed in range(4)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(final, range(4))) == expected


def test_a_device_is_opened_ahead_of_its_use():
    """In a thread, once; a wrong name is an error only where the device is asked for."""
    script = """
import threading
from graphopt.device import open_device, shared
from graphopt.errors import DeviceError
for which in ("no such device", None, None):
    shared.open_early(which)
threads = [t for t in threading.enumerate() if t.name == "graphopt-open"]
assert len(threads) <= 2
opened = open_device("vulkan")
for thread in threads:
    thread.join()
assert [one for one in shared.opened.values()] == [opened]
try:
    open_device("vulkan:no such device")
except DeviceError:
    print("refused")
"""
    done = python("-c", script)
    assert done.stdout.split() == ["refused"] and not done.stderr
