"""Which device optimizers of the drop-in use: the CPU, unless a program or the environment says otherwise."""

from __future__ import annotations

import os

ENVIRONMENT_VARIABLE = "GRAPHOPT_G2O_DEVICE"
"""Device for programs that cannot be changed, such as "vulkan"."""

_device: str | None = None


def set_default_device(device: str) -> None:
    """Let all optimizers use a device ("cpu", "vulkan", "vulkan:1", ...) from their next `optimize` on.

    A graph with vertices or edges defined in Python is optimized on the CPU whatever the device.
    """
    global _device
    _device = device


def default_device() -> str:
    """The device that `optimize` uses."""
    return _device or os.environ.get(ENVIRONMENT_VARIABLE) or "auto"
