"""Conjugate directions for steps that converge slowly.

Where Gauss-Newton's matrix is far from chi2's second derivative (robust kernels, whose weights it takes for
constant; large residuals), its steps z = inv(H + D) b are short by the same factors again and again, and chi2
falls by the same few percent of what is left. They precondition conjugate gradients then:

    beta = z_k'(b_k - b_k-1) / z_k-1'b_k-1,    p_k = z_k + max(beta, 0) p_k-1             (Polak-Ribiere)

z_k has been taken when this begins. Then beta p_k-1 is, and a longer step along p_k by the parabola through
chi2 and its slope at the start and chi2 at its end; each where that lowers chi2, for one evaluation of chi2.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from graphopt.linear.vectors import dot
from graphopt.solver.block_solver import BlockSolver

_SLOW = 0.2  # of the decrease before: less is fast convergence
_FAST = 0.05  # of the decrease before: what follows is less than a tenth of this one
_LONGER, _LONGEST = 1.2, 8.0  # factors of a step that are worth an evaluation of chi2
_NUM_RECENT = 5  # decreases in a row that are looked at together: single ones vary by factors of 10
_LARGEST_RATIO = 0.99  # of two decreases in a row, for the sum of those to come
_LEFT = 10.0  # tolerances that all decreases to come may add up to


class Decreases:
    """The last decreases of chi2; in a curved valley all are nearly the same."""

    def __init__(self) -> None:
        self._recent: deque[float] = deque([np.inf] * 2 * _NUM_RECENT, maxlen=2 * _NUM_RECENT)

    def append(self, decrease: float) -> float:
        """Add the newest; returns the one before."""
        self._recent.append(decrease)
        return self._recent[-2]

    def last(self) -> float:
        """Sum of the last few."""
        return sum(list(self._recent)[_NUM_RECENT:])

    def are_over(self, tolerance: float) -> bool:
        """Whether all to come, the geometric series that continues these, are a few tolerances at most."""
        before, last = sum(list(self._recent)[:_NUM_RECENT]), self.last()
        ratio = min((last / before) ** (1.0 / _NUM_RECENT), _LARGEST_RATIO) if before > 0.0 else 0.0
        return last / _NUM_RECENT * ratio / (1.0 - ratio) <= _LEFT * tolerance


class Momentum:
    """Directions of the steps so far; see the module's header."""

    def __init__(self, solver: BlockSolver):
        self._solver = solver
        self._decrease = np.inf
        self._recent = Decreases()
        self._b: np.ndarray | None = None
        self._direction: np.ndarray | None = None
        self._slope = 0.0

    def has_settled(self, decrease: float, tolerance: float) -> bool:
        """Whether chi2, which fell by `decrease` in the last step, would fall by little more (both absolute).

        The model knows only what a step gains, and conjugate directions gain in turns: the last decreases say
        what is left.
        """
        last = self._recent.append(decrease)
        if decrease > tolerance:
            return False
        if decrease <= _FAST * last:
            return True
        return self._recent.last() <= tolerance and self._recent.are_over(tolerance)

    def carry(self, before: float, chi2: float) -> float:
        """Go on from a step that was accepted, from chi2 `before` to `chi2`; returns chi2 there."""
        decrease, last = before - chi2, self._decrease
        self._decrease = decrease
        if not _SLOW * last < decrease:
            self._b = self._direction = None
            return chi2
        solver = self._solver
        b, step = solver.b.copy(), solver.dx.copy()
        slope = dot(step, b)
        direction = step
        if self._b is not None and self._direction is not None and self._slope > 0.0:
            beta = (slope - dot(step, self._b)) / self._slope
            moved = self._try(beta * self._direction, chi2) if beta > 0.0 else None
            if moved is not None:
                chi2, direction = moved, step + beta * self._direction
        chi2 = self._lengthened(direction, dot(direction, b), before, chi2)
        self._b, self._direction, self._slope = b, direction, slope
        self._decrease = before - chi2
        return chi2

    def _lengthened(self, direction: np.ndarray, slope: float, before: float, chi2: float) -> float:
        """Further along a direction whose end has been reached."""
        curvature = chi2 - before + 2.0 * slope
        factor = min(slope / curvature, _LONGEST) if curvature > 0.0 else _LONGEST
        if not (slope > 0.0 and factor > _LONGER):
            return chi2
        moved = self._try((factor - 1.0) * direction, chi2)
        return chi2 if moved is None else moved

    def _try(self, step: np.ndarray, chi2: float) -> float | None:
        """Chi2 after a step, which is taken back where that is no lower."""
        solver = self._solver
        solver.dx = step
        moved = solver.move().chi2
        if moved < chi2:
            solver.discard_top()
            return moved
        solver.pop()
        return None
