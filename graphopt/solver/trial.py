"""A trial step: solve, move the estimates, look at chi2.

    (H + D) dx = b,   estimates <- estimates oplus dx,   chi2 there,   gain = dx' (D dx + b)

`gain` is the decrease of chi2 that the damped quadratic model predicts. A device does all of it in one
submission; `DefaultTrial` does it with the single calls of a block solver.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from graphopt.linear.vectors import dot


@dataclass(frozen=True)
class Damping:
    """D: `value` times the identity or, `scaled`, times diag(H) kept between `floor` and `ceiling`."""

    value: float
    scaled: bool = False
    floor: float = 0.0
    ceiling: float = np.inf
    accuracy: float | None = None
    """Share of the residual's norm that conjugate gradients may leave, and its square of the step's gain;
    None: as little as they are set to. Solvers may leave less."""
    worth: float = 0.0
    """Gain that conjugate gradients may leave, where there is an `accuracy`."""

    def of(self, diagonal: np.ndarray) -> float | np.ndarray:
        """D as `BlockSolver.solve` takes it; diagonal (dim,): that of H."""
        if not self.scaled:
            return self.value
        return self.value * np.clip(diagonal, self.floor, self.ceiling)


@dataclass(frozen=True)
class Trial:
    """What a trial found. Where `solved`, the estimates moved and wait for `discard_top` or `pop`."""

    solved: bool
    """False: H + D is not positive definite; nothing was moved or pushed."""
    chi2: float = np.nan
    """Robustified chi2 at the new estimates."""
    gain: float = np.nan
    """dx' (D dx + b)."""
    step_size: float = np.nan
    """Largest absolute entry of dx."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """How long "solve", "update" and "linearize" (chi2) took."""
    is_coarse: bool = False
    """Conjugate gradients were to stop at the damping's accuracy, before their own tolerance."""


class DefaultTrial:
    """The parts of `BlockSolver` that follow from its others: for solvers that have no faster way."""

    b: Any
    dx: Any
    diagonal: Any

    @property
    def precision(self) -> str:
        """Of numpy and the CPU."""
        return "double"

    def trial(self: Any, damping: Damping) -> Trial:
        """Solve, push, update and chi2, one after the other."""
        start = time.perf_counter()
        shift = damping.of(self.diagonal) if damping.scaled else damping.value
        solved = self.solve(shift)
        seconds = {"solve": time.perf_counter() - start}
        if not solved:
            return Trial(False, seconds=seconds)
        dx = self.dx
        gain = dot(dx, self.b)
        gain += dot(dx, shift * dx) if isinstance(shift, np.ndarray) else shift * dot(dx, dx)
        step_size = float(max(dx.max(), -dx.min()))
        moved = self.move()
        return Trial(True, moved.chi2, gain, step_size, {**seconds, **moved.seconds})

    def move(self: Any) -> Trial:
        """Push, update by dx, and chi2 there."""
        start = time.perf_counter()
        self.push()
        try:
            self.update()
            updated = time.perf_counter()
            chi2 = self.chi2()
        except BaseException:
            self.pop()
            raise
        seconds = {"update": updated - start, "linearize": time.perf_counter() - updated}
        return Trial(True, chi2, seconds=seconds)

    def in_double(self) -> Any:
        """None: these compute in double, or their device cannot."""
        return None

    def chi2_by_vertex(self: Any, group: Any, slot: int) -> None:
        """None: numbers of the graph are summed by the host's own pass."""
        self.finish()

    def take(self: Any, number: int, rows: np.ndarray) -> None:
        """The graph's estimates of some rows of a vertex set; here with all others."""
        self.refresh()

    def largest_diagonal(self) -> float:
        """Largest absolute entry of H's diagonal."""
        return float(np.abs(self.diagonal).max())

    def largest_gradient(self) -> float:
        """Largest absolute entry of b."""
        return float(np.abs(self.b).max())


class HostVectors(DefaultTrial):
    """b and dx in arrays of the host, which stay the same ones."""

    _b: np.ndarray
    _dx: np.ndarray

    @property
    def b(self) -> np.ndarray:
        """(dim,) right-hand side."""
        return self._b

    @property
    def dx(self) -> np.ndarray:
        """(dim,) step."""
        return self._dx

    @dx.setter
    def dx(self, step: np.ndarray) -> None:
        self._dx[:] = step
