"""A block solver that notes where the time goes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from graphopt.solver.block_solver import BlockSolver
from graphopt.solver.capabilities import capabilities_of
from graphopt.solver.trial import Damping, Trial
from graphopt.switches import is_off

_Base: Any = BlockSolver if TYPE_CHECKING else object
_TIMED = {
    "linearize": "linearize",
    "chi2": "linearize",
    "solve": "solve",
    "multiply": "solve",
    "update": "update",
}
"""Method -> what its seconds are added to."""


class MeteredSolver(_Base):
    """Is `solver`, adds up the seconds of its parts, and counts pushes."""

    def __init__(self, solver: BlockSolver, seconds: dict[str, float]):
        self._seconds = seconds
        self.depth = 0
        """Pushes that were neither popped nor discarded."""
        self._take(solver)

    def _take(self, solver: BlockSolver) -> None:
        self.inner = solver
        """The solver itself."""
        for name, part in _TIMED.items():
            setattr(self, name, self._timed(getattr(solver, name), part))

    def __getattr__(self, name: str) -> Any:
        """What is not timed is the solver's own."""
        return getattr(self.inner, name)

    @property
    def dx(self) -> np.ndarray:
        """Step."""
        return self.inner.dx

    @dx.setter
    def dx(self, step: np.ndarray) -> None:
        self.inner.dx = step

    def _timed(self, method: Callable[..., Any], part: str) -> Callable[..., Any]:
        seconds = self._seconds

        def timed(*arguments: Any) -> Any:
            start = time.perf_counter()
            found = method(*arguments)
            seconds[part] += time.perf_counter() - start
            return found

        return timed

    def start(self) -> float:
        """Robustified chi2 before the first iteration, with H and b where the solver finds them along."""
        if not capabilities_of(self.inner).begins_linearized:
            return self.chi2()
        return self._timed(self.inner.begin, "linearize")()  # type: ignore[attr-defined]

    def linearize_trials(self, looks: bool) -> None:
        """Let a solver linearize where it is asked for chi2 only: an iteration follows, or not."""
        if capabilities_of(self.inner).linearizes_trials:
            self.inner.linearizes_trials = looks and not is_off("speculation")  # type: ignore[attr-defined]

    def trial(self, damping: Damping) -> Trial:
        """Solve, push, update, chi2."""
        return self._noted(self.inner.trial(damping))

    def move(self) -> Trial:
        """Push, update, chi2."""
        return self._noted(self.inner.move())

    def _noted(self, result: Trial) -> Trial:
        for name, seconds in result.seconds.items():
            self._seconds[name] += seconds
        self.depth += result.solved
        return result

    def push(self) -> None:
        """Remember the estimates."""
        self.depth += 1
        self.inner.push()

    def pop(self) -> None:
        """Return to the last push."""
        self.depth -= 1
        self.inner.pop()

    def discard_top(self) -> None:
        """Forget the last push."""
        self.depth -= 1
        self.inner.discard_top()

    def exchange(self, solver: BlockSolver) -> None:
        """Go on with another solver of the same problem, at the same estimates."""
        assert self.depth == 0, "between two iterations only"
        self._take(solver)
