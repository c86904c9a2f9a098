"""A dense factorisation that solves for its right-hand side on the way.

    [ A   r ]   [ L       ] [ L'  z ]
    [ r'  c ] = [ z'  l_c ] [    l_c ],   L z = r,   c = 2^1000, so that l_c = sqrt(c - z'z) = 2^500 exactly

The right-hand side is a row of the matrix like others, and what the panels do with rows below pivots is the
forward solve: a workgroup by itself takes 35 us for that with 375 rows on an H200. With -l_c as right-hand
side of the last row and zeros above it, the backward solve begins with x_c = -1, and goes on with L' x = z.
For numbers below 1e140 and float64 only.
"""

from __future__ import annotations

from typing import Any
from weakref import proxy

import numpy as np

from graphopt.linear import BlockPattern
from graphopt.vulkan.cholesky.analysis import SMALL_ROWS, Analysis, analyse
from graphopt.vulkan.cholesky.factor import DeviceCholesky
from graphopt.vulkan.cholesky.solve import Solves
from graphopt.vulkan.cholesky.work import SOLVE_CLASSES

CORNER, ROOT = 2.0**1000, 2.0**500
_VECTOR = 128


def is_possible(device: Any, analysis: Analysis) -> bool:
    """One front, with which a workgroup by itself solves, of the same class with a row more."""
    rows = analysis.dim + 1
    return (
        device.has_float64
        and len(analysis.level) == 1
        and analysis.dim > 0
        and rows != SMALL_ROWS + 1
        and rows <= SOLVE_CLASSES[-1][0]
    )


def bordered(pattern: BlockPattern) -> BlockPattern:
    """With a row and a column more, coupled with all."""
    num = pattern.num_blocks
    dims = np.append(pattern.dims, 1)
    col_ptr = np.append(pattern.col_ptr, len(pattern.row_idx) + num + 1)
    return BlockPattern(dims, col_ptr, np.append(pattern.row_idx, np.arange(num + 1)))


def _bordered_once(analysis: Analysis) -> Analysis:
    """Of the bordered matrix; made once."""
    kept = vars(analysis)
    if "bordered" not in kept:
        kept["bordered"] = analyse(bordered(analysis.pattern), "dense")
    return kept["bordered"]


class BorderedCholesky(DeviceCholesky):
    """LL' of a dense matrix; `record_factorize` takes the right-hand side, `record_solve` nothing but x."""

    def __init__(self, device: Any, analysis: Analysis):
        """analysis: of the matrix itself, one front."""
        whole = _bordered_once(analysis)
        super().__init__(device, whole.pattern, "double", analysis=whole)
        own = analysis.pattern
        self.num_rows, self._num_values = own.dim, own.values_size
        self._border = self._indices(whole.places[own.values_size :])
        self.rhs = self.reals(own.dim + 1)
        """Right-hand side, whose last number is not to be written."""
        device.write(self.rhs, np.array([CORNER]), 8 * own.dim)
        device.write(self._thresholds, np.zeros(1), 8 * own.dim)
        first = own.value_offsets[own.col_ptr[1:] - 1]
        within = np.arange(own.dim) - np.repeat(own.offsets[:-1], own.dims)
        places = np.repeat(first, own.dims) + within * (np.repeat(own.dims, own.dims) + 1)
        self._diagonal_values = self._indices(places)
        self._backward = _Backward(proxy(self))  # no cycle: memory goes at once

    def record_scatter(self, recorder: Any, values: Any, damping: Any) -> None:
        """As `DeviceCholesky`, and the right-hand side; the last row is not damped."""
        self._scatter(recorder, self._border, self.rhs, self.num_rows + 1)
        self._scatter(recorder, self._places, values, self._num_values)
        if damping is None:
            self._damp(recorder, self._diagonal_values, values, None, self.num_rows)
        else:
            recorder.barrier()
            self._damp(recorder, self._diagonal, self.factor, damping, self.num_rows)
        recorder.barrier()

    def record_backward(self, recorder: Any, x: Any) -> None:
        """Record the rest of a solution, after `record_factorize`.

        x: (dim,) reals; where it has room for more, that is written after this.
        """
        self._backward.record_into(recorder, x)


class _Backward(Solves):
    """L' x = z."""

    def __init__(self, owner: BorderedCholesky):
        super().__init__(owner, 1)
        self._rows = owner.num_rows
        source = owner.analysis.symbolic.scalar_source
        self._is_in_order = np.array_equal(source, np.arange(len(source)))
        """Rows are eliminated as they come, so a solution needs no permutation."""
        owner.device.write(self._z, np.append(np.zeros(self._rows), -ROOT))

    def record_into(self, recorder: Any, x: Any) -> None:
        """Record it, with barriers before and after."""
        own, has_room = self._owner, self._is_in_order and x.size > 8 * self._rows
        found, self._y = self._y, x if has_room else self._y
        for level in reversed(own.work.levels):
            self._backward(recorder, level)
        self._y = found
        if not has_room:
            kernel = own.shader("permute", 3, 2, {0: _VECTOR, 1: 1})
            buffers = (own.source, self._y, x)
            recorder.dispatch(kernel, buffers, (self._rows, self._rows), -(-self._rows // _VECTOR))
            recorder.barrier()
