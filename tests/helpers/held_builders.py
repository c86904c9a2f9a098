"""Kernels that are built in the background, held until a test has seen what runs before them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from graphopt.device import tiers


@contextmanager
def builders_held() -> Iterator[None]:
    """The thread of every `TieredKernel` starts to build once somebody waits for one of them."""
    may_build = threading.Event()
    build, wait = tiers.build_kernels, tiers.TieredKernel.wait

    def build_later(*arguments):
        if threading.current_thread().name == "graphopt-kernels":
            may_build.wait()
        build(*arguments)

    def release_and_wait(self):
        may_build.set()
        wait(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiers, "build_kernels", build_later)
        patch.setattr(tiers.TieredKernel, "wait", release_and_wait)
        try:
            yield
        finally:
            may_build.set()
