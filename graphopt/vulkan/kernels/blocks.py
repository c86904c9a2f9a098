"""Inverses of diagonal blocks: H_ll for the Schur complement, block-Jacobi preconditioners.

Sparse block products on the device.

RowProduct       y = A x          items sorted by block row; chunks give partial sums, added in order
SymmetricProduct y = A x          A symmetric, equal blocks: each stored one is read once, and used twice
LandmarkProduct  u = H_ll^-1 (base - H_pl' x)   landmark by landmark, from the landmark's own column

Products with the stored off-diagonal blocks of H, the part of edge groups with schedule "blocks".

    eliminated   y_l = H_lp x_p
    kept         y_p = (H_pp without diagonal) x_p + H_pl x_l
    whole        both

They assign all rows of y, zeros where there is no block; `edge_products` adds the other groups' part.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphopt.cpu_kernels import kernels
from graphopt.device.listing import native_module
from graphopt.vulkan.data.layout import (
    MAX_BLOCK_DIM,
    BlockLayout,
    bins_of_blocks,
    dim_classes,
    first_of_each,
    index_table,
    parallel_items,
    sort_into_bins,
    split_segments,
)
from graphopt.vulkan.kernels.equations import Equations
from graphopt.vulkan.program import (
    ACCUMULATOR_BYTES,
    LARGE_BYTES,
    NOTHING,
    Context,
    Launch,
    Program,
    check_queue,
)

INVERSE_WORKGROUP = 64
Follows = tuple[Any, Any]
"""d and the scalars of conjugate gradients, which a product A u ends by following: see `pcg`."""


class BlockInverse:
    """inverse_k = (A_k + D_k)^-1 for symmetric positive definite blocks of any dimensions."""

    def __init__(
        self,
        context: Context,
        dims: np.ndarray,
        source: np.ndarray,
        damping_offset: np.ndarray,
        spare: np.ndarray | None = None,
        *,
        upper: bool = False,
    ):
        """source: offset of each block in values; damping_offset: its first scalar in the damping.

        spare: offset of the block that takes the place of one that is not definite, see `launches`. upper: of
        an inverse only the upper triangle is stored, by columns.
        """
        self._context, self._upper = context, upper
        order, self.bins = bins_of_blocks(dims)
        self.offset, self.size = _packed_blocks(dims, upper=upper, equal=isinstance(order, slice))
        """(n,) int64: offset of each inverse; size of all."""
        self.buffer = context.reals(self.size)
        columns = [source, damping_offset, self.offset, *([] if spare is None else [spare])]
        self.is_affine = isinstance(order, slice) and _are_affine(columns, dims)
        """Blocks follow each other everywhere: `blocks` has one row."""
        count = slice(1) if self.is_affine else order
        self.blocks = context.indices(index_table(*(column[count] for column in columns)))
        """As `block_places.glsl` reads it."""
        self._has_spare = spare is not None

    def launches(
        self, values: Any, damping: Any | None, status: Any, *, damped: bool = True, spare: Any = None
    ) -> list[Launch]:
        """With damping None, or not `damped`: D = 0. spare: values of the blocks B, where they have places.

        A block that is not positive definite gives way to B + D. Where there is none, or it is not definite
        either, status[INDEFINITE] is set.
        """
        launches = []
        for bin_ in self.bins:
            (dim,) = bin_.dims
            is_damped = damped and damping is not None
            constants = {0: INVERSE_WORKGROUP, 1: dim, 2: int(is_damped), 3: int(self._has_spare)}
            constants |= {4: int(self._upper), 5: int(self.is_affine)}
            buffers = (self.blocks, values, damping or status, self.buffer, status, spare or values)
            groups = -(-bin_.num_chunks // (INVERSE_WORKGROUP // dim))
            params = (bin_.first, bin_.num_chunks)
            launches.append(self._context.launch("invert_blocks", buffers, params, groups, constants))
        return launches


def _packed_blocks(dims: np.ndarray, *, upper: bool, equal: bool) -> tuple[np.ndarray, int]:
    """Offsets (n,) int64 of blocks, or their upper triangles, that follow each other; and their size."""
    if equal:
        dim = int(dims[0])
        area = dim * (dim + 1) // 2 if upper else dim**2
        return np.arange(0, area * len(dims), area), area * len(dims)
    dims = dims.astype(np.int64)
    areas = dims * (dims + 1) // 2 if upper else dims**2
    return first_of_each(areas), int(areas.sum())


def _are_affine(columns: list[np.ndarray], dims: np.ndarray) -> bool:
    """Equal blocks that follow each other in each column: blocks, rows, inverses, maybe blocks."""
    if len(dims) < 2:
        return True
    dim = int(dims[0])
    steps = [dim**2, dim, int(columns[2][1]), dim**2][: len(columns)]
    return all(kernels.common_step(column) == step for column, step in zip(columns, steps, strict=True))


def row_table(dims: np.ndarray, offset: np.ndarray) -> np.ndarray:
    """(num_scalars, 3) uint32: offset of the row, first scalar row of its block, dimension of its block."""
    return kernels.row_table(np.ascontiguousarray(dims, np.int32), np.ascontiguousarray(offset, np.int64))


PRODUCT_WORKGROUP = 128
ITEMS_PER_CHUNK = 256
GATHER_WORKGROUP = 256
MAX_GATHER_GROUPS = 1024
SYMMETRIC_WORKGROUP = 64
ROUNDS_PER_CHUNK = 12
"""Blocks of a chunk of a symmetric product: so many times what a workgroup takes at once."""
NORMAL, TRANSPOSED = 1, 2  # what a stored block is used for: y_row += B x_col, y_col += B' x_row


def symmetric_uses(row: np.ndarray, col: np.ndarray) -> np.ndarray:
    """Uses of the blocks of an upper triangle in a product with the whole symmetric matrix."""
    return np.where(row == col, NORMAL, NORMAL | TRANSPOSED).astype(np.uint8)


class RowProduct:
    """y = A x for chosen blocks of a layout, y over the first `num_rows` block rows."""

    def __init__(
        self, context: Context, layout: BlockLayout, blocks: np.ndarray, uses: np.ndarray, num_rows: int
    ):
        """blocks: stored blocks that take part; uses: NORMAL | TRANSPOSED for each."""
        self._context = context
        self.num_scalars = int(layout.scalar[num_rows])
        distinct, classes = dim_classes(layout.dims)
        num_classes = len(distinct)
        segment_ptr, item_block, item_scalar = native_module().row_queue(
            num_rows,
            num_classes,
            layout.row_idx[blocks],
            layout.col[blocks],
            uses,
            layout.block_offset[blocks],
            layout.scalar,
            classes,
        )
        check_queue(len(item_block), "a product")
        segment, begin, end = split_segments(segment_ptr, ITEMS_PER_CHUNK)
        destination = segment // num_classes
        rows = layout.dims[destination]
        partial_first = first_of_each(rows.astype(np.int64))
        cols = distinct[segment % num_classes]
        order, self._bins = sort_into_bins((rows, cols), end - begin)
        self._chunks = context.indices(
            np.stack([begin, end, partial_first, rows + 256 * cols], axis=1)[order]
        )
        self._item_block = context.indices(item_block)
        self._item_scalar = context.indices(item_scalar)
        self._row_table = context.indices(_row_table(layout, num_rows, destination, partial_first))
        self._partial = context.accumulators(int(rows.sum()))
        self.num_groups = context.vector_groups(self.num_scalars)

    def chunk_launches(self, values: Any, x: Any, status: Any, ping_pong: int | None = None) -> list[Launch]:
        """The partial sums. ping_pong: of the conjugate gradient iteration they belong to, if they do."""
        launches = []
        for bin_ in self._bins:
            rows, cols = bin_.dims
            lanes = rows or MAX_BLOCK_DIM
            parallel = parallel_items(bin_.mean_length, PRODUCT_WORKGROUP // lanes)
            slots = PRODUCT_WORKGROUP // (lanes * parallel)
            constants = {0: PRODUCT_WORKGROUP, 1: rows, 2: cols, 3: parallel, 4: int(ping_pong is not None)}
            buffers = (self._chunks, self._item_block, self._item_scalar, values, x, self._partial, status)
            params = (bin_.first, bin_.num_chunks, ping_pong or 0)
            groups = -(-bin_.num_chunks // slots)
            launches.append(self._context.launch("row_product", buffers, params, groups, constants))
        return launches

    def product_launch(
        self,
        x: Any,
        y: Any,
        dots: Any,
        status: Any,
        damping: Any | None,
        ping_pong: int | None = None,
        follows: Follows | None = None,
    ) -> Launch:
        """Compute y = sum + D x, and the parts of x' y in `dots`; damping None: D = 0.

        follows: then d = x + beta d, y = sum + D x + beta y, and the parts of d' y.
        """
        return self._combine(
            0, (x, damping or x, x, y, dots, status), damping is not None, ping_pong, follows
        )

    def residual_launch(self, base: Any, y: Any, status: Any) -> Launch:
        """Compute y = base - sum."""
        return self._combine(1, (base, base, base, y, self._partial, status), False, None)

    def _combine(
        self, mode: int, buffers: tuple, damped: bool, ping_pong: int | None, follows: Follows | None = None
    ) -> Launch:
        constants = {1: mode, 2: int(damped), 3: int(ping_pong is not None), 4: int(follows is not None)}
        params = (self.num_scalars, self.num_groups, ping_pong or 0)
        own = (self._row_table, self._partial, *buffers, *(follows or (buffers[0], buffers[0])))
        return self._context.launch("row_combine", own, params, self.num_groups, constants)


def _row_table(
    layout: BlockLayout, num_rows: int, destination: np.ndarray, partial_first: np.ndarray
) -> np.ndarray:
    """(num_scalars, 3): first partial sum, number of chunks, distance between chunks, of each scalar row."""
    dims = layout.dims[:num_rows]
    count = np.bincount(destination, minlength=num_rows)
    first = np.zeros(num_rows, np.int64)
    starts = first_of_each(count)
    filled = count > 0
    first[filled] = partial_first[starts[filled]]
    within = np.arange(int(layout.scalar[num_rows])) - np.repeat(layout.scalar[:num_rows], dims)
    return np.stack([np.repeat(first, dims) + within, np.repeat(count, dims), np.repeat(dims, dims)], axis=1)


class SymmetricProduct:
    """y = A x for a symmetric layout whose blocks all have one dimension, over all its block rows."""

    def __init__(self, context: Context, layout: BlockLayout):
        self._context = context
        self._dim = int(layout.dims[0])
        row, col = layout.row_idx, layout.col
        segment, begin, end = split_segments(
            layout.col_ptr, ROUNDS_PER_CHUNK * (SYMMETRIC_WORKGROUP // self._dim)
        )
        # The vectors of a block row lie side by side: those of its column's chunks, then one per block.
        given = np.flatnonzero(row != col)
        destination = np.concatenate([segment, row[given]])
        order = np.argsort(destination, kind="stable")
        place = np.empty(len(order), np.int64)
        place[order] = self._dim * np.arange(len(order))
        block_place = np.full(len(row), NOTHING, np.int64)
        block_place[given] = place[len(segment) :]
        first = np.concatenate([[0], np.cumsum(np.bincount(destination, minlength=layout.num_blocks))])
        self._num_chunks, self._num_rows = len(segment), layout.num_blocks
        chunks = np.stack([begin, end, layout.scalar[segment], place[: len(segment)]], axis=1)
        self._chunks = context.indices(chunks)
        self._block_scalar = context.indices(layout.scalar[row])
        self._block_place = context.indices(block_place)
        self._rows = context.indices(first)
        self._partial = context.accumulators(self._dim * len(order))
        self.num_groups = max(1, min(MAX_GATHER_GROUPS, self._num_rows))

    def chunk_launches(self, values: Any, x: Any, status: Any, ping_pong: int | None = None) -> list[Launch]:
        """Vectors for the rows. ping_pong: of the conjugate gradient iteration they belong to, if they do."""
        constants = {0: SYMMETRIC_WORKGROUP, 1: self._dim, 2: int(ping_pong is not None)}
        buffers = (self._chunks, self._block_scalar, self._block_place, values, x, self._partial, status)
        params = (self._num_chunks, ping_pong or 0)
        return [self._context.launch("symmetric_product", buffers, params, self._num_chunks, constants)]

    def product_launch(
        self,
        x: Any,
        y: Any,
        dots: Any,
        status: Any,
        damping: Any | None,
        ping_pong: int | None = None,
        follows: Follows | None = None,
    ) -> Launch:
        """As `RowProduct.product_launch`."""
        constants = {
            0: GATHER_WORKGROUP,
            1: self._dim,
            2: int(damping is not None),
            3: int(ping_pong is not None),
            4: int(follows is not None),
        }
        own = (self._rows, self._partial, x, damping or x, y, dots, status)
        buffers = (*own, *(follows or (x, x)))
        params = (self._num_rows, self.num_groups, ping_pong or 0)
        return self._context.launch("row_gather", buffers, params, self.num_groups, constants)


def symmetric_product(context: Context, layout: BlockLayout) -> RowProduct | SymmetricProduct:
    """The product with all of a symmetric matrix; short columns, as of pixels, share workgroups by rows."""
    partial_bytes = ACCUMULATOR_BYTES * int(layout.dims[0]) * 2 * len(layout.row_idx)
    # the mean column keeps a workgroup busy once; by rows each block is read twice
    is_long = len(layout.row_idx) * int(layout.dims[0]) >= SYMMETRIC_WORKGROUP * layout.num_blocks
    if is_long and (layout.dims == layout.dims[0]).all() and partial_bytes < LARGE_BYTES:
        return SymmetricProduct(context, layout)
    every = np.arange(len(layout.row_idx))
    uses = symmetric_uses(layout.row_idx, layout.col)
    return RowProduct(context, layout, every, uses, layout.num_blocks)


def record_stored_product(program: Program, equations: Equations, x: Any, y: Any) -> None:
    """y = H x from all blocks of H, with last barrier."""
    context, own = equations.context, equations
    product = symmetric_product(context, own.layout)
    dots = context.accumulators(product.num_groups)
    program.step(product.chunk_launches(own.values, x, own.status))
    program.step([product.product_launch(x, y, dots, own.status, None)])


class LandmarkProduct:
    """u_l = H_ll^-1 (base_l - sum_k W_k' x_k) for all landmarks; x and u are parts of one vector."""

    def __init__(self, context: Context, layout: BlockLayout, inverse_offset: np.ndarray):
        """inverse_offset: (num_landmarks,) offset of each H_ll^-1."""
        self._context = context
        dims = layout.dims[layout.num_kept :]
        distinct, _ = dim_classes(dims)
        order, items, landmark_items = _by_dimension(dims, layout.landmark_items, len(distinct))
        item_blocks = layout.items[items]
        item_rows = layout.dims[layout.item_row[items]]
        scalars = layout.scalar[layout.num_kept : -1]
        self._launch_groups: list[tuple[int, ...]] = []
        tiles: list[np.ndarray] = []
        first_tile = 0
        for dim in distinct.tolist():
            first, count = int(np.count_nonzero(dims < dim)), int(np.count_nonzero(dims == dim))
            capacity = _capacity(dim)
            starts = _tiles(landmark_items, first, first + count, dim, capacity)
            mine = item_rows[landmark_items[first] : landmark_items[first + count]]
            rows = int(mine[0]) if len(mine) and (mine == mine[0]).all() else 0
            landmarks = (first, count)
            self._launch_groups.append((dim, rows, capacity, first_tile, len(starts) - 1, *landmarks))
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
        ping_pong: int | None = None,
    ) -> list[Launch]:
        """With base None: 0; product False: without the sum over H_pl blocks."""
        result = []
        for dim, rows, capacity, first_tile, num_tiles, first, count in self._launch_groups:
            constants = {
                0: PRODUCT_WORKGROUP,
                1: dim,
                2: rows,
                3: int(product),
                4: int(base is not None),
                5: capacity,
                6: int(ping_pong is not None),
            }
            buffers = (
                self._tiles,
                self._landmark_items,
                self._landmarks,
                self._item_block,
                self._item_scalar,
                values,
                inverse,
                base or vector,
                vector,
                status,
                self._item_rows,
            )
            work, groups = (first_tile, num_tiles), num_tiles
            if not product:
                work, groups = (first, count), -(-count // (PRODUCT_WORKGROUP // dim))
            params = (*work, ping_pong or 0)
            result.append(self._context.launch("landmark_product", buffers, params, groups, constants))
        return result


def _by_dimension(
    dims: np.ndarray, landmark_items: np.ndarray, num_dims: int
) -> tuple[np.ndarray | slice, np.ndarray | slice, np.ndarray]:
    """Landmarks by their dimension, in what order their items come then, and the first item of each."""
    if num_dims == 1:
        return slice(None), slice(None), landmark_items
    degree = np.diff(landmark_items)
    order = np.argsort(dims, kind="stable")
    items = np.repeat(landmark_items[:-1][order], degree[order])
    items += np.arange(len(items)) - np.repeat(first_of_each(degree[order]), degree[order])
    return order, items, np.concatenate([[0], np.cumsum(degree[order])])


def _capacity(dim: int) -> int:
    """H_pl blocks per pass: three products per invocation; shared memory stays small, the rest is cache."""
    return max(1, 3 * PRODUCT_WORKGROUP // dim)


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


class StoredBlocks:
    """The off-diagonal blocks of a layout."""

    def __init__(self, context: Context, layout: BlockLayout):
        self._context, self._layout = context, layout
        col = layout.col
        blocks = np.flatnonzero(layout.row_idx != col)
        is_coupling = col[blocks] >= layout.num_kept
        self._coupling, self._among_kept = blocks[is_coupling], blocks[~is_coupling]
        self._products: dict[str, RowProduct | None] = {}
        self._dots: Any = None

    @property
    def couples(self) -> bool:
        """Some of them are blocks of H_pl."""
        return len(self._coupling) > 0

    def steps(
        self, part: str, values: Any, x: Any, y: Any, status: Any, ping_pong: int | None
    ) -> list[list[Launch]]:
        """y = a part of H x; none: there are no blocks, y is as it was."""
        if part not in self._products:
            self._products[part] = self._make(part)
        product = self._products[part]
        if product is None:
            return []
        if self._dots is None:
            self._dots = self._context.accumulators(self._context.vector_groups(self._layout.dim))
        return [
            product.chunk_launches(values, x, status, ping_pong),
            [product.product_launch(x, y, self._dots, status, None, ping_pong)],
        ]

    def _make(self, part: str) -> RowProduct | None:
        layout, both = self._layout, NORMAL | TRANSPOSED
        coupling_use = {"eliminated": TRANSPOSED, "kept": NORMAL, "whole": both}[part]
        kept = self._among_kept[: 0 if part == "eliminated" else None]
        blocks = np.concatenate([kept, self._coupling])
        if not len(blocks):
            return None
        uses = np.full(len(blocks), coupling_use, np.uint8)
        uses[: len(kept)] = both
        num_rows = layout.num_kept if part == "kept" else layout.num_blocks
        return RowProduct(self._context, layout, blocks, uses, num_rows)
