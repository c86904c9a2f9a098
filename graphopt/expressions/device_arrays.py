"""Arrays that stay on a device between calls of device functions."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphopt.device import DeviceError, open_device
from graphopt.errors import ShapeError


class DeviceArray:
    """A float32 or float64 array in a device's memory; rows are its first axis."""

    def __init__(self, device: Any, buffer: Any, shape: tuple[int, ...], dtype: np.dtype):
        self.device, self.buffer, self.shape, self.dtype = device, buffer, shape, dtype

    def numpy(self) -> np.ndarray:
        """Copy of the array on the host."""
        array = np.empty(self.shape, self.dtype)
        if array.size:
            self.device.read([(self.buffer, 0, array)])
        return array

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<DeviceArray {self.dtype} {self.shape} on {self.device.name}>"


def to_device(array: Any, device: str = "vulkan") -> DeviceArray:
    """Copy an array to a device ("vulkan", "vulkan:1", ...); what is not float32 becomes float64.

    Raises DeviceError (no such device, no float64 there), ShapeError (no numbers).
    """
    return upload(open_device(device), np.asarray(array))


def upload(device: Any, array: np.ndarray) -> DeviceArray:
    """Copy to an open device."""
    if array.dtype.kind not in "fiub":
        raise ShapeError(f"The array is of {array.dtype}, expected real numbers.")
    array = np.ascontiguousarray(array, np.float32 if array.dtype == np.float32 else np.float64)
    if array.dtype == np.float64 and not device.has_float64:
        raise DeviceError(f"{device.name} has no float64. Pass float32 arrays.")
    buffer = device.upload(array) if array.size else device.allocate(16)
    return DeviceArray(device, buffer, array.shape, array.dtype)
