"""Where the blocks of a symmetric block matrix are."""

from __future__ import annotations

from graphopt.cpu_kernels import kernels


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
    """

    def __init__(self, dims, col_ptr, row_idx) -> None:
        """Take `dims` (nb,), `col_ptr` (nb + 1,) and `row_idx` (nnzb,): sequences or arrays of integers."""
        super().__init__(dims, col_ptr, row_idx)
