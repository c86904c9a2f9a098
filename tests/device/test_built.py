"""Kernels are built once, by one thread, however many ask for them."""

from __future__ import annotations

import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from graphopt.device import VulkanDevice
from graphopt.device.built import BuiltOnce
from graphopt.device.listing import find_device
from graphopt.vulkan.program import Context, Program


def test_many_threads_one_build():
    """The others wait for the one that builds and get the same object."""
    built, calls, start = BuiltOnce(4), [], threading.Barrier(8)
    go_on = threading.Event()

    def build():
        calls.append(threading.get_ident())
        go_on.wait(10.0)
        return object()

    def ask(_):
        start.wait(10.0)
        return built.get("kernel", build)

    with ThreadPoolExecutor(8) as threads:
        found = [threads.submit(ask, k) for k in range(8)]
        go_on.set()
        objects = {id(future.result(10.0)) for future in found}
    assert len(calls) == 1 and len(objects) == 1
    assert id(built.get("kernel", build)) in objects and len(calls) == 1


def test_an_error_is_raised_and_not_kept():
    """The next one who asks builds anew."""
    built = BuiltOnce(4)

    def refuse():
        raise ValueError("no memory")

    for _ in range(2):
        with pytest.raises(ValueError, match="no memory"):
            built.get(1, refuse)
    assert built.get(1, lambda: 5) == 5


def test_what_was_asked_for_last_is_kept():
    """No more than the limit; what a thread asks for again and again stays."""
    built, calls = BuiltOnce(3), []

    def get(key):
        return built.get(key, lambda: calls.append(key) or object())

    first = get(0)
    for key in (1, 2, 3, 4):
        get(key)
        assert get(0) is first
    assert calls == [0, 1, 2, 3, 4]
    get(1)
    assert calls == [0, 1, 2, 3, 4, 1]


def test_kernels_of_a_device_are_bounded(monkeypatch):
    """One that is not kept any more is gone with the programs that launch it, and not before."""
    monkeypatch.setattr("graphopt.device.vulkan.MOST_KERNELS", 1)
    device = VulkanDevice(find_device(None))
    context = Context(device, "double")
    base, rest = device.upload(np.full(8, 2.5)), device.upload(np.zeros(8))
    program = Program(context).step([context.launch("subtract_from", (base, rest), (8,), 1)])
    released = weakref.ref(program.commands[0][1].kernel)
    total = context.accumulators(1)
    other = Program(context).step([context.launch("sum_partials", (rest, total), (0, 8, 1, 0), 1)])
    program.run()
    other.run()
    gc.collect()
    assert released() is None, "somebody keeps a kernel besides the program"
    device.write(rest, np.ones(8))
    program.run()
    np.testing.assert_array_equal(device.download(rest, np.float64, 8), 1.5)
    assert device.messages == []


def test_a_driver_on_the_cpu_keeps_fewer_kernels(monkeypatch):
    """Its machine code is in the host's memory: 1,000 of llvmpipe's kernels take 1.6 GB."""
    monkeypatch.setattr("graphopt.device.vulkan.MOST_ON_CPU", 2)
    device = VulkanDevice(find_device(None))
    if device.info["kind"] != "cpu":
        pytest.skip("the best device is a GPU")
    sizes = (32, 64, 128, 256)
    kernels = [weakref.ref(device.shader("sum_partials", "double", 2, 4, {0: size})) for size in sizes]
    gc.collect()
    assert [kernel() is not None for kernel in kernels] == [False, False, True, True]
