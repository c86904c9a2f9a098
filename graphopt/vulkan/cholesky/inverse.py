"""Blocks of (H + D)^-1 from a factorisation on a device: marginal covariances.

Inside the structure of L by the selected inverse, from the roots down (Takahashi, Fagan and Chen 1973, by
fronts; Z is the inverse restricted to the rows of a front):

    W = [I; L21] L11^-1      Z22 = part of the parent's Z      Z21 = -Z22 W2      Z11 = W1' S W1 - W2' Z21

W is made by groups of columns, from the last on: what a group adds to all before it are tiles of a product.
Of the last level that is asked of, Z11 is formed as a whole only where much of it is wanted. Each level of Z
stays only until the level below has read it: two arenas, as for the updates. Blocks outside of the structure
come from solving for columns of the identity, 64 at once, and so do all where the device has no room for a
level of Z.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphopt.device.errors import DeviceMemoryError
from graphopt.errors import ShapeError
from graphopt.linear.vectors import dot
from graphopt.vulkan.cholesky.memory import fits
from graphopt.vulkan.cholesky.work import OUTER, UPDATE_TILE, Run, Words, present, repeat, tiles, triangle

_TILE, _ROWS, _VECTOR = 32, 64, 128
_MOST_ENTRIES = 1 << 32
"""Of an arena: kernels find them with 32 bits."""
_SIDES = 64
"""Columns of the identity that are solved for at once."""
_SUM_COST = 4
"""Times as long as an entry of a tile, an entry of Z11 that is summed by itself."""


@dataclass(frozen=True)
class _Group:
    """Columns `start` up to `last` of W, and what they subtract from those before."""

    start: int
    last: int
    rows: Run
    update: Run | None


@dataclass(frozen=True)
class _Lists:
    """What is done for a level."""

    groups: list[_Group]
    sides: Run | None
    """Z22, and Z21 with its transpose."""
    corner: Run | None
    """Z11."""


class SelectedInverse:
    """The lists and arenas of one factorisation; kept for further calls."""

    def __init__(self, owner: Any):
        self._owner = owner
        own = owner.analysis
        n, f = own.num_pivots, own.num_rows
        self._z, z_sizes = _by_level(own.level, own.num_levels, f * f)
        self._w, w_sizes = _by_level(own.level, own.num_levels, f * n)
        arenas = [int(z_sizes[k::2].max(initial=0)) for k in (0, 1)]
        sizes = [*arenas, int(w_sizes.max(initial=0))]
        self.by_levels = max(sizes) < _MOST_ENTRIES
        self.by_levels &= fits(owner.device, [size * owner.real.itemsize for size in sizes])
        """Levels of Z are held; else columns are solved for."""
        if not self.by_levels:
            return
        try:
            self._arenas = [owner.reals(size) for size in arenas]
            self._solved = owner.reals(sizes[2])
        except DeviceMemoryError:
            self._arenas, self.by_levels = [], False
            return
        owner.note_sizes(*sizes)
        words = Words()
        self._levels = [self._lists(words, fronts) for fronts in _fronts_of(own)]
        self._words = owner.device.upload(words.array())

    def _lists(self, words: Words, fronts: np.ndarray) -> _Lists:
        own = self._owner.analysis
        n, m = own.num_pivots[fronts], own.num_below[fronts]
        groups = [self._group(words, fronts, start) for start in range(0, int(n.max(initial=0)), OUTER)]
        below, across = tiles(m, _TILE), tiles(n, _TILE)
        index, cell = repeat(below * (across + below))
        sides = self._side(words, fronts[index], cell % below[index], cell // below[index])
        index, row, col = triangle(across, across)
        return _Lists(groups[::-1], sides, self._side(words, fronts[index], row, col))

    def _group(self, words: Words, fronts: np.ndarray, start: int) -> _Group:
        own = self._owner.analysis
        fronts = fronts[own.num_pivots[fronts] > start]
        height = own.num_rows[fronts] - start
        index, tile = repeat(tiles(height, _ROWS))
        rows = present(words.add(fronts[index], tile, self._w[fronts[index]]))
        below, across = tiles(height, UPDATE_TILE), start // UPDATE_TILE
        index, cell = repeat(below * across)
        row, col = cell % below[index], cell // below[index]
        update = words.add(fronts[index], row | col << 16, self._w[fronts[index]])
        return _Group(start, start + OUTER, rows, update)

    def _side(self, words: Words, front: np.ndarray, row: np.ndarray, col: np.ndarray) -> Run | None:
        parent = np.maximum(self._owner.analysis.symbolic.parent[front], 0)
        return words.add(front, row | col << 16, self._w[front], self._z[front], self._z[parent], parent)

    def blocks(self, pairs: np.ndarray) -> list[np.ndarray]:
        """Blocks (rows[k], cols[k]) of the inverse, float64; pairs (num, 2) integers."""
        pattern = self._owner.pattern
        pairs = np.asarray(pairs, np.int64).reshape(-1, 2)
        if pairs.size and not 0 <= pairs.min() <= pairs.max() < pattern.num_blocks:
            raise ShapeError(f"block pairs: expected numbers of blocks below {pattern.num_blocks}.")
        dims = pattern.dims.astype(np.int64)
        sizes = dims[pairs[:, 0]] * dims[pairs[:, 1]]
        ends = np.cumsum(sizes)
        result = np.empty(int(sizes.sum()))
        inside, place, front = self._find(pairs)
        inside &= self.by_levels
        if inside.any():
            self._from_tree(pairs, np.flatnonzero(inside), place, front, ends - sizes, result)
        if not inside.all():
            self._from_solves(pairs, np.flatnonzero(~inside), ends - sizes, result)
        return [
            block.reshape((dims[i], dims[j]), order="F")
            for block, (i, j) in zip(np.split(result, ends[:-1]), pairs, strict=True)
        ]

    def _find(self, pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Whether each block is in the structure, rows (2) of its front where it starts, and the front."""
        own, symbolic = self._owner.analysis, self._owner.analysis.symbolic
        first = np.empty(own.dim, np.int64)
        first[symbolic.scalar_source] = np.arange(own.dim)
        scalars = first[self._owner.pattern.offsets[pairs]]
        front = np.searchsorted(symbolic.first_pivot, scalars.min(axis=1), side="right") - 1
        own_row = scalars - symbolic.first_pivot[front][:, None]
        scale = own.dim + 1
        counts = own.num_below
        keys = symbolic.rows.astype(np.int64) + np.repeat(np.arange(len(counts)), counts) * scale
        wanted = scalars + front[:, None] * scale
        found = np.searchsorted(keys, wanted)
        is_below = (found < len(keys)) & (np.append(keys, -1)[np.minimum(found, len(keys))] == wanted)
        below_row = own.num_pivots[front][:, None] + found - symbolic.rows_begin[front][:, None]
        is_pivot = own_row < own.num_pivots[front][:, None]
        return (is_pivot | is_below).all(axis=1), np.where(is_pivot, own_row, below_row), front

    def _from_tree(
        self,
        pairs: np.ndarray,
        chosen: np.ndarray,
        place: np.ndarray,
        front: np.ndarray,
        begin: np.ndarray,
        result: np.ndarray,
    ) -> None:
        """One descent for all chosen blocks."""
        own, dims = self._owner, self._owner.pattern.dims.astype(np.int64)
        rows, cols = dims[pairs[chosen, 0]], dims[pairs[chosen, 1]]
        index, within = repeat(rows * cols)
        at, f = place[chosen][index], own.analysis.num_rows[front[chosen]][index]
        row, col = at[:, 0] + within % rows[index], at[:, 1] + within // rows[index]
        words, front = Words(), front[chosen][index]
        level = own.analysis.level[front]
        rows_of = {int(number): np.flatnonzero(level == number) for number in np.unique(level)}
        takes = {
            number: words.add(self._z[front[to]] + col[to] * f[to] + row[to], to)
            for number, to in rows_of.items()
        }
        to = rows_of[min(takes)]
        pivots = own.analysis.num_pivots[own.analysis.level == min(takes)].astype(float)
        sums = None
        if _SUM_COST * len(to) < dot(pivots, pivots):
            sums = words.add(front[to], row[to], col[to], self._w[front[to]], self._z[front[to]], to)
        lists = own.device.upload(words.array())
        target = own.reals(len(index))
        recorder = own.device.record()
        self._record(recorder, takes, sums, lists, target)
        own.device.submit(recorder.finish()).wait()
        result[begin[chosen][index] + within] = own.device.download(target, own.real, len(index))

    def _record(
        self, recorder: Any, takes: dict[int, Run | None], sums: Run | None, lists: Any, target: Any
    ) -> None:
        """takes: what is copied from each level; sums: of the last one, instead of that and of Z11."""
        own, last = self._owner, min(takes)
        take = own.shader("inverse_take", 3, 2, {0: _VECTOR})
        for number in range(len(self._levels) - 1, last - 1, -1):
            run = takes.get(number)
            inverse = self._record_level(recorder, number, is_summed=number == last and sums is not None)
            if number == last and sums is not None:
                kernel = own.shader("inverse_sums", 6, 1, {0: _VECTOR})
                buffers = (lists, own.fronts, own.signs, self._solved, inverse, target)
                own.record_list(recorder, kernel, sums, 6, buffers)
            elif run is not None:
                groups = -(-run.num // _VECTOR)
                recorder.dispatch(take, (lists, inverse, target), (run.first, run.num), groups)
                recorder.barrier()

    def _record_level(self, recorder: Any, number: int, *, is_summed: bool) -> Any:
        """Z of a level, without Z11 where its entries are summed; returns where Z is."""
        own, level = self._owner, self._levels[number]
        above, inverse = self._arenas[1 - number % 2], self._arenas[number % 2]
        for group in level.groups:
            self._record_group(recorder, group)
        for stage, run in enumerate((level.sides, None if is_summed else level.corner)):
            if run is not None:
                kernel = own.shader("inverse", 7, 1, {0: _ROWS, 1: stage})
                buffers = (self._words, own.fronts, own.parent_row, own.signs, self._solved, above, inverse)
                own.record_list(recorder, kernel, run, 6, buffers)
                recorder.barrier()
        return inverse

    def _record_group(self, recorder: Any, group: _Group) -> None:
        own = self._owner
        kernel = own.shader("inverse_rows", 4, 3, {0: _ROWS})
        buffers = (self._words, own.fronts, own.factor, self._solved)
        own.record_list(recorder, kernel, group.rows, 3, buffers, (group.start, group.last))
        recorder.barrier()
        if group.update is not None:
            kernel = own.shader("update", 5, 5, {0: 128, 1: 2})
            params = (group.start, group.last, 0, 0)
            own.record_list(recorder, kernel, group.update, 3, (*buffers, own.signs), params)
            recorder.barrier()

    def _from_solves(
        self, pairs: np.ndarray, chosen: np.ndarray, begin: np.ndarray, result: np.ndarray
    ) -> None:
        """Columns of the inverse, for blocks where L has none."""
        pattern = self._owner.pattern
        dims = pattern.dims.astype(np.int64)
        wanted, which = np.unique(pairs[chosen, 1], return_inverse=True)
        by_column = np.argsort(which, kind="stable")
        ends = np.searchsorted(which[by_column], np.arange(len(wanted)), side="right")
        first = 0
        while first < len(wanted):
            width = np.cumsum(dims[wanted[first:]])
            last = first + max(int(np.searchsorted(width, _SIDES, side="right")), 1)
            batch = wanted[first:last]
            columns = width[: last - first] - dims[batch]
            block, within = repeat(dims[batch])
            sides = np.zeros((pattern.dim, len(block)))
            sides[pattern.offsets[batch][block] + within, np.arange(len(block))] = 1.0
            solved = self._owner.solve(sides)
            for at in by_column[ends[first - 1] if first else 0 : ends[last - 1]]:
                k, begins = chosen[at], columns[which[at] - first]
                i, j = pairs[k]
                part = solved[pattern.offsets[i] : pattern.offsets[i + 1], begins : begins + dims[j]]
                result[begin[k] : begin[k] + part.size] = part.ravel(order="F")
            first = last


def _fronts_of(analysis: Any) -> Sequence[np.ndarray]:
    order = np.argsort(analysis.level, kind="stable")
    bounds = np.searchsorted(analysis.level[order], np.arange(1, analysis.num_levels))
    return np.split(order, bounds)


def _by_level(level: np.ndarray, num_levels: int, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Offset of each front among those of its level, and the size of each level."""
    order = np.argsort(level, kind="stable")
    ends = np.cumsum(sizes[order])
    starts = np.concatenate([[0], ends])
    first = np.searchsorted(level[order], np.arange(num_levels + 1))
    offset = np.empty(len(level), np.int64)
    offset[order] = ends - sizes[order] - starts[first[level[order]]]
    return offset, np.diff(starts[first])
