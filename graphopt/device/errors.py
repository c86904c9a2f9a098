"""Errors of devices. The native runtime raises these classes."""

from __future__ import annotations

from graphopt.errors import DeviceError
from graphopt.pyglslang import ShaderError


class DeviceMemoryError(DeviceError, MemoryError):
    """The device has too little memory. The message says what was asked, what is free and what would help."""


class DeviceLostError(DeviceError):
    """The device was reset, removed or did not answer in time. The estimate on the host is intact."""


__all__ = ["DeviceError", "DeviceLostError", "DeviceMemoryError", "ShaderError"]
