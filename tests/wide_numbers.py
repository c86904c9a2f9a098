"""Numbers in the form in which devices keep them."""

from __future__ import annotations

import numpy as np


def pack_wide(values: np.ndarray, has_float64: bool) -> np.ndarray:
    """float64 as the device's wide numbers, 8 bytes each: themselves, or pairs (hi, lo) of float32."""
    values = np.ascontiguousarray(values, np.float64)
    if has_float64:
        return values
    pairs = np.empty((*values.shape, 2), np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        pairs[..., 0] = values
        pairs[..., 1] = values - pairs[..., 0]
    return pairs
