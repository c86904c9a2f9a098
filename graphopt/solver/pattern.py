"""The block pattern of H, found when it is first asked for: who multiplies without H never needs it.

Of the symmetric H the upper triangle of blocks is stored, by block column, rows ascending, the diagonal last.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from graphopt.graph.selection import EdgeSelection


@dataclass(frozen=True, eq=False)
class BlockPlaces:
    """The stored blocks, and where the pairs of each edge are among them."""

    col_ptr: np.ndarray
    """(nb + 1,) int64: first block of each column."""
    row_idx: np.ndarray
    """(nnzb,) int32: block row of each stored block."""
    block_ptr: np.ndarray
    """(nnzb + 1,) int64: first scalar of each block."""
    offsets: list[np.ndarray]
    """Per edge selection (m, num_pairs) int64: first scalar of the pair's block, -1: not optimized."""
    transposed: list[np.ndarray]
    """Per edge selection (m, num_pairs) bool: the stored block is the transpose of the pair's."""

    @property
    def nbytes(self) -> int:
        """Memory of the arrays."""
        arrays = [self.col_ptr, self.row_idx, self.block_ptr, *self.offsets, *self.transposed]
        return sum(array.nbytes for array in arrays)


class Pattern:
    """Finds the block pattern of a numbering."""

    def __init__(
        self, selections: Sequence[EdgeSelection], vertex_blocks: Sequence[np.ndarray], dims: np.ndarray
    ):
        """vertex_blocks: per vertex set (n,) block of each vertex or -1; dims: (nb,) size of each block."""
        self._selections, self._vertex_blocks, self._dims = selections, vertex_blocks, dims
        self._lock = threading.Lock()
        self._found: BlockPlaces | None = None

    @property
    def blocks(self) -> BlockPlaces:
        """The pattern."""
        with self._lock:
            if self._found is None:
                self._found = self._find()
            return self._found

    @property
    def nbytes(self) -> int:
        """Memory of what was found so far."""
        return 0 if self._found is None else self._found.nbytes

    def _find(self) -> BlockPlaces:
        pairs = [self._pair_blocks(edges) for edges in self._selections]
        num = len(self._dims)
        keys, places = [], []
        for rows, cols in pairs:
            off_diagonal = (rows >= 0) & (cols >= 0) & (rows != cols)
            low, high = np.minimum(rows, cols)[off_diagonal], np.maximum(rows, cols)[off_diagonal]
            keys.append(high * np.int64(num) + low)
            places.append(off_diagonal)
        unique, inverse = _unique(np.concatenate(keys))
        col, row = unique // num, unique % num
        position = np.arange(len(unique)) + col  # one diagonal block ends each column before this one
        per_column = np.bincount(col, minlength=num) + 1
        col_ptr = np.concatenate([[0], np.cumsum(per_column, dtype=np.int64)])
        diagonal = col_ptr[1:] - 1
        row_idx = np.empty(len(unique) + num, np.int32)
        row_idx[position] = row
        row_idx[diagonal] = np.arange(num)
        columns = np.repeat(np.arange(num), per_column)
        sizes = self._dims[row_idx].astype(np.int64) * self._dims[columns]
        block_ptr = np.concatenate([[0], np.cumsum(sizes)])
        offsets, transposed, first = [], [], 0
        for (rows, cols), off_diagonal in zip(pairs, places, strict=True):
            found = np.full(rows.shape, -1, np.int64)
            on_diagonal = (rows == cols) & (rows >= 0)
            found[on_diagonal] = block_ptr[diagonal[rows[on_diagonal]]]
            count = int(np.count_nonzero(off_diagonal))
            found[off_diagonal] = block_ptr[position[inverse[first : first + count]]]
            first += count
            offsets.append(found)
            transposed.append((rows > cols) & (found >= 0))
        return BlockPlaces(col_ptr, row_idx, block_ptr, offsets, transposed)

    def _pair_blocks(self, edges: EdgeSelection) -> tuple[np.ndarray, np.ndarray]:
        """(m, num_pairs) blocks of the first and second vertex of each pair, -1 where not optimized."""
        blocks = np.stack(
            [
                self._vertex_blocks[number][edges.vertex_rows[:, slot]]
                for slot, number in enumerate(edges.vertex_sets)
            ],
            axis=1,
        )
        first, second = zip(*combinations_with_replacement(range(blocks.shape[1]), 2), strict=True)
        return blocks[:, list(first)], blocks[:, list(second)]


@dataclass(frozen=True, eq=False)
class PairPlaces:
    """Where the pairs of some edges of a selection are."""

    pattern: Pattern
    number: int
    """Of the edge selection."""
    mask: slice | np.ndarray
    """Which of its edges."""

    def offset(self) -> np.ndarray:
        """(m, num_pairs) int64, see `BlockPlaces.offsets`."""
        return np.ascontiguousarray(self.pattern.blocks.offsets[self.number][self.mask])

    def transposed(self) -> np.ndarray:
        """(m, num_pairs) bool, see `BlockPlaces.transposed`."""
        return np.ascontiguousarray(self.pattern.blocks.transposed[self.number][self.mask])


def _unique(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sorted distinct keys, and for each key its place among them."""
    order = np.argsort(keys)
    ordered = keys[order]
    is_new = np.ones(len(keys), bool)
    is_new[1:] = ordered[1:] != ordered[:-1]
    inverse = np.empty(len(keys), np.int64)
    inverse[order] = np.cumsum(is_new) - 1
    return ordered[is_new], inverse
