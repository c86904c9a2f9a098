"""Symmetric block matrices as scipy matrices: for comparison with other solvers, and for looking at them."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from graphopt.problem.pattern import BlockPattern


def symmetric_matrix(pattern: BlockPattern, values: np.ndarray) -> sp.csc_matrix:
    """(dim, dim) matrix, both triangles, of the stored blocks `values` (values_size,) of a pattern."""
    col = np.repeat(np.arange(pattern.num_blocks), np.diff(pattern.col_ptr))
    rows, cols = pattern.dims[pattern.row_idx].astype(int), pattern.dims[col].astype(int)
    block = np.repeat(np.arange(len(col)), rows * cols)
    within = np.arange(len(block)) - pattern.value_offsets[block]
    i = pattern.offsets[pattern.row_idx[block]] + within % rows[block]
    j = pattern.offsets[col[block]] + within // rows[block]
    upper = sp.csc_matrix((values, (i, j)), (pattern.dim, pattern.dim))
    strict = sp.triu(upper, 1)
    return sp.csc_matrix(strict + strict.T + sp.diags(upper.diagonal()))
