"""Kernels that are built in the background, held until a test has seen what runs before them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from graphopt.device import VulkanDevice, tiers


@contextmanager
def builders_held() -> Iterator[None]:
    """The thread of every `TieredKernel` builds once somebody waits for one of them."""
    may_build = threading.Event()
    generated, wait = VulkanDevice.generated, tiers.TieredKernel.wait

    def generated_later(self, *arguments):
        if threading.current_thread().name.startswith("graphopt-kernel"):
            may_build.wait()
        return generated(self, *arguments)

    def release_and_wait(self):
        may_build.set()
        wait(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(VulkanDevice, "generated", generated_later)
        patch.setattr(tiers.TieredKernel, "wait", release_and_wait)
        try:
            yield
        finally:
            may_build.set()
