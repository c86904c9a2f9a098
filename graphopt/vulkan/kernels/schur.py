"""The Schur complement's work queue on the GPU, and the variant that needs none.

    pattern      which blocks S_ij are not zero: one bit each, set from the landmarks          queue_pattern
    estimation   how many landmarks i and j share: walk both sorted lists                       queue_pairs
    construction the same walk writes the pairs, from a running sum of the counts on            queue_pairs
    lookup       the walk happens in the multiplication, at every use: set-up is the pattern    schur_lookup

For landmarks of one dimension; others take the queue of the CPU. The pairs are the CPU's, in the same order.

The Schur complement on the device, and its block diagonal.

    S = H_pp + D_pp - H_pl (H_ll + D_ll)^-1 H_pl'   upper triangle, from pairs sorted by destination

H_pl H_ll^-1 is recomputed for each pair, never stored. The block diagonal needs one pair per H_pl block only.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from graphopt.device.listing import native_module
from graphopt.errors import DeviceLimitError
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
from graphopt.vulkan.program import NOTHING, Context, Launch, Program, check_queue
from graphopt.vulkan.schedules import schedule

WORKGROUP = 64
LOOKUP_WORKGROUP = 128
BYTES_PER_STEP = 64
"""Of a walk through a list: each step waits for a number from somewhere in it, which costs a cache line."""


def cut_launches(context: Context, whole: Launch, steps: np.ndarray, per_group: int) -> list[Launch]:
    """A launch in parts, cut so that none takes longer than a submission may.

    steps: of each piece of work, `per_group` of which a workgroup takes. The first two parameters become the
    first piece and one past the last.
    """
    moved = BYTES_PER_STEP * np.concatenate([[0], np.cumsum(steps + 1, dtype=np.int64)])
    count = max(1, int(-(-moved[-1] // context.submission_bytes)))
    edges = np.unique(np.searchsorted(moved, np.linspace(0, moved[-1], count + 1)))
    edges[0], edges[-1] = 0, len(steps)
    launches = []
    for first, last in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        groups = -(-(last - first) // per_group)
        params, nbytes = (first, last, *whole.params[2:]), float(moved[last] - moved[first])
        launches.append(replace(whole, params=params, groups=groups, nbytes=nbytes))
    return launches


def run_now(context: Context, launches: list[Launch]) -> None:
    """Submit launches, in as many programs as they need, and wait."""
    Program(context).step(launches).run()


class LandmarkLists:
    """For each kept vertex its landmarks, ascending, with the places of their H_pl blocks; on the device."""

    def __init__(self, context: Context, layout: BlockLayout, inverse_offset: np.ndarray):
        dims = np.unique(layout.dims[layout.num_kept :])
        if len(dims) != 1:
            raise DeviceLimitError(
                f"Work queues on the GPU need landmarks of one dimension, these have {dims}. "
                "Use work_queues='cpu'."
            )
        items = layout.items
        ptr, block, scalar = native_module().row_queue(
            layout.num_kept,
            1,
            layout.item_row,
            layout.col[items],
            np.ones(len(items), np.uint8),
            layout.block_offset[items],
            layout.scalar,
            np.zeros(layout.num_blocks, np.uint8),
        )
        self.dim = int(dims[0])
        self.ptr: np.ndarray = ptr
        """(num_kept + 1,) int64: first entry of each kept vertex."""
        self.landmark: np.ndarray = (scalar.astype(np.int64) - layout.kept_dim) // self.dim
        """(num_items,) int64: landmarks of a vertex, ascending."""
        self.row_items = context.indices(ptr)
        self.entry_landmark = context.indices(self.landmark)
        self.entry_block = context.indices(block)
        self.inverse_offset = context.indices(inverse_offset)

    def walk_steps(self, reduced: BlockLayout) -> np.ndarray:
        """(num_blocks,): how many entries a walk through the lists of i and j passes, for each S_ij."""
        length = np.diff(self.ptr)
        return length[reduced.row_idx] + length[reduced.col]


def gpu_pattern(context: Context, layout: BlockLayout) -> BlockLayout:
    """Layout of the Schur complement."""
    num_kept, num_items = layout.num_kept, len(layout.items)
    words = -(-num_kept // 32)
    landmark = np.repeat(np.arange(layout.num_landmarks), np.diff(layout.landmark_items))
    bitmap = context.device.allocate(4 * num_kept * words)
    arrays = (layout.item_row, landmark, layout.landmark_items)
    buffers = (*(context.indices(array) for array in arrays), bitmap)
    Program(context).fill(bitmap).run()
    whole = context.launch("queue_pattern", buffers, (0, 0, words), 0, {0: WORKGROUP})
    before = np.arange(num_items) - layout.landmark_items[landmark]
    run_now(context, cut_launches(context, whole, before, WORKGROUP))
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
    steps = lists.walk_steps(reduced)

    def run(construct: int, first: Any, pairs: tuple[Any, ...]) -> None:
        buffers, constants = (*shared, first, counts, *pairs), {0: WORKGROUP, 1: construct}
        whole = context.launch("queue_pairs", buffers, (0, 0), 0, constants)
        run_now(context, cut_launches(context, whole, steps, WORKGROUP))

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
        alike = np.lexsort((begin - end, np.arange(len(block)) // NEIGHBOURS))
        order, self._bins = sort_into_bins(tuple(dim[alike] for dim in dims), (end - begin)[alike])
        self._chunks = context.indices(table[alike][order])

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


def choose_work_queues(asked: str, context: Context, layout: BlockLayout) -> str:
    """What "auto" stands for: by size, and the CPU for landmarks of several dimensions."""
    if asked != "auto":
        return asked
    several = len(np.unique(layout.dims[layout.num_kept :])) != 1
    small = len(layout.items) < MIN_GPU_QUEUE_ITEMS or context.device.info["kind"] == "cpu"
    return "cpu" if several or small else "gpu"


def explicit_schur(
    context: Context, layout: BlockLayout, inverse_offset: np.ndarray, work_queues: str = "auto"
) -> tuple[SchurBlocks, BlockLayout]:
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
        reduced = gpu_pattern(context, layout)
        if work_queues == "lookup":
            return schedule("lookup")(context, layout, lists, reduced, _find_blocks(kept, reduced)), reduced
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
