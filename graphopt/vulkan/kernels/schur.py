"""The Schur complement on the device, and its block diagonal.

    S = H_pp + D_pp - H_pl (H_ll + D_ll)^-1 H_pl'   upper triangle, from pairs sorted by destination

H_pl H_ll^-1 is recomputed for each pair, never stored. The block diagonal needs one pair per H_pl block only.
Who finds the pairs: the CPU, the GPU (`schur_queue`), or nobody before they are used (`schur_lookup`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphopt.device.listing import native_module
from graphopt.vulkan.data.array import DeviceArray
from graphopt.vulkan.data.layout import (
    MAX_BLOCK_DIM,
    Bin,
    BlockLayout,
    dim_classes,
    first_of_each,
    parallel_items,
    sort_into_bins,
    split_segments,
)
from graphopt.vulkan.kernels.schur_lookup import SchurLookup
from graphopt.vulkan.kernels.schur_queue import (
    LandmarkLists,
    gpu_pairs,
    gpu_pattern,
)
from graphopt.vulkan.program import NOTHING, Context, Launch, check_queue

PAIR_WORKGROUP = 128
PAIRS_PER_CHUNK = 128
TILE_WORKGROUP = 32
TILE_STAGE_SCALARS = 1344
"""Shared memory for pairs; with the 2.3 KiB to merge and the offsets, below the 16 KiB every device has."""
TILE_PAIRS_PER_PART = 8
NEIGHBOURS = 1024
COMBINE_WORKGROUP = 128
_IS_PARTIAL = 0x80000000


class SchurBlocks:
    """Forms chosen blocks of S from a queue of pairs."""

    def __init__(
        self,
        context: Context,
        layout: BlockLayout,
        block_row: np.ndarray,
        block_col: np.ndarray,
        hpp_block: np.ndarray,
        pair_ptr: np.ndarray,
        landmark_dims: np.ndarray,
        pairs: tuple[Any, ...],
        *,
        same: bool = False,
    ):
        """block_row, block_col: kept vertices of each block of S; hpp_block: H's block there, -1: none.

        pair_ptr: (num_blocks * len(landmark_dims) + 1,) pairs of each block and landmark dimension.
        pairs: buffers with the offsets of W_il and W_jl in values, and of H_ll^-1. same: i = j everywhere,
        and the damping is left out.
        """
        self._context = context
        self._same = same
        rows, cols = layout.dims[block_row], layout.dims[block_col]
        area = rows.astype(np.int64) * cols
        self.offset = first_of_each(area)
        """(num_blocks,) int64: offset of each block of S."""
        self.size = int(area.sum())
        self.matrix = DeviceArray(context, self.size, is_mapped=False)
        self.buffer = self.matrix.buffer
        self._left, self._right, self._inverse = pairs

        check_queue(int(pair_ptr[-1]), "the Schur complement")
        num_classes = len(landmark_dims)
        segment, begin, end = split_segments(pair_ptr, PAIRS_PER_CHUNK)
        segment, begin, end = _with_empty_blocks(segment, begin, end, len(rows), num_classes)
        block = segment // num_classes
        parts = np.bincount(block, minlength=len(rows))
        split = parts[block] > 1
        partial_first = first_of_each(np.where(split, area[block], 0))
        self._partial = context.accumulators(int(np.where(split, area[block], 0).sum()))
        hpp = np.where(hpp_block >= 0, layout.block_offset[hpp_block], NOTHING)
        is_damped = (block_row == block_col) & (not same)
        damping = np.where(is_damped, layout.scalar[block_row], NOTHING)
        target = np.where(split, partial_first | _IS_PARTIAL, self.offset[block])
        dims = (rows[block], cols[block], landmark_dims[segment % num_classes])
        packed = dims[0] + 256 * dims[1] + 65536 * dims[2]
        table = np.stack([begin, end, target, hpp[block], damping[block], packed], axis=1)
        # Queues of about one length share a workgroup, among neighbours, which share cached blocks.
        alike = _longest_first(end - begin)
        order, self._bins = sort_into_bins(tuple(dim[alike] for dim in dims), (end - begin)[alike])
        self._chunks = context.indices(table[alike[order]])

        many = np.flatnonzero(parts > 1)
        first_part = partial_first[first_of_each(parts)[many]]
        order, self._combine_bins = sort_into_bins((rows[many], cols[many]), parts[many])
        packed = rows[many] + 256 * cols[many]
        table = np.stack(
            [first_part, parts[many], self.offset[many], hpp[many], damping[many], packed], axis=1
        )
        self._combined = context.indices(table[order])

    def pair_launches(self, values: Any, inverse: Any, damping: Any) -> list[Launch]:
        """Blocks with short queues, and the parts of those with long ones."""
        launches = []
        for bin_ in self._bins:
            rows, cols, dim = bin_.dims
            name, constants, slots = self._pair_kernel(bin_)
            buffers = (
                self._chunks,
                self._left,
                self._right,
                self._inverse,
                values,
                inverse,
                damping,
                self.buffer,
                self._partial,
            )
            per_pair = ((rows or MAX_BLOCK_DIM) + (cols or MAX_BLOCK_DIM)) * (dim or MAX_BLOCK_DIM)
            nbytes = bin_.mean_length * bin_.num_chunks * per_pair * self._context.real.itemsize
            pieces = min(bin_.num_chunks, int(nbytes / self._context.submission_bytes) + 1)
            for piece in range(pieces):
                first, last = (bin_.num_chunks * at // pieces for at in (piece, piece + 1))
                params = (bin_.first + first, last - first)
                groups = -(-(last - first) // slots)
                launches.append(
                    self._context.launch(name, buffers, params, groups, constants, nbytes / pieces)
                )
        return launches

    def _pair_kernel(self, bin_: Bin) -> tuple[str, dict[int, int], int]:
        """Shader and constants of a bin, and how many chunks a workgroup of it takes."""
        rows, cols, dim = bin_.dims
        if rows == 0:
            team = (-(-MAX_BLOCK_DIM // 3)) ** 2
            parallel = parallel_items(bin_.mean_length / 2, PAIR_WORKGROUP // team)
            constants = {0: PAIR_WORKGROUP, 1: 0, 2: 0, 3: 0, 4: parallel}
            return "schur_pairs", constants, PAIR_WORKGROUP // (team * parallel)
        team = -(-rows // 3)
        scalars = (3 * team + (0 if self._same else cols) + dim) * dim
        pairs = max(1, min(TILE_WORKGROUP // team, TILE_STAGE_SCALARS // scalars))
        parallel = parallel_items(bin_.mean_length / TILE_PAIRS_PER_PART, pairs)
        constants = {0: TILE_WORKGROUP, 1: rows, 2: cols, 3: dim, 4: parallel, 5: pairs // parallel}
        constants[6] = int(self._same)
        return "schur_tiles", constants, pairs // parallel

    def combine_launches(self, values: Any, damping: Any) -> list[Launch]:
        """Blocks with long queues, from their parts."""
        launches = []
        for combine_bin in self._combine_bins:
            rows, cols = combine_bin.dims
            constants = {0: COMBINE_WORKGROUP, 1: rows, 2: cols}
            buffers = (self._combined, self._partial, values, damping, self.buffer)
            elements = combine_bin.num_chunks * ((rows * cols) or MAX_BLOCK_DIM**2)
            groups = -(-elements // COMBINE_WORKGROUP)
            params = (combine_bin.first, combine_bin.num_chunks)
            launches.append(self._context.launch("schur_combine", buffers, params, groups, constants))
        return launches


def _with_empty_blocks(
    segment: np.ndarray, begin: np.ndarray, end: np.ndarray, num_blocks: int, num_classes: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Give every block without pairs one empty chunk, which copies H_pp + D."""
    seen = np.zeros(num_blocks, bool)
    seen[segment // num_classes] = True
    empty = np.flatnonzero(~seen) * num_classes
    segment = np.concatenate([segment, empty])
    order = np.argsort(segment, kind="stable")
    zeros = np.zeros(len(empty), np.int64)
    return segment[order], np.concatenate([begin, zeros])[order], np.concatenate([end, zeros])[order]


MIN_GPU_QUEUE_ITEMS = 200_000
"""H_pl blocks from which `auto` builds the work queue on the GPU."""


def _longest_first(lengths: np.ndarray) -> np.ndarray:
    """The order of queues by length among `NEIGHBOURS` at a time, which stay together."""
    num_groups = -(-len(lengths) // NEIGHBOURS)
    keys = np.ones((num_groups, NEIGHBOURS), np.int16)  # sorted by radix; places that are not there come last
    keys.reshape(-1)[: len(lengths)] = -lengths
    order = np.argsort(keys, axis=1, kind="stable") + np.arange(num_groups)[:, None] * NEIGHBOURS
    return order.ravel()[: len(lengths)]


def choose_work_queues(asked: str, context: Context, layout: BlockLayout) -> str:
    """What "auto" stands for: by size, and the CPU for landmarks of several dimensions."""
    if asked != "auto":
        return asked
    dims = layout.dims[layout.num_kept :]
    several = not len(dims) or dims.min() != dims.max()
    small = layout.num_items < MIN_GPU_QUEUE_ITEMS or context.device.info["kind"] == "cpu"
    return "cpu" if several or small else "gpu"


def explicit_schur(
    context: Context, layout: BlockLayout, inverse_offset: np.ndarray, work_queues: str = "auto"
) -> tuple[SchurBlocks | SchurLookup, BlockLayout]:
    """All blocks of S, and their layout. work_queues: "cpu", "gpu", "lookup" (none) or "auto"."""
    kept = layout.kept()
    work_queues = choose_work_queues(work_queues, context, layout)
    landmark_dims, classes = dim_classes(layout.dims[layout.num_kept :])
    if work_queues == "cpu":
        col_ptr, row_idx, pair_ptr, *pairs = native_module().schur_queue(
            len(landmark_dims),
            layout.landmark_items,
            layout.item_row,
            layout.block_offset[layout.items],
            inverse_offset,
            classes,
            kept.col_ptr,
            kept.row_idx,
        )
        reduced = BlockLayout(kept.dims, col_ptr, row_idx, layout.num_kept)
        uploaded = tuple(context.indices(part) for part in pairs)
    else:
        lists = LandmarkLists(context, layout, inverse_offset)
        reduced = gpu_pattern(context, layout, lists)
        if work_queues == "lookup":
            return SchurLookup(context, layout, lists, reduced, _find_blocks(kept, reduced)), reduced
        pair_ptr, uploaded = gpu_pairs(context, lists, reduced)
    hpp = _find_blocks(kept, reduced)
    blocks = SchurBlocks(
        context, layout, reduced.row_idx, reduced.col, hpp, pair_ptr, landmark_dims, uploaded
    )
    return blocks, reduced


def _find_blocks(kept: BlockLayout, reduced: BlockLayout) -> np.ndarray:
    """For each block of the reduced layout the stored block of H_pp at its place, -1 where there is none."""
    num = np.int64(max(kept.num_blocks, 1))
    keys = kept.col * num + kept.row_idx  # ascending in both layouts
    wanted = reduced.col * num + reduced.row_idx
    at = np.searchsorted(keys, wanted)
    found = (at < len(keys)) & (keys[np.minimum(at, len(keys) - 1)] == wanted)
    return np.where(found, at, -1)


def schur_diagonal(context: Context, layout: BlockLayout, inverse_offset: np.ndarray) -> SchurBlocks:
    """The diagonal blocks of S only, without damping."""
    landmark_dims, classes = dim_classes(layout.dims[layout.num_kept :])
    if len(landmark_dims) == 1:
        lists = LandmarkLists(context, layout, inverse_offset)
        pair_ptr, own, landmark = lists.ptr, lists.entry_block, lists.landmark
    else:
        item_landmark = np.repeat(np.arange(layout.num_landmarks), np.diff(layout.landmark_items))
        key = layout.item_row.astype(np.int64) * len(landmark_dims) + classes[item_landmark]
        order = np.argsort(key, kind="stable")
        counts = np.bincount(key, minlength=layout.num_kept * len(landmark_dims))
        pair_ptr = np.concatenate([[0], np.cumsum(counts)])
        own = context.indices(layout.block_offset[layout.items[order]])
        landmark = item_landmark[order]
    kept = np.arange(layout.num_kept)
    diagonal_block = layout.col_ptr[1 : layout.num_kept + 1] - 1
    pairs = (own, own, context.indices(inverse_offset[landmark]))
    return SchurBlocks(context, layout, kept, kept, diagonal_block, pair_ptr, landmark_dims, pairs, same=True)
