"""Where the blocks of H are: the one block pattern, and the blocks of an edge's pairs of vertices in it.

Of the symmetric H the upper triangle of blocks is stored, by block column, rows ascending, the diagonal last.
The pattern of a structure is found when it is first asked for: who multiplies without H never needs it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np

from graphopt.cpu_kernels import kernels

if TYPE_CHECKING:
    from graphopt.graph.selection import EdgeSelection


class BlockPattern(kernels.BlockPattern):
    """Upper triangle of blocks by block column; values are column-major blocks, one after the other.

    Rows ascend within a column and the diagonal block is there and last. Diagonal blocks are stored full.
    The arrays are copied and checked; `ShapeError` names the first entry that breaks these rules.

    Read-only attributes:
        dims: (num_blocks,) int32, scalar rows of each block.
        col_ptr: (num_blocks + 1,) int64, stored blocks of column c are col_ptr[c] .. col_ptr[c + 1].
        row_idx: (num_stored_blocks,) int32, block row of each stored block.
        offsets: (num_blocks + 1,) int64, first scalar row of each block.
        value_offsets: (num_stored_blocks + 1,) int64, first double of each stored block in `values`.
        num_blocks, num_stored_blocks: counts.
        dim: scalar rows of the matrix.
        values_size: doubles in `values`.
        nbytes: memory of the arrays.

    `diagonal_indices()` are the (dim,) int64 indices of the matrix's diagonal in `values`.
    """

    def __init__(self, dims, col_ptr, row_idx) -> None:
        """Take `dims` (nb,), `col_ptr` (nb + 1,) and `row_idx` (nnzb,): sequences or arrays of integers."""
        super().__init__(dims, col_ptr, row_idx)


@dataclass(frozen=True, eq=False)
class EdgeBlocks:
    """The stored blocks, and where the pairs of each edge are among them."""

    pattern: BlockPattern
    offsets: list[np.ndarray]
    """Per edge selection (m, num_pairs) int64: first scalar of the pair's block, -1: not optimized."""
    transposed: list[np.ndarray]
    """Per edge selection (m, num_pairs) bool: the stored block is the transpose of the pair's."""

    @property
    def nbytes(self) -> int:
        """Memory of the arrays."""
        return self.pattern.nbytes + sum(array.nbytes for array in (*self.offsets, *self.transposed))


def blocks_of_edges(
    dims: np.ndarray,
    vertex_blocks: Sequence[np.ndarray],
    edges: Sequence[tuple[Sequence[int], np.ndarray]],
) -> EdgeBlocks:
    """The blocks that edges contribute to, and all diagonal ones.

    dims: (nb,) size of each block; vertex_blocks: per vertex set (n,) block of each vertex or -1; edges:
    vertex sets and rows by slot.
    """
    pattern, found = kernels.block_pattern(dims, vertex_blocks, edges)
    offsets, transposed = [each[0] for each in found], [each[1] for each in found]
    return EdgeBlocks(cast("BlockPattern", pattern), offsets, transposed)  # the Python class documents it


class DeferredBlocks:
    """The blocks of a numbering's edges, found when they are first asked for."""

    def __init__(
        self, selections: Sequence[EdgeSelection], vertex_blocks: Sequence[np.ndarray], dims: np.ndarray
    ):
        """As of `blocks_of_edges`."""
        self._selections, self._vertex_blocks, self._dims = selections, vertex_blocks, dims
        self._lock = threading.Lock()
        self._found: EdgeBlocks | None = None

    def rebind(self, selections: Sequence[EdgeSelection]) -> None:
        """Keep equal selections instead, of another graph."""
        self._selections = selections

    def get(self) -> EdgeBlocks:
        """The blocks."""
        with self._lock:
            if self._found is None:
                edges = [(selection.vertex_sets, selection.vertex_rows) for selection in self._selections]
                self._found = blocks_of_edges(self._dims, self._vertex_blocks, edges)
            return self._found

    @property
    def nbytes(self) -> int:
        """Memory of what was found so far."""
        return 0 if self._found is None else self._found.nbytes
