"""What the linearisation launches: diagonal blocks and b by one or several views, other blocks by pair lists.

Rows are numbered for `write_plan`: block b's diagonal block and part of b is row b, stored block k of H that
is not on the diagonal is row num_blocks + k. Where no two pair lists have vertices of the same two sets, and
together they have all of these blocks, those of a list count as one row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from graphopt.codegen import gpu
from graphopt.codegen.gpu.merged_kernels import merged_chi2_kernel
from graphopt.codegen.gpu.merged_tiles import merged_name
from graphopt.cpu_kernels import kernels
from graphopt.types.cache import per_type_cache
from graphopt.vulkan.data.layout import BlockLayout
from graphopt.vulkan.kernels.edges import BlocksOfPairs, DeviceEdges, PairArrays, Version
from graphopt.vulkan.kernels.sums import LaunchGroup, WritePlan, plan_writes
from graphopt.vulkan.plan.problem import MAX_VIEWS
from graphopt.vulkan.program import Context, Launch

MAX_MERGED_EDGES = 1 << 17
"""Of an edge set whose chi2 comes from a kernel with others: larger ones would run at their registers."""


class Writer(Protocol):
    """Launches that write some rows."""

    @property
    def rows(self) -> np.ndarray:
        """Distinct, see the module's header."""
        ...

    def write(self, version: Version, values: Any, b: Any, *, accumulate: bool) -> LaunchGroup:
        """The launches, of which no two write one row."""
        ...


@dataclass(frozen=True)
class ViewWriter:
    """One view."""

    edges: DeviceEdges
    slot: int

    @property
    def rows(self) -> np.ndarray:
        """Blocks of the destinations."""
        return self.edges.views[self.slot].view.blocks

    def write(self, version: Version, values: Any, b: Any, *, accumulate: bool) -> LaunchGroup:
        """As `Writer`."""
        return self.edges.linearize_pass(self.slot, version, values, b, accumulate=accumulate)


@dataclass(frozen=True)
class PairWriter:
    """One pair list."""

    edges: DeviceEdges
    pairs: PairArrays
    rows: np.ndarray
    is_one_row: bool = False
    """No other launch writes its blocks."""

    def write(self, version: Version, values: Any, b: Any, *, accumulate: bool) -> LaunchGroup:
        """As `Writer`."""
        return self.edges.pair_pass(self.pairs, version, values, accumulate=accumulate)


def writers_of(
    context: Context,
    all_edges: Sequence[DeviceEdges],
    merging: Any,
    layout: BlockLayout,
    places: Sequence[BlocksOfPairs | None],
) -> list[Writer]:
    """Views, merged where `merging` says so, then pair lists; those that add to diagonal blocks last.

    Views of edges that are evaluated once for all of them stay by themselves. places: per group, of the
    off-diagonal blocks that are stored.
    """
    alone = [
        (edges, own) for edges, own in zip(all_edges, places, strict=True) if edges.evaluation.writes_alone
    ]
    all_edges = [edges for edges in all_edges if not edges.evaluation.writes_alone]
    members = [(edges, slot) for edges in all_edges for slot in edges.views]
    found: list[Writer] = []
    for unit in merging.units([member for member in members if not member[0].evaluation.stands_alone]):
        found.append(ViewWriter(*unit[0]) if len(unit) == 1 else merging.writer(context, unit))
    found += [ViewWriter(*member) for member in members if member[0].evaluation.stands_alone]
    lists = [(edges, pair) for edges in all_edges for pair in edges.pairs]
    off_diagonal = [(edges, list_) for edges, list_ in lists if not list_.pairs.on_diagonal]
    are_rows = not alone and _have_rows(off_diagonal, layout)
    for number, (edges, arrays) in enumerate(off_diagonal):
        rows = np.array([number]) if are_rows else _numbers_of_stored(layout, arrays)
        found.append(PairWriter(edges, arrays, layout.num_blocks + rows, are_rows))
    for edges, list_ in lists:
        if list_.pairs.on_diagonal:
            found.append(PairWriter(edges, list_, _numbers(layout.diagonal_offset, list_)))
    for edges, own in alone:
        assert own is not None, "who writes alone has blocks that are stored"
        found += edges.evaluation.own_writers(layout, own)
    return found


def _have_rows(lists: Sequence[tuple[DeviceEdges, PairArrays]], layout: BlockLayout) -> bool:
    """No two lists have a block in common, and no other blocks are stored."""
    kinds = [frozenset(edges.group.vertex_sets[slot] for slot in own.pairs.slots) for edges, own in lists]
    num_blocks = sum(own.pairs.num_blocks for _, own in lists)
    return len(set(kinds)) == len(kinds) and num_blocks == _num_off_diagonal(layout)


def _numbers(offsets: np.ndarray, arrays: PairArrays) -> np.ndarray:
    """Numbers of the blocks of a pair list among ascending offsets."""
    return kernels.places_in(offsets, arrays.pairs.offset)


def _numbers_of_stored(layout: BlockLayout, pairs: PairArrays) -> np.ndarray:
    """Numbers of the blocks of a pair list in a layout; often it has all of H_pl."""
    items = layout.items
    if len(items) == pairs.pairs.num_blocks and np.array_equal(
        layout.block_offset[items], pairs.pairs.offset
    ):
        return items
    return _numbers(layout.block_offset, pairs)


def _num_off_diagonal(layout: BlockLayout) -> int:
    """Stored blocks that are not on the diagonal."""
    return len(layout.row_idx) - layout.num_blocks


def plan_writers(writers: Sequence[Writer], layout: BlockLayout) -> WritePlan:
    """Their order: all rows of H and b are filled."""
    rows, num_blocks = [writer.rows for writer in writers], layout.num_blocks
    num_lists = sum(isinstance(writer, PairWriter) and writer.is_one_row for writer in writers)
    if num_lists:
        return plan_writes(rows, num_blocks + num_lists)
    if max((int(row.max(initial=0)) for row in rows), default=0) < num_blocks:  # others are written by nobody
        return plan_writes(rows, num_blocks + (_num_off_diagonal(layout) > 0))
    is_other = np.ones(len(layout.row_idx), bool)
    is_other[layout.col_ptr[1:] - 1] = False
    needed = np.concatenate([np.arange(num_blocks), num_blocks + np.flatnonzero(is_other)])
    return plan_writes(rows, num_blocks + len(layout.row_idx), needed)


_OTHER_BUFFERS = 10
"""Of a merged kernel, at most: those of destinations and sums, images, what says that iterations stopped."""


def merged_buffers(
    signatures: Sequence[gpu.EdgeSignature], named: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Buffers by the names of a merged kernel. named: those of each edge set's own kernel."""
    own_signatures = tuple(signatures)
    return {
        _name_of(own_signatures, number, name): buffer
        for number, own in enumerate(named)
        for name, buffer in own.items()
    }


@per_type_cache
def _name_of(signatures: tuple[gpu.EdgeSignature, ...], view: int, name: str) -> str:
    return merged_name(signatures, view, name)


def has_room(context: Context, signatures: Sequence[gpu.EdgeSignature], another: gpu.EdgeSignature) -> bool:
    """A kernel over edges of these signatures can take edges of another one."""
    num_views = len(signatures) + 1
    if num_views > MAX_VIEWS or context.device.access == "address":
        return num_views <= MAX_VIEWS
    types = [signature.edge_type for signature in [*signatures, another]]
    records = {slot_type.name for kind in types for slot_type in [*kind.vertices, *kind.parameters]}
    num_buffers = 3 * num_views + len(records) + _OTHER_BUFFERS
    return num_buffers <= context.device.info["max_storage_buffers"]


class Chi2Launches:
    """The parts of chi2 of all edge sets: those of small ones by one kernel."""

    def __init__(self, context: Context, all_edges: Sequence[DeviceEdges], firsts: Sequence[int]):
        """firsts: first part of each edge set among all parts."""
        self._context, self._edges, self._firsts = context, all_edges, firsts
        units: list[list[int]] = [[]]
        for k, all_edge in enumerate(all_edges):
            if len(all_edge.group.rows) <= MAX_MERGED_EDGES:
                if not has_room(context, [all_edges[k].signature for k in units[-1]], all_edge.signature):
                    units.append([])
                units[-1].append(k)
        self._units = [unit for unit in units if len(unit) > 1]
        merged = {k for unit in self._units for k in unit}
        self._single = [k for k in range(len(all_edges)) if k not in merged]
        self._tables = [context.indices(self._table(unit)) for unit in self._units]

    def _table(self, unit: Sequence[int]) -> np.ndarray:
        """(num_sets + 1, 3): first workgroup, edges, first part; the last row ends the workgroups."""
        groups = [self._edges[k].num_chi2_partials for k in unit]
        counts = [self._edges[k].primary.view.num_edges for k in unit]
        firsts = [self._firsts[k] for k in unit]
        starts = np.concatenate([[0], np.cumsum(groups)])
        return np.stack([starts, [*counts, 0], [*firsts, 0]], axis=1)

    def launches(self, version: Version, partial: Any) -> list[Launch]:
        """Independent ones."""
        found = [self._edges[k].chi2_launch(version, partial, self._firsts[k]) for k in self._single]
        for unit, table, kernel in zip(self._units, self._tables, self._merged_kernels(), strict=True):
            named = [self._edges[k].buffers(self._edges[k].primary, version) for k in unit]
            signatures = [self._edges[k].signature for k in unit]
            buffers = merged_buffers(signatures, named) | {"sets": table, "partial": partial}
            groups = sum(self._edges[k].num_chi2_partials for k in unit)
            nbytes = sum(self._edges[k].bytes_of(self._edges[k].primary.view.num_edges) for k in unit)
            found.append(self._context.generated(kernel, buffers, {"num_groups": groups}, groups, nbytes))
        return found

    def _merged_kernels(self) -> list[gpu.GpuKernel]:
        arithmetic = self._context.arithmetic
        return [
            merged_chi2_kernel(tuple(self._edges[k].signature for k in unit), arithmetic)
            for unit in self._units
        ]
