"""One rank's own edges, and what the whole is made of.

    H = sum_r H_r,   b = sum_r b_r,   chi2 = sum_r chi2_r
    S = D_p + sum_r S_r,   S_r = H_pp,r - H_pl,r inv(H_ll + D_l) H_lp,r        b_s likewise

Eliminated vertices belong to one rank, so H_ll is block diagonal over ranks and back-substitution is local.
Without elimination S_r is H_r. A rank's vectors are [kept vertices it has | its eliminated ones];
`kept_scalars` says where the first stand among the kept scalars of all.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from graphopt.device import is_driven
from graphopt.distributed.interface import Interface
from graphopt.distributed.iterating import HostIterating
from graphopt.distributed.protocol import Iterating, Part
from graphopt.distributed.scattering import Share
from graphopt.graph.residuals import robust_chi2
from graphopt.linear import SchurComplement
from graphopt.linear.options import SolverOptions
from graphopt.problem.segments import runs, within
from graphopt.problem.structure import Structure
from graphopt.solver.create import create_block_solver


def diagonal_places(dims: np.ndarray) -> np.ndarray:
    """(n,) int64: places of the diagonal entries of blocks that stand one after the other."""
    sizes = dims.astype(np.int64)
    place = runs(np.zeros_like(sizes), sizes)
    return np.repeat(np.cumsum(sizes**2) - sizes**2, sizes) + place * (np.repeat(sizes, sizes) + 1)


class NoPart:
    """A rank without anything to optimize."""

    structure: Structure | None = None
    solver: Any = None
    own_dim = 0
    b = np.empty(0)

    def __init__(self, share: Share):
        self.kept_blocks = self.kept_scalars = np.empty(0, np.int64)
        self._share = share
        self.refresh()

    def refresh(self) -> None:
        """Take the share's present numbers."""
        graph, parts = self._share.graph, self._share.select().edges
        self._chi2 = sum((float(robust_chi2(graph, part.edge_set, part.rows).sum()) for part in parts), 0.0)

    def linearize(self) -> tuple[float, np.ndarray, np.ndarray]:
        """What edges between fixed vertices cost."""
        return self._chi2, np.empty(0), np.empty(0)

    def reduce(self, damping: np.ndarray) -> bool:
        """Nothing to do."""
        return True

    def reduced_b(self) -> np.ndarray:
        """Nothing."""
        return np.empty(0)

    def product(self, x: np.ndarray) -> np.ndarray:
        """Nothing."""
        return np.empty(0)

    def diagonal_blocks(self, of_h: bool = False) -> np.ndarray:
        """None."""
        return np.empty(0)

    def back_substitute(self, x_kept: np.ndarray) -> np.ndarray:
        """Nothing."""
        return np.empty(0)

    def iterating(self, shared: Interface, dims: np.ndarray, of_h: bool) -> Iterating:
        """On the CPU."""
        return HostIterating(self, shared, dims, of_h)

    def in_double(self) -> Part | None:
        """Itself."""
        return self


class RankPart:
    """Where a rank's vertices are among those of all."""

    def __init__(self, share: Share, structure: Structure):
        self.structure: Structure | None = structure
        self._structure = structure
        self.kept_blocks = np.searchsorted(share.kept_ids, structure.ids[: structure.num_kept])
        self.kept_scalars = within(share.kept_dims, self.kept_blocks)
        self.kept_dim = structure.kept_dim
        self.own_dim = structure.dim - self.kept_dim


class SolverPart(RankPart):
    """A rank's edges on its device, which computes chi2, H and b and moves estimates; the CPU eliminates."""

    def __init__(self, share: Share, structure: Structure, options: SolverOptions):
        super().__init__(share, structure)
        # the rank's block solver does not solve anything by itself: conjugate gradients need no set-up
        own = replace(options, linear_solver="pcg", schur="off", preconditioner="schur_jacobi")
        if is_driven(own.device):
            own = replace(own, schedule="blocks" if own.schedule == "auto" else own.schedule)
        self.solver: Any = create_block_solver(share.graph, structure, own)
        self._values = np.empty(0)
        self._schur: Any = SchurComplement(
            structure.pattern,
            structure.num_kept,
            mode="explicit" if options.schur == "explicit" else "implicit",
        )
        self._damping = np.zeros(structure.dim)

    def linearize(self) -> tuple[float, np.ndarray, np.ndarray]:
        """chi2, b and H's diagonal."""
        chi2 = self.solver.linearize()
        self._values = np.ascontiguousarray(self.solver.values, np.float64)
        self.b = np.array(self.solver.b, np.float64)
        return chi2, self.b[: self.kept_dim], np.asarray(self.solver.diagonal)[: self.kept_dim]

    def reduce(self, damping: np.ndarray) -> bool:
        """Eliminate."""
        self._damping[:] = damping
        return self._schur.form(self._values, self._damping, self.b)

    def reduced_b(self) -> np.ndarray:
        """Right-hand side of the reduced system."""
        return self._schur.reduced_b

    def product(self, x: np.ndarray) -> np.ndarray:
        """S_r x."""
        return self._schur.multiply(x)

    def diagonal_blocks(self, of_h: bool = False) -> np.ndarray:
        """Diagonal blocks of S_r or H_pp,r."""
        if of_h:
            return self._values[self._h_places]
        blocks = np.array(self._schur.diagonal_blocks())
        blocks[self._diagonal_places] -= self._damping[: self.kept_dim]
        return blocks

    @cached_property
    def _diagonal_places(self) -> np.ndarray:
        """Where the diagonal entries of the kept diagonal blocks are, of these one after the other."""
        return diagonal_places(self._structure.dims[: self._structure.num_kept])

    @cached_property
    def _h_places(self) -> np.ndarray:
        """Where the numbers of the kept diagonal blocks of H are."""
        structure = self._structure
        blocks = structure.pattern.col_ptr[1 : structure.num_kept + 1] - 1
        sizes = structure.dims[: structure.num_kept].astype(np.int64) ** 2
        return runs(structure.pattern.value_offsets[blocks], sizes)

    def back_substitute(self, x_kept: np.ndarray) -> np.ndarray:
        """The whole step."""
        return self._schur.back_substitute(x_kept)

    def iterating(self, shared: Interface, dims: np.ndarray, of_h: bool) -> Iterating:
        """On the CPU."""
        return HostIterating(self, shared, dims, of_h)

    def in_double(self) -> Part | None:
        """Itself."""
        return self
