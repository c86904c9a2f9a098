"""Which contributions of which edges each block of H and each segment of b is the sum of.

A program evaluates the edges of a group in chunks and leaves one row of numbers per output (see
shaders/include/gather_sum.glsl). Two kinds of targets take them:

- *vertices*: per optimized vertex its diagonal block H_aa and its segment b_a, from the slots in which edges
  name it;
- *pairs*: per off-diagonal block the edges between its two vertices. An edge that names one vertex in two
  slots adds H_ab + H_ab' to its diagonal block, in a second step.

Targets of the same size and of similarly many items form one list, which one dispatch per chunk sums.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Literal

import numpy as np

from graphopt.errors import DeviceLimitError

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
    is_second: bool
    """Adds to blocks that other lists write, so it comes after them."""


def gather_lists(
    dims: Sequence[int],
    vertex_scalar: np.ndarray,
    block_offset: np.ndarray,
    block_transposed: np.ndarray,
    on_diagonal: np.ndarray,
    chunk: int,
) -> list[GatherList]:
    """Lists of a group whose edges are evaluated in this order, `chunk` at a time.

    vertex_scalar (m, arity): first scalar in b of each vertex, -1: not optimized. block_offset and
    block_transposed (m, num_pairs): as in `structure.EdgeGroup`. on_diagonal (m, num_pairs): both slots of a
    pair of two slots name the same vertex.
    """
    layout = OutputLayout(tuple(dims))
    if chunk > 1 << EDGE_BITS or len(dims) ** 2 > 1 << (32 - EDGE_BITS):
        raise DeviceLimitError(
            f"An edge type of {len(dims)} vertices in chunks of {chunk} edges cannot be gathered: the limits "
            f"are 64 vertices and {1 << EDGE_BITS} edges. Use device='cpu'."
        )
    pair_number = {pair: k for k, pair in enumerate(layout.pairs())}
    lists: list[GatherList] = []
    for dim in sorted(set(dims)):
        slots = [a for a, other in enumerate(dims) if other == dim]
        blocks = [block_offset[:, pair_number[a, a]] for a in slots]
        segments = [vertex_scalar[:, a] for a in slots]
        maps: dict[Target, np.ndarray] = {
            "values": np.stack([layout.block(a, a) for a in slots]),
            "b": np.stack([layout.segment(a) for a in slots]),
        }
        lists += _lists({"values": blocks, "b": segments}, maps, chunk)
    for sources in _pair_sources(layout):
        maps = {"values": np.stack([layout.block(*source) for source in sources])}
        numbers = [pair_number[a, b] for a, b, _ in sources]
        for is_second in (False, True):
            blocks = []
            for number, (_, _, transposed) in zip(numbers, sources, strict=True):
                is_mine = on_diagonal[:, number]
                if not is_second:
                    is_mine = ~is_mine & (block_transposed[:, number] == transposed)
                blocks.append(np.where(is_mine, block_offset[:, number], -1))
            lists += _lists({"values": blocks}, maps, chunk, is_second)
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


def _lists(
    places: dict[Target, list[np.ndarray]],
    maps: dict[Target, np.ndarray],
    chunk: int,
    is_second: bool = False,
) -> Iterator[GatherList]:
    """places: per target and map the (m,) place of each edge, -1: none; equal "values" are one target."""
    blocks = places["values"]
    starts = range(0, len(blocks[0]), chunk)
    parts = [_sorted_items([each_block[k : k + chunk] for each_block in blocks]) for k in starts]
    items = np.concatenate([part[0] for part in parts])
    if not len(items):
        return
    counts = np.concatenate([part[1] for part in parts])
    own_chunk = np.repeat(np.arange(len(parts)), [len(part[1]) for part in parts])
    begins = np.concatenate([[0], np.cumsum(counts)])[:-1]
    edge = (items[begins] & ((1 << EDGE_BITS) - 1)).astype(np.int64) + chunk * own_chunk
    number = items[begins] >> EDGE_BITS
    where = {name: np.stack(columns)[number, edge].astype(np.uint32) for name, columns in places.items()}
    size_class = np.searchsorted([lower for lower, _ in LANE_COUNTS], counts, side="left") - 1
    for which, (_, lanes) in enumerate(LANE_COUNTS):
        mine = size_class == which
        if not mine.any():
            continue
        yield GatherList(
            np.searchsorted(own_chunk[mine], np.arange(len(parts) + 1)),
            np.concatenate([[0], np.cumsum(counts[mine])]).astype(np.uint32),
            items[np.repeat(mine, counts)],
            {name: (where[name][mine], outputs.astype(np.uint32)) for name, outputs in maps.items()},
            lanes,
            is_second,
        )


def _sorted_items(places: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Items of one chunk by place, then map, then edge, as uint32; and how many each place has."""
    both = []
    for number, column in enumerate(places):
        edges = np.flatnonzero(column >= 0)
        items = edges.astype(np.uint64) + np.uint64(number << EDGE_BITS)
        both.append(column[edges].astype(np.uint64) << np.uint64(32) | items)
    ordered = np.concatenate(both)
    ordered.sort()
    place = ordered >> np.uint64(32)
    starts = np.flatnonzero(np.concatenate([np.ones(min(len(place), 1), bool), place[1:] != place[:-1]]))
    return ordered.astype(np.uint32), np.diff(np.append(starts, len(place)))
