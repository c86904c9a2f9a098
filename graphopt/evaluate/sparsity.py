"""Small pictures of H and of the Schur complement: which pixels of a raster hold a number that is not zero.

They are kept in results.json as bits, so that the report needs neither the graph nor its file.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse

from graphopt.evaluate.report.sparsity import block_pattern

if TYPE_CHECKING:
    from graphopt.graph import Graph

PIXELS = 320


def patterns(graph: Graph) -> dict[str, dict[str, Any]]:
    """H, and H_schur where vertices are marginalized: rows, numbers stored, and the raster."""
    dims, pairs, num_kept = block_pattern(graph)
    by_name = {"H": _pattern(dims, pairs)}
    if 0 < num_kept < len(dims):
        by_name["H_schur"] = _pattern(dims[:num_kept], _reduced_pairs(pairs, num_kept, len(dims)))
    return by_name


def raster(pattern: dict[str, Any]) -> np.ndarray:
    """(p, p) bool of what `patterns` packed."""
    pixels = pattern["pixels"]
    bits = np.frombuffer(base64.b64decode(pattern["bits"]), np.uint8)
    return np.unpackbits(bits, count=pixels * pixels).reshape(pixels, pixels).astype(bool)


def _reduced_pairs(pairs: np.ndarray, num_kept: int, num_blocks: int) -> np.ndarray:
    """Pairs of kept blocks that share an edge or an eliminated block; smaller block first."""
    first, second = pairs.T
    crossing = (first < num_kept) & (second >= num_kept)
    seen = scipy.sparse.csr_matrix(
        (np.ones(crossing.sum(), np.int8), (first[crossing], second[crossing] - num_kept)),
        shape=(num_kept, num_blocks - num_kept),
        dtype=np.int32,
    )
    joined = scipy.sparse.triu(seen @ seen.T).tocoo()
    direct = pairs[second < num_kept]
    return np.unique(np.concatenate([direct, np.stack([joined.row, joined.col], axis=1)]), axis=0)


def _pattern(dims: np.ndarray, pairs: np.ndarray) -> dict[str, Any]:
    offset = np.concatenate([[0], np.cumsum(dims)])
    size = int(offset[-1])
    pixels = min(PIXELS, max(size, 1))
    low = offset[pairs] * pixels // max(size, 1)
    high = np.maximum(-(-offset[pairs + 1] * pixels // max(size, 1)), low + 1)
    image = np.zeros((pixels, pixels), bool)
    corners = np.unique(np.concatenate([low, high], axis=1), axis=0)
    for row, column, row_end, column_end in corners:
        image[row:row_end, column:column_end] = True
        image[column:column_end, row:row_end] = True
    stored = dims[pairs[:, 0]] * dims[pairs[:, 1]] * np.where(pairs[:, 0] == pairs[:, 1], 1, 2)
    bits = base64.b64encode(np.packbits(image).tobytes()).decode()
    return {"rows": size, "nonzeros": int(stored.sum()), "pixels": pixels, "bits": bits}
