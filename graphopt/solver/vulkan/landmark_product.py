"""Products that go landmark by landmark, and the product with the implicit Schur complement made of them.

LandmarkProduct  u = H_ll^-1 (base - H_pl' x)   from the landmark's own column
implicit_steps   (H_pp - H_pl H_ll^-1 H_pl') x   up to the partial sums of its rows
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from graphopt.solver.vulkan.chunks import first_of_each
from graphopt.solver.vulkan.context import Context, Launch
from graphopt.solver.vulkan.layout import BlockLayout
from graphopt.solver.vulkan.products import RowProduct

PRODUCT_WORKGROUP = 128
BATCH_BYTES = 12e6
"""Of H_pl, for products that pass over it twice: two batches fit into a large GPU's cache."""
PRODUCT_STAGE_SCALARS = 1536
"""Entries of H_pl that a workgroup multiplies at a time: 12 KiB of float64; every device has 16 KiB."""


@dataclass(frozen=True)
class _LandmarkGroup:
    """Landmarks of one dimension: a kernel of their own."""

    dim: int
    rows: int
    """Rows of all their H_pl blocks; 0: of any number."""
    capacity: int
    first_tile: int
    batch_ptr: list[int]
    """First tile of each batch, from `first_tile` on."""
    landmarks: tuple[int, int]
    """The first one in the order of the dimensions, and how many."""


class LandmarkProduct:
    """u_l = H_ll^-1 (base_l - sum_k W_k' x_k) for all landmarks; x and u are parts of one vector."""

    def __init__(
        self,
        context: Context,
        layout: BlockLayout,
        inverse_offset: np.ndarray,
        batches: np.ndarray | None = None,
    ):
        """inverse_offset: (num_landmarks,) offset of each H_ll^-1; batches: as for `RowProduct`."""
        self._context = context
        edges = batches if batches is not None else np.array([0, layout.values_size])
        self.num_batches = len(edges) - 1
        dims = layout.dims[layout.num_kept :]
        degree = np.diff(layout.landmark_items)
        order = np.argsort(dims, kind="stable")
        items = np.repeat(layout.landmark_items[:-1][order], degree[order])
        items += np.arange(len(items)) - np.repeat(first_of_each(degree[order]), degree[order])
        item_blocks = layout.items[items]
        item_rows = layout.dims[layout.item_row[items]]
        landmark_items = np.concatenate([[0], np.cumsum(degree[order])])
        scalars = layout.scalar[layout.num_kept : -1]
        column = layout.block_offset[layout.col_ptr[layout.num_kept : -1]][order]  # offset in values
        self._launch_groups: list[_LandmarkGroup] = []
        tiles: list[np.ndarray] = []
        first_tile = 0
        for dim in np.unique(dims).tolist():
            of_dim = np.flatnonzero(dims[order] == dim)
            mine = item_rows[landmark_items[of_dim[0]] : landmark_items[of_dim[-1] + 1]]
            rows = int(mine[0]) if len(mine) and (mine == mine[0]).all() else 0
            capacity = _capacity(rows, dim)
            starts = _tiles(landmark_items, int(of_dim[0]), int(of_dim[-1]) + 1, dim, capacity)
            batch_ptr = np.searchsorted(column[starts[:-1]], edges)
            batch_ptr[0], batch_ptr[-1] = 0, len(starts) - 1
            landmarks = (int(of_dim[0]), len(of_dim))
            self._launch_groups.append(
                _LandmarkGroup(dim, rows, capacity, first_tile, batch_ptr.tolist(), landmarks)
            )
            tiles.append(starts)
            first_tile += len(starts)
        self._tiles = context.indices(np.concatenate(tiles))
        self._landmark_items = context.indices(landmark_items)
        self._landmarks = context.indices(np.stack([scalars[order], inverse_offset[order]], axis=1))
        self._item_block = context.indices(layout.block_offset[item_blocks])
        self._item_scalar = context.indices(layout.scalar[layout.item_row[items]])
        self._item_rows = context.indices(item_rows)

    def launches(
        self,
        values: Any,
        inverse: Any,
        vector: Any,
        status: Any,
        *,
        base: Any | None,
        product: bool = True,
        parity: int | None = None,
        batch: int | None = None,
    ) -> list[Launch]:
        """With base None: 0; product False: without the sum over H_pl blocks; batch None: all landmarks."""
        result = []
        for group in self._launch_groups:
            first, last = (0, self.num_batches) if batch is None else (batch, batch + 1)
            first_tile, num_tiles = group.batch_ptr[first], group.batch_ptr[last] - group.batch_ptr[first]
            first_tile, num_groups = first_tile + group.first_tile, num_tiles
            if not product:
                first_tile, num_tiles = group.landmarks
                num_groups = -(-num_tiles // (PRODUCT_WORKGROUP // group.dim))
            if num_groups == 0:
                continue
            constants = {
                0: PRODUCT_WORKGROUP,
                1: group.dim,
                2: group.rows,
                3: int(product),
                4: int(base is not None),
                5: group.capacity,
                6: int(parity is not None),
            }
            kernel = self._context.shader("landmark_product", 11, 3, constants)
            buffers = (
                self._tiles,
                self._landmark_items,
                self._landmarks,
                self._item_block,
                self._item_scalar,
                values,
                inverse,
                base or inverse,
                vector,
                status,
                self._item_rows,
            )
            result.append(Launch(kernel, buffers, (first_tile, num_tiles, parity or 0), num_groups))
        return result


def landmark_batches(context: Context, layout: BlockLayout) -> np.ndarray:
    """(n + 1,) offsets in values that cut the landmarks' columns into batches of about BATCH_BYTES."""
    column = layout.block_offset[layout.col_ptr[layout.num_kept :]]
    num_batches = max(1, round(float(column[-1] - column[0]) * context.real.itemsize / BATCH_BYTES))
    wanted = np.linspace(float(column[0]), float(column[-1]), num_batches + 1)[1:-1]
    inner = np.unique(column[np.searchsorted(column, wanted)])
    return np.concatenate([[0], inner[(inner > column[0]) & (inner < column[-1])], [layout.values_size]])


def implicit_steps(
    landmarks: LandmarkProduct,
    rows: RowProduct,
    values: Any,
    inverse: Any,
    vector: Any,
    status: Any,
    parity: int | None = None,
) -> list[list[Launch]]:
    """Steps of the product with the implicit Schur complement, up to the partial sums of its rows.

    H_pl is needed twice: by landmark, then by kept vertex. Batch by batch, the second time finds it in the
    cache: while the rows of a batch are summed, the landmarks of the next one are.
    """
    steps: list[list[Launch]] = [[] for _ in range(landmarks.num_batches + 1)]
    for batch in range(landmarks.num_batches):
        steps[batch] += landmarks.launches(
            values, inverse, vector, status, base=None, parity=parity, batch=batch
        )
        steps[batch + 1] += rows.batch_launches(batch, values, vector, status, parity)
    return [step for step in steps if step]


def _capacity(rows: int, dim: int) -> int:
    """H_pl blocks per pass: what shared memory holds; rows 0: of any number, three columns per invocation."""
    if rows == 0:
        return max(1, 3 * PRODUCT_WORKGROUP // dim)
    return PRODUCT_STAGE_SCALARS // (rows * dim)


def _tiles(landmark_items: np.ndarray, first: int, last: int, dim: int, capacity: int) -> np.ndarray:
    """Starts of tiles of whole landmarks, and `last`.

    A tile has at most PRODUCT_WORKGROUP / dim landmarks, and at most `capacity` items unless it is a single
    landmark.
    """
    ptr = landmark_items[first : last + 1]
    here = np.arange(len(ptr) - 1)
    fitting = np.searchsorted(ptr, ptr[:-1] + capacity, side="right") - 1
    end = np.clip(fitting, here + 1, np.minimum(here + PRODUCT_WORKGROUP // dim, last - first)).tolist()
    starts, at = [0], 0
    while at < last - first:
        at = end[at]
        starts.append(at)
    return np.array(starts, np.int64) + first
