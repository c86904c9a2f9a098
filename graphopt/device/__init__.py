"""Compute devices: memory, kernels, recorded programs. Imports nothing native until a device is asked for."""

from __future__ import annotations

from graphopt.device.errors import DeviceError, DeviceLostError, DeviceMemoryError, ShaderError
from graphopt.device.vulkan import DeviceInfo, VulkanDevice, list_devices

__all__ = [
    "DeviceError",
    "DeviceInfo",
    "DeviceLostError",
    "DeviceMemoryError",
    "ShaderError",
    "VulkanDevice",
    "list_devices",
    "open_device",
]


def open_device(spec: str, **options) -> VulkanDevice:
    """Open the device that a `--device` option names: "vulkan", "vulkan:1" or "vulkan:radeon"."""
    kind, _, which = spec.partition(":")
    if kind != "vulkan":
        raise DeviceError(f"Device '{spec}' is unknown; expected vulkan, vulkan:INDEX or vulkan:NAME.")
    return VulkanDevice(which or None, **options)
