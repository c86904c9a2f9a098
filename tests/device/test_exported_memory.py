"""Memory that leaves Vulkan as a file: the buffer's own, seen by whoever maps it, given back in time."""

import mmap
import os

import numpy as np
import pytest
from vulkan_devices import vulkan_runtime

from graphopt.device.vulkan import VulkanDevice
from graphopt.errors import DeviceError

vulkan_runtime()


@pytest.fixture
def device():
    """A software device that exports memory as files that can be mapped."""
    opened = VulkanDevice(0)
    if opened.info["kind"] != "cpu" or not opened.info["exports_memory"]:
        pytest.skip("needs a software driver that exports memory")
    return opened


def test_what_is_written_is_in_the_file(device):
    """And what is written into the file is in the buffer."""
    numbers = np.random.default_rng(3).random(5000)
    buffer = device.allocate(numbers.nbytes, "exported")
    device.write(buffer, numbers)
    assert np.array_equal(device.download(buffer, np.float64, 5000), numbers)
    descriptor, size = buffer.export_memory()
    assert size >= numbers.nbytes
    with mmap.mmap(descriptor, 0) as file:
        os.close(descriptor)
        place = file.find(numbers.tobytes())
        assert place >= 0
        file[place : place + 8] = np.float64(7.0).tobytes()
    assert device.download(buffer, np.float64, 5000)[0] == 7.0


def test_each_buffer_has_memory_of_its_own(device):
    """Given back with the buffer: whoever imported it may still have it, and nobody else gets it."""
    before = device.memory_statistics()["reserved"]
    first, second = (device.allocate(1 << 20, "exported") for _ in range(2))
    assert device.memory_statistics()["blocks"] >= 2
    assert device.memory_statistics()["reserved"] >= before + (2 << 20)
    del first, second
    assert device.memory_statistics()["reserved"] == before


def test_other_buffers_are_not_exported(device):
    """They share blocks."""
    with pytest.raises(DeviceError, match="'device' buffer has no memory of its own to export"):
        device.allocate(64).export_memory()


def test_a_driver_that_does_not_export():
    """Says so when memory is asked for."""
    lacking = VulkanDevice(0, masked_features=["exports_memory"])
    assert not lacking.info["exports_memory"]
    with pytest.raises(DeviceError, match="does not export memory"):
        lacking.allocate(64, "exported")


def test_devices_have_a_uuid(device):
    """32 hexadecimal digits, by which other libraries know the device."""
    assert len(bytes.fromhex(device.info["uuid"])) == 16
