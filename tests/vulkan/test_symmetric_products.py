"""Products with a stored symmetric matrix, by its columns and by its rows: those of a dense one."""

from __future__ import annotations

import numpy as np
import pytest
from vulkan_devices import shared_device

from graphopt.vulkan.data.layout import BlockLayout
from graphopt.vulkan.kernels.blocks import (
    RowProduct,
    SymmetricProduct,
    symmetric_product,
    symmetric_uses,
)
from graphopt.vulkan.kernels.damping import given
from graphopt.vulkan.program import Context, Program

KINDS = {
    "columns": SymmetricProduct,
    "rows": lambda context, layout: RowProduct(
        context,
        layout,
        np.arange(len(layout.row_idx)),
        symmetric_uses(layout.row_idx, layout.col),
        layout.num_blocks,
    ),
    "chosen": symmetric_product,
}


def band(num, width, dim):
    """A matrix whose columns have up to `width` blocks."""
    count = np.minimum(np.arange(num) + 1, width)
    first = np.concatenate([[0], np.cumsum(count)])
    row = np.arange(first[-1]) - np.repeat(first[1:] - 1, count) + np.repeat(np.arange(num), count)
    return BlockLayout(np.full(num, dim, np.int32), first, row.astype(np.int32), num)


def numbers_of(layout, rng):
    """Stored numbers and the dense matrix; diagonal blocks are symmetric."""
    values, dense = rng.normal(size=layout.values_size), np.zeros((layout.dim, layout.dim))
    dim = int(layout.dims[0])
    for block, (row, col) in enumerate(zip(layout.row_idx, layout.col, strict=True)):
        at = np.s_[int(layout.block_offset[block]) : int(layout.block_offset[block]) + dim * dim]
        dense_block = values[at].reshape(dim, dim).T  # by columns
        if row == col:
            dense_block = dense_block + dense_block.T
            values[at] = dense_block.ravel()
        dense[dim * row : dim * (row + 1), dim * col : dim * (col + 1)] = dense_block
        dense[dim * col : dim * (col + 1), dim * row : dim * (row + 1)] = dense_block.T
    return values, dense


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("width", "dim"), [(2, 1), (3, 2), (3, 6), (5, 9), (40, 1), (30, 3), (60, 6), (20, 9)]
)
@pytest.mark.parametrize("precision", ["double", "mixed"])
def test_it_is_that_of_the_dense_matrix(kind, width, dim, precision):
    """With damping, and x'y as the sum of its parts."""
    device, rng = shared_device("address"), np.random.default_rng(width)
    context = Context(device, precision)
    layout = band(70, width, dim)
    values, dense = numbers_of(layout, rng)
    x, damping = rng.normal(size=(2, layout.dim))
    expected = dense @ x + damping * x
    product = KINDS[kind](context, layout)
    buffers = []
    for numbers in (values, x, given(damping)):
        buffers.append(context.reals(len(numbers)))
        device.write(buffers[-1], numbers.astype(context.real))
    y, dots, status = context.reals(layout.dim), context.accumulators(product.num_groups), device.allocate(64)
    program = Program(context)
    program.step(product.chunk_launches(buffers[0], buffers[1], status))
    program.step([product.product_launch(buffers[1], y, dots, status, buffers[2])])
    program.run()
    tolerance = 1e-13 if precision == "double" else 1e-5
    assert np.abs(context.download(y, layout.dim) - expected).max() < tolerance * np.abs(expected).max()
    if precision == "double":
        parts = context.download(dots, product.num_groups)
        assert abs(parts.sum() - x @ expected) < 1e-12 * np.abs(x * expected).sum()
    assert device.messages == []


def test_short_columns_go_by_rows():
    """A workgroup per column of two or three pixels would be idle."""
    context = Context(shared_device("address"), "double")
    assert isinstance(symmetric_product(context, band(50, 3, 1)), RowProduct)
    assert isinstance(symmetric_product(context, band(50, 20, 6)), SymmetricProduct)
