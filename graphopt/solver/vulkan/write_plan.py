"""Launches that write sums of the same rows: their order, the barriers between them, which assign, which add.

A launch that writes a row after another one adds to what is there, and a barrier stands between them. Those
without common rows run side by side. Launches with most rows go first: they assign, and the others, whose
rows are then all written, add fewer numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class WritePlan:
    """The order of some launches."""

    steps: list[list[int]]
    """Launches between two barriers, by number; no two of a step write one row."""
    adds: list[bool]
    """Per launch whether it adds to what is there."""
    clears: bool
    """All must add to zeros: some row is written by no launch, or a launch has rows of both kinds."""
    touched: np.ndarray
    """(num_rows,) bool: rows that some launch writes."""


def plan_writes(
    writes: Sequence[np.ndarray], num_rows: int, needed: np.ndarray | slice | None = None
) -> WritePlan:
    """The plan of launches that write these rows. needed: rows that must hold sums or zeros, None: all."""
    step_of_row = np.zeros(num_rows, np.int32)  # first step that may write it; 0: nobody has
    steps: list[list[int]] = []
    adds = [False] * len(writes)
    is_mixed = False
    for number in sorted(range(len(writes)), key=lambda number: -len(writes[number])):
        rows = writes[number]
        earliest = step_of_row[rows]
        step = int(earliest.max(initial=0))
        adds[number] = step > 0
        is_mixed |= adds[number] and not earliest.all()
        steps += [[] for _ in range(step + 1 - len(steps))]
        steps[step].append(number)
        step_of_row[rows] = step + 1
    touched = step_of_row > 0
    clears = is_mixed or not bool(touched[slice(None) if needed is None else needed].all())
    return WritePlan(steps, [one or clears for one in adds], clears, touched)
