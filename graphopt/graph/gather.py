"""values[index] of many rows, and its opposite, on all threads."""

from __future__ import annotations

import numpy as np

from graphopt.cpu_kernels import kernels
from graphopt.graph.columns import distinct_rows


def gathered(values: np.ndarray, index: np.ndarray) -> np.ndarray:
    """values (n, ...) at index (k,) int64, all of it within 0 .. n - 1; C-contiguous, or one row for all."""
    distinct = distinct_rows(values)
    if len(distinct) < len(values):
        return np.repeat(distinct, len(index), axis=0)
    found = np.empty((len(index), *values.shape[1:]), values.dtype)
    kernels.take_rows(values, index, found)
    return found


def put(target: np.ndarray, index: np.ndarray, values: np.ndarray) -> None:
    """target[index] = values: rows of C-contiguous arrays of one type; index (k,) int64, none twice."""
    kernels.put_rows(values, index, target)
