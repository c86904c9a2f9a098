"""Structure of the normal equations: everything that depends on the shape of the graph only.

    (H + D) dx = b        H = sum J' w Omega J,   b = -sum J' w Omega e

Free active vertices are *blocks*: first those that stay, then those that the Schur complement eliminates,
each by ascending id. An eliminated block shares no edge with another eliminated one: of marginalized
neighbours an independent set is eliminated and the others stay.

Of the symmetric H the upper triangle of blocks is stored (`problem.pattern.BlockPattern`).
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from graphopt import codegen
from graphopt.cpu_kernels import kernels
from graphopt.errors import GraphError
from graphopt.problem.independent_set import independent_set
from graphopt.problem.pattern import BlockPattern, DeferredBlocks, EdgeBlocks, blocks_of_edges

if TYPE_CHECKING:
    from graphopt.graph import Graph, Selection
    from graphopt.graph.selection import EdgeSelection
    from graphopt.graph.sets import EdgeSet


@dataclass(frozen=True, eq=False)
class EdgeGroup:
    """Active edges of one edge set with the same robust kernel: one compiled program runs them all."""

    edge_set: EdgeSet
    rows: np.ndarray
    """(m,) int64: rows of the edge set."""
    information: str
    """"identity", "diagonal" or "full": what all information matrices of the group are."""
    kernel: int
    """Number of the robust kernel, 0 for none."""
    vertex_sets: tuple[int, ...]
    vertex_rows: np.ndarray
    """(m, arity) int32."""
    parameter_sets: tuple[int, ...]
    parameter_rows: np.ndarray
    """(m, num_parameters) int32."""
    blocks: DeferredBlocks | None = None
    """Those of all edges, once they are asked for; None: the group has no part in H."""
    selection: int = 0
    """Number of the group's edge selection among them."""
    mask: np.ndarray | None = None
    """Which edges of that are in the group, None: all."""
    origin: EdgeGroup | None = None
    """The same group with rows of the graph's vertex sets, where this one has others."""

    @property
    def chosen_rows(self) -> np.ndarray | None:
        """`rows`, None if these are all rows of the edge set."""
        return None if len(self.rows) == len(self.edge_set) else self.rows

    def data_columns(self) -> list[tuple[np.ndarray, list[int]]]:
        """Arrays of the edge set (n, k), to read only, and which columns of them the programs take.

        Measurement, information, and with a robust kernel its width.
        """
        own, dim = self.edge_set, self.edge_set.type.residual_dim
        widths = {"measurement": own.type.measurement_dim, "information": dim * dim, "kernel_width": 1}
        return [
            (own.look(name).reshape(len(own), widths[name]), columns)
            for name, columns in self.data_taken.items()
        ]

    def data_fingerprints(self) -> dict[str, bytes]:
        """Of each array that the programs take, by contents (see `EdgeSet.fingerprint`)."""
        return {name: self.edge_set.fingerprint(name) for name in self.data_taken}

    @cached_property
    def data_taken(self) -> dict[str, list[int]]:
        """Arrays of the edge set from which the programs take columns, and these columns."""
        kind = self.edge_set.type
        columns = {
            "measurement": list(range(kind.measurement_dim)),
            "information": codegen.information_columns(kind.residual_dim, self.information),
            "kernel_width": [0] if self.kernel else [],
        }
        return {name: taken for name, taken in columns.items() if taken}

    @cached_property
    def block_offset(self) -> np.ndarray:
        """(m, num_pairs) int64 into `values`, -1: not optimized. Pairs (0,0), (0,1), ..., (1,1), ..."""
        assert self.blocks is not None
        return self._of_group(self.blocks.get().offsets[self.selection])

    @cached_property
    def block_transposed(self) -> np.ndarray:
        """(m, num_pairs) bool: the stored block is the transpose of the pair's."""
        assert self.blocks is not None
        return self._of_group(self.blocks.get().transposed[self.selection])

    def _of_group(self, pairs: np.ndarray) -> np.ndarray:
        return pairs if self.mask is None else np.ascontiguousarray(pairs[self.mask])


@dataclass(frozen=True, eq=False)
class SortedEdges:
    """Edges of a group sorted by the block of their vertex in one slot, otherwise in the group's order."""

    order: np.ndarray
    """(m,) uint32: rows of the group; those whose vertex is not optimized come last."""
    first: np.ndarray
    """(num_destinations + 1,) uint32: edges first[d] to first[d + 1] belong to destination d."""
    blocks: np.ndarray
    """(num_destinations,) int64, ascending: block of each destination."""


class Structure:
    """Numbering, block pattern and edge groups of a selection."""

    terms: Sequence[EdgeGroup] = ()
    """Terms of computed values that are optimized along: no part of H, see `computed.structure`."""
    is_evaluated_once = False
    """H is formed at one estimate only: sorting edges for faster evaluations takes longer than it saves."""
    row_orders: Mapping[int, np.ndarray] = {}
    """By vertex set (n,) uint32: the graph's row of each row here, see `renumbered`; none: the same."""

    def __init__(self, selection: Selection):
        self.selection = selection
        self._number_blocks()
        self._blocks = DeferredBlocks(selection.edges, self.vertex_blocks, self.dims)
        self._sorted: dict[tuple[EdgeGroup, int], SortedEdges] = {}
        self._sorting = threading.Lock()
        self.groups: list[EdgeGroup] = []
        """What the block solver evaluates."""
        self.external: list[EdgeGroup] = []
        """Edges of external types: they have places in H, and who evaluates them adds to it."""
        for number, edges in enumerate(selection.edges):
            groups = self.external if edges.edge_set.type.is_external else self.groups
            groups.extend(_split(edges, self._blocks, number))

    def rebind(self, selection: Selection) -> None:
        """Go on with another graph's sets, whose selection is equal: groups are the same objects."""
        for groups in (self.groups, self.external):
            for group in groups:
                object.__setattr__(group, "edge_set", selection.edges[group.selection].edge_set)
        self.selection = selection
        self._blocks.rebind(selection.edges)

    def renumbered(self, orders: Mapping[int, np.ndarray]) -> Structure:
        """The same blocks and edges, with vertex rows in another order.

        orders: by vertex set (n,) uint32, the graph's row of each row. `selection` is as it was. After
        `rebind` of this one the other one is to be bound, too.
        """
        other = copy.copy(self)
        other.row_orders = orders
        other.vertex_blocks, other.vertex_offsets = list(self.vertex_blocks), list(self.vertex_offsets)
        for number, order in orders.items():
            rows = order.astype(np.int64)
            for arrays in (other.vertex_blocks, other.vertex_offsets):
                before, arrays[number] = arrays[number], np.empty(len(rows), np.int64)
                kernels.take_rows(before, rows, arrays[number])
        places = {number: kernels.invert_order(order) for number, order in orders.items()}
        other.groups = [_with_places(group, places) for group in self.groups]
        return other

    # ---------------------------------------------------------------- sizes

    @property
    def num_blocks(self) -> int:
        """Free active vertices."""
        return len(self.dims)

    @property
    def dim(self) -> int:
        """Length of dx and b."""
        return int(self.offsets[-1])

    @property
    def kept_dim(self) -> int:
        """Scalars of the blocks that the Schur complement keeps."""
        return int(self.offsets[self.num_kept])

    @property
    def pattern(self) -> BlockPattern:
        """Where the blocks of H are."""
        return self._blocks.get().pattern

    @property
    def values_size(self) -> int:
        """Scalars of the stored blocks of H."""
        return self.pattern.values_size

    @property
    def has_kernels(self) -> bool:
        """Some active edge has a robust kernel."""
        return any(group.kernel for group in self.groups)

    def blocks_of(self, groups: Sequence[EdgeGroup]) -> EdgeBlocks:
        """The blocks of an H of these groups only, with all diagonal ones; where they are per group."""
        edges = [(group.vertex_sets, group.vertex_rows) for group in groups]
        return blocks_of_edges(self.dims, self.vertex_blocks, edges)

    @property
    def num_edges(self) -> int:
        """Active edges."""
        return self.selection.num_active_edges

    @property
    def has_schur(self) -> bool:
        """There are blocks to keep and blocks to eliminate."""
        return 0 < self.num_kept < self.num_blocks

    @property
    def nbytes(self) -> int:
        """Memory of the index arrays."""
        arrays = [self.dims, self.offsets, *self.vertex_offsets]
        for group in (*self.groups, *self.external):
            arrays += [group.vertex_rows, group.parameter_rows]
        return self._blocks.nbytes + sum(array.nbytes for array in arrays)

    def block_of(self, set_number: int, row: int) -> int:
        """Block of a vertex, -1 if it is not optimized."""
        return int(self.vertex_blocks[set_number][row])

    def sorted_edges(self, group: EdgeGroup, slot: int) -> SortedEdges:
        """The edges of a group by the block of a slot; found once."""
        key = group.origin or group, slot
        with self._sorting:
            if key not in self._sorted:
                blocks = self.vertex_blocks[group.vertex_sets[slot]]
                num_keys = int(blocks.max(initial=-1)) + 1
                found = kernels.sort_by_key(group.vertex_rows, slot, blocks, num_keys)
                self._sorted[key] = SortedEdges(*found)
            return self._sorted[key]

    # ---------------------------------------------------------------- numbering

    def _number_blocks(self) -> None:
        selection = self.selection
        sets = selection.vertex_sets
        free = [selection.free(number) for number in range(len(sets))]
        self.num_free: list[int] = [int(np.count_nonzero(mask)) for mask in free]
        """Per vertex set how many vertices are optimized."""
        if not any(self.num_free):
            raise GraphError("There is nothing to optimize: no active edge has a vertex that is not fixed.")
        numbering = kernels.number_blocks(
            free,
            self._placed_last(free),
            [set_.ids for set_ in sets],
            [set_.type.tangent_dim for set_ in sets],
        )
        dims, ids, offsets, num_kept, blocks, vertex_offsets = numbering
        self.dims: np.ndarray = dims
        """(nb,) int32: size of each block."""
        self.ids: np.ndarray = ids
        """(nb,) int64: vertex of each block."""
        self.num_kept: int = num_kept
        """Blocks before this one stay, the others may be eliminated."""
        self.offsets: np.ndarray = offsets
        """(nb + 1,) int64: first scalar of each block."""
        self.vertex_blocks: list[np.ndarray] = blocks
        """Per vertex set (n,) int64: block of each vertex, -1 where not optimized."""
        self.vertex_offsets: list[np.ndarray] = vertex_offsets
        """Per vertex set (n,) int64: first scalar in dx, -1 where not optimized."""

    def _placed_last(self, free: list[np.ndarray]) -> list[np.ndarray]:
        """Per vertex set (n,) bool: free vertices whose blocks come from `num_kept` on."""
        return eliminated_vertices(self.selection, free)


def marginalize_points(graph: Graph, schur: str = "auto") -> None:
    """Marginalize the points where none is marked (.g2o files cannot): if asked, or if they prevail."""
    if schur == "off" or any(vertex_set.marginalized.any() for vertex_set in graph.vertex_sets):
        return
    points = [vertex_set for vertex_set in graph.vertex_sets if vertex_set.type.role == "point"]
    num_points = sum(len(point) for point in points)
    if schur != "auto" or num_points > graph.num_vertices - num_points:
        for point in points:
            point.marginalized[:] = True


def eliminated_vertices(selection: Selection, free: list[np.ndarray]) -> list[np.ndarray]:
    """Per vertex set (n,) bool: free, marginalized and eliminated (no two of them share an edge).

    free: per vertex set (n,) bool.
    """
    requested = [
        mask & vertex_set.marginalized for vertex_set, mask in zip(selection.vertex_sets, free, strict=True)
    ]
    if not any(map(np.count_nonzero, requested)):
        return requested
    first = np.concatenate([[0], np.cumsum([len(mask) for mask in free])])
    is_requested = np.concatenate(requested)
    conflicts = []
    for edges in selection.edges:
        slots = [k for k, number in enumerate(edges.vertex_sets) if requested[number].any()]
        pairs = list(combinations(slots, 2))
        if not pairs:
            continue
        numbers = edges.vertex_rows + first[list(edges.vertex_sets)]
        for i, j in pairs:
            both = is_requested[numbers[:, i]] & is_requested[numbers[:, j]]
            both &= numbers[:, i] != numbers[:, j]  # an edge may name a vertex twice
            conflicts.append(numbers[both][:, [i, j]])
    found = np.concatenate(conflicts) if conflicts else np.empty((0, 2), np.int64)
    return np.split(independent_set(is_requested, found), first[1:-1])


def _split(edges: EdgeSelection, blocks: DeferredBlocks, number: int) -> list[EdgeGroup]:
    """One group per robust kernel that the edges have."""
    edge_set = edges.edge_set
    kernel = edge_set.look("kernel") if edges.takes_all else edge_set.look("kernel")[edges.rows]
    masks: list[tuple[int, slice | np.ndarray]]
    if len(kernel) == 1 or kernels.common_step(kernel) == 0:
        masks = [(int(kernel[0]), slice(None))]
    else:
        masks = [(robust, kernel == robust) for robust in np.unique(kernel).tolist()]
    return [
        EdgeGroup(
            edge_set,
            rows := edges.rows[mask],
            information_variant(edge_set, rows),
            robust,
            edges.vertex_sets,
            np.ascontiguousarray(edges.vertex_rows[mask]),
            edges.parameter_sets,
            np.ascontiguousarray(edges.parameter_rows[mask]),
            blocks,
            number,
            None if isinstance(mask, slice) else mask,
        )
        for robust, mask in masks
    ]


def _with_places(group: EdgeGroup, places: Mapping[int, np.ndarray]) -> EdgeGroup:
    """A group whose rows of some vertex sets are others."""
    rows = group.vertex_rows
    for slot, number in enumerate(group.vertex_sets):
        if number in places:
            rows = kernels.renumber_rows(rows, slot, places[number])
    return replace(group, vertex_rows=rows, origin=group)


def information_variant(edge_set: EdgeSet, rows: np.ndarray) -> str:
    """What the information matrices of these rows have in common: "identity", "diagonal" or "full"."""
    return edge_set.information_kind(None if len(rows) == len(edge_set) else rows)
