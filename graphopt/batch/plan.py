"""How a workgroup optimizes problems of a structure: order of elimination, envelope of H, who adds to what.

H's lower triangle is stored by rows from the first entry that elimination fills (its envelope, or skyline;
A. Jennings, A compact storage scheme for the solution of symmetric linear simultaneous equations, 1966), then
b as one more row. Of some orders of the blocks the one with the smallest envelope is taken. Elimination takes
the columns of a block at once, or a part of them (a panel), and only rows whose envelope has them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from graphopt.codegen.edge import EdgeKernels
from graphopt.codegen.glsl import Arithmetic
from graphopt.codegen.gpu.kernel import GpuKernel
from graphopt.codegen.gpu.problem_kernel import (
    FIRST_ROWS_CONSTANT,
    FIXED,
    NUM_SHARED_WORDS,
    ProblemGroup,
    Words,
    panel_width,
    problem_kernel,
)
from graphopt.codegen.second_order import compile_curvature
from graphopt.device import DeviceLimitError
from graphopt.problem.structure import EdgeGroup, Structure
from graphopt.solver.cpu import compiled_edge
from graphopt.types.base import EdgeType, VertexType, working_edge_type, working_vertex_type
from graphopt.types.cache import per_type_cache

_WORKGROUPS = (32, 64)
"""Invocations of workgroups for small problems; others have 128. Registers of these kernels are many: the
smaller a workgroup, the more problems are in flight."""
_CONTRIBUTIONS = 3072
"""Numbers of shared memory that contributions may take where the factor takes less."""
_MOST_DIM = 0xFFFE
KernelKind = tuple[str, Arithmetic]
"""Method and arithmetic of a kernel."""
_EXACT = ("newton", "adjoint")
"""Methods with second derivatives."""
Requested = tuple[tuple[str, ...], ...]
"""By group, see `ProblemGroup`."""
_MOST_KNOWN = 16
"""Plans kept of graphs of the same types."""


@dataclass(frozen=True, eq=False)
class Envelope:
    """Where H's entries are, in the order of elimination."""

    blocks: np.ndarray
    """(num_blocks,) first scalar of each block of the structure."""
    first: np.ndarray
    """(dim + 1,) first column of each row; the last row is b."""
    base: np.ndarray
    """(dim + 1,) entry (i, j) is number base[i] + j."""

    @classmethod
    def of(cls, structure: Structure) -> Envelope:
        """The smallest one of some orders."""
        return min(
            (cls._in_order(structure, order) for order in _orders(structure)), key=lambda e: e.num_entries
        )

    @classmethod
    def _in_order(cls, structure: Structure, order: np.ndarray) -> Envelope:
        dims = structure.dims.astype(np.int64)
        blocks = np.empty(len(dims), np.int64)
        blocks[order] = np.cumsum(dims[order]) - dims[order]
        rows, columns = _pairs(structure)
        low, high = np.minimum(blocks[rows], blocks[columns]), np.maximum(blocks[rows], blocks[columns])
        by_start = np.full(int(dims.sum()) + 1, int(dims.sum()))
        np.minimum.at(by_start, high, low)
        earliest = np.minimum(blocks, by_start[blocks])
        first = np.empty(int(dims.sum()) + 1, np.int64)
        for start, dim, begin in zip(blocks.tolist(), dims.tolist(), earliest.tolist(), strict=True):
            first[start : start + dim] = begin
        first[-1] = 0
        lengths = np.arange(len(first)) - first + 1
        lengths[-1] -= 1
        return cls(blocks, first, np.cumsum(lengths) - lengths - first)

    @property
    def dim(self) -> int:
        """Scalars of dx."""
        return len(self.first) - 1

    @property
    def num_entries(self) -> int:
        """Of H and b."""
        return int(self.base[-1]) + self.dim

    def places(self, stored: np.ndarray) -> np.ndarray:
        """Row << 16 | column of some entries."""
        begins = self.base + self.first
        rows = np.searchsorted(begins, stored, side="right") - 1
        return rows << 16 | stored - self.base[rows]

    def panels(self, most: int) -> list[tuple[int, int]]:
        """(first column, columns) of the panels, of at most so many columns: parts of blocks."""
        starts = [*np.sort(self.blocks).tolist(), self.dim]
        return [
            (first, min(most, end - first))
            for begin, end in pairwise(starts)
            for first in range(begin, end, most)
        ]

    def rows_below(self, end: int) -> np.ndarray:
        """Rows from `end` on whose envelope has the column before it, b last."""
        return end + np.flatnonzero(self.first[end:] < end)


def _pairs(structure: Structure) -> tuple[np.ndarray, np.ndarray]:
    """Row and column of each stored block."""
    pattern = structure.pattern
    return pattern.row_idx.astype(np.int64), np.repeat(
        np.arange(structure.num_blocks), np.diff(pattern.col_ptr)
    )


def _orders(structure: Structure) -> list[np.ndarray]:
    """As numbered; what Schur eliminates first; reverse Cuthill-McKee."""
    from scipy.sparse import coo_array  # loads slowly
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    count = structure.num_blocks
    numbers = np.arange(count)
    rows, columns = _pairs(structure)
    both = np.concatenate([rows, columns]), np.concatenate([columns, rows])
    matrix = coo_array((np.ones(len(both[0]), np.int8), both), (count, count)).tocsr()
    orders = [numbers, np.asarray(reverse_cuthill_mckee(matrix, symmetric_mode=True), np.int64)]
    if structure.has_schur:
        orders.append(np.roll(numbers, -structure.num_kept))
    return orders


@dataclass(frozen=True, eq=False)
class Plan:
    """Kernel and table for problems of a structure on one device."""

    kernel: GpuKernel
    envelope: Envelope
    num_entries: int
    """Of H and b that edges add to."""
    words: Words
    table: np.ndarray
    """uint32 words, see `problem_kernel`; what depends on the arrays of a call is to be filled in."""
    constants: dict[int, int]
    """Specialization constants, those of a call aside."""
    block_order: np.ndarray
    """(dim,) scalar of the structure's dx at each scalar of the kernel's."""


def make_plan(
    structure: Structure, kind: KernelKind, shared_bytes: int, device_name: str, requested: Requested = ()
) -> Plan:
    """A plan for a device, kept for the next call; `DeviceLimitError` where shared memory is too small.

    requested: of method "adjoint".
    """
    planner = _Planner(structure, kind, shared_bytes, device_name, requested)
    known, key = _known_plans(planner.groups, planner.types), planner.key()
    if key not in known:
        if len(known) >= _MOST_KNOWN:
            known.clear()
        known[key] = planner.plan()
    return known[key]


@per_type_cache
def _known_plans(groups: tuple[ProblemGroup, ...], types: tuple[VertexType, ...]) -> dict[bytes, Plan]:
    """Of graphs with these groups, by the rest that a plan depends on."""
    return {}


class _Planner:
    """Fills the table, part by part."""

    def __init__(
        self,
        structure: Structure,
        kind: KernelKind,
        shared_bytes: int,
        device_name: str,
        requested: Requested,
    ):
        self._structure, self._device_name, self._shared_bytes = structure, device_name, shared_bytes
        self._kind = kind
        self.types = tuple(each.type for each in structure.selection.vertex_sets)
        self._blocks = [_blocks_of(structure, group) for group in structure.groups]
        self.groups = tuple(
            _group(group, blocks, kind[0] in _EXACT, wanted)
            for group, blocks, wanted in zip(
                structure.groups, self._blocks, requested or [()] * len(structure.groups), strict=True
            )
        )
        self._num_parameters = len(structure.selection.parameter_sets)
        self._words = Words(len(self.groups), len(self.types), self._num_parameters)
        self._table = _Table(self._words)

    def key(self) -> bytes:
        """Of everything that the plan depends on, the types aside."""
        structure = self._structure
        numbers = self._kind, self._shared_bytes, structure.num_kept, self._num_parameters
        digest = hashlib.sha256(repr(numbers).encode())
        for blocks in structure.vertex_blocks:
            digest.update(f"{blocks.dtype}{len(blocks)}".encode() + np.ascontiguousarray(blocks).tobytes())
        for group in structure.groups:
            for rows in (group.vertex_rows, group.parameter_rows):
                digest.update(f"{rows.dtype}{rows.shape}".encode() + np.ascontiguousarray(rows).tobytes())
        return digest.digest()

    def plan(self) -> Plan:
        """All of it."""
        envelope, table = Envelope.of(self._structure), self._table
        places, num_free = self._vertices(envelope)
        is_free = tuple(map(bool, self._structure.num_free))
        panels = envelope.panels(panel_width(self.types, is_free))
        workgroup = self._workgroup(envelope, panels)
        constants = {0: workgroup, 1: _rounded(envelope.dim, 8), 3: _rounded(num_free, 8)}
        pool = _pool(envelope, constants, self._shared_bytes, self._device_name)
        stored, chunks, terms = self._edges(envelope, places, constants, pool)
        parts = [table.add(part) for part in (envelope.places(stored), stored, chunks, terms)]
        parts.append(self._add_panels(envelope, panels))
        shared = envelope.dim, len(stored), num_free, envelope.num_entries, *parts, len(panels)
        assert len(shared) == NUM_SHARED_WORDS
        for word, value in enumerate(shared):
            table.set(word, value)
        kernel = problem_kernel(self.groups, self.types, is_free, self._num_parameters, *self._kind)
        order = _scalars(self._structure, envelope)
        return Plan(kernel, envelope, len(stored), self._words, table.array(), constants, order)

    def _workgroup(self, envelope: Envelope, panels: list[tuple[int, int]]) -> int:
        """Invocations: most of them have an edge and a row of a panel to do."""
        rows = max(len(envelope.rows_below(first + width)) for first, width in panels)
        edges = max((len(group.rows) for group in self._structure.groups), default=0)
        needed = max(2 * rows // 3, edges // 2)
        return next((size for size in _WORKGROUPS if size >= needed), 128)

    def _add_panels(self, envelope: Envelope, panels: list[tuple[int, int]]) -> int:
        """What problem_loop.glsl calls words of a panel, of all; where they begin."""
        words = []
        for first, width in panels:
            below = envelope.rows_below(first + width)
            rows = np.append(np.arange(first, first + width), below)
            at = self._table.add((envelope.base[rows] + first) << 16 | (rows - first))
            words.append([first, width, at, len(below), first - int(envelope.first[first])])
        return self._table.add(np.array(words))

    def _vertices(self, envelope: Envelope) -> tuple[list[np.ndarray], int]:
        """Per set (n,) first number of each optimized vertex in shared memory, -1: fixed; numbers of all."""
        places, num_free = list[np.ndarray](), 0
        types = map(working_vertex_type, self.types)
        for number, (kind, blocks) in enumerate(zip(types, self._structure.vertex_blocks, strict=True)):
            rows = np.flatnonzero(blocks >= 0)
            self._table.set(self._words.of_set(number, "num_rows"), len(blocks))
            at = np.full(len(blocks), -1, np.int64)
            at[rows] = num_free + kind.storage_dim * np.arange(len(rows))
            num_free += kind.storage_dim * len(rows)
            places.append(at)
            moves = np.stack([at[rows], envelope.blocks[blocks[rows]], rows * kind.storage_dim], axis=1)
            self._table.set(self._words.of_set(number, "moves"), self._table.add(moves))
            self._table.set(self._words.of_set(number, "num_moves"), len(rows))
        return places, num_free

    def _edges(
        self, envelope: Envelope, places: list[np.ndarray], constants: dict[int, int], pool: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows of all groups into the table; the lists of contributions. Sets their constants."""
        table, words = self._table, self._words
        budget = min(pool, max(envelope.num_entries, _CONTRIBUTIONS))
        most, lists = envelope.num_entries, _Contributions(envelope)
        for number, (group, made) in enumerate(zip(self._structure.groups, self.groups, strict=True)):
            num_outputs = len(made.outputs())
            at_once = _rows_at_once(
                num_outputs, min(constants[0], len(group.rows)), budget, made, self._device_name
            )
            constants[FIRST_ROWS_CONSTANT + number] = at_once
            most = max(most, num_outputs * (at_once | 1))
            table.set(words.of_group(number, "num_edges"), len(group.rows))
            table.set(words.of_group(number, "rows"), table.add(self._rows_of(number, envelope, places)))
            table.set(words.of_group(number, "chunk"), lists.num_chunks)
            lists.add(self._blocks[number], made, at_once)
        constants[2] = min(_rounded(most, 64), pool)
        return lists.lists()

    def _rows_of(self, number: int, envelope: Envelope, places: list[np.ndarray]) -> np.ndarray:
        """(m, words) where the numbers of each edge's vertices and parameters are, and of lambda."""
        group, made = self._structure.groups[number], self.groups[number]
        columns = []
        for slot, k in enumerate(group.vertex_sets):
            rows = group.vertex_rows[:, slot].astype(np.int64)
            at, dim = places[k][rows], made.edge_type.vertices[slot].storage_dim
            columns.append(np.where(at >= 0, at, FIXED | rows * dim))
        for slot, parameter in enumerate(made.edge_type.parameters):
            columns.append(group.parameter_rows[:, slot].astype(np.int64) * parameter.storage_dim)
        if made.requested:
            blocks = self._blocks[number]
            columns += list(np.where(blocks >= 0, envelope.blocks[blocks], FIXED).T)
        return np.stack(columns, axis=1)


def _scalars(structure: Structure, envelope: Envelope) -> np.ndarray:
    """(dim,) scalar of the structure's dx at each scalar of the kernel's."""
    order = np.empty(envelope.dim, np.int64)
    for start, dim, offset in zip(
        envelope.blocks.tolist(), structure.dims.tolist(), structure.offsets.tolist(), strict=False
    ):
        order[start : start + dim] = np.arange(offset, offset + dim)
    return order


class _Table:
    """Words, the header first."""

    def __init__(self, words: Words):
        self._header = np.zeros(words.count, np.int64)
        self._parts: list[np.ndarray] = []
        self._end = words.count

    def set(self, word: int, value: int) -> None:
        self._header[word] = value

    def add(self, numbers: np.ndarray) -> int:
        """Append numbers; where they begin."""
        begin = self._end
        self._parts.append(np.asarray(numbers, np.int64).reshape(-1))
        self._end += self._parts[-1].size
        return begin

    def array(self) -> np.ndarray:
        return np.concatenate([self._header, *self._parts]).astype(np.uint32)


def _rounded(count: int, step: int) -> int:
    return -(-max(count, 1) // step) * step


def _pool(envelope: Envelope, constants: dict[int, int], shared_bytes: int, device_name: str) -> int:
    """Numbers of the factor that fit into shared memory beside what else is there."""
    dim, free = constants[1], constants[3]
    others = 8 * (2 * free + 4 * dim + constants[0]) + 4 * (dim + 1)
    pool = (shared_bytes - others) // 8
    if envelope.num_entries > pool or envelope.dim > _MOST_DIM:
        need = others + 8 * envelope.num_entries
        raise DeviceLimitError(
            f"A problem of {envelope.dim} scalars needs {need} bytes of shared memory for its factor and "
            f"estimates; {device_name} has {shared_bytes} per workgroup. Fix more vertices, use "
            "device='cpu', or optimize() on the device for a graph of this size."
        )
    return pool


def _rows_at_once(num_outputs: int, most: int, budget: int, group: ProblemGroup, device_name: str) -> int:
    """Edges whose contributions are in shared memory at a time: an odd distance between their columns."""
    fit = budget // max(num_outputs, 1)
    if fit < 1:
        raise DeviceLimitError(
            f"An edge {group.edge_type.name} adds {num_outputs} numbers to H and b, more than fit into the "
            f"shared memory of {device_name} ({budget}). Use device='cpu'."
        )
    return min(most, fit - 1 + fit % 2) if fit > 1 else 1


def _group(group: EdgeGroup, blocks: np.ndarray, is_exact: bool, requested: tuple[str, ...]) -> ProblemGroup:
    slots = tuple(
        "free" if (column >= 0).all() else "fixed" if (column < 0).all() else "mixed" for column in blocks.T
    )
    is_summed = len(blocks) > 1 and bool((blocks == blocks[0]).all())
    edge_type = working_edge_type(group.edge_set.type)
    compiled = _exact_edge if is_exact else compiled_edge
    return ProblemGroup(
        compiled(edge_type, group.information, group.kernel),
        group.kernel,
        group.vertex_sets,
        group.parameter_sets,
        slots,
        is_summed,
        is_exact,
        requested,
    )


@per_type_cache
def _exact_edge(edge_type: EdgeType, information: str, kernel: int) -> EdgeKernels:
    exact = compile_curvature(edge_type, information, kernel)
    return EdgeKernels(edge_type, information, exact.chi2, exact.linearize, None)


def _blocks_of(structure: Structure, group: EdgeGroup) -> np.ndarray:
    """(m, arity) block of each vertex, -1: fixed."""
    columns = [
        structure.vertex_blocks[number][group.vertex_rows[:, slot]]
        for slot, number in enumerate(group.vertex_sets)
    ]
    return np.stack(columns, axis=1).astype(np.int64)


class _Contributions:
    """Which numbers in shared memory go to which entry of H and b, per chunk of edges."""

    def __init__(self, envelope: Envelope):
        self._envelope = envelope
        self._chunks: list[np.ndarray] = []
        self._stored: list[np.ndarray] = []
        self._terms: list[np.ndarray] = []
        self.num_chunks = 0

    def add(self, blocks: np.ndarray, made: ProblemGroup, rows_at_once: int) -> None:
        """The next group, of which so many edges are there at a time."""
        envelope = self._envelope
        if made.is_summed:
            blocks = np.repeat(blocks[:1], rows_at_once, axis=0)
        scalar = np.where(blocks >= 0, envelope.blocks[blocks], -1)
        edges = np.arange(len(blocks))
        chunk, row = self.num_chunks + edges // rows_at_once, edges % rows_at_once
        for number, (_, a, b, i, j) in enumerate(made.outputs()):
            p = scalar[:, a] + i
            if b < 0:
                taken, entry = scalar[:, a] >= 0, envelope.base[-1] + p
            else:
                q = scalar[:, b] + j
                taken = (scalar[:, a] >= 0) & (scalar[:, b] >= 0)
                low, high = np.minimum(p, q), np.maximum(p, q)
                entry = envelope.base[np.where(taken, high, 0)] + low
            term = number * (rows_at_once | 1) + row
            self._append(chunk, entry, term, taken)
            if b >= 0 and a != b:  # both ends are one vertex: J_a' W J_b and its transpose
                self._append(chunk, entry, term, taken & (p == q))
        self.num_chunks += 1 + (len(blocks) - 1) // rows_at_once

    def _append(self, chunk: np.ndarray, stored: np.ndarray, term: np.ndarray, taken: np.ndarray) -> None:
        self._chunks.append(chunk[taken])
        self._stored.append(stored[taken])
        self._terms.append(term[taken])

    def lists(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Where entries are stored; per chunk and entry how many terms, and the first one's place; the terms.

        Entries are the diagonal, b, and what else edges add to. A single term stands for its place.
        """
        envelope = self._envelope
        chunks, terms, stored = map(np.concatenate, (self._chunks, self._terms, self._stored))
        numbers = np.arange(envelope.dim)
        always = np.concatenate([envelope.base[:-1] + numbers, envelope.base[-1] + numbers])
        others = np.ones(envelope.num_entries, bool)
        others[always] = False
        is_used = np.zeros(envelope.num_entries, bool)
        is_used[stored] = True
        entries = np.concatenate([always, np.flatnonzero(is_used & others)])
        entry_of = np.empty(envelope.num_entries, np.int64)
        entry_of[entries] = np.arange(len(entries))
        keys = chunks * len(entries) + entry_of[stored]
        order = np.argsort(keys, kind="stable")
        counts = np.bincount(keys, minlength=self.num_chunks * len(entries))
        first = np.cumsum(counts) - counts
        single = counts == 1
        first[single] = terms[order][first[single]]
        return entries, np.stack([counts, first], axis=1), terms[order]
