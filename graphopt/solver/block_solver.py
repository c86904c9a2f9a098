"""The block solver: what an optimization algorithm needs from a device.

One implementation per device. H, b and the estimates live where the implementation likes; vectors that the
algorithms read are numpy arrays of length `dim`.

    linearize()      H = sum J' w Omega J,  b = -sum J' w Omega e,  chi2 = sum rho(e' Omega e)
    solve(damping)   (H + diag(damping)) dx = b
    update()         estimates <- estimates oplus dx
    trial(damping)   solve, push, update and chi2 at once: what a device does without the host
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from graphopt.problem.structure import EdgeGroup, Structure
from graphopt.solver.external import ExternalPart, ExternalPlaces
from graphopt.solver.trial import Damping, Trial


class BlockSolver(Protocol):
    """Linearises, solves and updates; see the module's header."""

    dim: int
    """Length of dx and b."""
    structure: Structure
    """What it was made for."""

    @property
    def precision(self) -> str:
        """Of the steps: "double", or "mixed" with float32 for H and its products."""
        ...

    @property
    def b(self) -> np.ndarray:
        """(dim,) right-hand side of the last `linearize`; its norm is half the norm of chi2's gradient."""
        ...

    @property
    def dx(self) -> np.ndarray:
        """(dim,) the step that `update` takes: set by `solve`, may be overwritten."""
        ...

    @dx.setter
    def dx(self, step: np.ndarray) -> None: ...

    @property
    def diagonal(self) -> np.ndarray:
        """(dim,) diagonal of H at the last `linearize`."""
        ...

    def linearize(self) -> float:
        """Compute H and b at the estimates; returns the robustified chi2."""
        ...

    def chi2(self) -> float:
        """Robustified chi2 at the estimates, without touching H and b."""
        ...

    def solve(self, damping: float | np.ndarray) -> bool:
        """Solve for dx; `damping` (a number or (dim,)) is added to H's diagonal. False: not definite."""
        ...

    def trial(self, damping: Damping) -> Trial:
        """Solve, push, update and chi2; afterwards, where it solved, `discard_top` keeps the step."""
        ...

    def move(self) -> Trial:
        """Push, update by dx, and chi2 there; `gain` and `step_size` are not computed."""
        ...

    def largest_diagonal(self) -> float:
        """Largest absolute entry of `diagonal`."""
        ...

    def largest_gradient(self) -> float:
        """Largest absolute entry of `b`."""
        ...

    def external(self, places: ExternalPlaces) -> ExternalPart:
        """For edges that are evaluated elsewhere, see `solver.external`."""
        ...

    def multiply(self, vector: np.ndarray) -> np.ndarray:
        """H times a vector (dim,), without damping."""
        ...

    def update(self) -> None:
        """Apply dx to the estimates."""
        ...

    def push(self) -> None:
        """Remember the estimates."""
        ...

    def pop(self) -> None:
        """Return to the estimates of the last `push` and forget them."""
        ...

    def discard_top(self) -> None:
        """Forget the estimates of the last `push`."""
        ...

    def chi2_by_vertex(self, group: EdgeGroup, slot: int) -> np.ndarray | None:
        """(k,) robustified chi2 of a group's edges at the estimates, by the vertices of a slot.

        In the order of `Structure.sorted_edges`. None: there is no faster way than the host's pass over the
        graph (`landmark_problem.chi2_by_vertex`), into which the estimates have been brought.
        """
        ...

    def take(self, number: int, rows: np.ndarray) -> None:
        """Take the graph's present estimates of some rows (k,) of a vertex set."""
        ...

    def first_non_finite(self) -> str | None:
        """Name the first edge whose error or Jacobian is NaN or infinite, None if all are finite."""
        ...

    def refresh(self) -> None:
        """Take the graph's present estimates, measurements, information matrices and kernel widths."""
        ...

    def finish(self) -> None:
        """Bring the estimates into the graph: at the end, before callbacks, before the graph is looked at."""
        ...

    def in_double(self) -> BlockSolver | None:
        """Of a solver in mixed precision the same in double, at the same estimates; None: there is none.

        It shares estimates and edges with this one where it can: one of the two is used at a time.
        """
        ...

    def describe(self) -> dict[str, object]:
        """`linear_solver`, `schur`, `device`, `device_name`, `precision` (words) and `memory_bytes`."""
        ...
