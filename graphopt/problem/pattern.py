"""The block pattern of H, found when it is first asked for: who multiplies without H never needs it.

Of the symmetric H the upper triangle of blocks is stored, by block column, rows ascending, the diagonal last.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from graphopt.cpu_kernels import kernels

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
        edges = [(selection.vertex_sets, selection.vertex_rows) for selection in self._selections]
        return find_pattern(self._dims, self._vertex_blocks, edges)


def find_pattern(
    dims: np.ndarray,
    vertex_blocks: Sequence[np.ndarray],
    edges: Sequence[tuple[Sequence[int], np.ndarray]],
) -> BlockPlaces:
    """The blocks that edges contribute to, and all diagonal ones; edges: vertex sets and rows by slot."""
    col_ptr, row_idx, block_ptr, places = kernels.block_pattern(dims, vertex_blocks, edges)
    offsets, transposed = [place[0] for place in places], [place[1] for place in places]
    return BlockPlaces(col_ptr, row_idx, block_ptr, offsets, transposed)


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
