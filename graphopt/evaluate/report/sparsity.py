"""Picture of the sparsity of H = J' Omega J: which vertices share an edge, in the order of their elimination.

Poses stand first and marginalized vertices last, each by ascending id, so that bundle adjustment shows

    [ H_pp  H_pl ]
    [ H_lp  H_ll ]
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

import graphopt.evaluate.report.figure as figure

if TYPE_CHECKING:
    from graphopt.graph import Graph

MAX_PIXELS = 1500


def block_pattern(graph: Graph) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Return (dims, pairs, num_kept): block sizes (n,), pairs of blocks (p, 2) of one edge, blocks that stay.

    Fixed vertices have no block. A pair is listed once, its smaller block first; the diagonal is included.
    """
    columns = [
        (
            vertex_set.marginalized,
            vertex_set.ids,
            np.full(len(vertex_set), vertex_set.type.tangent_dim),
            vertex_set.fixed,
        )
        for vertex_set in graph.vertex_sets
    ]
    marginalized, ids, dims, fixed = (np.concatenate(parts) for parts in zip(*columns, strict=True))
    order = np.lexsort((ids, marginalized))
    order = order[~fixed[order]]
    by_id = np.argsort(ids[order])
    pairs = [np.repeat(np.arange(len(order))[:, None], 2, axis=1)]
    for edge_set in graph.edge_sets:
        ends = _blocks_of(edge_set.vertices, ids[order], by_id)
        for left in range(edge_set.arity):
            for right in range(left + 1, edge_set.arity):
                both = ends[:, [left, right]]
                pairs.append(np.sort(both[(both >= 0).all(axis=1)], axis=1))
    return dims[order], np.unique(np.concatenate(pairs), axis=0), int((~marginalized[order]).sum())


def _blocks_of(
    requested: NDArray[np.int64], ids: NDArray[np.int64], by_id: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the place of each id in `ids`, -1 where it is not there."""
    place = by_id[np.minimum(np.searchsorted(ids, requested, sorter=by_id), len(ids) - 1)]
    return np.where(ids[place] == requested, place, -1)


def plot_sparsity(path: str | Path, graph: Graph) -> None:
    """Draw which blocks of H are not zero, at most `MAX_PIXELS` wide."""
    dims, pairs, num_kept = block_pattern(graph)
    offset = np.concatenate([[0], np.cumsum(dims)])
    size = int(offset[-1])
    filled = int((dims[pairs[:, 0]] * dims[pairs[:, 1]] * np.where(pairs[:, 0] == pairs[:, 1], 1, 2)).sum())
    drawing = figure.new_figure(6.4, 6.6)
    axes = drawing.add_subplot()
    image = _raster(offset, pairs, min(size, MAX_PIXELS))
    axes.imshow(image, cmap="Blues", vmin=0.0, vmax=1.0, extent=(0, size, size, 0), interpolation="nearest")
    if 0 < num_kept < len(dims):
        axes.axhline(offset[num_kept], color=figure.CAMERA, linewidth=0.8)
        axes.axvline(offset[num_kept], color=figure.CAMERA, linewidth=0.8)
    axes.set_title(f"H: {size} x {size}, {100.0 * filled / size**2:.3g} % filled", color=figure.INK)
    axes.tick_params(labelsize=8, colors=figure.INK)
    figure.save(drawing, path)


def _raster(offset: NDArray[np.int64], pairs: NDArray[np.int64], pixels: int) -> NDArray[np.float64]:
    """Mark the pixels that each block touches; 0.35 at least, so that single blocks stay visible."""
    size = offset[-1]
    low = offset[pairs] * pixels // size
    high = np.maximum((offset[pairs + 1] * pixels + size - 1) // size, low + 1)
    count = np.zeros((pixels, pixels))
    for (row, column), (row_end, column_end) in zip(low, high, strict=True):
        count[row:row_end, column:column_end] += 1.0
        if row != column:
            count[column:column_end, row:row_end] += 1.0
    return np.where(count > 0, np.minimum(0.35 + 0.1 * count, 1.0), 0.0)
