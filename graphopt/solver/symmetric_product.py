"""H times a vector from the stored upper triangle of blocks, vectorised over blocks of equal shape."""

from __future__ import annotations

import numpy as np

from graphopt.solver.structure import Structure


class SymmetricProduct:
    """y = H x for one block pattern."""

    def __init__(self, structure: Structure):
        self._dim = structure.dim
        columns = np.repeat(np.arange(structure.num_blocks), np.diff(structure.col_ptr))
        rows = structure.row_idx.astype(np.int64)
        row_dims, col_dims = structure.dims[rows], structure.dims[columns]
        self._shapes = []
        for row_dim, col_dim in np.unique(np.stack([row_dims, col_dims], axis=1), axis=0).tolist():
            blocks = np.flatnonzero((row_dims == row_dim) & (col_dims == col_dim))
            values = structure.block_ptr[blocks][:, None] + np.arange(row_dim * col_dim)
            row = structure.offsets[rows[blocks]][:, None] + np.arange(row_dim)
            col = structure.offsets[columns[blocks]][:, None] + np.arange(col_dim)
            off_diagonal = rows[blocks] != columns[blocks]
            self._shapes.append((row_dim, col_dim, values, row, col, off_diagonal))

    def multiply(self, values: np.ndarray, vector: np.ndarray) -> np.ndarray:
        """H x, with H's blocks in `values`."""
        result = np.zeros(self._dim)
        for row_dim, col_dim, places, row, col, off_diagonal in self._shapes:
            blocks = values[places].reshape(-1, col_dim, row_dim)  # column-major
            upper = np.einsum("kcr,kc->kr", blocks, vector[col])
            result += np.bincount(row.ravel(), upper.ravel(), self._dim)
            lower = np.einsum("kcr,kr->kc", blocks[off_diagonal], vector[row[off_diagonal]])
            result += np.bincount(col[off_diagonal].ravel(), lower.ravel(), self._dim)
        return result
