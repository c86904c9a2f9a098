"""What a block solver around another one passes on."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphopt.problem.structure import Structure
from graphopt.solver.capabilities import Capabilities
from graphopt.solver.external import ExternalPart, ExternalPlaces
from graphopt.solver.trial import Damping, DefaultTrial, Trial


class SolverAround(DefaultTrial):
    """Implements `BlockSolver` by another one; subclasses change what they are for."""

    capabilities = Capabilities()
    """None of the other solver's: they would leave out what the subclass adds."""

    def __init__(self, inner: Any):
        self._inner = inner
        self.structure: Structure = inner.structure
        self.dim: int = inner.dim

    @property
    def precision(self) -> str:
        """That of the other solver."""
        return self._inner.precision

    @property
    def b(self) -> np.ndarray:
        """(dim,) right-hand side."""
        return self._inner.b

    @property
    def dx(self) -> np.ndarray:
        """(dim,) step."""
        return self._inner.dx

    @dx.setter
    def dx(self, step: np.ndarray) -> None:
        self._inner.dx = step

    @property
    def diagonal(self) -> np.ndarray:
        """(dim,) diagonal of H."""
        return self._inner.diagonal

    def linearize(self) -> float:
        """H, b and robust chi2."""
        return self._inner.linearize()

    def chi2(self) -> float:
        """Robust chi2."""
        return self._inner.chi2()

    def solve(self, damping: float | np.ndarray) -> bool:
        """(H + D) dx = b."""
        return self._inner.solve(damping)

    def trial(self, damping: Damping) -> Trial:
        """Solve, push, update and chi2."""
        return self._inner.trial(damping)

    def move(self) -> Trial:
        """Push, update by dx, and chi2 there."""
        return self._inner.move()

    def update(self) -> None:
        """Move all vertices."""
        self._inner.update()

    def multiply(self, vector: np.ndarray) -> np.ndarray:
        """H times a vector."""
        return self._inner.multiply(vector)

    def external(self, places: ExternalPlaces) -> ExternalPart:
        """The other solver's: what is added to H and b is added to those of all edges."""
        return self._inner.external(places)

    def push(self) -> None:
        """Remember the estimates."""
        self._inner.push()

    def pop(self) -> None:
        """Return to the last push."""
        self._inner.pop()

    def discard_top(self) -> None:
        """Forget the last push."""
        self._inner.discard_top()

    def refresh(self) -> None:
        """Take the graph's present numbers."""
        self._inner.refresh()

    def finish(self) -> None:
        """Bring the estimates into the graph."""
        self._inner.finish()

    def first_non_finite(self) -> str | None:
        """Name the first edge that is not finite."""
        return self._inner.first_non_finite()

    def describe(self) -> dict[str, object]:
        """That of the other solver."""
        return self._inner.describe()
