"""Segments of an array: places of their entries."""

from __future__ import annotations

import numpy as np


def runs(begin: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """(m,) int64: begin[k], begin[k] + 1, ... of so many numbers, run after run."""
    before = np.cumsum(counts) - counts
    return np.repeat(begin - before, counts) + np.arange(counts.sum())


def within(sizes: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """(m,) int64 places of the entries of some segments that stand one after the other with these sizes."""
    sizes = sizes.astype(np.int64)
    return runs((np.cumsum(sizes) - sizes)[chosen], sizes[chosen])


def entries_of(first: np.ndarray, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(m,) int64 places of the entries of some segments, segment after segment, and (k,) how many each has.

    first: (n + 1,), segment d is at first[d] to first[d + 1]. chosen: (k,) numbers of segments, in any order.
    """
    begin = first[chosen].astype(np.int64)
    counts = first[chosen + 1].astype(np.int64) - begin
    return runs(begin, counts), counts
