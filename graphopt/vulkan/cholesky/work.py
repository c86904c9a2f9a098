"""Work lists: which workgroup does what, for every dispatch, in one array of 32-bit words.

A list has 1 to 3 words per workgroup: the front, tiles packed as row | column << 16, and what else a kernel
needs. `Run` says where a list starts and how many workgroups it has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from graphopt.vulkan.cholesky.analysis import BLOCK, SMALL_ROWS, Analysis

PANEL_ROWS = 64
"""Rows of a workgroup of chol_panel."""
UPDATE_TILE = 64
"""Rows and columns of a workgroup of chol_update."""
ASSEMBLE_TILE = 32
"""Rows and columns of a workgroup of chol_assemble."""
OUTER = 256
"""Columns of a group, which are factored before all later ones are updated by them, where those are many."""
AT_ONCE = 512
"""Workgroups that a large device runs at once: with fewer, updates go beside the next block's pivots."""
UPDATE_FLOPS = 2.0 * UPDATE_TILE**2
PANEL_FLOPS = 2.0 * (PANEL_ROWS + BLOCK) * BLOCK
"""Operations of a workgroup of chol_update and of chol_panel per column."""
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


@dataclass(frozen=True)
class Level:
    """Everything of one level, in the order in which it runs."""

    small: list[tuple[int, Run]]
    """Rows of shared memory, and the fronts of that class."""
    assemble: Run | None
    steps: list[PanelStep]
    diagonals: Run | None
    complement: Run | None
    solve_small: list[tuple[int, int, Run]]
    """Capacity, invocations, fronts."""
    collect: Run | None
    forward: list[tuple[int, Run]]
    """Column, (front, tile)."""
    start: Run | None
    backward: list[tuple[int, Run]]


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
        self.words, self.num_diagonals, levels = analysis.symbolic.work(OUTER, AT_ONCE, SOLVE_CLASSES)
        """All lists; columns of the buffer of diagonal blocks."""
        self.levels = [_level(*level) for level in levels]


_Run = tuple[int, int]
_Columns = tuple[int, _Run]


def _level(
    small: list[tuple[int, _Run]],
    assemble: _Run | None,
    steps: list[tuple[Any, ...]],
    diagonals: _Run | None,
    complement: _Run | None,
    solve_small: list[tuple[int, int, _Run]],
    collect: _Run | None,
    forward: list[_Columns],
    start: _Run | None,
    backward: list[_Columns],
) -> Level:
    return Level(
        [(size, Run(*run)) for size, run in small],
        _run(assemble),
        [PanelStep(a, b, Run(*run), _update(beside), _update(after)) for a, b, run, beside, after in steps],
        _run(diagonals),
        _run(complement),
        [(size, lanes, Run(*run)) for size, lanes, run in solve_small],
        _run(collect),
        [(column, Run(*run)) for column, run in forward],
        _run(start),
        [(column, Run(*run)) for column, run in backward],
    )


def _run(run: _Run | None) -> Run | None:
    return None if run is None else Run(*run)


def _update(update: tuple[int, int, int, int, _Run] | None) -> Update | None:
    return None if update is None else Update(*update[:4], Run(*update[4]))


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
