"""Cholesky within a trial of lambda: H + D, or the Schur complement, is factored and solved where it is.

Everything is recorded into the trial's own submission; only the status comes back. In mixed precision H and
the vectors are float32; the factorisation itself is in float64 where the device has it: a float32 factor
would cost more trials than it saves.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from graphopt.linear import BlockPattern
from graphopt.vulkan.cholesky.analysis import Analysis, analyse
from graphopt.vulkan.cholesky.bordered import BorderedCholesky, is_possible
from graphopt.vulkan.cholesky.factor import DeviceCholesky

_INDEFINITE = 4  # word of the status of an elimination, see pcg_state.glsl
_WORDS = 8


class TrialFactorization:
    """Factor and solve with a matrix on the device.

    context: device and precision of the trial. pattern: of H, or of S. analysis: of this pattern, if there is
    one already.
    """

    def __init__(
        self, context: Any, pattern: BlockPattern, *, dense: bool = False, analysis: Analysis | None = None
    ):
        device = context.device
        precision = "double" if device.has_float64 else "mixed"
        analysis = analysis or analyse(pattern, "dense" if dense else "auto")
        narrow = context.real == np.float32
        self._context, self._pattern, self._analysis = context, pattern, analysis
        self._border: BorderedCholesky | None = None
        if not narrow and is_possible(device, analysis):
            self.solver = self._border = BorderedCholesky(device, analysis)
        else:
            self.solver = DeviceCholesky(device, pattern, precision, analysis=analysis, narrow_numbers=narrow)
        self.residual = context.reals(pattern.dim) if self._border is None else self._border.rhs
        """Right-hand side of a reduced system."""
        self._nbytes = pattern.dim * context.real.itemsize
        self._back = device.allocate(8 * _WORDS, "readback")

    def record_clear(self, sequence: Any) -> None:
        """Record what `record` needs to be done before it, up to a barrier, beside anything else."""
        self.solver.record_clear(sequence)

    def record(self, sequence: Any, values: Any, damping: Any, rhs: Any, x: Any) -> None:
        """Record x = (H + D)^-1 rhs, after a barrier; damping: None where the matrix has it in it."""
        if self._border is None:
            self.solver.record_factorize(sequence, values, damping, is_clear=True)
            self.solver.record_solve(sequence, rhs, x)
            return
        if rhs is not self.residual:
            sequence.copy(rhs, self.residual, self._nbytes).barrier()
        self._border.record_factorize(sequence, values, damping, is_clear=True)
        self._border.record_backward(sequence, x)

    @cached_property
    def another(self) -> Any:
        """Another right-hand side of a reduced system, (dim,) reals, and room for a border's."""
        buffer = self._context.reals(self._pattern.dim + 1)
        self._context.device.write(buffer, np.zeros(1), 8 * self._pattern.dim)
        return buffer

    def record_another(self, sequence: Any, rhs: Any, x: Any) -> None:
        """Record x = (H + D)^-1 rhs with the last factorization, after a barrier.

        Of a bordered factor the last right-hand side is 0: z'y 2^-1000 times the border is below rounding.
        """
        if self._border is None:
            self.solver.record_solve(sequence, rhs, x)
            return
        if rhs is not self.another:
            sequence.copy(rhs, self.another, self._nbytes).barrier()
        self.solver.record_solve(sequence, self.another, self._solution)
        sequence.copy(self._solution, x, self._nbytes).barrier()

    @cached_property
    def _solution(self) -> Any:
        return self._context.reals(self._pattern.dim + 1)

    def record_outcome(self, sequence: Any, elimination: Any) -> None:
        """Record the copies of both statuses to the host."""
        sequence.copy(self.solver.status, self._back, 4 * _WORDS)
        sequence.copy(elimination, self._back, 4 * _WORDS, 0, 4 * _WORDS)

    @property
    def is_definite(self) -> bool:
        """Whether all pivots were good, of the factorisation and of the elimination before it."""
        words = self._back.array(np.dtype(np.uint32), 0, 2 * _WORDS)
        return bool(words[0] == 0 and words[_WORDS + _INDEFINITE] == 0)

    @property
    def failed_block(self) -> int | None:
        """Block of the first bad pivot."""
        return self.solver.failed_block(self._back.array(np.dtype(np.uint32), 0, _WORDS))
