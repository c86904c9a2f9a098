"""Segments of an array, one after the other: segment d is at first[d] to first[d + 1]."""

from __future__ import annotations

import numpy as np


def entries_of(first: np.ndarray, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(m,) int64 places of the entries of some segments, segment after segment, and (k,) how many each has.

    first: (n + 1,). chosen: (k,) numbers of segments, in any order.
    """
    begin = first[chosen].astype(np.int64)
    counts = first[chosen + 1].astype(np.int64) - begin
    before = np.cumsum(counts) - counts
    return np.repeat(begin - before, counts) + np.arange(counts.sum()), counts
