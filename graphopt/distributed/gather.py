"""values[index] of many rows by several threads: numpy lets others run while it copies."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np

_CHUNK = 1 << 19  # rows of a task
_THREADS = min(16, os.cpu_count() or 1)


def gathered(values: np.ndarray, index: np.ndarray) -> np.ndarray:
    """values (n, ...) at index (k,), all of it within 0 .. n - 1."""
    if len(index) <= _CHUNK or _THREADS == 1:
        return values[index]
    found = np.empty((len(index), *values.shape[1:]), values.dtype)

    def take(first: int) -> None:
        part = slice(first, first + _CHUNK)
        np.take(values, index[part], axis=0, out=found[part], mode="clip")  # "raise" would copy twice

    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(take, range(0, len(index), _CHUNK)))
    return found
