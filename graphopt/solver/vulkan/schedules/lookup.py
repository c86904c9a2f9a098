"""Schedule "lookup" of an explicit Schur complement: no work queue, pairs are found at each use.

A walk through the sorted landmark lists of i and j finds the landmarks that both see, in the multiplication
itself (schur_lookup.comp); set-up is the pattern alone.

It is 3 to 4 times slower than a queue on every problem of the benchmark: `auto` never takes it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphopt.errors import SolverError
from graphopt.solver.vulkan.data.array import DeviceArray
from graphopt.solver.vulkan.data.layout import BlockLayout
from graphopt.solver.vulkan.kernels.schur import LandmarkLists, cut_launches
from graphopt.solver.vulkan.program import NOTHING, Context, Launch

LOOKUP_WORKGROUP = 128


class SchurLookup:
    """Forms S without a queue; the interface of `schur.SchurBlocks`. For kept vertices of one dimension."""

    def __init__(
        self,
        context: Context,
        layout: BlockLayout,
        lists: LandmarkLists,
        reduced: BlockLayout,
        hpp: np.ndarray,
    ):
        """hpp: for each block of the reduced layout the stored block of H, -1: none."""
        dims = np.unique(reduced.dims)
        if len(dims) != 1:
            raise SolverError(f"The lookup variant needs kept vertices of one dimension, these have {dims}.")
        self._context, self._lists, self._rows = context, lists, int(dims[0])
        self.offset = reduced.block_offset[:-1]
        self.size = reduced.values_size
        self.matrix = DeviceArray(context, self.size, is_mapped=False)
        self.buffer = self.matrix.buffer
        place = np.where(hpp >= 0, layout.block_offset[hpp], NOTHING)
        damping = np.where(reduced.row_idx == reduced.col, layout.scalar[reduced.row_idx], NOTHING)
        self._blocks = context.indices(np.stack([reduced.row_idx, reduced.col, place, damping], axis=1))
        self._steps = lists.walk_steps(reduced)

    def pair_launches(self, values: Any, inverse: Any, damping: Any) -> list[Launch]:
        """The whole of S."""
        team = (-(-self._rows // 3)) ** 2
        constants = {0: LOOKUP_WORKGROUP, 1: self._rows, 2: self._lists.dim, 3: LOOKUP_WORKGROUP // team}
        lists = self._lists
        buffers = (
            self._blocks,
            lists.row_items,
            lists.entry_landmark,
            lists.entry_block,
            lists.inverse_offset,
            values,
            inverse,
            damping,
            self.buffer,
        )
        whole = self._context.launch("schur_lookup", buffers, (0, 0), 0, constants)
        return cut_launches(self._context, whole, self._steps, 1)

    def combine_launches(self, values: Any, damping: Any) -> list[Launch]:
        """Nothing is left to combine."""
        return []


SCHEDULES = {"lookup": SchurLookup}
