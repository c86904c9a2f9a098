"""What a rank has, and what it does in conjugate gradients between one message to the others and the next.

    linearize    chi2, b, H's diagonal              -> their parts of shared rows
    reduce       eliminate with a damping          -> parts of b_s and of the diagonal blocks of S
    start        r, J = inv(blocks); s = J r       -> S_r s of shared rows, and the parts of r's and s'w
    advance      w = A s; d, q, x, r; s = J r      -> the same
    solution     x of the shared rows that this rank owns: the copies of all get these bits
    substitute   the landmarks' part of the step

The rank that owns a row has b and the damping of all ranks there, the others 0.

A message has the shared rows (`interface`), then `TAIL` numbers: r's and s'w, each a sum and what float32 has
lost of it, and how many ranks met a block that is not definite. Vectors are those of the rank's own kept
vertices: rows that several ranks have hold the same numbers on all of them.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from graphopt.distributed.interface import Interface
from graphopt.problem.structure import Structure
from graphopt.solver.trial import Damping, Trial

TAIL = 5


class Iterating(Protocol):
    """See the module's header. Messages are float64."""

    def linearize(self) -> np.ndarray:
        """At the estimates; (2 shared rows + 1,): the parts of b and of H's diagonal, and chi2."""
        ...

    def linearized(self, total: np.ndarray) -> None:
        """Take the sum of what `linearize` gave."""
        ...

    def kept(self, name: str) -> np.ndarray:
        """(kept_dim,) "b", where this rank owns it, or H's "diagonal", of all ranks in its own kept rows."""
        ...

    def largest(self, name: str) -> float:
        """Largest absolute entry of that, and of the rank's eliminated vertices."""
        ...

    def reduce(self, damping: Damping | np.ndarray) -> np.ndarray:
        """Eliminate; (shared rows + shared numbers of blocks + 1,), the last one: 1 where that failed.

        damping: a rule, or of the rank's own rows (kept_dim + own_dim,).
        """
        ...

    def start(self, total: np.ndarray) -> np.ndarray:
        """Take the sum of what `reduce` gave."""
        ...

    def advance(self, total: np.ndarray, alpha: float, beta: float) -> np.ndarray:
        """Take the sum of the last message."""
        ...

    def solution(self) -> np.ndarray:
        """(shared rows,)."""
        ...

    def substitute(self, total: np.ndarray) -> None:
        """Take the sum of what `solution` gave; the whole step is in `part.solver.dx` then."""
        ...

    def substitute_and_move(self, total: np.ndarray) -> Trial:
        """The same, then push, update and chi2; `gain` is this rank's part of it."""
        ...


class Part(Protocol):
    """What a rank contributes."""

    kept_blocks: np.ndarray
    """(k,) int64, ascending: the kept vertices that the rank has, among those of all."""
    kept_scalars: np.ndarray
    """(kept_dim,) int64: their scalars, among those of all."""
    own_dim: int
    """Scalars of the rank's eliminated vertices."""
    structure: Structure | None
    """Of the rank's own edges; None without any."""
    solver: Any
    """A `BlockSolver` that has the rank's estimates and moves them; None for a rank without edges."""

    def iterating(self, shared: Interface, dims: np.ndarray, of_h: bool) -> Iterating:
        """Its side of the conjugate gradients. dims: of its kept blocks. of_h: block-Jacobi of H_pp."""
        ...

    def in_double(self) -> Part | None:
        """The same edges and estimates in float64; itself, where it computes so; None: it cannot."""
        ...


class HostPart(Part, Protocol):
    """A part whose eliminated vertices the CPU eliminates."""

    b: np.ndarray
    """(kept_dim + own_dim,) what `reduce` takes: b_r after `linearize`, the kept part may be changed."""

    def linearize(self) -> tuple[float, np.ndarray, np.ndarray]:
        """chi2_r, and b_r and diag(H_r) of the kept vertices, each (kept_dim,)."""
        ...

    def reduce(self, damping: np.ndarray) -> bool:
        """Eliminate with this damping (kept_dim + own_dim,); False: a block is not positive definite."""
        ...

    def reduced_b(self) -> np.ndarray:
        """(kept_dim,) after `reduce`."""
        ...

    def product(self, x: np.ndarray) -> np.ndarray:
        """S_r x (kept_dim,)."""
        ...

    def diagonal_blocks(self, of_h: bool = False) -> np.ndarray:
        """The diagonal blocks of S_r, or of H_pp,r, without damping, column-major, one after the other."""
        ...

    def back_substitute(self, x_kept: np.ndarray) -> np.ndarray:
        """(kept_dim + own_dim,) the step, from that of the kept vertices."""
        ...
