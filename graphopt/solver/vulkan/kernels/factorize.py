"""Cholesky on the host, of the whole H or of the system that the device reduced."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphopt.solver.vulkan.data.array import DeviceArray
from graphopt.solver.vulkan.data.layout import BlockLayout
from graphopt.solver.vulkan.kernels.pcg import INDEFINITE, Reduction
from graphopt.solver.vulkan.kernels.reduction import SchurReduction
from graphopt.solver.vulkan.program import Context, Program


class HostSolver:
    """Sparse or dense Cholesky of a block matrix in host memory."""

    def __init__(
        self, context: Context, linear_solver: str, layout: BlockLayout, reduction: Reduction | None
    ):
        """reduction: that forms S, None: solve matrices of the host only."""
        # Imported here: conjugate gradients need no CPU module.
        from graphopt.solver.linear import BlockPattern, DenseCholesky, SparseCholesky

        if reduction is not None:
            assert isinstance(reduction, SchurReduction) and reduction.schur is not None
            self._matrix = reduction.schur.matrix
            self.residual = DeviceArray(context, layout.kept_dim)
            self._step = DeviceArray(context, layout.kept_dim)
            """x of the kept rows."""
            layout = reduction.reduced
        pattern = BlockPattern(layout.dims, layout.col_ptr, layout.row_idx)
        self._solver = DenseCholesky(pattern) if linear_solver == "dense" else SparseCholesky(pattern)

    def solve(self, values: np.ndarray, damping: np.ndarray | None, b: np.ndarray, x: np.ndarray) -> bool:
        """Solve (H + D) x = b in place; False: not positive definite."""
        if not self._solver.factorize(values, damping):
            return False
        self._solver.solve(b, out=x)
        return True

    def record_readback(self, program: Program) -> None:
        """Record the copies of S and of the reduced right-hand side to the host."""
        self._matrix.record_download(program)
        self.residual.record_download(program)

    def solve_reduced(self, state: DeviceArray) -> bool:
        """Solve S x = r from what was read back; state: of pcg_state.glsl, downloaded with it."""
        if state.downloaded[INDEFINITE]:
            return False
        matrix = np.ascontiguousarray(self._matrix.downloaded, np.float64)
        residual = np.ascontiguousarray(self.residual.downloaded, np.float64)
        x = np.empty(len(residual))
        if not self.solve(matrix, None, residual, x):
            return False
        self._step.staging[:] = x
        self._step.commit()
        return True

    def record_step(self, program: Program, dx: Any) -> None:
        """Record the way of x into the kept part of dx."""
        self._step.record_upload(program)
        program.barrier().copy(self._step.buffer, dx, self._step.nbytes).barrier()
