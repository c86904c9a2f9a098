"""Compute devices: memory, kernels, recorded programs. Imports nothing native until a device is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphopt.device.errors import (
    DeviceError,
    DeviceLimitError,
    DeviceLostError,
    DeviceMemoryError,
    ShaderError,
)
from graphopt.device.listing import DeviceInfo, find_device, list_devices
from graphopt.device.shared import shared_device
from graphopt.device.vulkan import VulkanDevice

if TYPE_CHECKING:
    from graphopt.device.kompute import KomputeDevice

__all__ = [
    "DeviceError",
    "DeviceInfo",
    "DeviceLimitError",
    "DeviceLostError",
    "DeviceMemoryError",
    "ShaderError",
    "VulkanDevice",
    "list_devices",
    "open_device",
]


def open_device(spec: str) -> VulkanDevice | KomputeDevice:
    """The device that `--device` names: "vulkan", "vulkan:1", "vulkan:radeon", "kompute", ...

    A Vulkan device is opened once per process, with its kernels and memory, and again after it was lost.
    """
    kind, _, which = spec.partition(":")
    if kind == "vulkan":
        return shared_device(which or None)
    if kind == "kompute":
        from graphopt.device.kompute import KomputeDevice

        return KomputeDevice(find_device(which or None))
    raise DeviceError(f"Device '{spec}' is unknown; expected vulkan or kompute, with :INDEX or :NAME.")
