"""Weighted sums over a grid on a device: tables of one `Convolution`, and launches of its kernels.

The padded grid has the grid's places and those beyond the borders that offsets reach. Of each of its places
the tables say which place of the grid it stands for; of each of the grid's, which ones stand for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from graphopt.codegen.gpu.product_shapes import STOPPABLE
from graphopt.codegen.gpu.value_kernels import (
    ADDED,
    VALUE_WORKGROUP,
    grid_backward_kernel,
    grid_forward_kernel,
    grid_values_kernel,
)
from graphopt.computed.structure import ValuesStructure
from graphopt.graph.convolution import Convolution
from graphopt.vulkan.data.array import WIDE, DeviceArray, pack_wide
from graphopt.vulkan.data.estimates import RecordSet
from graphopt.vulkan.program import NOTHING, Context, Launch


class DeviceGrid:
    """The sums of one convolution."""

    def __init__(
        self,
        context: Context,
        structure: ValuesStructure,
        term: tuple[Convolution, int, int, slice, slice],
        block_offset: np.ndarray,
        is_begun: np.ndarray,
    ):
        """block_offset: where each diagonal block begins among them.

        is_begun: (n,) bool, by row of the values: others have left a part of the sum; those here are marked.
        """
        self._context = context
        convolution, self.source, self.value, from_rows, to_rows = term
        self._dim = convolution.value_type.storage_dim
        self._varies = convolution.weights.ndim > 1
        self._num_terms, self._num_places = len(convolution.offsets), int(np.prod(convolution.shape))
        stands_for, inner = convolution.padded()
        self._num_padded = len(stands_for)
        weights = np.ascontiguousarray(convolution.weights, np.float64).ravel()
        has_double = context.device.has_float64
        wide = DeviceArray(context, weights.size, WIDE)
        wide.write(pack_wide(weights, has_double).view(WIDE))
        self._wide_weights = wide
        self._weights = wide
        if context.precision != "double":
            self._weights = DeviceArray.of(context, weights, np.float32)
        order = np.argsort(stands_for, kind="stable")[np.count_nonzero(stands_for < 0) :]
        sources = structure.vertex_offsets[self.source][from_rows]
        values = structure.vertex_offsets[self.value][to_rows]
        tables = {
            "padded": inner,
            "value_row": to_rows.start + np.arange(self._num_places) + ADDED * is_begun[to_rows],
            "shift": convolution.shifts(),
            "source_row": np.where(stands_for >= 0, from_rows.start + stands_for, -1),
            "source_scalar": _taken(sources, stands_for),
            "value_scalar": values,
            "first_stand": np.searchsorted(stands_for[order], np.arange(self._num_places + 1)),
            "stands": order,
            "place_of": _scattered(np.arange(self._num_places), inner, self._num_padded),
            "values_at": _scattered(values, inner, self._num_padded),
            "own_scalar": sources,
        }
        blocks = np.append(block_offset, -1)  # the last one: not optimized
        value_blocks = blocks[structure.vertex_blocks[self.value][to_rows]]
        tables["blocks_at"] = _scattered(value_blocks, inner, self._num_padded)
        tables["own_block"] = blocks[structure.vertex_blocks[self.source][from_rows]]
        is_begun[to_rows] = True
        self._tables = {name: DeviceArray.of(context, _unsigned(table)) for name, table in tables.items()}

    @property
    def nbytes(self) -> int:
        """Device memory."""
        arrays = [*self._tables.values(), self._wide_weights]
        return sum(
            array.nbytes for array in {id(array): array for array in [*arrays, self._weights]}.values()
        )

    def _buffers(self, **named: str) -> dict[str, Any]:
        return {name: self._tables[table].buffer for name, table in named.items()}

    def values_launch(self, version: Mapping[int, RecordSet]) -> Launch:
        """The values, from the estimates of a version into it."""
        kernel = grid_values_kernel(self._dim, self._varies, self._context.arithmetic)
        buffers = self._buffers(
            padded="padded", source_row="source_row", shift="shift", value_row="value_row"
        )
        target = version[self.value]
        buffers |= {"weights": self._wide_weights.buffer, "source": version[self.source].wide.buffer}
        buffers["values_out"] = target.wide.buffer
        if target.narrow is not None:
            buffers["float32_out"] = target.narrow.buffer
        params = {
            "num_places": self._num_places,
            "num_terms": self._num_terms,
        }
        return self._launch(kernel, buffers, params, {})

    def forward_launch(self, e: Any, status: Any, ping_pong: int | None, *, adds: bool) -> Launch:
        """e[values] = K e[sources], or +=."""
        kernel = grid_forward_kernel(self._dim, self._varies, self._context.arithmetic)
        buffers = self._buffers(
            padded="padded", source_scalar="source_scalar", shift="shift", value_scalar="value_scalar"
        )
        params = {"num_places": self._num_places, "num_terms": self._num_terms, "adds": int(adds)}
        return self._vectors(kernel, buffers, params, e, status, ping_pong)

    def backward_launch(self, y: Any, status: Any, ping_pong: int | None) -> Launch:
        """y[sources] += K' y[values]."""
        return self._backward(self._dim, False, ("own_scalar", "values_at"), y, status, ping_pong)

    def blocks_launch(self, blocks: Any, status: Any) -> Launch:
        """The sources' diagonal blocks += squared weights times those of the values."""
        return self._backward(self._dim**2, True, ("own_block", "blocks_at"), blocks, status, None)

    def _backward(
        self, width: int, squared: bool, tables: tuple[str, str], y: Any, status: Any, ping_pong: int | None
    ) -> Launch:
        kernel = grid_backward_kernel(width, self._varies, squared, self._context.arithmetic)
        own, values = tables
        buffers = self._buffers(
            first_stand="first_stand", stands="stands", value_of=values, place_of="place_of",
            shift="shift", source_scalar=own,
        )  # fmt: skip
        params = {
            "num_places": self._num_places,
            "num_padded": self._num_padded,
            "num_terms": self._num_terms,
        }
        return self._vectors(kernel, buffers, params, y, status, ping_pong)

    def _vectors(
        self, kernel: Any, buffers: dict[str, Any], params: dict[str, int], y: Any, status: Any,
        ping_pong: int | None,
    ) -> Launch:  # fmt: skip
        buffers = {**buffers, "weights": self._weights.buffer, "status": status, "x": y, "y": y}
        constants = {STOPPABLE: int(ping_pong is not None)}
        return self._launch(kernel, buffers, {**params, "ping_pong": ping_pong or 0}, constants)

    def _launch(
        self, kernel: Any, buffers: dict[str, Any], params: dict[str, int], constants: dict[int, int]
    ) -> Launch:
        groups = -(-self._num_places // VALUE_WORKGROUP)
        nbytes = self._num_places * self._num_terms * self._context.real.itemsize * (1.0 + self._varies)
        return self._context.generated(kernel, buffers, params, groups, nbytes, constants)


def _taken(offsets: np.ndarray, stands_for: np.ndarray) -> np.ndarray:
    """What belongs to the place that each padded place stands for, -1: none."""
    return np.where(stands_for >= 0, offsets[np.maximum(stands_for, 0)], -1)


def _scattered(values: np.ndarray, inner: np.ndarray, count: int) -> np.ndarray:
    """Values of the grid's places at their padded places, -1 at others."""
    found = np.full(count, -1, np.int64)
    found[inner] = values
    return found


def _unsigned(table: np.ndarray) -> np.ndarray:
    """-1 becomes NOTHING; negative shifts wrap round."""
    return (np.asarray(table, np.int64) & NOTHING).astype(np.uint32)
