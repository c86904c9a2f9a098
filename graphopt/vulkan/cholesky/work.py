"""Work lists: which workgroup does what, for every dispatch, in one array of 32-bit words.

A list has 1 to 3 words per workgroup: the front, tiles packed as row | column << 16, and what else a kernel
needs. `Run` says where a list starts and how many workgroups it has.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from graphopt.vulkan.cholesky.analysis import BLOCK, SMALL_ROWS, Analysis

PANEL_ROWS = 64
"""Rows of a workgroup of chol_panel."""
UPDATE_TILE = 64
"""Rows and columns of a workgroup of chol_update."""
ASSEMBLE_TILE = 32
OUTER = 256
"""Columns of a group, which are factored before all later ones are updated by them, where those are many."""
AT_ONCE = 512
"""Workgroups that a large device runs at once: with fewer, updates go beside the next block's pivots."""
WHOLE = 0xFFFFFFFF
"""Columns up to the last pivot."""
UPDATE_FLOPS = 2.0 * UPDATE_TILE**2
PANEL_FLOPS = 2.0 * (PANEL_ROWS + BLOCK) * BLOCK
"""Operations of a workgroup of chol_update and of chol_panel per column."""
SOLVE_ROWS = 128
"""Rows of a workgroup of chol_forward_step and chol_backward_step."""
CLASSES = (16, 32, SMALL_ROWS)
"""Sizes of shared memory of small fronts."""
SOLVE_CLASSES = ((SMALL_ROWS, 64), (256, 128), (2048, 512))
"""Rows of fronts that one workgroup solves with, and its invocations."""


@dataclass(frozen=True)
class Run:
    """`num` workgroups, described from word `first` on."""

    first: int
    num: int


@dataclass(frozen=True)
class Update:
    """Later columns, from `start` up to `last`, are brought up to date with columns `begin` up to `end`."""

    begin: int
    end: int
    start: int
    last: int
    run: Run


@dataclass(frozen=True)
class PanelStep:
    """One block of columns of a level's large fronts, and what is done beside and after it."""

    column: int
    panel: int
    """First column that has not yet been brought into these."""
    run: Run
    beside: Update | None
    """Later columns of the group by the block before this one, at the same time as this block is factored."""
    after: Update | None
    """Columns after the group, where it ends here."""


@dataclass
class Level:
    """Everything of one level, in the order in which it runs."""

    small: list[tuple[int, Run]] = field(default_factory=list)
    """Rows of shared memory, and the fronts of that class."""
    assemble: Run | None = None
    steps: list[PanelStep] = field(default_factory=list)
    diagonals: Run | None = None
    complement: Run | None = None
    solve_small: list[tuple[int, int, Run]] = field(default_factory=list)
    """Capacity, invocations, fronts."""
    collect: Run | None = None
    forward: list[tuple[int, Run]] = field(default_factory=list)
    """Column, (front, tile)."""
    start: Run | None = None
    backward: list[tuple[int, Run]] = field(default_factory=list)


class Words:
    """Collects lists."""

    def __init__(self) -> None:
        self._parts: list[np.ndarray] = []
        self._size = 0

    def add(self, *columns: np.ndarray) -> Run | None:
        """A list whose workgroups have one word of each column; None if it is empty."""
        num = len(columns[0])
        if num == 0:
            return None
        words = np.stack([np.asarray(column).astype(np.uint32) for column in columns], axis=1).ravel()
        run = Run(self._size, num)
        self._parts.append(words)
        self._size += len(words)
        return run

    def array(self) -> np.ndarray:
        """All lists."""
        return np.concatenate(self._parts) if self._parts else np.zeros(1, np.uint32)


def repeat(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Index of each of `counts` repetitions, and its number among them."""
    index = np.repeat(np.arange(len(counts)), counts)
    ends = np.cumsum(counts)
    return index, np.arange(len(index)) - (ends - counts)[index]


def triangle(rows: np.ndarray, cols: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tiles (index, row, column), row >= column, of matrices with so many tile rows and columns."""
    index, col = repeat(cols)
    inner, row = repeat(rows[index] - col)
    return index[inner], row + col[inner], col[inner]


def tiles(size: np.ndarray, tile: int) -> np.ndarray:
    """How many tiles cover so many rows."""
    return -(-size // tile)


class Work:
    """The lists of all levels."""

    @classmethod
    def of(cls, analysis: Analysis) -> Work:
        """The lists of an analysis, made once: nobody changes them."""
        kept = vars(analysis)
        if "work" not in kept:
            kept["work"] = cls(analysis)
        return kept["work"]

    def __init__(self, analysis: Analysis):
        self._analysis = analysis
        self._words = Words()
        order = np.argsort(analysis.level, kind="stable")
        bounds = np.searchsorted(analysis.level[order], np.arange(analysis.num_levels + 1))
        self.num_diagonals = 1
        """Columns of the buffer of diagonal blocks."""
        self.levels = [self._level(order[a:b]) for a, b in pairwise(bounds)]
        self.words = self._words.array()

    def _level(self, fronts: np.ndarray) -> Level:
        level, own = Level(), self._analysis
        small, large = fronts[own.is_small[fronts]], fronts[~own.is_small[fronts]]
        self._factor_small(level, small)
        if len(large):
            large = large[np.argsort(-own.num_pivots[large], kind="stable")]
            self._assemble(level, large)
            self._panels(level, large)
            self._complement(level, large)
        self._solves(level, fronts)
        return level

    def _factor_small(self, level: Level, fronts: np.ndarray) -> None:
        rows, below = self._analysis.num_rows[fronts], 0
        for size in CLASSES:
            run = self._words.add(fronts[(rows > below) & (rows <= size)])
            if run is not None:
                level.small.append((size, run))
            below = size

    def _assemble(self, level: Level, fronts: np.ndarray) -> None:
        own = self._analysis
        begin = own.symbolic.children_begin
        count = tiles(own.num_rows[fronts], ASSEMBLE_TILE)
        index, row, col = triangle(count, count)
        front = fronts[index]
        # Without children only the cleared part below the pivots is needed, where there is one.
        below = np.where(own.num_below[front] > 0, own.num_pivots[front], own.num_rows[front] + ASSEMBLE_TILE)
        needed = (begin[front + 1] > begin[front]) | ((col + 1) * ASSEMBLE_TILE > below)
        level.assemble = self._words.add(front[needed], (row | col << 16)[needed])

    def _panels(self, level: Level, fronts: np.ndarray) -> None:
        own = self._analysis
        n, f = own.num_pivots[fronts], own.num_rows[fronts]
        slot = np.cumsum(n) - n
        self.num_diagonals = max(self.num_diagonals, int(n.sum()))
        group, is_ahead = 0, False
        outer = int(n[0]) if self._num_trailing(fronts, BLOCK) <= AT_ONCE else OUTER
        for column in range(0, int(n[0]), BLOCK):
            active = int(np.searchsorted(-n, -column, side="left"))  # n > column
            width = np.minimum(BLOCK, n[:active] - column)
            count = np.maximum(1, tiles(f[:active] - column - width, PANEL_ROWS))
            index, tile = repeat(count)
            run = self._words.add(fronts[index], tile, slot[index])
            assert run is not None
            end, panel, beside, after = column + BLOCK, group, None, None
            if column == group:
                is_ahead = self._num_trailing(fronts, end, group + outer) + len(index) <= AT_ONCE
            elif is_ahead:
                panel = column - BLOCK
                beside = self._trailing(fronts, panel, column, end, group + outer)
            if end - group >= outer:
                after = self._trailing(fronts, group, end, end)
                group = end
            level.steps.append(PanelStep(column, panel, run, beside, after))
        index, block = repeat(tiles(n, BLOCK))
        level.diagonals = self._words.add(fronts[index], block, slot[index])

    def _trailing_tiles(self, fronts: np.ndarray, start: int, last: int) -> tuple[np.ndarray, ...]:
        """(front, tile row, tile column) of pivot columns from `start` up to `last`, rows from `start` on."""
        own = self._analysis
        fronts = fronts[(own.num_pivots[fronts] > start) & (last > start)]
        rows = tiles(own.num_rows[fronts] - start, UPDATE_TILE)
        columns = tiles(np.minimum(own.num_pivots[fronts], last) - start, UPDATE_TILE)
        index, row, col = triangle(rows, columns)
        return fronts[index], row, col

    def _num_trailing(self, fronts: np.ndarray, start: int, last: int = WHOLE) -> int:
        return len(self._trailing_tiles(fronts, start, last)[0])

    def _trailing(
        self, fronts: np.ndarray, begin: int, end: int, start: int, last: int = WHOLE
    ) -> Update | None:
        front, row, col = self._trailing_tiles(fronts, start, last)
        run = self._words.add(front, row | col << 16)
        return None if run is None else Update(begin, end, start, min(last, WHOLE), run)

    def _complement(self, level: Level, fronts: np.ndarray) -> None:
        count = tiles(self._analysis.num_below[fronts], UPDATE_TILE)
        index, row, col = triangle(count, count)
        level.complement = self._words.add(fronts[index], row | col << 16)

    def _solves(self, level: Level, fronts: np.ndarray) -> None:
        own = self._analysis
        rows, below = own.num_rows[fronts], 0
        for capacity, lanes in SOLVE_CLASSES:
            run = self._words.add(fronts[(rows > below) & (rows <= capacity)])
            if run is not None:
                level.solve_small.append((capacity, lanes, run))
            below = capacity
        large = fronts[rows > below]
        if len(large):
            self._solve_large(level, large[np.argsort(-own.num_pivots[large], kind="stable")])

    def _solve_large(self, level: Level, fronts: np.ndarray) -> None:
        own = self._analysis
        n, f = own.num_pivots[fronts], own.num_rows[fronts]
        level.collect = self._words.add(fronts)
        index, block = repeat(tiles(n, BLOCK))
        level.start = self._words.add(fronts[index], block)
        for column in range(0, int(n[0]), BLOCK):
            active = int(np.searchsorted(-n, -column, side="left"))
            width = np.minimum(BLOCK, n[:active] - column)
            index, tile = repeat(np.maximum(1, tiles(f[:active] - column - width, SOLVE_ROWS)))
            level.forward.append((column, present(self._words.add(fronts[index], tile))))
            index, tile = repeat(np.full(active, max(1, -(-column // SOLVE_ROWS))))
            level.backward.append((column, present(self._words.add(fronts[index], tile))))
        level.backward.reverse()


def present(run: Run | None) -> Run:
    """A list that is never empty."""
    assert run is not None
    return run


def tile_bounds(analysis: Analysis) -> tuple[np.ndarray, np.ndarray]:
    """For children of large fronts, the first of their rows at or after each multiple of 32 of the parent.

    Returns the first entry of each front (0 where it has none) and all entries; the last one of a child is
    its number of rows.
    """
    symbolic = analysis.symbolic
    parent = symbolic.parent.astype(np.int64)
    has = parent >= 0
    has[has] = ~analysis.is_small[parent[has]]
    children = np.flatnonzero(has)
    first = np.zeros(len(parent), np.int64)
    if len(children) == 0:
        return first, np.zeros(1, np.int64)
    count = tiles(analysis.num_rows[parent[children]], ASSEMBLE_TILE) + 1
    first[children] = np.cumsum(count) - count
    index, tile = repeat(count)
    m = analysis.num_below[children]
    inner, within = repeat(m)
    begin = symbolic.rows_begin[children]
    scale = int(analysis.num_rows.max()) + 2 * ASSEMBLE_TILE
    keys = symbolic.parent_row[begin[inner] + within].astype(np.int64) + inner * scale
    found = np.searchsorted(keys, tile * ASSEMBLE_TILE + index * scale)
    return first, found - (np.cumsum(m) - m)[index]
