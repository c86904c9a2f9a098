"""Splitting work queues into chunks of bounded length, and sorting chunks into bins of equal block dimensions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Bin:
    """Chunks with the same block dimensions: one dispatch."""

    rows: int
    cols: int
    first: int
    """First chunk, in the order of the bins."""
    num_chunks: int
    mean_length: float
    """Items per chunk."""


def split_segments(
    segment_ptr: np.ndarray, limit: int, *, keep_empty: bool = False
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cut every segment into even chunks of at most `limit` items.

    segment_ptr: (num_segments + 1,). Returns segment, begin and end of each chunk, in order. Empty segments get no
    chunk, or one empty chunk where `keep_empty`.
    """
    length = np.diff(segment_ptr)
    count = -(-length // limit)
    if keep_empty:
        count = np.maximum(count, 1)
    segment = np.repeat(np.arange(len(length)), count)
    local = np.arange(len(segment)) - np.repeat(np.cumsum(count) - count, count)
    begin = segment_ptr[segment] + local * length[segment] // np.maximum(count[segment], 1)
    end = segment_ptr[segment] + (local + 1) * length[segment] // np.maximum(count[segment], 1)
    return segment, begin, end


def sort_into_bins(rows: np.ndarray, cols: np.ndarray, length: np.ndarray) -> tuple[np.ndarray, list[Bin]]:
    """Order that puts chunks with equal (rows, cols) together, stable, and the bins in that order."""
    key = rows.astype(np.int64) * 64 + cols
    order = np.argsort(key, kind="stable")
    keys, first = np.unique(key[order], return_index=True)
    ends = np.append(first[1:], len(order))[: len(keys)]
    bins = []
    for k, begin, end in zip(keys.tolist(), first.tolist(), ends.tolist(), strict=True):
        mean = float(np.mean(length[order[begin:end]]))
        bins.append(Bin(k // 64, k % 64, begin, end - begin, mean))
    return order, bins


def first_of_each(counts: np.ndarray) -> np.ndarray:
    """Exclusive running sum."""
    return np.cumsum(counts) - counts


def dim_classes(dims: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct dimensions, and for each block the number of its dimension among them (uint8)."""
    distinct, index = np.unique(dims, return_inverse=True)
    return distinct, index.astype(np.uint8)


def parallel_items(wanted: float, most: int) -> int:
    """Items of a chunk to work on at the same time: `most`, or a power of two below, so that kernels are few."""
    if wanted >= most:
        return most
    return 1 << max(0, int(np.log2(max(wanted, 1.0))))
