"""Evaluation "collect": a kernel per slot leaves what an edge adds to H and b, one sums it entry by entry.

    gather     per slot a pass over its view, per pair of slots one over its blocks: 8 + 28 if edges have 8
    collect    per slot b a pass that leaves H_bb, b_b and H_ab of all slots a before it, side by side, then a
               launch each for the diagonal blocks and b of every vertex set, and for all other blocks

For few edges of many vertices, such as the IMU measurements of a window: their arrays, launches and kernels
cost more than their numbers. A table says which numbers an entry of H or b is the sum of (sum_records.comp);
no view but the primary one and no pair lists are made where H is stored as a whole. `auto` takes it for these
(`plan.few_edges`), where every kernel has few outputs: drivers refuse those with very many (of some 500,
once).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import combinations, combinations_with_replacement
from typing import Any

import numpy as np

from graphopt.codegen.gpu.scattered import Scattered, evaluate_kernel, record_layout
from graphopt.option_names import Evaluation as EvaluationName
from graphopt.option_names import Products
from graphopt.types.cache import per_type_cache
from graphopt.vulkan.data.array import DeviceArray, digest_of
from graphopt.vulkan.data.layout import BlockLayout
from graphopt.vulkan.kernels.edges import BlocksOfPairs, DeviceEdges, Version
from graphopt.vulkan.kernels.sums import LaunchGroup
from graphopt.vulkan.kernels.writers import Writer
from graphopt.vulkan.operators.interface import Evaluation
from graphopt.vulkan.plan.passes import PassCost, edge_pass
from graphopt.vulkan.plan.problem import GroupSize
from graphopt.vulkan.program import VECTOR_WORKGROUP, Context, Launch

SUBTRACTED = 1 << 31
"""Bit of a source, as in sum_records.comp."""


@dataclass(frozen=True, eq=False)
class RecordTable:
    """Sources of the entries of H and b, in ranges that are written one by one."""

    first: np.ndarray
    """(num_targets + 1,) uint32: sources of each target."""
    target: np.ndarray
    """(num_targets,) uint32: its place in H or b."""
    source: np.ndarray
    """uint32: places among the numbers, bit 31: subtracted."""
    ranges: list[tuple[int, int, int]]
    """(begin, first of b, end) targets of each range."""
    rows: list[np.ndarray]
    """Per range the rows of `writers`, distinct."""

    @property
    def whole(self) -> np.ndarray:
        """All of it, as the kernel reads it."""
        return np.concatenate([self.first, self.target, self.source])


class Collect(Evaluation):
    """Records of a group in the order of its primary view, and the table of their sums."""

    name: EvaluationName = "collect"
    stands_alone = True
    writes_alone = True
    is_predicted = False

    def __init__(self, context: Context, edges: DeviceEdges):
        super().__init__(context, edges)
        structure, group = edges.structure, edges.group
        slots = tuple(
            slot
            for slot, number in enumerate(group.vertex_sets)
            if (structure.vertex_blocks[number][group.vertex_rows[:, slot]] >= 0).any()
        )
        self._table_bytes = 0
        self._slots = slots
        self._pairs = tuple(combinations(slots, 2))
        self._pieces = tuple(
            Scattered(edges.signature, (slot,), tuple((a, slot) for a in slots if a < slot), has_sums=True)
            for slot in slots
        )
        self.reserve()

    def reserve(self) -> None:
        """The records, and behind them the constants among their entries, in this precision."""
        num = self.edges.primary.view.num_edges
        layouts = [record_layout(piece) for piece in self._pieces]
        ends = np.cumsum([num * piece.record_dim() for piece in self._pieces])
        constants = [
            [entry for entry in layout.entries if not isinstance(entry, tuple)] for layout in layouts
        ]
        self._first_number = np.append(0, ends[:-1])
        self._first_constant = int(ends[-1]) + np.cumsum([0, *map(len, constants[:-1])])
        joined = np.array([entry for piece in constants for entry in piece], self.context.real)
        self._record_bytes = int(ends[-1]) * self.context.real.itemsize
        self._constant_bytes = joined.nbytes
        self._numbers = self.context.reals(int(ends[-1]) + len(joined))
        if len(joined):
            self.context.device.write(self._numbers, joined, self._record_bytes)

    @property
    def nbytes(self) -> int:
        """Device memory."""
        return self._record_bytes + self._constant_bytes + self._table_bytes

    # ---------------------------------------------------------------- launches

    def evaluate_launches(self, version: Version) -> list[Launch]:
        """All records."""
        edges, launches = self.edges, []
        num = edges.primary.view.num_edges
        named = {**edges.buffers(edges.primary, version), "numbers": self._numbers}
        nbytes = edges.bytes_of(num) + self._record_bytes / len(self._pieces)
        for piece, first in zip(self._pieces, self._first_number.tolist(), strict=True):
            kernel = evaluate_kernel(piece, self.context.arithmetic)
            params = {"num_edges": num, "first_word": first // 4}
            groups = -(-num // kernel.workgroup_size)
            launches.append(self.context.generated(kernel, named, params, groups, nbytes))
        return launches

    def own_writers(self, layout: BlockLayout, places: BlocksOfPairs) -> list[Writer]:
        """Those of the diagonal blocks and b of each vertex set, then that of the other blocks."""
        table = self._table(layout, places)
        stored = DeviceArray.of(self.context, table.whole)
        self._table_bytes = stored.nbytes
        return [RecordWriter(self, table, stored, number) for number in range(len(table.ranges))]

    def sum_launch(
        self, table: RecordTable, stored: DeviceArray, number: int, values: Any, b: Any, *, accumulate: bool
    ) -> Launch:
        """The entries of one range."""
        begin, first_b, end = table.ranges[number]
        at = len(table.first)
        params = (begin, end, first_b, at, at + len(table.target), int(accumulate))
        buffers = (self._numbers, stored.buffer, values, b)
        groups = -(-(end - begin) // VECTOR_WORKGROUP)
        return self.context.launch("sum_records", buffers, params, groups)

    # ---------------------------------------------------------------- what it costs

    @classmethod
    def is_possible(cls, g: GroupSize, stored: Products, real: int) -> bool:
        """Off-diagonal blocks are stored, and numbers are counted in 31 bits."""
        return stored == "blocks" and g.num_edges * _record_dim(g) < SUBTRACTED

    @classmethod
    def memory(cls, g: GroupSize, stored: Products, real: int) -> float:
        """Records, targets and sources."""
        return float(g.num_edges * _record_dim(g) * (real + 16))

    @classmethod
    def passes(cls, g: GroupSize, stored: Products, real: int) -> list[PassCost]:
        """The evaluation, and sums that read every number about twice."""
        record = float(g.num_edges * _record_dim(g))
        evaluation = edge_pass(g, float(g.linearize_flops), more_bytes=record * real)
        sums = PassCost(nbytes=record * (4 * real + 16), gathers=2.0 * record)
        return [evaluation, sums, *(len(set(g.vertex_sets)) * [PassCost()])]

    # ---------------------------------------------------------------- the table

    def _table(self, layout: BlockLayout, places: BlocksOfPairs) -> RecordTable:
        structure, group = self.edges.structure, self.edges.group
        order, sets = self.edges.primary.view.order, group.vertex_sets
        rows = group.vertex_rows[order]
        blocks = np.stack(
            [structure.vertex_blocks[number][rows[:, k]] for k, number in enumerate(sets)], axis=1
        )
        wanted = [k for k, pair in enumerate(_pairs(len(sets))) if pair in self._pairs]
        offset, turned = (part[order][:, wanted] for part in places)
        diagonal, scalar = _places(layout.diagonal_offset, blocks), _places(layout.scalar, blocks)
        edges = _Edges(tuple(sets), blocks, diagonal, scalar, offset, turned)
        key = (self._pieces, edges.sets, digest_of(*edges.arrays, self._first_number, self._first_constant))
        ranges, there = _targets_once(key, lambda: self._targets(edges))
        numbers = np.searchsorted(layout.block_offset, there.astype(layout.block_offset.dtype))
        return _joined([*ranges[:-1], (*ranges[-1][:2], layout.num_blocks + numbers)])

    def _targets(self, edges: _Edges) -> tuple[list[Range], np.ndarray]:
        """Ranges of the vertex sets, that of the other blocks, and where in H these are."""
        sets, blocks, diagonal, offset = edges.sets, edges.blocks, edges.diagonal, edges.offset
        own_slots, own_pairs, pieces = self._slots, self._pairs, self._pieces
        left, right = (np.array([pair[end] for pair in own_pairs], int) for end in (0, 1))
        twice = blocks[:, left] == blocks[:, right]  # such blocks and their transposes belong to the diagonal
        ranges: list[Range] = []
        for number in dict.fromkeys(sets[slot] for slot in own_slots):
            slots = tuple(slot for slot in own_slots if sets[slot] == number)
            found = [self._sources(diagonal[:, slots], _blocks(pieces, "diagonal", slots))]
            loops = tuple(pair for pair in own_pairs if sets[pair[0]] == sets[pair[1]] == number)
            mine = [k for k, pair in enumerate(own_pairs) if pair in loops]
            if twice[:, mine].any():
                at = np.where(twice[:, mine], diagonal[:, left[mine]], -1)
                found += [self._sources(at, _blocks(pieces, kind, loops)) for kind in ("pair", "transpose")]
            segment = self._sources(edges.scalar[:, slots], _blocks(pieces, "right", slots))
            written = np.unique(blocks[:, slots])
            ranges.append((_sorted(found), _sorted([segment]), written[written >= 0]))
        others = [
            self._sources(
                np.where(~twice & (edges.turned == is_turned), offset, -1), _blocks(pieces, kind, own_pairs)
            )
            for kind, is_turned in (("pair", False), ("transpose", True))
        ]
        there = np.unique(offset[~twice])
        there = there[there >= 0]
        return [*ranges, (_sorted(others), _sorted([]), there)], there

    def _sources(self, offset: np.ndarray, own: _Blocks) -> Targets:
        """Targets, and sources of them. offset: (m, n) where each block of each edge begins, -1: nowhere."""
        places = offset[:, own.block]
        begin = np.where(own.is_constant, self._first_constant[own.piece], self._first_number[own.piece])
        first = own.place + begin
        sources = np.arange(len(offset))[:, None] * own.step + first
        chosen = places >= 0
        return (places + own.within)[chosen], sources[chosen]


@dataclass(frozen=True)
class RecordWriter:
    """One range of a table; the first one has the edges evaluated before."""

    evaluation: Collect
    table: RecordTable
    stored: DeviceArray
    number: int

    @property
    def rows(self) -> np.ndarray:
        """As `Writer`."""
        return self.table.rows[self.number]

    def write(self, version: Version, values: Any, b: Any, *, accumulate: bool) -> LaunchGroup:
        """As `Writer`."""
        before = self.evaluation.evaluate_launches(version) if self.number == 0 else []
        sums = self.evaluation.sum_launch(
            self.table, self.stored, self.number, values, b, accumulate=accumulate
        )
        return LaunchGroup([], before, [sums])


Targets = tuple[np.ndarray, np.ndarray]
"""Places in H or b, and for each of them a source."""
Range = tuple[Targets, Targets, np.ndarray]
"""Of H, of b, and rows of `writers`."""
MOST_KEPT = 8
"""Tables' sources that are kept: edges between vertices that stay have the same in a window that slides."""
kept_tables: OrderedDict[Hashable, tuple[list[Range], np.ndarray]] = OrderedDict()
_keeping = threading.Lock()


@dataclass(frozen=True, eq=False)
class _Edges:
    """Where the blocks of a group's edges are, in the order of its primary view; -1: nowhere."""

    sets: tuple[int, ...]
    """Vertex set of each slot."""
    blocks: np.ndarray
    diagonal: np.ndarray
    scalar: np.ndarray
    """(m, arity) block of each vertex, where its diagonal block and its part of b begin."""
    offset: np.ndarray
    turned: np.ndarray
    """(m, pairs) where the other blocks begin, and whether they are stored transposed."""

    @property
    def arrays(self) -> list[np.ndarray]:
        """All of them."""
        return [self.blocks, self.diagonal, self.scalar, self.offset, self.turned]


def _targets_once(
    key: Hashable, make: Callable[[], tuple[list[Range], np.ndarray]]
) -> tuple[list[Range], np.ndarray]:
    """What was made with an equal key, if it is still there."""
    with _keeping:
        if key in kept_tables:
            kept_tables.move_to_end(key)
            return kept_tables[key]
    found = make()
    with _keeping:
        kept_tables[key] = found
        while len(kept_tables) > MOST_KEPT:
            kept_tables.popitem(last=False)
    return found


@dataclass(frozen=True, eq=False)
class _Blocks:
    """The scalars of some blocks of a record, one block after the other."""

    block: np.ndarray
    """Which block it is of."""
    within: np.ndarray
    """Its place in the block."""
    place: np.ndarray
    """Among the numbers of the first record, or among the constants; bit 31: subtracted."""
    step: np.ndarray
    """From there to the next record's."""
    is_constant: np.ndarray
    piece: np.ndarray
    """Which kernel's records they are in."""


@per_type_cache
def _blocks(pieces: tuple[Scattered, ...], kind: str, which: tuple[Any, ...]) -> _Blocks:
    """H_aa ("diagonal") or b_a ("right") of slots, H_ab ("pair") or its transpose of pairs, column-major."""
    found = []
    for number, wanted_block in enumerate(which):
        slot = wanted_block[-1] if isinstance(wanted_block, tuple) else wanted_block
        [piece] = [k for k, own in enumerate(pieces) if own.slots == (slot,)]
        entries, output = (
            record_layout(pieces[piece]).entries,
            _outputs(pieces[piece])[kind, wanted_block].ravel(),
        )
        constants = np.cumsum([not isinstance(entry, tuple) for entry in entries]) - 1
        for within, k in enumerate(output.tolist()):
            entry = entries[k]
            if isinstance(entry, tuple):
                place, sign = entry
                code, step = place + (SUBTRACTED if sign < 0 else 0), pieces[piece].record_dim()
            else:
                code, step = int(constants[k]), 0
            found.append((number, within, code, step, not isinstance(entry, tuple), piece))
    columns = np.array(found, np.int64).reshape(-1, 6).T
    block, within, place, step, is_constant, piece = columns
    return _Blocks(block, within, place, step, is_constant.astype(bool), piece)


def _outputs(own: Scattered) -> dict[tuple[str, Any], np.ndarray]:
    """Where the scalars of each block are among the outputs of `scattered.record_program`."""
    dims = [vertex.tangent_dim for vertex in own.signature.edge_type.vertices]
    found: dict[tuple[str, Any], np.ndarray] = {}
    at = 0
    for slot in own.slots:
        i, j = np.indices((dims[slot], dims[slot]))
        low, high = np.minimum(i, j), np.maximum(i, j)
        found["diagonal", slot] = at + high * (high + 1) // 2 + low
        at += dims[slot] * (dims[slot] + 1) // 2
        found["right", slot] = at + np.arange(dims[slot])
        at += dims[slot]
    for a, b in own.pairs:
        block = at + np.arange(dims[a] * dims[b]).reshape(dims[b], dims[a])  # by columns
        found["pair", (a, b)], found["transpose", (a, b)] = block, block.T
        at += block.size
    return found


def _pairs(arity: int) -> list[tuple[int, int]]:
    """Pairs of slots in the order of `EdgeGroup.block_offset`."""
    return list(combinations_with_replacement(range(arity), 2))


def _sorted(parts: Sequence[Targets]) -> Targets:
    """All of them, ascending."""
    none = np.zeros(0, np.int64)
    places = np.concatenate([none, *(target for target, _ in parts)])
    sources = np.concatenate([none, *(source for _, source in parts)])
    both = places.astype(np.uint64) << np.uint64(32) | sources.astype(np.uint64)
    both.sort()
    return (both >> np.uint64(32)).astype(np.uint32), both.astype(np.uint32)


def _places(offsets: np.ndarray, blocks: np.ndarray) -> np.ndarray:
    """(m,) offsets of blocks, -1 where there is none."""
    return np.where(blocks >= 0, offsets.astype(np.int64)[blocks], -1)


def _joined(ranges: Sequence[Range]) -> RecordTable:
    """The table of ranges: targets in H, in b, and rows of `writers`; empty ranges are left out."""
    starts, targets, sources, bounds, rows = [], [], [], [], []
    num_targets = num_sources = 0
    for of_values, of_b, written in ranges:
        ends = [num_targets]
        for target, source in (of_values, of_b):
            is_new = np.ones(len(target), bool)
            np.not_equal(target[1:], target[:-1], out=is_new[1:])
            start = np.flatnonzero(is_new)
            starts.append(num_sources + start)
            targets.append(target[start])
            sources.append(source)
            num_targets, num_sources = num_targets + len(start), num_sources + len(source)
            ends.append(num_targets)
        if ends[0] < ends[-1]:
            bounds.append((ends[0], ends[1], ends[2]))
            rows.append(written)
    first = np.concatenate([*starts, [num_sources]]).astype(np.uint32)
    return RecordTable(first, np.concatenate(targets), np.concatenate(sources), bounds, rows)


def _record_dim(g: GroupSize) -> int:
    """Numbers of an edge's record, if none is constant or there twice."""
    vertices = sum(d * (d + 3) // 2 for d in g.tangent_dims)
    return vertices + sum(a * b for a, b in combinations(g.tangent_dims, 2))
