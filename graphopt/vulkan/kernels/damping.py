"""The damping D on a device: three numbers beside H's diagonal, so H is never changed.

    D_i = value                                 floor, ceiling: none
    D_i = value clip(H_ii, floor, ceiling)      Marquardt's, where kernels write H
    D_i = number i of the host                  for the first rows, or for all

A trial brings the header of `shaders/include/damping.glsl`; H's diagonal comes with the linearisation, and
kernels make D_i of both where they need it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphopt.solver.trial import Damping
from graphopt.vulkan.data.array import DeviceArray
from graphopt.vulkan.program import Context, Program

HEADER = 8
"""Numbers before the first row's: DAMPING_HEADER."""
LARGEST_CEILING = 1e38  # finite in float32


def header(damping: float | Damping, given_rows: int = 0) -> np.ndarray:
    """(HEADER,) float64. given_rows: the first ones, of which D_i stands where H_ii would."""
    value, floor, ceiling = damping.value if isinstance(damping, Damping) else damping, 0.0, 0.0
    if isinstance(damping, Damping) and damping.scaled:
        floor, ceiling = damping.floor, min(damping.ceiling, LARGEST_CEILING)
        if not floor < ceiling:
            value, floor, ceiling = value * ceiling, 0.0, 0.0
    # float32 holds 24 bits of a number of rows
    return np.array([value, floor, ceiling, given_rows >> 16, given_rows & 0xFFFF, 0.0, 0.0, 0.0])


def given(damping: np.ndarray) -> np.ndarray:
    """What a buffer of (HEADER + dim,) reals holds for a vector D (dim,)."""
    return np.concatenate([header(0.0, len(damping)), damping])


class DeviceDamping:
    """The buffer, and the ways to it."""

    def __init__(self, context: Context, dim: int):
        self._itemsize = context.real.itemsize
        self._header = DeviceArray(context, HEADER)
        self._array = DeviceArray(context, HEADER + dim, is_mapped=False)
        self.has_vector = False
        """Numbers of the host stand where H's diagonal would."""

    @property
    def buffer(self) -> Any:
        """(HEADER + dim,) reals."""
        return self._array.buffer

    def set(self, damping: float | np.ndarray | Damping, given_rows: int = 0) -> None:
        """Bring D's header to the device, or a vector of the first rows', 0 for others."""
        if isinstance(damping, Damping) or np.ndim(damping) == 0:
            self._header.staging[:] = header(
                damping if isinstance(damping, Damping) else float(damping), given_rows
            )
        else:
            rows = np.asarray(damping)
            self._header.staging[:] = header(0.0, len(rows))
            self._array.write(given(rows))
            self.has_vector = True
        self._header.commit()

    def record(self, program: Program) -> None:
        """Take what `set` has brought."""
        self._header.commit()
        program.copy(self._header.leaving, self.buffer, HEADER * self._itemsize).barrier()
