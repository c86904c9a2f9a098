"""Pictures of the sparsity of H = J' Omega J and of its Schur complement, in the order of their elimination.

Poses stand first and marginalized vertices last, each by ascending id, so that bundle adjustment shows

    [ H_pp  H_pl ]
    [ H_lp  H_ll ]

`patterns` are small rasters for results.json, so that a report needs neither the graph nor its file.
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import graphopt.evaluate.report.figure as figure
from graphopt.linear import SchurComplement
from graphopt.problem.structure import Structure

if TYPE_CHECKING:
    from graphopt.graph import Graph
    from graphopt.linear import BlockPattern

MAX_PIXELS = 1500
SMALL_PIXELS = 320


def plot_sparsity(path: str | Path, graph: Graph) -> None:
    """Draw which blocks of H are not zero, at most `MAX_PIXELS` wide."""
    structure = Structure(graph.select())
    pattern, size = structure.pattern, structure.dim
    drawing = figure.new_figure(6.4, 6.6)
    axes = drawing.add_subplot()
    count = _counts(pattern, MAX_PIXELS)
    image = np.where(count > 0, np.minimum(0.35 + 0.1 * count, 1.0), 0.0)  # single blocks stay visible
    axes.imshow(image, cmap="Blues", vmin=0.0, vmax=1.0, extent=(0, size, size, 0), interpolation="nearest")
    if structure.has_schur:
        axes.axhline(structure.kept_dim, color=figure.CAMERA, linewidth=0.8)
        axes.axvline(structure.kept_dim, color=figure.CAMERA, linewidth=0.8)
    filled = 100.0 * _stored(pattern) / size**2
    axes.set_title(f"H: {size} x {size}, {filled:.3g} % filled", color=figure.INK)
    axes.tick_params(labelsize=8, colors=figure.INK)
    figure.save(drawing, path)


def patterns(graph: Graph) -> dict[str, dict[str, Any]]:
    """H, and H_schur where vertices are marginalized: rows, nonzeros, raster as bits."""
    structure = Structure(graph.select())
    found = {"H": _packed(structure.pattern)}
    if structure.has_schur:
        found["H_schur"] = _packed(SchurComplement(structure.pattern, structure.num_kept).reduced_pattern)
    return found


def raster(pattern: dict[str, Any]) -> np.ndarray:
    """(p, p) bool of what `patterns` packed."""
    pixels = pattern["pixels"]
    bits = np.frombuffer(base64.b64decode(pattern["bits"]), np.uint8)
    return np.unpackbits(bits, count=pixels * pixels).reshape(pixels, pixels).astype(bool)


def _packed(pattern: BlockPattern) -> dict[str, Any]:
    image = _counts(pattern, SMALL_PIXELS) > 0
    bits = base64.b64encode(np.packbits(image).tobytes()).decode()
    return {"rows": pattern.dim, "nonzeros": _stored(pattern), "pixels": len(image), "bits": bits}


def _pairs(pattern: BlockPattern) -> NDArray[np.int64]:
    """(num_stored_blocks, 2) rows and columns of the blocks of the upper triangle."""
    columns = np.repeat(np.arange(pattern.num_blocks), np.diff(pattern.col_ptr))
    return np.stack([pattern.row_idx, columns], axis=1).astype(np.int64)


def _stored(pattern: BlockPattern) -> int:
    """Numbers of the whole matrix that are not zero."""
    rows, columns = _pairs(pattern).T
    sizes = pattern.dims[rows].astype(np.int64) * pattern.dims[columns]
    return int((sizes * np.where(rows == columns, 1, 2)).sum())


def _counts(pattern: BlockPattern, most: int) -> NDArray[np.float64]:
    """How many blocks touch each pixel; at most so many pixels wide."""
    pairs, size = _pairs(pattern), max(pattern.dim, 1)
    pixels = min(most, size)
    low = pattern.offsets[pairs] * pixels // size
    high = np.maximum(-(-pattern.offsets[pairs + 1] * pixels // size), low + 1)
    count = np.zeros((pixels, pixels))
    boxes, times = np.unique(np.concatenate([low, high], axis=1), axis=0, return_counts=True)
    for (row, column, row_end, column_end), number in zip(boxes.tolist(), times.tolist(), strict=True):
        count[row:row_end, column:column_end] += number
        if row != column:
            count[column:column_end, row:row_end] += number
    return count
