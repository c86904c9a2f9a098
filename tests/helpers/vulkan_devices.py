"""Devices that the Vulkan tests share: one per access variant, under the validation layer."""

from __future__ import annotations

import functools
import os

import pytest

os.environ.setdefault(
    "LP_NUM_THREADS", "0"
)  # llvmpipe runs tiny dispatches ten times faster in the calling thread

from graphopt.device import VulkanDevice

VARIANTS = [("address", "double"), ("storage", "double"), ("address", "mixed"), ("storage", "mixed")]
SHARED: list[VulkanDevice] = []
"""Devices that tests have asked for."""


@functools.cache
def shared_device(access: str) -> VulkanDevice:
    """A device with or without buffer addresses; where there is no Vulkan, the tests fail."""
    masked = ["buffer_address"] if access == "storage" else []
    SHARED.append(VulkanDevice(validation=True, masked_features=masked))
    return SHARED[-1]


def vulkan_runtime():
    """The native module of devices; without it (graphopt was built without Vulkan) the test is skipped."""
    try:
        from graphopt import _vulkan
    except ImportError:
        pytest.skip("graphopt was built without Vulkan")
    return _vulkan
