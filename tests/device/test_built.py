"""Kernels are built once, by one thread, however many ask for them."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

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
