"""Where the blocks of H are: the block pattern, and the index arrays that queues are built from.

H = [ H_pp  H_pl ]   upper triangle by block column, blocks column-major, one after the other in `values`:
    [       H_ll ]   the columns of kept vertices hold H_pp, a landmark's holds H_pl, then H_ll

Splitting work queues into chunks of bounded length, and chunks into bins of equal dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from graphopt.cpu_kernels import kernels
from graphopt.errors import DeviceLimitError, SolverError
from graphopt.problem.pattern import BlockPattern
from graphopt.problem.structure import Structure

MAX_BLOCK_DIM = 15
MAX_ROWS = 2**32 // 12
"""Scalar rows are fewer: vectors of them, and tables of 12 bytes per row, are reached with 32 bits."""
MAX_RUNS = 8
"""Of equal diagonal blocks that a kernel looks through for a row's; with more it reads a table."""
MAX_VALUES = 2**31
"""Stored scalars are fewer: work queues count them in 31 bits."""


@dataclass(frozen=True, eq=False)
class BlockLayout:
    """Block pattern of a symmetric matrix; blocks from `num_kept` on are landmarks, eliminated by Schur."""

    dims: np.ndarray
    """(nb,) int32: dimension of each block row and column."""
    col_ptr: np.ndarray
    """(nb + 1,) int64: first stored block of each column."""
    row_idx: np.ndarray
    """(nnzb,) int32: block row of each stored block; the diagonal block is a column's last."""
    num_kept: int

    def __post_init__(self) -> None:
        self._check_sizes()
        if not np.array_equal(self.row_idx[self.col_ptr[1:] - 1], np.arange(len(self.dims))):
            raise SolverError("Every block column must end with its diagonal block.")
        if self._last_neighbours().max(initial=-1) >= self.num_kept:
            raise SolverError(
                "Two landmarks share an edge: only an independent set of them can be eliminated."
            )

    def _last_neighbours(self) -> np.ndarray:
        """The last row of each landmark's H_pl blocks; rows of a column ascend."""
        first, last = self.col_ptr[self.num_kept : -1], self.col_ptr[self.num_kept + 1 :] - 2
        return self.row_idx[last[last >= first]]

    def _check_sizes(self) -> None:
        if len(self.dims) and not 1 <= self.dims.min() <= self.dims.max() <= MAX_BLOCK_DIM:
            raise DeviceLimitError(
                f"Block dimensions are {np.unique(self.dims)}, expected 1 to {MAX_BLOCK_DIM}. "
                "Use device='cpu'."
            )
        if self.dim >= MAX_ROWS:
            raise DeviceLimitError(
                f"H has {self.dim} scalar rows; tables of rows stay below 4 GiB, which are {MAX_ROWS - 1}. "
                "Use device='cpu', or hold some vertices."
            )
        if self.values_size >= MAX_VALUES:
            raise DeviceLimitError(
                f"H has {self.values_size} scalars in {self.dim} rows; queues count to {MAX_VALUES - 1}. "
                "Use linear_solver='pcg' and schur='implicit' or 'off', with schedule='matrix-free' or "
                "'jacobians', or device='cpu'."
            )

    @classmethod
    def of(cls, pattern: BlockPattern, num_kept: int) -> BlockLayout:
        """The layout of a pattern."""
        made = cls.__new__(cls)
        made.__dict__.update(pattern=pattern, block_offset=pattern.value_offsets)
        cls.__init__(made, pattern.dims, pattern.col_ptr, pattern.row_idx, num_kept)
        return made

    @cached_property
    def pattern(self) -> BlockPattern:
        """Where the blocks are, for native code."""
        return BlockPattern(self.dims, self.col_ptr, self.row_idx)

    @cached_property
    def col(self) -> np.ndarray:
        """(nnzb,) int32: block column of each stored block."""
        return np.repeat(np.arange(len(self.dims), dtype=np.int32), np.diff(self.col_ptr))

    @cached_property
    def block_offset(self) -> np.ndarray:
        """(nnzb + 1,) int64: first scalar of each block in `values`."""
        sizes = self.dims[self.row_idx].astype(np.int64) * self.dims[self.col]
        return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)

    @cached_property
    def scalar(self) -> np.ndarray:
        """(nb + 1,) int64: first scalar of each block row in vectors."""
        return np.concatenate([[0], np.cumsum(self.dims, dtype=np.int64)])

    @property
    def num_blocks(self) -> int:
        """Block rows."""
        return len(self.dims)

    @property
    def num_landmarks(self) -> int:
        """Block rows that Schur eliminates."""
        return self.num_blocks - self.num_kept

    @property
    def values_size(self) -> int:
        """Scalars of all stored blocks."""
        return int(self.block_offset[-1])

    @property
    def dim(self) -> int:
        """Scalar rows."""
        return int(self.scalar[-1])

    @property
    def kept_dim(self) -> int:
        """Scalar rows of the kept vertices."""
        return int(self.scalar[self.num_kept])

    @cached_property
    def diagonal_offset(self) -> np.ndarray:
        """(nb,) int64: offset of each diagonal block in `values`."""
        return self.block_offset[self.col_ptr[1:] - 1]

    @cached_property
    def diagonal_scalars(self) -> np.ndarray:
        """(dim,) int64: places of H's scalar diagonal in `values`."""
        first = np.repeat(self.diagonal_offset, self.dims)
        dims = np.repeat(self.dims, self.dims).astype(np.int64)
        within = np.arange(self.dim) - np.repeat(self.scalar[:-1], self.dims)
        return first + within * (dims + 1)

    @property
    def diagonal_places(self) -> tuple[np.ndarray, int]:
        """Where H's scalar diagonal is, as `diagonal_places.glsl` reads it: an array, and how many runs."""
        return self.diagonal_scalars, 0

    @cached_property
    def items(self) -> np.ndarray:
        """(num_items,) int64: the stored blocks that are H_pl blocks, column by column."""
        first = int(self.col_ptr[self.num_kept])
        mask = np.ones(len(self.row_idx) - first, bool)
        mask[self.col_ptr[self.num_kept + 1 :] - 1 - first] = False
        return np.flatnonzero(mask) + first

    @property
    def num_items(self) -> int:
        """H_pl blocks."""
        return int(self.col_ptr[-1] - self.col_ptr[self.num_kept]) - self.num_landmarks

    @cached_property
    def item_row(self) -> np.ndarray:
        """(num_items,) int32: kept vertex of each H_pl block."""
        return self.row_idx[self.items]

    @cached_property
    def landmark_items(self) -> np.ndarray:
        """(num_landmarks + 1,) int64: first item of each landmark."""
        first = self.col_ptr[self.num_kept :]
        return (first - first[0]) - np.arange(self.num_landmarks + 1)

    def kept(self) -> BlockLayout:
        """The layout of H_pp alone."""
        end = self.col_ptr[self.num_kept]
        kept_dims = self.dims[: self.num_kept]
        return BlockLayout(kept_dims, self.col_ptr[: self.num_kept + 1], self.row_idx[:end], self.num_kept)


def whole_layout(structure: Structure, num_kept: int) -> BlockLayout:
    """All stored blocks of H; blocks from `num_kept` on are eliminated."""
    return BlockLayout.of(structure.pattern, num_kept)


class DiagonalLayout(BlockLayout):
    """Diagonal blocks only: what follows from the pattern is known without looking at it."""

    def __init__(self, structure: Structure, num_kept: int):
        self.__dict__["scalar"] = structure.offsets
        numbers = np.arange(structure.num_blocks + 1)
        super().__init__(structure.dims, numbers, numbers[:-1].astype(np.int32), num_kept)

    def __post_init__(self) -> None:
        self._check_sizes()

    @cached_property
    def col(self) -> np.ndarray:
        """As `BlockLayout.col`."""
        return self.row_idx

    @cached_property
    def block_offset(self) -> np.ndarray:
        """As `BlockLayout.block_offset`."""
        if len(self._runs) > MAX_RUNS:
            return np.concatenate([[0], np.cumsum(self.dims.astype(np.int64) ** 2)])
        offsets, end = np.zeros(len(self.dims) + 1, np.int64), 0
        for first, last in pairwise([*self._runs.tolist(), len(self.dims)]):
            area = int(self.dims[first]) ** 2
            offsets[first : last + 1] = np.arange(end, end + area * (last - first) + 1, area)
            end = int(offsets[last])
        return offsets

    @cached_property
    def _runs(self) -> np.ndarray:
        """Where the blocks' dimension changes, the first block included."""
        changes = np.flatnonzero(self.dims[1:] != self.dims[:-1]) + 1
        return np.concatenate([np.zeros(min(len(self.dims), 1), np.int64), changes])

    @cached_property
    def diagonal_offset(self) -> np.ndarray:
        """As `BlockLayout.diagonal_offset`."""
        return self.block_offset[:-1]

    @property
    def diagonal_places(self) -> tuple[np.ndarray, int]:
        """As `BlockLayout.diagonal_places`: few numbers where few runs of blocks have equal dimensions."""
        starts = self._runs
        if len(starts) > MAX_RUNS:
            return super().diagonal_places
        columns = [self.scalar[starts], self.block_offset[starts], self.dims[starts]]
        return np.stack(columns, axis=1), len(starts)

    @cached_property
    def items(self) -> np.ndarray:
        """None."""
        return np.empty(0, np.int64)


def as_slice(numbers: np.ndarray) -> np.ndarray | slice:
    """Numbers that follow each other as a slice, which takes no copy; others as they are."""
    if kernels.common_step(numbers) != 1:
        return numbers
    return slice(int(numbers[0]), int(numbers[-1]) + 1)


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


def split_segments(segment_ptr: np.ndarray, limit: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cut every segment into even chunks of at most `limit` items.

    segment_ptr: (num_segments + 1,). Returns segment, begin and end of each chunk, in order. Empty segments
    get none.
    """
    length = np.diff(segment_ptr)
    count = -(-length // limit)
    segment = np.repeat(np.arange(len(length)), count)
    local = np.arange(len(segment)) - np.repeat(np.cumsum(count) - count, count)
    begin = segment_ptr[segment] + local * length[segment] // count[segment]
    end = segment_ptr[segment] + (local + 1) * length[segment] // count[segment]
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
    for dim in dims:
        key = key * 16 + dim
    keys, index = _distinct(key, 16 ** len(dims))
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


def index_table(*columns: np.ndarray) -> np.ndarray:
    """(n, number of columns) uint32: these columns side by side."""
    table = np.empty((len(columns[0]), len(columns)), np.uint32)
    for number, column in enumerate(columns):
        table[:, number] = column
    return table


def first_of_each(counts: np.ndarray) -> np.ndarray:
    """Exclusive running sum."""
    return np.cumsum(counts) - counts


def dim_classes(dims: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct dimensions, and for each block the number of its dimension among them (uint8)."""
    distinct, index = _distinct(dims, MAX_BLOCK_DIM + 1)
    return distinct, index.astype(np.uint8)


def _distinct(numbers: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """`np.unique` with the inverse, of numbers from 0 to below `most`: counted instead of sorted."""
    is_there = np.bincount(numbers, minlength=most) > 0
    return np.flatnonzero(is_there).astype(numbers.dtype), (np.cumsum(is_there) - 1)[numbers]


def parallel_items(wanted: float, most: int) -> int:
    """Items of a chunk to work on at a time: `most`, or a power of two below, so that kernels are few."""
    if wanted >= most:
        return most
    return 1 << max(0, int(np.log2(max(wanted, 1.0))))
