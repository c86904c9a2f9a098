"""Cholesky on the host, of the whole H or of the system that the device reduced."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphopt.solver.vulkan.context import Context, Mirror, Readback
from graphopt.solver.vulkan.layout import BlockLayout
from graphopt.solver.vulkan.pcg import INDEFINITE


class HostSolver:
    """Sparse or dense Cholesky of a block matrix in host memory."""

    def __init__(
        self,
        context: Context,
        linear_solver: str,
        layout: BlockLayout,
        schur: tuple[Any, int] | None,
        num_rows: int,
    ):
        """schur: buffer and size of the reduced matrix, None: solve matrices of the host only."""
        # Imported here: conjugate gradients need no CPU module.
        from graphopt.solver.linear import BlockPattern, DenseCholesky, SparseCholesky

        pattern = BlockPattern(layout.dims, layout.col_ptr, layout.row_idx)
        self._solver = DenseCholesky(pattern) if linear_solver == "dense" else SparseCholesky(pattern)
        self._context = context
        self._schur = schur
        if schur is not None:
            self.residual = context.reals(num_rows)
            self._matrix_back = Readback(context, schur[1])
            self._residual_back = Readback(context, num_rows)
            self._status_back = context.device.allocate(32, "readback")
            self._step = Mirror(context, num_rows)
            self._num_rows = num_rows

    def solve(self, values: np.ndarray, damping: np.ndarray | None, b: np.ndarray, x: np.ndarray) -> bool:
        """Solve (H + D) x = b in place; False: not positive definite."""
        if not self._solver.factorize(values, damping):
            return False
        self._solver.solve(b, out=x)
        return True

    def record_readback(self, recorder: Any, status: Any) -> None:
        """Record the copies of S, of the reduced right-hand side and of the status to the host."""
        assert self._schur is not None
        self._matrix_back.record(recorder, self._schur[0])
        self._residual_back.record(recorder, self.residual)
        recorder.copy(status, self._status_back, 32)

    def solve_reduced(self) -> bool:
        """Solve S x = r from what was read back."""
        if self._status_back.array(np.dtype(np.uint32), 0, 8)[INDEFINITE]:
            return False
        matrix = np.ascontiguousarray(self._matrix_back.array, np.float64)
        residual = np.ascontiguousarray(self._residual_back.array, np.float64)
        if not self.solve(matrix, None, residual, self._step.host):
            return False
        self._step.commit()
        return True

    def record_step(self, recorder: Any, dx: Any) -> None:
        """Record the way of x into the kept part of dx."""
        self._step.record_upload(recorder)
        recorder.barrier()
        recorder.copy(self._step.buffer, dx, self._num_rows * self._context.real.itemsize)
        recorder.barrier()
