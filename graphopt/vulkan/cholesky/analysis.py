"""The structure of a factorisation on a device: fronts, levels of the tree, where everything is kept.

    P (H + D) P' = L S L'      front s:  n pivots, m rows below, f = n + m

    factor    [f x n] column-major, for good, at `factor_offset`
    update    [m x m] column-major: the front's Schur complement, in the arena of its level's parity, until
              the parent, one level further up, has taken it

Levels are counted from the roots down and numbered from the leaves up, so that a parent is always exactly one
level above its children: two arenas suffice. Ordering, tree and supernodes come from native code
(native/src/linear/supernodes.cpp), with the front costs of a device.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from graphopt.cpu_kernels import kernels
from graphopt.errors import DeviceLimitError, OptionError
from graphopt.linear import BlockPattern
from graphopt.vulkan.program import InThread

ORDERINGS = ("auto", "amd", "metis", "dissection", "natural", "dense")
SMALL_ROWS = 64
"""Rows of a front that one workgroup factors in shared memory."""
BLOCK = 32
"""Columns of a panel; `BLOCK` of chol.glsl."""
NOWHERE = 0xFFFFFFFF
MAX_INDICES = 1 << 30
"""Entries of an array of indices, which stays below 4 GiB."""
_ALIGN = 16  # scalars: a front starts on a cache line


@dataclass(frozen=True, eq=False)
class Analysis:
    """Fronts in elimination order, children before parents. Arrays have one entry per front."""

    symbolic: Any
    """Native: permutation, tree, rows."""
    pattern: BlockPattern
    level: np.ndarray
    """int64; 0: the leaves furthest from their root."""
    factor_offset: np.ndarray
    """(fronts + 1,) int64 scalars."""
    update_offset: np.ndarray
    """int64 scalars, in the arena of the level's parity."""
    arena_size: tuple[int, int]
    """Scalars of the arenas of even and odd levels."""

    @cached_property
    def num_pivots(self) -> np.ndarray:
        """n, int64."""
        return self.symbolic.num_pivots.astype(np.int64)

    @cached_property
    def num_below(self) -> np.ndarray:
        """m, int64."""
        return self.symbolic.num_below.astype(np.int64)

    @cached_property
    def num_rows(self) -> np.ndarray:
        """f = n + m, int64."""
        return self.num_pivots + self.num_below

    @property
    def num_levels(self) -> int:
        """Levels of the tree."""
        return int(self.level.max(initial=-1)) + 1

    @property
    def dim(self) -> int:
        """Scalar rows of the matrix."""
        return self.pattern.dim

    @property
    def factor_size(self) -> int:
        """Scalars of all factors."""
        return int(self.factor_offset[-1])

    @property
    def num_carried(self) -> int:
        """Rows below of all fronts."""
        return len(self.symbolic.rows)

    @cached_property
    def flops(self) -> float:
        """Multiplications and additions of a factorisation, with the zeros that merging fronts has stored."""
        n, m = self.num_pivots.astype(float), self.num_below.astype(float)
        return float((n**3 / 3 + n**2 * m + n * m**2).sum())

    @cached_property
    def is_small(self) -> np.ndarray:
        """Whether one workgroup takes the front in shared memory."""
        return self.num_rows <= SMALL_ROWS

    @cached_property
    def places(self) -> np.ndarray:
        """Where each number of the pattern is in the factor; `NOWHERE`: above the diagonal."""
        return self.symbolic.places(self.factor_offset[:-1])

    def diagonal_places(self) -> np.ndarray:
        """(dim,) int64: where each pivot is in the factor, in the order of elimination."""
        n, f = self.num_pivots, self.num_rows
        within = np.arange(self.dim) - np.repeat(self.symbolic.first_pivot.astype(np.int64), n)
        return np.repeat(self.factor_offset[:-1], n) + within * (np.repeat(f, n) + 1)


def analyse(pattern: BlockPattern, ordering: str = "auto") -> Analysis:
    """Choose the order of elimination and lay everything out.

    ordering: "amd", "metis", "dissection" (on all cores), "natural", "dense" (natural, all in one front), or
    "auto": AMD; METIS, or dissection of large graphs, as well where it may save the time that it takes; and
    "dense". The shortest expected time wins.
    """
    if ordering not in ORDERINGS:
        raise OptionError(f"ordering is {ordering!r}, expected one of {', '.join(ORDERINGS)}.")
    symbolic = kernels.DeviceSymbolic(pattern, ordering)
    n, m = symbolic.num_pivots.astype(np.int64), symbolic.num_below.astype(np.int64)
    counted = max(pattern.values_size, len(symbolic.rows))
    if counted >= MAX_INDICES:
        raise DeviceLimitError(
            f"The matrix has {pattern.values_size} stored scalars, its factor {len(symbolic.rows)} rows "
            f"below pivots; a device counts to {MAX_INDICES - 1}. Use linear_solver='pcg', or device='cpu'."
        )
    factor_offset = np.concatenate([[0], np.cumsum(_aligned((n + m) * n))])
    if factor_offset[-1] >= NOWHERE:
        raise DeviceLimitError(
            f"The factor has {factor_offset[-1]} scalars; a device counts to {NOWHERE - 1}. "
            "Use linear_solver='pcg', or device='cpu'."
        )
    level = symbolic.level.astype(np.int64)
    order = np.argsort(level, kind="stable")
    sizes = _aligned(m * m)[order]
    ends = np.cumsum(sizes)
    first = np.searchsorted(level[order], np.arange(level.max(initial=-1) + 2))
    starts = np.concatenate([[0], ends])
    update_offset = np.empty(len(n), np.int64)
    update_offset[order] = ends - sizes - starts[first[level[order]]]
    totals = np.diff(starts[first])
    arenas = int(totals[0::2].max(initial=0)), int(totals[1::2].max(initial=0))
    return Analysis(symbolic, pattern, level, factor_offset, update_offset, arenas)


MOST_KEPT, MOST_KEPT_BLOCKS = 8, 1 << 16
"""Analyses that are kept: a window that slides has the same S again and again, and a copy the same H."""
kept_analyses: OrderedDict[tuple[Any, ...], Analysis | InThread[Analysis]] = OrderedDict()
_keeping = threading.Lock()


def analyse_ahead(pattern: BlockPattern, ordering: str = "auto") -> None:
    """Start in a thread what somebody is going to ask `analyse_once` for."""
    if pattern.num_blocks <= MOST_KEPT_BLOCKS:
        _known_or(pattern, ordering, lambda: InThread("graphopt-order", analyse, pattern, ordering))


def analyse_once(pattern: BlockPattern, ordering: str = "auto") -> Analysis:
    """As `analyse`; of patterns that were analysed before the same object."""
    if pattern.num_blocks > MOST_KEPT_BLOCKS:
        return analyse(pattern, ordering)
    key, found = _known_or(pattern, ordering, lambda: analyse(pattern, ordering))
    if isinstance(found, Analysis):
        return found
    try:
        analysis = found.result()
    except BaseException:
        with _keeping:
            kept_analyses.pop(key, None)
        raise
    with _keeping:
        if key in kept_analyses:
            kept_analyses[key] = analysis
    return analysis


def _known_or(
    pattern: BlockPattern, ordering: str, make: Callable[[], Analysis | InThread[Analysis]]
) -> tuple[tuple[Any, ...], Analysis | InThread[Analysis]]:
    """The key of an analysis, and what is kept of it, else what `make` returns, which is kept then."""
    digests = (kernels.fingerprint(part) for part in (pattern.dims, pattern.col_ptr, pattern.row_idx))
    key = (ordering, pattern.num_blocks, *digests)
    with _keeping:
        if key in kept_analyses:
            kept_analyses.move_to_end(key)
            return key, kept_analyses[key]
    found = make()
    with _keeping:
        kept_analyses[key] = found
        while len(kept_analyses) > MOST_KEPT:
            kept_analyses.popitem(last=False)
    return key, found


def _aligned(sizes: np.ndarray) -> np.ndarray:
    return (sizes + _ALIGN - 1) // _ALIGN * _ALIGN
