"""Arrays on the device: of the view of a slot, of the pair list of two."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphopt.codegen.gpu import EDGE_BLOCK, EdgeSignature
from graphopt.solver.segments import entries_of
from graphopt.solver.structure import EdgeGroup
from graphopt.solver.vulkan.context import Context
from graphopt.solver.vulkan.edge_views import EdgeView, PairList, write_data, write_rows
from graphopt.solver.vulkan.layout import BlockLayout
from graphopt.solver.vulkan.long_sums import LongArrays, LongBlocks, are_long_blocks
from graphopt.solver.vulkan.transfer import WIDE_BYTES, DeviceArray, Width, array_of


class ViewArrays:
    """One view's arrays."""

    def __init__(
        self,
        context: Context,
        group: EdgeGroup,
        signature: EdgeSignature,
        view: EdgeView,
        layout: BlockLayout,
    ):
        self._context, self._group, self.view = context, group, view
        num = -(-view.num_edges // EDGE_BLOCK) * EDGE_BLOCK
        self._rows = DeviceArray(context, num * signature.num_rows * 4)
        self._num_blocks = num // EDGE_BLOCK
        self._rows.fill(
            EDGE_BLOCK * signature.num_rows * 4,
            self._num_blocks,
            lambda first, out: write_rows(group, view, first, out),
        )
        self._num_data = signature.num_data
        self._data = DeviceArray(context, num * self._num_data * WIDE_BYTES)
        self._narrow = (
            DeviceArray(context, num * self._num_data * 4) if context.precision == "mixed" else None
        )
        arrays = {
            "first": view.first,
            "tiles": view.tiles,
            "dest_block": layout.diagonal_offset[view.blocks],
            "dest_scalar": layout.scalar[view.blocks],
        }
        small = {name: array_of(context, array.astype(np.uint32)) for name, array in arrays.items()}
        self.buffers: dict[str, Any] = {name: one.buffer for name, one in small.items()}
        self.buffers |= {"rows": self._rows.buffer, "data": self._data.buffer}
        if self._narrow is not None:
            self.buffers["data_narrow"] = self._narrow.buffer
        self.nbytes = self._rows.nbytes + self._data.nbytes + sum(one.nbytes for one in small.values())
        self.nbytes += 0 if self._narrow is None else self._narrow.nbytes
        self.long = _long_arrays(context, view, layout)
        self.nbytes += 0 if self.long is None else self.long.nbytes
        self.write_data()

    def write_data(self) -> None:
        """Measurements, information and kernel widths, from the graph."""
        if not self._num_data:
            return
        self._write_data(self._data, "float64" if self._context.device.has_float64 else "two_floats")
        if self._narrow is not None:
            self._write_data(self._narrow, "float32")

    def _write_data(self, target: DeviceArray, width: Width) -> None:
        target.fill(
            EDGE_BLOCK * self._num_data * (4 if width == "float32" else WIDE_BYTES),
            self._num_blocks,
            lambda first, out: write_data(self._group, self.view, first, width, out),
        )


def _long_arrays(context: Context, view: EdgeView, layout: BlockLayout) -> LongArrays | None:
    if view.long is None:
        return None
    begin, end = (int(view.tiles[one]) for one in view.long.tiles)
    return LongArrays(context, view.long, view.blocks[begin:end], layout)


class PairArrays:
    """One pair list's arrays; blocks with many edges come last."""

    def __init__(self, context: Context, pairs: PairList, size: int):
        """size: scalars of a block."""
        self.pairs, self.num_short, edge = pairs, pairs.num_blocks, pairs.edge
        first, offset = pairs.first, pairs.offset
        is_long = are_long_blocks(np.diff(first.astype(np.int64)))
        if is_long.any():
            self.num_short = int(np.count_nonzero(~is_long))
            moved = np.argsort(is_long, kind="stable")
            places, counts = entries_of(first, moved)
            edge = edge[places]
            first, offset = np.append(0, np.cumsum(counts)).astype(np.uint32), offset[moved]
        arrays = {"pair_first": first, "pair_edge": edge, "pair_block": offset}
        stored = {name: array_of(context, array) for name, array in arrays.items()}
        self.buffers: dict[str, Any] = {name: one.buffer for name, one in stored.items()}
        self.nbytes = sum(one.nbytes for one in stored.values())
        self.short_share = int(first[self.num_short]) / max(len(edge), 1)
        self.long: LongBlocks | None = None
        if is_long.any():
            self.long = LongBlocks(context, first[self.num_short :], offset[self.num_short :], size)
            self.nbytes += self.long.nbytes
