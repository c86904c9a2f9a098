"""Inverses of diagonal blocks: H_ll for the Schur complement, block-Jacobi preconditioners."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphopt.cpu_kernels import kernels
from graphopt.solver.vulkan.chunks import bins_of_blocks, first_of_each, index_table
from graphopt.solver.vulkan.context import Context, Launch

INVERSE_WORKGROUP = 64


class BlockInverse:
    """inverse_k = (A_k + D_k)^-1 for symmetric positive definite blocks of any dimensions."""

    def __init__(
        self,
        context: Context,
        dims: np.ndarray,
        source: np.ndarray,
        damping_offset: np.ndarray,
        spare: np.ndarray | None = None,
    ):
        """source: offset of each block in values; damping_offset: its first scalar in the damping.

        spare: offset of the block that takes the place of one that is not definite, see `launches`.
        """
        self._context = context
        area = dims.astype(np.int64) ** 2
        self.offset = first_of_each(area)
        """(n,) int64: offset of each inverse."""
        self.size = int(area.sum())
        self.buffer = context.reals(self.size)
        order, self._bins = bins_of_blocks(dims)
        spare = source if spare is None else spare
        self._blocks = context.indices(index_table(source, damping_offset, self.offset, spare, order=order))

    def launches(
        self, values: Any, damping: Any | None, status: Any, *, damped: bool = True, spare: Any = None
    ) -> list[Launch]:
        """With damping None, or not `damped`: D = 0. spare: values of the blocks B.

        A block that is not positive definite gives way to B + D. Where there is none, or it is not definite
        either, status[INDEFINITE] is set.
        """
        launches = []
        for one in self._bins:
            (dim,) = one.dims
            is_damped = damped and damping is not None
            constants = {0: INVERSE_WORKGROUP, 1: dim, 2: int(is_damped), 3: int(spare is not None)}
            kernel = self._context.shader("invert_blocks", 6, 2, constants)
            buffers = (self._blocks, values, damping or values, self.buffer, status, spare or values)
            teams = INVERSE_WORKGROUP // dim
            launches.append(Launch(kernel, buffers, (one.first, one.num_chunks), -(-one.num_chunks // teams)))
        return launches


def row_table(dims: np.ndarray, offset: np.ndarray) -> np.ndarray:
    """(num_scalars, 3) uint32: offset of the row, first scalar row of its block, dimension of its block."""
    return kernels.row_table(np.ascontiguousarray(dims, np.int32), np.ascontiguousarray(offset, np.int64))
