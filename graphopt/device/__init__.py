"""Compute devices: memory, kernels, recorded programs. Imports nothing native until a device is asked for."""

from __future__ import annotations

from graphopt import option_names
from graphopt.device.errors import (
    DeviceError,
    DeviceLimitError,
    DeviceLostError,
    DeviceMemoryError,
    ShaderError,
)
from graphopt.device.listing import DeviceInfo, list_devices
from graphopt.device.protocol import Device, Driver
from graphopt.device.vulkan import VulkanDevice
from graphopt.plugins import Table

__all__ = [
    "DRIVERS",
    "Device",
    "DeviceError",
    "DeviceInfo",
    "DeviceLimitError",
    "DeviceLostError",
    "DeviceMemoryError",
    "Driver",
    "ShaderError",
    "VulkanDevice",
    "is_driven",
    "list_devices",
    "open_device",
]


DRIVERS = Table("graphopt.device_drivers", "device", option_names.DRIVERS, Driver)
"""What opens devices that the block solver of `graphopt.vulkan` runs on, by the first word of their name."""


def is_driven(spec: str) -> bool:
    """Whether `open_device` opens it, and the block solver of `graphopt.vulkan` runs on it."""
    return spec.partition(":")[0] in DRIVERS


def open_device(spec: str) -> Device:
    """The device that `--device` names: "vulkan", "vulkan:1", "vulkan:radeon", "kompute", ...

    A Vulkan device is opened once per process, with its kernels and memory, and again after it was lost.
    """
    kind, _, which = spec.partition(":")
    if not is_driven(spec):
        known = ", ".join(DRIVERS.names())
        raise DeviceError(f"Device '{spec}' is unknown; expected {known}, with :INDEX or :NAME.")
    return DRIVERS[kind].open(which or None)
