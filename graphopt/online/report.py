"""What an update of an `Online` did."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class OnlineReport:
    """Result of `Online.update` and `Online.batch`. Times in seconds."""

    chi2: float
    """Robustified chi2 of all edges and priors by their quadratic models; `Online.chi2` evaluates them."""
    remaining: float
    """By how much chi2 is expected to be above the batch answer."""
    converged: bool
    """`remaining` is below the tolerance. False if the budget or the iterations ended first."""
    iterations: int
    """Steps taken."""
    moved: int
    """Vertices that moved, counted once per step."""
    evaluated: int
    """Edges that were evaluated for chi2 and its gradient."""
    eliminated_vertices: int
    """Vertices whose elimination was redone."""
    eliminated_cliques: int
    """Cliques that they make up."""
    refreshed_cliques: int
    """Cliques that were factorized again because H of their edges had changed."""
    visited_cliques: int
    """Cliques that back-substitution went through."""
    vertices: int
    """Vertices in all."""
    free_vertices: int
    """Those that are not fixed."""
    edges: int
    """Edges in all, priors included."""
    seconds: float
    """Of the whole update, in native code."""
    eliminate_seconds: float
    """Ordering, linearizing and factorizing."""
    solve_seconds: float
    """Substitutions."""
    evaluate_seconds: float
    """Moving vertices and evaluating their edges."""
    handles: tuple[np.ndarray, ...] = ()
    """Per entry of `edges` its (m,) int64 handles, for `remove`, `replace` and `switch_off`."""
    outliers: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    """(n,) int64 handles of closures that were taken for outliers in this update."""
    restored: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    """(n,) int64 handles of closures that had been outliers and count again."""
    marginalized: tuple[int, ...] = ()
    """Ids of vertices that the lag marginalized."""

    @staticmethod
    def of(
        numbers: dict[str, Any], handles: tuple[np.ndarray, ...], marginalized: tuple[int, ...]
    ) -> OnlineReport:
        """A report of what a session tells, without the time that a frozen class takes for each field."""
        report = object.__new__(OnlineReport)
        report.__dict__.update(numbers, handles=handles, marginalized=marginalized)
        return report

    def brief(self) -> str:
        """One line."""
        state = "converged" if self.converged else f"{self.remaining:.3g} left"
        return (
            f"chi2 {self.chi2:.6g}, {state}, {self.iterations} steps, {self.moved} moved, "
            f"{self.eliminated_vertices} eliminated, {1e3 * self.seconds:.2f} ms"
        )


class Snapshot:
    """A state of an `Online` to which `restore` returns. What changed since is kept as long as this lives."""

    def __init__(self, session: Any, number: int, ages: dict[int, int] | None, reviews: tuple[int, int]):
        self._session = session
        self._number = number
        self._ages = ages
        self._reviews = reviews

    def __del__(self) -> None:
        session = getattr(self, "_session", None)
        if session is not None:
            session.forget(self._number)
