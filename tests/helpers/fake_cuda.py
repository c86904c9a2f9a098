"""CUDA over memory that a software device exports: what `device.cuda_arrays` asks of a driver."""

from __future__ import annotations

import ctypes
import mmap
import os
from types import SimpleNamespace

import pytest

from graphopt import foreign_arrays
from graphopt.device import cuda_arrays
from graphopt.device.cuda_arrays import CudaSide
from graphopt.device.vulkan import VulkanDevice
from graphopt.vulkan import external
from graphopt.vulkan.data import foreign

HEADER = 4096
"""Bytes in front of what llvmpipe exports."""


class FakeCuda:
    """A driver. Events happen when `finish` is called."""

    def __init__(self):
        self.mapped = {}
        self.on_copy = lambda to: None
        self.waits, self.pending, self.num_synchronized = [], set(), 0
        self.num_copies = 0

    def context(self, device):
        """Always current."""
        return self

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None

    def import_memory(self, descriptor, nbytes, size):
        """Map the file."""
        file = mmap.mmap(descriptor, 0)
        os.close(descriptor)
        assert size <= nbytes <= len(file)
        address = ctypes.addressof(ctypes.c_char.from_buffer(file)) + HEADER
        self.mapped[address] = file
        return ctypes.c_void_p(address), address

    def release_memory(self, memory, address):
        """Unmap it."""
        del self.mapped[address]

    def import_semaphore(self, descriptor):
        """There is none."""
        return descriptor

    def wait_on_stream(self, semaphore, value, stream):
        """Note it."""
        self.waits.append((value, stream))

    def new_event(self):
        """Any object."""
        return object()

    def record(self, event, stream):
        """It happens when `finish` is called."""
        self.pending.add(event)

    def is_done(self, event):
        """Whether it has happened."""
        return event not in self.pending

    def finish(self):
        """All streams get done."""
        self.pending.clear()

    def copy_to_host(self, target, source, nbytes):
        """Copy, and say so."""
        ctypes.memmove(target, source, nbytes)
        self.on_copy(target)

    def copy(self, target, source, nbytes):
        """Copy, and count it."""
        ctypes.memmove(target, source, nbytes)
        self.num_copies += 1

    def synchronize(self, stream):
        """There is no stream."""

    def device_of(self, address):
        """There is one."""
        return 0

    def call(self, name, *arguments):
        """The other functions."""
        if name == "cuCtxSynchronize":
            self.num_synchronized += 1
            self.finish()


class FakeSide(CudaSide):
    """Of a device that exports no semaphores: the numbers are there when `lend` returns."""

    def __init__(self, device, cuda):
        native = SimpleNamespace(export_semaphore=lambda: -1)
        super().__init__(SimpleNamespace(runtime=device.runtime, native=native), cuda, 0)

    def lend(self, device, memory, shape, program=None):
        """Wait for the device instead of raising a semaphore."""

        def finished(program):
            if program is not None:
                device.submit(program).wait()
            device.native.wait_idle()
            return device.native.num_submissions

        native = SimpleNamespace(submit_exported=finished)
        return super().lend(SimpleNamespace(native=native), memory, shape, program)


class OnDevice:
    """Numbers of the stand-in's device, as `__cuda_array_interface__` describes them."""

    def __init__(self, array):
        self.array = array

    @property
    def __cuda_array_interface__(self):
        array = self.array
        return {
            "shape": array.shape,
            "typestr": array.dtype.str,
            "data": (array.ctypes.data, False),
            "strides": array.strides,
            "version": 3,
            "stream": 1,
        }


def skip_unless_mapped(device):
    """What the device exports has to be memory of the host."""
    if not device.info["exports_memory"] or device.info["kind"] != "cpu":
        pytest.skip("needs a software driver that exports memory")


def install(monkeypatch):
    """The driver, of every device that is opened from now on."""
    driver, sides = FakeCuda(), {}

    def side_of(device):
        if device not in sides:
            sides[device] = FakeSide(device, driver)
        return sides[device]

    skip_unless_mapped(VulkanDevice(0))
    for module in (foreign, cuda_arrays, external):
        monkeypatch.setattr(module, "cuda_side", side_of)
    monkeypatch.setattr(foreign_arrays, "Cuda", lambda: driver)
    return driver
