"""Which contributions of which edges each block of H and each segment of b is the sum of.

A program evaluates the edges of a group in chunks and leaves one row of numbers per output (see
shaders/include/gather_sum.glsl). Two kinds of targets take them:

- *vertices*: per optimized vertex its diagonal block H_aa and its segment b_a, from the slots in which edges
  name it;
- *pairs*: per off-diagonal block the edges between its two vertices.

Targets of the same size and of similarly many items form one list, which one dispatch per chunk sums.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Literal

import numpy as np

from graphopt.errors import DeviceError

EDGE_BITS = 20
"""An item is edge in the chunk + map 2^EDGE_BITS; as in gather_sum.glsl."""
LANE_COUNTS = ((0, 1), (8, 8), (64, 64))
"""(more items than, invocations per target)."""
Target = Literal["values", "b"]


@dataclass(frozen=True, eq=False)
class OutputLayout:
    """Where the outputs of `linearize` are (see `codegen.edge`)."""

    dims: tuple[int, ...]
    """Tangent dimension of each slot."""

    def pairs(self) -> list[tuple[int, int]]:
        """(a, b) in the order of the outputs."""
        return list(combinations_with_replacement(range(len(self.dims)), 2))

    def block(self, a: int, b: int, transposed: bool = False) -> np.ndarray:
        """(rows * columns,) outputs of H_ab, column-major; `transposed`: of its transpose."""
        at = 1
        for pair in self.pairs():
            if pair == (a, b):
                break
            at += self._length(*pair)
        rows, columns = self.dims[a], self.dims[b]
        i, j = np.meshgrid(np.arange(rows), np.arange(columns), indexing="ij")
        if a == b:
            low, high = np.minimum(i, j), np.maximum(i, j)
            entries = at + high * (high + 1) // 2 + low
        else:
            entries = at + j * rows + i
        return (entries if transposed else entries.T).ravel()

    def segment(self, a: int) -> np.ndarray:
        """(dim,) outputs of b_a."""
        at = 1 + sum(self._length(*pair) for pair in self.pairs()) + sum(self.dims[:a])
        return at + np.arange(self.dims[a])

    def _length(self, a: int, b: int) -> int:
        return self.dims[a] * (self.dims[a] + 1) // 2 if a == b else self.dims[a] * self.dims[b]


@dataclass(frozen=True, eq=False)
class GatherList:
    """Targets of one size with items, chunk after chunk."""

    chunk_first: np.ndarray
    """(num_chunks + 1,) int64: first target of each chunk."""
    first: np.ndarray
    """(num_targets + 1,) uint32: first item of each target."""
    items: np.ndarray
    """uint32: edge in the chunk + map 2^EDGE_BITS."""
    targets: dict[Target, tuple[np.ndarray, np.ndarray]]
    """Per buffer the (num_targets,) uint32 places and the (num_maps, num_elements) uint32 outputs."""
    lanes: int
    """Invocations per target."""


@dataclass(frozen=True, eq=False)
class _Entries:
    """Items with the place that they add to, before sorting."""

    edge: np.ndarray
    number: np.ndarray
    """Map."""
    places: np.ndarray
    """(n, number of buffers) int64."""


def gather_lists(
    dims: Sequence[int],
    vertex_scalar: np.ndarray,
    block_offset: np.ndarray,
    block_transposed: np.ndarray,
    chunk: int,
) -> list[GatherList]:
    """Lists of a group whose edges are evaluated in this order, `chunk` at a time.

    vertex_scalar (m, arity): first scalar in b of each vertex, -1: not optimized. block_offset and
    block_transposed (m, num_pairs): as in `structure.EdgeGroup`; no edge names one vertex twice.
    """
    layout = OutputLayout(tuple(dims))
    if chunk > 1 << EDGE_BITS or len(dims) ** 2 > 1 << (32 - EDGE_BITS):
        raise DeviceError(
            f"An edge type of {len(dims)} vertices in chunks of {chunk} edges cannot be gathered: the limits "
            f"are 64 vertices and {1 << EDGE_BITS} edges. Use device='cpu'."
        )
    pair_number = {pair: k for k, pair in enumerate(layout.pairs())}
    lists: list[GatherList] = []
    for dim in sorted(set(dims)):
        slots = [a for a, other in enumerate(dims) if other == dim]
        columns = [
            np.stack([block_offset[:, pair_number[a, a]], vertex_scalar[:, a]], axis=-1) for a in slots
        ]
        maps: dict[Target, np.ndarray] = {
            "values": np.stack([layout.block(a, a) for a in slots]),
            "b": np.stack([layout.segment(a) for a in slots]),
        }
        lists += _lists(_entries(columns), maps, chunk, len(block_offset))
    for sources in _pair_sources(layout):
        columns = []
        for a, b, transposed in sources:
            number = pair_number[a, b]
            mine = block_transposed[:, number] == transposed
            columns.append(np.where(mine, block_offset[:, number], -1)[:, None])
        maps = {"values": np.stack([layout.block(*source) for source in sources])}
        lists += _lists(_entries(columns), maps, chunk, len(block_offset))
    return lists


def _pair_sources(layout: OutputLayout) -> list[list[tuple[int, int, bool]]]:
    """Per shape of a stored block the (a, b, transposed) that make such."""
    shapes: dict[tuple[int, int], list[tuple[int, int, bool]]] = {}
    for a, b in layout.pairs():
        if a == b:
            continue
        rows, columns = layout.dims[a], layout.dims[b]
        shapes.setdefault((rows, columns), []).append((a, b, False))
        shapes.setdefault((columns, rows), []).append((a, b, True))
    return list(shapes.values())


def _entries(columns: Sequence[np.ndarray]) -> _Entries:
    """From per map the (m, buffers) places of each edge; -1: none."""
    edges = [np.flatnonzero(places[:, 0] >= 0) for places in columns]
    return _Entries(
        np.concatenate(edges),
        np.repeat(np.arange(len(columns)), [len(one) for one in edges]),
        np.concatenate([places[one] for places, one in zip(columns, edges, strict=True)]),
    )


def _lists(
    entries: _Entries, maps: dict[Target, np.ndarray], chunk: int, num_edges: int
) -> Iterator[GatherList]:
    if not len(entries.edge):
        return
    num_chunks = -(-num_edges // chunk)
    own_chunk = entries.edge // chunk
    order = np.lexsort((entries.number, entries.edge, entries.places[:, 0], own_chunk))
    own_chunk, places = own_chunk[order], entries.places[order]
    items = (entries.edge[order] % chunk + (entries.number[order] << EDGE_BITS)).astype(np.uint32)
    starts = np.flatnonzero(
        np.r_[True, (own_chunk[1:] != own_chunk[:-1]) | (places[1:, 0] != places[:-1, 0])]
    )
    counts = np.diff(np.r_[starts, len(items)])
    limits = [lower for lower, _ in LANE_COUNTS]
    size_class = np.searchsorted(limits, counts, side="left") - 1
    for number, (_, lanes) in enumerate(LANE_COUNTS):
        mine = size_class == number
        if not mine.any():
            continue
        first = np.concatenate([[0], np.cumsum(counts[mine])]).astype(np.uint32)
        chunk_first = np.searchsorted(own_chunk[starts[mine]], np.arange(num_chunks + 1))
        where = places[starts[mine]].astype(np.uint32)
        targets: dict[Target, tuple[np.ndarray, np.ndarray]] = {
            name: (where[:, k], outputs.astype(np.uint32)) for k, (name, outputs) in enumerate(maps.items())
        }
        yield GatherList(chunk_first, first, items[np.repeat(mine, counts)], targets, lanes)
