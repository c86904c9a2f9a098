"""Sums over so many edges that one workgroup, or one invocation, would take too long: cut into parts.

A destination of a view with more than `LONG` edges, and more than its share of the view's edges, is cut
into parts of at most `PART` edges. A workgroup adds up a part like a short destination, but into a buffer of
parts; `fold_parts` adds these up per destination, in order. A block of H that more than `LONG_BLOCK` edges
contribute to is cut likewise, into parts of at most `BLOCK_PART` edges, each the work of one invocation.

What is cut depends on the graph only, never on the device: two runs give the same bits.

Edges of a group in the orders in which kernels sum over them.

    view of slot a    edges sorted by the block of their vertex in slot a; those of one block, its
                      destination, lie side by side, so that a sum over them needs no atomics
    pair list (a, b)  for each off-diagonal block of H the edges that contribute to it

A tile is a run of whole destinations with at most TILE edges, or one destination with more: the work of one
workgroup. Destinations that Schur eliminates come after those that stay, and no tile has both. Long ones
(`long_sums`) lie where these two meet; they are cut into parts, each the work of one workgroup.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphopt.codegen.gpu import TILE
from graphopt.cpu_kernels import kernels
from graphopt.problem.structure import EdgeGroup, SortedEdges, Structure
from graphopt.vulkan.data.array import Width
from graphopt.vulkan.data.layout import split_segments
from graphopt.vulkan.data.order import ordered

LONG = 2048
"""Edges of a destination that one workgroup adds up at most, where it is not one of hundreds alike."""
LONG_SHARE = 256
"""A destination with less than one such part of a view's edges keeps no other waiting, and is not long."""
PART = 512
"""Edges of a part at most, but where that would make more than `MAX_PARTS`."""
MAX_PARTS = 16384
"""Parts of a view, about; more would only make the last sum longer."""
LONG_BLOCK = 64
"""Edges of a block of H that one invocation adds up at most."""
BLOCK_PART = 32
"""Edges of a block's part at most."""


@dataclass(frozen=True, eq=False)
class LongDestinations:
    """Consecutive destinations of a view, one per tile, that are cut into parts."""

    tiles: tuple[int, int]
    """Their tiles in the view."""
    first: np.ndarray
    """(num_parts + 1,) uint32: edges of each part."""
    part: np.ndarray
    """(num_long + 1,) uint32: first part of each destination."""

    @property
    def num_parts(self) -> int:
        """Of all destinations."""
        return len(self.first) - 1

    def among(self, tiles: tuple[int, int]) -> tuple[int, int]:
        """Those in a range of the view's tiles, counted from the first one; (n, n): none."""
        begin, end = (min(max(tile - self.tiles[0], 0), len(self.part) - 1) for tile in tiles)
        return begin, end


def are_long(counts: np.ndarray) -> np.ndarray:
    """(n,) bool: which of the destinations with so many edges are cut."""
    return counts > max(LONG, int(counts.sum()) // LONG_SHARE)


def are_long_blocks(counts: np.ndarray) -> np.ndarray:
    """(n,) bool: which of the blocks of H that so many edges contribute to are cut."""
    return counts > LONG_BLOCK


def cut_destinations(first: np.ndarray, destinations: tuple[int, int], tile: int) -> LongDestinations:
    """Cut a range of destinations, the first of which has this tile. first: edges, as in `EdgeView`."""
    edges = first[destinations[0] : destinations[1] + 1].astype(np.int64)
    length = PART
    while (edges[-1] - edges[0]) > length * MAX_PARTS:
        length *= 2
    segment, begin, _ = split_segments(edges, length)
    num = destinations[1] - destinations[0]
    return LongDestinations(
        (tile, tile + num),
        np.append(begin, edges[-1]).astype(np.uint32),
        np.searchsorted(segment, np.arange(num + 1)).astype(np.uint32),
    )


MANY_EDGES = 48
"""Per destination, from which on a workgroup of its own pays in products."""
TRANSPOSED = np.uint32(1 << 31)
"""Bit of a pair's edge number: the block is stored transposed."""


@dataclass(frozen=True, eq=False)
class EdgeView:
    """Edges sorted by the block of their vertex in one slot."""

    slot: int
    order: np.ndarray
    """(num_edges,) uint32: rows of the group; those whose vertex is not optimized come last."""
    first: np.ndarray
    """(num_destinations + 1,) uint32: edges first[d] to first[d + 1] belong to destination d."""
    blocks: np.ndarray
    """(num_destinations,) int64: block of each destination; ascending, but for long ones."""
    tiles: np.ndarray
    """(num_tiles + 1,) uint32: first destination of each tile."""
    num_kept_tiles: int
    """Tiles before this one are of destinations that stay, the others of those that Schur eliminates."""
    long: LongDestinations | None = None
    """Destinations that are cut into parts."""

    @property
    def num_edges(self) -> int:
        """Edges, those of no destination included."""
        return len(self.order)

    @property
    def num_destinations(self) -> int:
        """Distinct optimized vertices in the slot."""
        return len(self.blocks)

    @property
    def num_tiles(self) -> int:
        """Tiles of destinations."""
        return len(self.tiles) - 1

    @property
    def place_of_row(self) -> np.ndarray:
        """(m,) uint32: where each row of the group is in this view, which holds all edges."""
        return kernels.invert_order(self.order)

    def places_in(self, whole: EdgeView) -> np.ndarray:
        """(num_edges,) uint32: where this view's edges are in a view that holds all edges."""
        return whole.place_of_row[self.order]

    def short_tiles(self, tiles: tuple[int, int]) -> list[tuple[int, int]]:
        """The runs of tiles in a range that are not of long destinations."""
        if self.long is None:
            return [tiles] if tiles[0] < tiles[1] else []
        begin, end = self.long.tiles
        runs = [(tiles[0], min(tiles[1], begin)), (max(tiles[0], end), tiles[1])]
        return [run for run in runs if run[0] < run[1]]

    def long_destinations(self, tiles: tuple[int, int]) -> tuple[int, int]:
        """The long destinations in a range of tiles, counted from the first one."""
        return (0, 0) if self.long is None else self.long.among(tiles)

    def edges_of(self, tiles: tuple[int, int]) -> int:
        """Number of edges in a range of tiles."""
        return int(self.first[self.tiles[tiles[1]]]) - int(self.first[self.tiles[tiles[0]]])


@dataclass(frozen=True, eq=False)
class PairList:
    """Edges that contribute to each of some blocks of H, by J_a' w Omega J_b."""

    slots: tuple[int, int]
    first: np.ndarray
    """(num_blocks + 1,) uint32: entries of each block."""
    edge: np.ndarray
    """(num_entries,) uint32: edge of the primary view; bit 31: stored transposed."""
    offset: np.ndarray
    """(num_blocks,) uint32: where each block begins in the values of H."""
    on_diagonal: bool
    """Blocks of edges that name one vertex twice; they add to the diagonal."""

    @property
    def num_blocks(self) -> int:
        """Blocks that are written."""
        return len(self.offset)


def primary_slot(structure: Structure, group: EdgeGroup) -> int:
    """Slot of the view that holds all edges: that of eliminated vertices, else that of most vertices."""
    landmarks = [
        slot
        for slot, number in enumerate(group.vertex_sets)
        if structure.vertex_blocks[number].max(initial=-1) >= structure.num_kept
    ]
    if len(landmarks) == 1 and len(structure.groups) == 1:
        return landmarks[0]  # no other edges have these
    counts = []
    for slot, number in enumerate(group.vertex_sets):
        blocks = structure.vertex_blocks[number]
        seen = np.zeros(len(blocks), bool)
        kernels.mark(group.vertex_rows, slot, seen)
        seen &= blocks >= 0
        eliminated = int(np.count_nonzero(seen & (blocks >= structure.num_kept)))
        counts.append((eliminated, int(np.count_nonzero(seen))))
    return max(range(len(counts)), key=lambda slot: (counts[slot], -slot))


def edge_view(
    structure: Structure, group: EdgeGroup, slot: int, *, is_primary: bool, num_kept: int
) -> EdgeView:
    """The view of a slot; the primary one holds all edges. num_kept: first block that Schur eliminates."""
    found = ordered(structure, group, slot)
    num, boundary = len(found.blocks), int(np.searchsorted(found.blocks, num_kept))
    is_long = are_long(found.first[1:] - found.first[:-1])
    begin = end = boundary
    if is_long.any():
        found = _with_long_in_the_middle(found, is_long, boundary)
        begin -= int(np.count_nonzero(is_long[:boundary]))
        end += int(np.count_nonzero(is_long[boundary:]))
    order = found.order if is_primary else found.order[: found.first[-1]]
    kept = kernels.tile_starts(found.first, 0, begin, TILE)
    eliminated = kernels.tile_starts(found.first, end, num, TILE)
    tiles = np.concatenate([kept, np.arange(begin, end), eliminated, [num]]).astype(np.uint32)
    long = cut_destinations(found.first, (begin, end), len(kept)) if begin < end else None
    return EdgeView(slot, order, found.first, found.blocks, tiles, len(kept) + boundary - begin, long)


def _with_long_in_the_middle(found: SortedEdges, is_long: np.ndarray, boundary: int) -> SortedEdges:
    """Destinations in this order: short and long ones before the boundary, long and short ones after it."""
    rank = np.where(np.arange(len(is_long)) < boundary, is_long, 3 - is_long.astype(int))
    moved = np.argsort(rank, kind="stable")
    first, order = kernels.take_segments(found.first, moved, found.order)
    return SortedEdges(order, first, found.blocks[moved])


def pair_lists(
    group: EdgeGroup, primary: EdgeView, block_offset: np.ndarray, block_transposed: np.ndarray
) -> list[PairList]:
    """The lists of all off-diagonal blocks. Where they are: as in `EdgeGroup`, of its H or a smaller one."""
    arity = len(group.vertex_sets)
    lists, pair = [], -1
    for a in range(arity):
        for b in range(a, arity):
            pair += 1
            if a == b:
                continue
            is_loop = group.vertex_sets[a] == group.vertex_sets[b]
            left_out = _names_twice(group, a, b) if is_loop else None
            first, edges, offset = kernels.sort_pairs(
                block_offset, block_transposed, pair, primary.order, left_out
            )
            if len(edges):
                lists.append(PairList((a, b), first, edges, offset, False))
    return lists


def loop_lists(
    structure: Structure, group: EdgeGroup, primary: EdgeView, diagonal_offset: np.ndarray
) -> list[PairList]:
    """The lists of edges that name one vertex in two slots: H_ab + H_ab' belongs to its diagonal block.

    diagonal_offset: (nb,) where each diagonal block begins in the values.
    """
    arity = len(group.vertex_sets)
    lists = []
    for a in range(arity):
        for b in range(a + 1, arity):
            if group.vertex_sets[a] != group.vertex_sets[b]:
                continue
            block = structure.vertex_blocks[group.vertex_sets[a]][group.vertex_rows[:, a]]
            chosen = _names_twice(group, a, b) & (block >= 0)
            if chosen.any():
                edges, blocks = _sorted_by(block[chosen], primary.place_of_row[chosen])
                starts = _starts(blocks)
                edges = np.repeat(edges, 2)
                edges[1::2] |= TRANSPOSED
                first = 2 * np.append(starts, len(blocks)).astype(np.uint32)
                offset = diagonal_offset[blocks[starts]].astype(np.uint32)
                lists.append(PairList((a, b), first, edges, offset, True))
    return lists


def _names_twice(group: EdgeGroup, a: int, b: int) -> np.ndarray:
    """(m,) bool: the edge has one vertex in both slots."""
    if a == b or group.vertex_sets[a] != group.vertex_sets[b]:
        return np.zeros(len(group.rows), bool)
    return group.vertex_rows[:, a] == group.vertex_rows[:, b]


def _sorted_by(keys: np.ndarray, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sort (n,) uint32 numbers by key, then by number: (numbers, keys). Keys are below 2**32."""
    if bool((keys[1:] > keys[:-1]).all()):
        return numbers.astype(np.uint32), keys.astype(np.uint32)
    both = keys.astype(np.uint64) << np.uint64(32)
    both |= numbers
    both.sort()
    return both.astype(np.uint32), (both >> np.uint64(32)).astype(np.uint32)


def _starts(ordered: np.ndarray) -> np.ndarray:
    """Where each new value begins."""
    is_new = np.ones(len(ordered), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=is_new[1:])
    return np.flatnonzero(is_new)


def write_rows(group: EdgeGroup, view: EdgeView, first_block: int, out: np.ndarray) -> None:
    """Rows of the vertices, then of the parameters, of a view's edges, (blocks, K, 64) uint32, as bytes.

    `out` holds the blocks from `first_block` on; the last block is filled up with copies of the last edge.
    """
    sources = [(rows, list(range(rows.shape[1]))) for rows in (group.vertex_rows, group.parameter_rows)]
    kernels.block_rows([source for source in sources if source[1]], view.order, first_block, out)


def write_places(places: np.ndarray, view: EdgeView, first_block: int, out: np.ndarray) -> None:
    """Of each edge of a view its entry of places (m,), (blocks, 1, 64) uint32, as bytes; as `write_rows`."""
    kernels.block_rows([(places.view(np.int32)[:, None], [0])], view.order, first_block, out)


def write_data(group: EdgeGroup, view: EdgeView, first_block: int, width: Width, out: np.ndarray) -> None:
    """Measurement, packed information and kernel width of a view's edges, (blocks, D, 64), as bytes."""
    kernels.block_numbers(group.data_columns(), group.chosen_rows, view.order, first_block, width, out)
