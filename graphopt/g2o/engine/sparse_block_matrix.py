"""`SparseBlockMatrixX`: a sparse matrix of dense blocks, as `compute_marginals` returns it."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphopt.io.files import write_bytes


class CallableList(list):
    """A list that may also be called: `row_block_indices()` of g2opy and `row_block_indices` of others."""

    def __call__(self) -> CallableList:
        """The list itself."""
        return self


class SparseBlockMatrixX:
    """Blocks by (block row, block column).

    `SparseBlockMatrixX()`, `SparseBlockMatrixX(row_ends, col_ends)` or `(row_ends, col_ends, number of block
    rows, of block columns)`, where the ends are g2o's block indices: the first scalar after each block.
    """

    __slots__ = ("_blocks", "_col_ends", "_row_ends")

    def __init__(
        self,
        row_ends: Any = (),
        col_ends: Any = (),
        rows: int | None = None,
        cols: int | None = None,
        has_storage: bool = True,
    ) -> None:
        self._row_ends = [int(row_end) for row_end in row_ends][:rows]
        self._col_ends = [int(col_end) for col_end in col_ends][:cols]
        self._blocks: dict[tuple[int, int], np.ndarray] = {}

    def rows(self) -> int:
        """Scalar rows."""
        return self._row_ends[-1] if self._row_ends else 0

    def cols(self) -> int:
        """Scalar columns."""
        return self._col_ends[-1] if self._col_ends else 0

    @property
    def row_block_indices(self) -> Any:
        """First scalar after each block row (a copy); may be called."""
        return CallableList(self._row_ends)

    @property
    def col_block_indices(self) -> Any:
        """First scalar after each block column (a copy); may be called."""
        return CallableList(self._col_ends)

    def row_base_of_block(self, r: int) -> int:
        """First scalar of a block row."""
        return self._row_ends[r - 1] if r else 0

    def col_base_of_block(self, c: int) -> int:
        """First scalar of a block column."""
        return self._col_ends[c - 1] if c else 0

    def rows_of_block(self, r: int) -> int:
        """Height of a block row."""
        return self._row_ends[r] - self.row_base_of_block(r)

    def cols_of_block(self, c: int) -> int:
        """Width of a block column."""
        return self._col_ends[c] - self.col_base_of_block(c)

    def has_block(self, r: int, c: int) -> bool:
        """The block is stored."""
        return (r, c) in self._blocks

    def block(self, r: int, c: int, alloc: bool = False) -> np.ndarray:
        """The stored block, live; an empty array, or with `alloc` a new zero block, if it is not stored."""
        block = self._blocks.get((r, c))
        if block is None and alloc:
            block = self._blocks[r, c] = np.zeros((self.rows_of_block(r), self.cols_of_block(c)))
        return np.zeros((0, 0)) if block is None else block

    block_ptr = block

    def _set(self, r: int, c: int, block: np.ndarray) -> None:
        self._blocks[r, c] = block

    def block_cols(self) -> list[dict[int, np.ndarray]]:
        """Per block column: block row -> block."""
        columns: list[dict[int, np.ndarray]] = [{} for _ in self._col_ends]
        for (r, c), block in sorted(self._blocks.items()):
            columns[c][r] = block
        return columns

    def non_zeros(self) -> int:
        """Stored scalars."""
        return sum(each_block.size for each_block in self._blocks.values())

    def non_zeros_blocks(self) -> int:
        """Stored blocks."""
        return len(self._blocks)

    def scale(self, factor: float) -> None:
        """Multiply all blocks."""
        for stored_block in self._blocks.values():
            stored_block *= factor

    def clear(self, dealloc: bool = False) -> None:
        """Set all blocks to zero, or with `dealloc` drop them."""
        if dealloc:
            self._blocks.clear()
        for block in self._blocks.values():
            block[:] = 0.0

    def to_array(self) -> np.ndarray:
        """(rows, cols) dense."""
        dense = np.zeros((self.rows(), self.cols()))
        for (r, c), block in self._blocks.items():
            first_row, first_col = self.row_base_of_block(r), self.col_base_of_block(c)
            dense[first_row : first_row + block.shape[0], first_col : first_col + block.shape[1]] = block
        return dense

    def write_octave(self, filename: str, upperTriangle: bool = False) -> bool:
        """Write as a sparse matrix in Octave's text format; False if the file cannot be written."""
        matrix = self.to_array()
        if upperTriangle:
            matrix = np.triu(matrix) + np.triu(matrix, 1).T
        rows, cols = np.nonzero(matrix)
        order = np.lexsort((rows, cols))
        lines = ["# name: matrix", "# type: sparse matrix", f"# nnz: {len(rows)}"]
        lines += [f"# rows: {self.rows()}", f"# columns: {self.cols()}"]
        lines += [f"{rows[i] + 1} {cols[i] + 1} {matrix[rows[i], cols[i]]:.9g}" for i in order]
        try:
            write_bytes(filename, ("\n".join(lines) + "\n").encode())
        except OSError:
            return False
        return True
