"""An explicit Schur complement without a work queue ("lookup"): pairs are found at each use.

A walk through the sorted landmark lists of i and j finds the landmarks that both see, in the multiplication
itself (schur_lookup.comp); set-up is the pattern alone.

It is 3 to 4 times slower than a queue on every problem of the benchmark: `auto` never takes it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphopt.vulkan.data.array import DeviceArray
from graphopt.vulkan.data.layout import BlockLayout
from graphopt.vulkan.kernels.schur_queue import LandmarkLists, cut_launches
from graphopt.vulkan.program import NOTHING, Context, Launch

LOOKUP_WORKGROUP = 128


class SchurLookup:
    """Forms S without a queue; the interface of `schur.SchurBlocks`. Landmarks have one dimension."""

    def __init__(
        self,
        context: Context,
        layout: BlockLayout,
        lists: LandmarkLists,
        reduced: BlockLayout,
        hpp: np.ndarray,
    ):
        """hpp: for each block of the reduced layout the stored block of H, -1: none."""
        self._context, self._lists = context, lists
        self.offset = reduced.block_offset[:-1]
        self.size = reduced.values_size
        self.matrix = DeviceArray(context, self.size, is_mapped=False)
        self.buffer = self.matrix.buffer
        place = np.where(hpp >= 0, layout.block_offset[hpp], NOTHING)
        damping = np.where(reduced.row_idx == reduced.col, layout.scalar[reduced.row_idx], NOTHING)
        rows, cols = reduced.dims[reduced.row_idx], reduced.dims[reduced.col]
        table = np.stack([reduced.row_idx, reduced.col, place, damping, self.offset], axis=1)
        steps = lists.walk_steps(reduced)
        self._shapes: list[tuple[int, int, Any, np.ndarray]] = []
        """Rows, columns, blocks of this shape, and how long their walks are."""
        for row, col in np.unique(np.stack([rows, cols], axis=1), axis=0).tolist():
            own = np.flatnonzero((rows == row) & (cols == col))
            self._shapes.append((row, col, context.indices(table[own]), steps[own]))

    def pair_launches(self, values: Any, inverse: Any, damping: Any) -> list[Launch]:
        """The whole of S: a launch for each shape of its blocks."""
        return [
            launch for shape in self._shapes for launch in self._launches(*shape, values, inverse, damping)
        ]

    def _launches(
        self, rows: int, cols: int, blocks: Any, steps: np.ndarray, values: Any, inverse: Any, damping: Any
    ) -> list[Launch]:
        team = -(-rows // 3) * -(-cols // 3)
        lists, parallel = self._lists, LOOKUP_WORKGROUP // team
        constants = {0: LOOKUP_WORKGROUP, 1: rows, 2: lists.dim, 3: parallel, 4: cols}
        buffers = (
            blocks,
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
        return cut_launches(self._context, whole, steps, 1)

    def combine_launches(self, values: Any, damping: Any) -> list[Launch]:
        """Nothing is left to combine."""
        return []
