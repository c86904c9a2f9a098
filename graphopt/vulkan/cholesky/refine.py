"""Factorisation in float32 with iterative refinement to the answer of float64.

    L L' ~ P (H + D) P' in float32;   x = 0, then a few times: r = b - (H + D) x in float64, x += (L L')^-1 r

Half the memory of a float64 factor, and the device's float32 rate. Each step gains about as many digits as
float32 has beyond the condition number; systems whose condition number reaches 1e7 are not positive definite
in float32, and `status` says so. Reference: Higham, Accuracy and Stability of Numerical Algorithms, ch. 12.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphopt.device.errors import DeviceError
from graphopt.linear import BlockPattern
from graphopt.vulkan.cholesky.analysis import Analysis
from graphopt.vulkan.cholesky.factor import MAX_GROUPS, DeviceCholesky, Method
from graphopt.vulkan.kernels.damping import HEADER

_VECTOR = 128
STEPS = 4
"""Refinements of a solve: float32 leaves 1e-7 times the condition number per step."""


class RefinedCholesky:
    """As `DeviceCholesky` in double precision, with a float32 factor inside."""

    def __init__(
        self,
        device: Any,
        pattern: BlockPattern,
        method: Method = "llt",
        *,
        analysis: Analysis | None = None,
        steps: int = STEPS,
    ):
        if not device.has_float64:
            raise DeviceError(f"{device.name} has no float64 for residuals; use DeviceCholesky in 'mixed'.")
        self.device, self.pattern, self.steps = device, pattern, steps
        self.inner = DeviceCholesky(device, pattern, "mixed", method, analysis=analysis)
        self.status = self.inner.status
        rows, blocks = _row_blocks(pattern)
        self._rows, self._blocks = device.upload(rows), device.upload(blocks)
        self._values = self.inner.reals(pattern.values_size)
        self._damping = self.inner.reals(HEADER + pattern.dim)
        self._rest = self.inner.reals(pattern.dim)
        self._matrix: tuple[Any, Any] | None = None

    @property
    def memory_bytes(self) -> int:
        """Device memory."""
        words = self.pattern.values_size + 2 * self.pattern.dim
        return self.inner.memory_bytes + 4 * words + self._rows.size + self._blocks.size

    def _shader(self, name: str, num_buffers: int, num_params: int, constants: dict[int, int]) -> Any:
        if self.pattern.values_size * 8 >= 1 << 32:
            constants = {**constants, 15: 1}
        return self.device.shader(f"chol_{name}", "double", num_buffers, num_params, constants)

    def _round(self, recorder: Any, source: Any, target: Any, size: int) -> None:
        kernel = self._shader("round", 2, 2, {0: _VECTOR})
        for first in range(0, size, MAX_GROUPS * _VECTOR):
            groups = min(MAX_GROUPS, -(-(size - first) // _VECTOR))
            recorder.dispatch(kernel, (source, target), (first, size), groups)

    def record_factorize(self, recorder: Any, values: Any, damping: Any = None) -> None:
        """As of `DeviceCholesky`; `values` and `damping` (float64) are read by the solves, too."""
        recorder.barrier()
        self._round(recorder, values, self._values, self.pattern.values_size)
        if damping is not None:
            self._round(recorder, damping, self._damping, HEADER + self.pattern.dim)
        recorder.barrier()
        self.inner.record_factorize(recorder, self._values, None if damping is None else self._damping)
        self._matrix = values, damping

    def record_solve(self, recorder: Any, rhs: Any, x: Any) -> None:
        """Record x = (H + D)^-1 rhs, both float64 and not the same buffer, after `record_factorize`."""
        assert self._matrix is not None and rhs is not x
        dim = self.pattern.dim
        if dim == 0:
            return
        recorder.barrier()
        self._round(recorder, rhs, self._rest, dim)
        self._correct(recorder, x, is_first=True)
        values, damping = self._matrix
        kernel = self._shader("residual", 7, 1, {0: _VECTOR, 1: int(damping is not None)})
        buffers = (self._rows, self._blocks, values, damping or rhs, rhs, x, self._rest)
        for _ in range(self.steps):
            recorder.dispatch(kernel, buffers, (dim,), -(-dim // _VECTOR))
            self._correct(recorder, x, is_first=False)

    def _correct(self, recorder: Any, x: Any, *, is_first: bool) -> None:
        dim = self.pattern.dim
        self.inner.record_solve(recorder, self._rest, self._rest)
        kernel = self._shader("correct", 2, 1, {0: _VECTOR, 1: int(not is_first)})
        recorder.dispatch(kernel, (self._rest, x), (dim,), -(-dim // _VECTOR))
        recorder.barrier()


def _row_blocks(pattern: BlockPattern) -> tuple[np.ndarray, np.ndarray]:
    """For each scalar row its blocks, those below the diagonal transposed: see chol_residual.comp."""
    dims = pattern.dims.astype(np.int64)
    col = np.repeat(np.arange(pattern.num_blocks), np.diff(pattern.col_ptr))
    row, offset = pattern.row_idx.astype(np.int64), pattern.value_offsets[:-1]
    below = np.flatnonzero(row != col)
    owner = np.concatenate([row, col[below]])
    other = np.concatenate([col, row[below]])
    step = np.concatenate([dims[row], np.ones(len(below), np.int64)])
    order = np.argsort(owner, kind="stable")
    blocks = np.stack(
        [np.concatenate([offset, offset[below]]), pattern.offsets[other], dims[other], step], axis=1
    )
    bounds = np.searchsorted(owner[order], np.arange(pattern.num_blocks + 1))
    of_row = np.repeat(np.arange(pattern.num_blocks), dims)
    within = np.arange(pattern.dim) - pattern.offsets[of_row]
    rows = np.stack([bounds[of_row], bounds[of_row + 1], within], axis=1)
    return rows.astype(np.uint32).ravel(), blocks[order].astype(np.uint32).ravel()
