"""The Schur complement's work queue, made on the GPU.

    pattern      which blocks S_ij are not zero: one bit each, set from the landmarks          queue_pattern
    estimation   how many landmarks i and j share: those of the shorter list in the other one   queue_pairs
    construction the same search writes the pairs, from a running sum of the counts on          queue_pairs

For landmarks of one dimension; others take the queue of the CPU. The pairs are the CPU's, in the same order.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from graphopt.device.listing import native_module
from graphopt.errors import DeviceLimitError
from graphopt.vulkan.data.layout import (
    BlockLayout,
)
from graphopt.vulkan.program import Context, Launch, Program

WORKGROUP = 64
LOOKUP_WORKGROUP = 128
BYTES_PER_STEP = 64
"""Of a search in a list: each step waits for a number from somewhere in it, which costs a cache line."""


def cut_launches(context: Context, whole: Launch, steps: np.ndarray, per_group: int) -> list[Launch]:
    """A launch in parts, cut so that none takes longer than a submission may.

    steps: of each piece of work, `per_group` of which a workgroup takes. The first two parameters become the
    first piece and one past the last.
    """
    return [_part(whole, *piece, per_group) for piece in _pieces(context, steps)]


def _pieces(context: Context, steps: np.ndarray) -> list[tuple[int, int, float]]:
    """Runs of pieces of work that a submission may have: first, one past the last, and bytes moved."""
    total = BYTES_PER_STEP * (int(steps.sum(dtype=np.int64)) + len(steps))
    count = max(1, int(-(-total // context.submission_bytes)))
    if count == 1:
        return [(0, len(steps), float(total))]
    moved = BYTES_PER_STEP * np.concatenate([[0], np.cumsum(steps + 1, dtype=np.int64)])
    edges = np.unique(np.searchsorted(moved, np.linspace(0, moved[-1], count + 1)))
    edges[0], edges[-1] = 0, len(steps)
    return [(first, last, float(moved[last] - moved[first])) for first, last in pairwise(edges.tolist())]


def _part(whole: Launch, first: int, last: int, nbytes: float, per_group: int) -> Launch:
    groups = -(-(last - first) // per_group)
    return replace(whole, params=(first, last, *whole.params[2:]), groups=groups, nbytes=nbytes)


def run_now(context: Context, launches: list[Launch]) -> None:
    """Submit launches, in as many programs as they need, and wait."""
    Program(context).step(launches).run()


class LandmarkLists:
    """For each kept vertex its landmarks, ascending, with the places of their H_pl blocks; on the device."""

    def __init__(self, context: Context, layout: BlockLayout, inverse_offset: np.ndarray):
        dims = layout.dims[layout.num_kept :]
        if not len(dims) or dims.min() != dims.max():
            raise DeviceLimitError(
                f"Work queues on the GPU need landmarks of one dimension, these have {np.unique(dims)}. "
                "Use work_queues='cpu'."
            )
        ptr, landmark, block, item_row, item_landmark = native_module().landmark_lists(
            layout.num_kept, layout.col_ptr, layout.row_idx, layout.block_offset
        )
        self.dim = int(dims[0])
        self.ptr: np.ndarray = ptr
        """(num_kept + 1,) int64: first entry of each kept vertex."""
        self.landmark: np.ndarray = landmark
        """(num_items,) uint32: landmarks of a vertex, ascending."""
        self.items: tuple[np.ndarray, np.ndarray] = item_row, item_landmark
        """(num_items,) uint32 each: kept vertex and landmark of the H_pl blocks, as `BlockLayout.items`."""
        self.row_items = context.indices(ptr)
        self.entry_landmark = context.indices(landmark)
        self.entry_block = context.indices(block)
        self.inverse_offset = context.indices(inverse_offset)

    def walk_steps(self, reduced: BlockLayout) -> np.ndarray:
        """(num_blocks,): how many entries a walk through the lists of i and j passes, for each S_ij."""
        return np.add(*self._lengths(reduced))

    def search_steps(self, reduced: BlockLayout) -> np.ndarray:
        """(num_blocks,): how many entries are looked at to find common ones of i and j, for each S_ij."""
        row, col = self._lengths(reduced)
        depth = np.where(reduced.row_idx == reduced.col, 0, np.frexp(np.maximum(row, col))[1])
        return np.minimum(row, col) * (1 + depth)

    def _lengths(self, reduced: BlockLayout) -> tuple[np.ndarray, np.ndarray]:
        """(num_blocks,) each: of the lists of i and of j, for each S_ij."""
        length = np.diff(self.ptr)
        return length[reduced.row_idx], length[reduced.col]


def gpu_pattern(context: Context, layout: BlockLayout, lists: LandmarkLists) -> BlockLayout:
    """Layout of the Schur complement."""
    num_kept = layout.num_kept
    words = -(-num_kept // 32)
    bitmap = context.device.allocate(4 * num_kept * words)
    buffers = (*(context.indices(array) for array in (*lists.items, layout.landmark_items)), bitmap)
    Program(context).fill(bitmap).run()
    whole = context.launch("queue_pattern", buffers, (0, 0, words), 0, {0: WORKGROUP})
    first_item, degree = layout.landmark_items, np.diff(layout.landmark_items)
    runs = _pieces(context, degree * (degree + 1) // 2)
    parts = [(int(first_item[first]), int(first_item[last]), nbytes) for first, last, nbytes in runs]
    run_now(context, [_part(whole, *part, WORKGROUP) for part in parts])
    bits = context.device.download(bitmap, np.uint32, num_kept * words).view(np.uint8)
    mask = np.unpackbits(bits.reshape(num_kept, 4 * words), axis=1, count=num_kept, bitorder="little")
    kept = layout.kept()
    mask[kept.col, kept.row_idx] = 1
    col, row = np.nonzero(mask)
    counts = np.bincount(col, minlength=num_kept)
    col_ptr = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    return BlockLayout(kept.dims, col_ptr, row.astype(np.int32), num_kept)


def gpu_pairs(
    context: Context, lists: LandmarkLists, reduced: BlockLayout
) -> tuple[np.ndarray, tuple[Any, ...]]:
    """pair_ptr (num_blocks + 1,) and the buffers of left, right and inverse offsets."""
    device = context.device
    num_blocks = len(reduced.row_idx)
    blocks = context.indices(np.stack([reduced.row_idx, reduced.col], axis=1))
    counts = device.allocate(4 * num_blocks)
    shared = (blocks, lists.row_items, lists.entry_landmark, lists.entry_block, lists.inverse_offset)
    steps = lists.search_steps(reduced)

    def run(construct: int, first: Any, pairs: tuple[Any, ...]) -> None:
        buffers, constants = (*shared, first, counts, *pairs), {0: WORKGROUP, 1: construct}
        whole = context.launch("queue_pairs", buffers, (0, 0), 0, constants)
        run_now(context, cut_launches(context, whole, steps, 1))

    run(0, counts, (counts, counts, counts))
    pair_ptr = np.concatenate(
        [[0], np.cumsum(device.download(counts, np.uint32, num_blocks), dtype=np.int64)]
    )
    if pair_ptr[-1] >= 2**32:
        raise DeviceLimitError(
            f"{pair_ptr[-1]} pairs of observations are too many for a queue. Use schur='implicit', or "
            "device='cpu'."
        )
    pairs = tuple(device.allocate(4 * max(1, int(pair_ptr[-1]))) for _ in range(3))
    run(1, context.indices(pair_ptr[:-1]), pairs)
    return pair_ptr, pairs
