"""Kernels are built once, by one thread, however many ask for them; only so many are kept unused."""

from __future__ import annotations

import gc
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from graphopt.device import VulkanDevice
from graphopt.device.built import BuiltOnce


def test_many_threads_one_build():
    """The others wait for the one that builds and get the same object."""
    built, calls, start = BuiltOnce(), [], threading.Barrier(8)
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
        objects = {id(one.result(10.0)) for one in found}
    assert len(calls) == 1 and len(objects) == 1
    assert id(built.get("kernel", build)) in objects and len(calls) == 1


def test_an_error_is_raised_and_not_kept():
    """The next one who asks builds anew."""
    built = BuiltOnce()

    def refuse():
        raise ValueError("no memory")

    for _ in range(2):
        with pytest.raises(ValueError, match="no memory"):
            built.get(1, refuse)
    assert built.get(1, lambda: 5) == 5


def test_those_asked_for_longest_ago_are_given_up():
    """Beyond the bound the oldest goes, but neither one in use nor one that was asked for since."""
    used = {0}
    built = BuiltOnce(most=3, in_use=used.__contains__)
    builds = []

    def ask(number):
        return built.get(number, lambda: builds.append(number) or number)

    for number in (0, 1, 2, 1, 3, 4):  # 2 goes for 3, 1 for 4
        ask(number)
    assert len(built) == 3
    builds.clear()
    assert [ask(0), ask(3), ask(4)] == [0, 3, 4] and builds == []
    used.clear()
    ask(5)
    assert len(built) == 3
    assert ask(0) == 0 and builds == [5, 0]


def test_what_is_all_in_use_stays():
    """The bound is of what nobody uses."""
    built = BuiltOnce(most=2, in_use=lambda number: True)
    assert [built.get(number, lambda number=number: number) for number in range(5)] == list(range(5))
    assert len(built) == 5


def test_kernels_of_a_device_are_bounded():
    """Kernels of programs that are gone are given up; one that a program has stays, and the program runs."""
    device = VulkanDevice()
    device._kernels._most = 4

    def fold(size):
        return device.shader("batch_fold", "mixed", 2, 2, {0: size})

    recorder = device.record()
    buffers = [device.upload(np.ones(64, np.float32)), device.upload(np.zeros(64, np.float32))]
    program = recorder.dispatch(fold(32), buffers, [1, 1], 1).finish()
    kept = fold(32)
    assert kept.is_recorded
    for number in range(20):
        fold(33 + number)
    assert len(device._kernels) <= 5
    assert fold(32) is kept
    device.submit(program).wait()
    del program, recorder
    gc.collect()
    assert not kept.is_recorded
