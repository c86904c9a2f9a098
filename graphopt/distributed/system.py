"""The reduced system of all ranks, factorized.

    (D_p + sum_r S_r) x_p = sum_r b_s,r

The pattern of S is the union of the ranks' patterns. One sum of its numbers, then one rank's GPU factorizes,
or every rank's CPU the same matrix with the same bits (`factor`). Where S is not small beside the edges,
`pcg` solves for it without forming the sum.
"""

from __future__ import annotations

import numpy as np

from graphopt.distributed.communicator import Communicator
from graphopt.distributed.factor import CpuFactor, SpokenFactor, device_factor
from graphopt.distributed.part import HostPart
from graphopt.linear import BlockPattern
from graphopt.linear.options import SolverOptions
from graphopt.linear.systems import solver_for
from graphopt.linear.table import factorizes


class UnionPattern:
    """The blocks that some rank's S_r has, and where this rank's numbers stand among them."""

    def __init__(self, comm: Communicator, part: HostPart, dims: np.ndarray):
        count = len(dims)
        col_ptr, row_idx = part.reduced_pattern()
        columns = part.kept_blocks[np.repeat(np.arange(len(col_ptr) - 1), np.diff(col_ptr))]
        rows = part.kept_blocks[np.asarray(row_idx, np.int64)]
        keys = columns * count + rows
        every = np.unique(np.concatenate(comm.share(keys)))
        self.keys = every
        """(blocks of S,) int64, ascending: column * number of kept vertices + row."""
        self.own = keys
        """(blocks of S_r,) the same of this rank's, in the order of its values."""
        self.pattern = BlockPattern(
            dims.astype(np.int32),
            np.searchsorted(every, np.arange(count + 1) * count),
            (every % max(count, 1)).astype(np.int32),
        )
        sizes = dims[columns].astype(np.int64) * dims[rows]
        self.sizes = sizes
        """(blocks of S_r,) numbers of each."""
        first = np.asarray(self.pattern.value_offsets)[np.searchsorted(every, keys)]
        within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        self.places = np.repeat(first, sizes) + within
        """(values of S_r,) int64: where each number goes among those of S."""


class FactorizedSystem:
    """Sums S over the ranks and factorizes it."""

    def __init__(self, comm: Communicator, part: HostPart, dims: np.ndarray, options: SolverOptions):
        self._comm, self._part = comm, part
        self._dim = int(dims.sum())
        self._union = UnionPattern(comm, part, dims)
        self.linear_solver, solver = solver_for(self._union.pattern, options)
        is_chosen, found = options.linear_solver == "auto", None
        if factorizes(self.linear_solver):
            found = device_factor(comm, part, self._union.pattern, self.linear_solver, is_chosen)
        self._factor: CpuFactor | SpokenFactor = found or CpuFactor(solver)

    @property
    def place(self) -> str:
        """Where it is factorized: "cpu" or "device"."""
        return self._factor.place

    def solve(self, formed: bool, damping: np.ndarray) -> np.ndarray | None:
        """x_p (kept_dim,), the same on all ranks; None: not positive definite, on some rank.

        formed: this rank's elimination succeeded. damping: D_p (kept_dim,). One sum, then the factorization.
        """
        part, first = self._part, 1 + self._dim
        packed = np.zeros(first + self._union.pattern.values_size)
        packed[0] = not formed
        if formed:
            packed[1 + part.kept_scalars] = part.reduced_b()
            packed[first + self._union.places] = part.reduced_values()
        total = self._comm.sum(packed)
        return None if total[0] else self._factor.solve(total[first:], damping, total[1:first])

    @property
    def memory_bytes(self) -> int:
        """Sums, places and factor."""
        values = 8 * self._union.pattern.values_size
        return 2 * values + self._union.places.nbytes + self._factor.memory_bytes
