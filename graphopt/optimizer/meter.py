"""A block solver that notes where the time goes."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from graphopt.problem.structure import EdgeGroup
from graphopt.solver.block_solver import BlockSolver
from graphopt.solver.cpu import CpuBlockSolver
from graphopt.solver.external import ExternalPart, ExternalPlaces
from graphopt.solver.trial import Damping, Trial


class MeteredSolver:
    """Passes everything on to `solver` and adds up seconds: linearize (with chi2), solve, update."""

    def __init__(self, solver: BlockSolver, seconds: dict[str, float]):
        self._solver = solver
        self._seconds = seconds
        self.dim = solver.dim
        self.structure = solver.structure
        self.depth = 0
        """Pushes that were neither popped nor discarded."""

    @property
    def precision(self) -> str:
        """Of the solver inside."""
        return self._solver.precision

    @property
    def inner(self) -> BlockSolver:
        """The solver itself."""
        return self._solver

    @property
    def b(self) -> np.ndarray:
        """Right-hand side."""
        return self._solver.b

    @property
    def dx(self) -> np.ndarray:
        """Step."""
        return self._solver.dx

    @dx.setter
    def dx(self, step: np.ndarray) -> None:
        self._solver.dx = step

    @property
    def diagonal(self) -> np.ndarray:
        """Diagonal of H."""
        return self._solver.diagonal

    def _add(self, name: str, start: float) -> None:
        self._seconds[name] += time.perf_counter() - start

    def linearize(self) -> float:
        """H, b, chi2."""
        start = time.perf_counter()
        chi2 = self._solver.linearize()
        self._add("linearize", start)
        return chi2

    def chi2(self) -> float:
        """Robustified chi2."""
        start = time.perf_counter()
        chi2 = self._solver.chi2()
        self._add("linearize", start)
        return chi2

    def begin(self) -> float:
        """Robustified chi2 before the first iteration; the CPU's solver has H and b then, too."""
        if type(self._solver) is not CpuBlockSolver:
            return self.chi2()
        start = time.perf_counter()
        chi2 = self._solver.begin()
        self._add("linearize", start)
        return chi2

    def look_ahead(self, looks: bool) -> None:
        """Let a solver linearize where it is asked for chi2 only: an iteration follows, or not."""
        solver: Any = self._solver
        # what wraps the CPU's may change its estimates in between
        if type(solver) is CpuBlockSolver or getattr(solver, "linearizes_beyond", False):
            solver.looks_ahead = looks

    def solve(self, damping: float | np.ndarray) -> bool:
        """(H + D) dx = b."""
        start = time.perf_counter()
        solved = self._solver.solve(damping)
        self._add("solve", start)
        return solved

    def trial(self, damping: Damping) -> Trial:
        """Solve, push, update, chi2."""
        return self._noted(self._solver.trial(damping))

    def move(self) -> Trial:
        """Push, update, chi2."""
        return self._noted(self._solver.move())

    def _noted(self, result: Trial) -> Trial:
        for name, seconds in result.seconds.items():
            self._seconds[name] += seconds
        self.depth += result.solved
        return result

    def largest_diagonal(self) -> float:
        """Largest absolute entry of H's diagonal."""
        return self._solver.largest_diagonal()

    def largest_gradient(self) -> float:
        """Largest absolute entry of b."""
        return self._solver.largest_gradient()

    def external(self, places: ExternalPlaces) -> ExternalPart:
        """For edges that are evaluated elsewhere."""
        return self._solver.external(places)

    def multiply(self, vector: np.ndarray) -> np.ndarray:
        """H times a vector."""
        start = time.perf_counter()
        product = self._solver.multiply(vector)
        self._add("solve", start)
        return product

    def update(self) -> None:
        """Take dx."""
        start = time.perf_counter()
        self._solver.update()
        self._add("update", start)

    def push(self) -> None:
        """Remember the estimates."""
        self.depth += 1
        self._solver.push()

    def pop(self) -> None:
        """Return to the last push."""
        self.depth -= 1
        self._solver.pop()

    def discard_top(self) -> None:
        """Forget the last push."""
        self.depth -= 1
        self._solver.discard_top()

    def chi2_by_vertex(self, group: EdgeGroup, slot: int) -> np.ndarray | None:
        """chi2 by the vertices of a slot."""
        return self._solver.chi2_by_vertex(group, slot)

    def take(self, number: int, rows: np.ndarray) -> None:
        """Take the graph's estimates of some rows."""
        self._solver.take(number, rows)

    def first_non_finite(self) -> str | None:
        """Name the first bad edge."""
        return self._solver.first_non_finite()

    def refresh(self) -> None:
        """Take the graph's present numbers."""
        self._solver.refresh()

    def finish(self) -> None:
        """Bring the estimates back."""
        self._solver.finish()

    def in_double(self) -> BlockSolver | None:
        """The double solver of the one inside."""
        return self._solver.in_double()

    def exchange(self, solver: BlockSolver) -> None:
        """Go on with another solver of the same problem, at the same estimates."""
        assert self.depth == 0, "between two iterations only"
        self._solver = solver

    def describe(self) -> dict[str, object]:
        """Words about the solver."""
        return self._solver.describe()
