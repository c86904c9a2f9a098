"""Whatever goes wrong on a device reaches the caller as one named error; nothing waits for ever or leaks."""

from __future__ import annotations

import gc
import time
from typing import Any

import numpy as np
import pytest
from vulkan_devices import shared_device

from graphopt import pyglslang
from graphopt.device import (
    DeviceError,
    DeviceLostError,
    DeviceMemoryError,
    ShaderError,
    VulkanDevice,
)
from graphopt.device.shared import shared_device as opened_device
from graphopt.errors import GraphOptError


@pytest.fixture
def device():
    """A device of this test's own, whose calls may be made to fail."""
    opened = VulkanDevice()
    yield opened
    opened.native.mend_calls()


def lose(device: VulkanDevice, ticket: Any, *calls: str, result: str = "VK_ERROR_DEVICE_LOST") -> None:
    """Let calls fail from now on. What runs is let to its end before: it is not truly lost."""
    while ticket is not None and not ticket.done:
        time.sleep(1e-3)
    for call in calls:
        device.native.break_call(call, result)


def small_program(device: VulkanDevice, label: str = ""):
    """A program that fills a buffer."""
    return device.record(label).fill(device.allocate(64), 1).finish()


def test_a_shader_error_is_a_device_error():
    """Whoever falls back to the CPU catches kernels that do not compile, too."""
    with pytest.raises(DeviceError) as caught:
        pyglslang.compile_source("#version 450\nnonsense", name="nonsense.comp")
    assert isinstance(caught.value, ShaderError) and isinstance(caught.value, GraphOptError)


@pytest.mark.parametrize("call", ["vkQueueSubmit", "vkWaitSemaphores", "vkGetSemaphoreCounterValue"])
def test_a_lost_device_is_one_error_that_names_what_ran(device, call):
    """Loss in any call: DeviceLostError with the label of the program; later calls repeat it, at once."""
    program = small_program(device, "trial 7")
    if call == "vkQueueSubmit":
        lose(device, None, call)
        with pytest.raises(DeviceLostError) as caught:
            device.submit(program)
    else:
        ticket = device.submit(program)
        lose(device, ticket, call, "vkGetSemaphoreCounterValue")  # short programs are waited for by asking
        with pytest.raises(DeviceLostError) as caught:
            _ = ticket.done if call == "vkGetSemaphoreCounterValue" else ticket.wait()
    first = caught.value
    assert "'trial 7'" in first.running and device.name in str(first) and first.device == device.name
    assert device.is_lost
    buffer = device.allocate(64)
    for again in (
        lambda: device.submit(small_program(device)),
        lambda: device.write(device.allocate(64, "shared"), np.zeros(4)),
        lambda: device.download(buffer, np.uint8, 64),
    ):
        with pytest.raises(DeviceLostError, match="takes no more work") as repeated:
            again()
        assert repeated.value.running == first.running


def test_a_loss_that_is_met_in_passing_is_not_forgotten(device):
    """Who asks what has ended, to give its memory back, may be the first to hear of it."""
    first, second = small_program(device, "first"), small_program(device, "second")
    ticket = device.submit(first)
    device.native.break_call("vkGetSemaphoreCounterValue", "VK_ERROR_DEVICE_LOST", 0)
    with pytest.raises(DeviceLostError, match=r"VK_ERROR_DEVICE_LOST.* while it ran 'first'"):
        device.submit(second)
    assert device.is_lost
    device.native.wait_idle()  # it was not truly lost
    del ticket


def test_a_lost_shared_device_is_opened_anew():
    """open_device gives a working device after a loss."""
    first = opened_device(None)
    ticket = first.submit(small_program(first))
    lose(first, ticket, "vkWaitSemaphores", "vkGetSemaphoreCounterValue")
    with pytest.raises(DeviceLostError):
        ticket.wait()
    second = opened_device(None)
    assert second is not first and not second.is_lost
    np.testing.assert_array_equal(second.download(second.upload(np.arange(9)), np.int64, 9), np.arange(9))
    first.native.mend_calls()


def test_a_device_that_does_not_answer_is_lost(device):
    """A wait that times out notes the loss; dropping the ticket and the device neither raises nor waits."""
    ticket = device.submit(small_program(device, "endless"))
    lose(device, ticket, "vkWaitSemaphores", "vkGetSemaphoreCounterValue", result="VK_TIMEOUT")
    with pytest.raises(DeviceLostError, match=r"did not finish 'endless'.*within 0\.0"):
        ticket.wait(0.01)
    assert device.is_lost
    start = time.perf_counter()
    del ticket
    with pytest.raises(DeviceLostError, match="endless"):
        device.submit(small_program(device))
    assert time.perf_counter() - start < 5.0


def test_dropping_tickets_of_a_lost_device_raises_nothing(device):
    """Destructors of tickets, programs and buffers swallow a loss that happens meanwhile."""
    tickets = [device.submit(small_program(device)) for _ in range(5)]
    lose(device, tickets[-1], "vkWaitSemaphores", "vkGetSemaphoreCounterValue", "vkDeviceWaitIdle")
    del tickets
    gc.collect()
    assert device.memory_statistics()["allocations"] == 0  # what a lost device worked on is free


def test_dropping_a_ticket_does_not_wait():
    """A ticket may be dropped while its program runs, without asking the device to wait for anything."""
    device = VulkanDevice()
    buffer = device.allocate(1 << 20)
    recorder = device.record()
    for value in range(50):
        recorder.fill(buffer, value).barrier()
    program = recorder.finish()
    for call in ("vkWaitSemaphores", "vkDeviceWaitIdle"):
        device.native.break_call(call, "VK_ERROR_DEVICE_LOST")
    for _ in range(100):
        device.submit(program)  # the ticket is gone at once
    assert not device.is_lost  # as it would be had anybody waited
    device.native.mend_calls()
    assert device.download(buffer, np.uint32, 1)[0] == 49
    del program, recorder, buffer
    device.native.wait_idle()
    assert device.memory_statistics()["allocations"] == 0


@pytest.mark.parametrize("call", ["vkBindBufferMemory", "vkMapMemory", "vkAllocateMemory"])
def test_a_block_that_fails_halfway_is_given_back(call):
    """Nothing of it stays behind: the validation layer sees no object that outlives its device."""
    device = VulkanDevice(validation=True)
    watching = shared_device("address")
    device.native.break_call(call, "VK_ERROR_MEMORY_MAP_FAILED")
    with pytest.raises(DeviceError, match="VK_ERROR_MEMORY_MAP_FAILED"):
        device.allocate(300 << 20, "upload")
    assert device.memory_statistics()["reserved"] == 0
    device.native.mend_calls()
    device.allocate(1 << 20, "upload")
    del device
    gc.collect()
    assert watching.messages == []


def test_out_of_memory_says_what_was_refused_and_why():
    """The driver refuses blocks of every size although nothing is full: the smallest one is named."""
    device = VulkanDevice()
    device.native.break_call("vkAllocateMemory", "VK_ERROR_OUT_OF_DEVICE_MEMORY")
    with pytest.raises(DeviceMemoryError) as refused:
        device.allocate(1000)
    text = str(refused.value)
    assert ": 1000 bytes were asked for" in text and "full" not in text
    assert "the driver refused a block of " in text and "(VK_ERROR_OUT_OF_DEVICE_MEMORY)" in text
    device.native.mend_calls()
    heap = max(heap["size"] for heap in device.info["heaps"])
    with pytest.raises(DeviceMemoryError, match=r"does not fit|promises at most") as large:
        device.allocate(2 * heap)
    assert "refused" not in str(large.value)


def test_memory_that_is_kept_makes_room():
    """Empty blocks that are kept count as free, and go before an allocation fails."""
    device = VulkanDevice()
    heap = next(i for i, h in enumerate(device.info["heaps"]) if h["device_local"])
    before = device.native.free_bytes(heap)
    device.allocate(64 << 20)
    statistics = device.memory_statistics()
    assert statistics["cached"] == statistics["reserved"] > 0
    assert device.native.free_bytes(heap) >= before - (1 << 20)
    device.native.break_call("vkAllocateMemory", "VK_ERROR_OUT_OF_DEVICE_MEMORY")
    with pytest.raises(DeviceError, match=r"Out of memory.* 128\.0 MiB were asked for"):
        device.allocate(128 << 20)
    assert device.memory_statistics()["reserved"] == 0  # it was given back before giving up
    device.native.mend_calls()
