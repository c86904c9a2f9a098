"""Splitting work queues into chunks of bounded length, and chunks into bins of equal dimensions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Bin:
    """Chunks with the same block dimensions: one dispatch of a kernel made for them."""

    dims: tuple[int, ...]
    """Block dimensions; all 0: the chunks have any, and the kernel reads them from the chunk."""
    first: int
    """First chunk, in the order of the bins."""
    num_chunks: int
    mean_length: float
    """Items per chunk."""


def split_segments(
    segment_ptr: np.ndarray, limit: int, *, keep_empty: bool = False
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cut every segment into even chunks of at most `limit` items.

    segment_ptr: (num_segments + 1,). Returns segment, begin and end of each chunk, in order. Empty segments
    get no chunk, or one empty chunk where `keep_empty`.
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


MAX_SPECIALISED = 6
MIN_SPECIALISED_WORK = 100_000
"""Bins with less work (items times block area) get no kernel of their own: building one takes time."""


def sort_into_bins(
    dims: tuple[np.ndarray, ...], length: np.ndarray, *, may_mix: bool = True
) -> tuple[np.ndarray, list[Bin]]:
    """Order that puts chunks with equal dimensions together, stable, and the bins in that order.

    dims: one array per dimension. The bin with most work always has kernels of its own; rare ones are put
    together into a last bin of mixed dimensions, where `may_mix`.
    """
    key = np.zeros(len(length), np.int64)
    for one in dims:
        key = key * 16 + one
    keys, index = np.unique(key, return_inverse=True)
    area = np.ones(len(keys))
    for place in range(len(dims)):
        area *= keys >> (4 * place) & 15
    work = np.bincount(index, np.maximum(length, 1), minlength=len(keys)) * area
    by_work = np.argsort(-work, kind="stable")
    rank = np.empty(len(keys), np.int64)
    rank[by_work] = np.arange(len(keys))
    own = (rank == 0) | ((rank < MAX_SPECIALISED) & (work >= MIN_SPECIALISED_WORK))
    if not may_mix or np.count_nonzero(~own) == 1:
        own[:] = True
    bin_of = np.where(own, rank, len(keys))[index]
    order = np.argsort(bin_of, kind="stable")
    numbers, first = np.unique(bin_of[order], return_index=True)
    ends = np.append(first[1:], len(order))[: len(numbers)]
    bins = []
    for number, begin, end in zip(numbers.tolist(), first.tolist(), ends.tolist(), strict=True):
        shape = int(keys[by_work[number]]) if number < len(keys) else 0
        sizes = tuple(shape >> (4 * place) & 15 for place in reversed(range(len(dims))))
        bins.append(Bin(sizes, begin, end - begin, float(np.mean(length[order[begin:end]]))))
    return order, bins


def bins_of_blocks(dims: np.ndarray) -> tuple[np.ndarray | slice, list[Bin]]:
    """Bins of single blocks, each of one dimension: how to index them in that order, and the bins."""
    if len(dims) and bool((dims == dims[0]).all()):
        return slice(None), [Bin((int(dims[0]),), 0, len(dims), 1.0)]
    return sort_into_bins((dims,), np.ones(len(dims)), may_mix=False)


def index_table(*columns: np.ndarray, order: np.ndarray | slice = slice(None)) -> np.ndarray:
    """(n, number of columns) uint32: these columns side by side, in this order."""
    table = np.empty((len(columns[0]), len(columns)), np.uint32)
    for number, column in enumerate(columns):
        table[:, number] = column[order]
    return table


def first_of_each(counts: np.ndarray) -> np.ndarray:
    """Exclusive running sum."""
    return np.cumsum(counts) - counts


def dim_classes(dims: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct dimensions, and for each block the number of its dimension among them (uint8)."""
    distinct, index = np.unique(dims, return_inverse=True)
    return distinct, index.astype(np.uint8)


def parallel_items(wanted: float, most: int) -> int:
    """Items of a chunk to work on at a time: `most`, or a power of two below, so that kernels are few."""
    if wanted >= most:
        return most
    return 1 << max(0, int(np.log2(max(wanted, 1.0))))
