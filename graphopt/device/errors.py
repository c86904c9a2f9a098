"""Errors of devices. The native runtime raises these classes."""

from __future__ import annotations

from graphopt.errors import DeviceError, DeviceLimitError
from graphopt.pyglslang import ShaderError


class DeviceMemoryError(DeviceError, MemoryError):
    """The device has too little memory. The message says what was asked, what is free and what would help."""


class DeviceLostError(DeviceError):
    """The device was reset, removed or did not answer in time. The estimate on the host is intact.

    Go on with device="cpu", or with `open_device`, which opens the device anew.
    """

    def __init__(self, text: str, *, device: str = "", running: str = ""):
        super().__init__(text)
        self.device = device
        """Its name."""
        self.running = running
        """What it was doing: label, number of dispatches and kernels of the program."""


__all__ = ["DeviceError", "DeviceLimitError", "DeviceLostError", "DeviceMemoryError", "ShaderError"]
