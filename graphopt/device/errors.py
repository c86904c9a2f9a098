"""Errors of devices. The native runtime raises these classes."""

from __future__ import annotations

from graphopt.errors import DeviceError, GraphOptError


class DeviceMemoryError(DeviceError, MemoryError):
    """The device has too little memory. The message says what was asked, what is free and what would help."""


class DeviceLostError(DeviceError):
    """The device was reset, removed or did not answer in time. The estimate on the host is intact."""


class ShaderError(GraphOptError, ValueError):
    """A shader does not compile. The message holds one `file:line: error` per line."""


__all__ = ["DeviceError", "DeviceLostError", "DeviceMemoryError", "ShaderError"]
