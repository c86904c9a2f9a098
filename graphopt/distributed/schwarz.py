"""Additive Schwarz: each rank factorizes its part of the reduced matrix, with one layer of neighbours.

    inv(M) = sum_i R_i' inv(A_i) R_i,   A_i = R_i (S + D_p) R_i'

R_i takes the kept vertices that rank i has an edge of, and the neighbours of these. The parts overlap, so
what is local (a short loop) is solved within an iteration; what goes around all parts takes as many
iterations as there are parts in a row. M is symmetric and positive definite where S is. Of one rank it is S
itself. For pose graphs S is H. Reference: Smith, Bjorstad, Gropp, Domain Decomposition, 1996, chapter 1.
"""

from __future__ import annotations

import numpy as np

from graphopt.distributed.communicator import Communicator
from graphopt.distributed.part import HostPart, scalars_of
from graphopt.distributed.system import UnionPattern
from graphopt.solver.linear import BlockPattern
from graphopt.solver.linear_systems import solver_for
from graphopt.solver.registry import SolverOptions


class AdditiveSchwarz:
    """The preconditioner of formed systems; see the module's header. Every call is collective."""

    def __init__(self, comm: Communicator, part: HostPart, dims: np.ndarray):
        self._comm, self._part = comm, part
        self._dim = int(dims.sum())
        union = UnionPattern(comm, part, dims)
        self._union = union
        every = comm.share(_with_neighbours(part.kept_blocks, union.keys, len(dims)))
        mine = every[comm.rank]
        self._scalars = scalars_of(mine, dims)
        self._sent = [
            np.flatnonzero(np.repeat(_within(union.own, ids, len(dims)), union.sizes)) for ids in every
        ]
        """Per rank: which of this rank's numbers go there."""
        keys = union.keys[_within(union.keys, mine, len(dims))]
        self._pattern = _pattern_of(keys, mine, dims)
        first = np.asarray(self._pattern.value_offsets)
        self._places = [
            _places(ids[_within(ids, mine, len(dims))], keys, first) for ids in comm.share(union.own)
        ]
        """Per rank: where the numbers that come from it go."""
        _, self._solver = solver_for(self._pattern, SolverOptions(linear_solver="cholesky"))

    def prepare(self, formed: bool, damping: np.ndarray) -> np.ndarray | None:
        """Sum b_s, hand numbers to those who need them, and factorize."""
        part = self._part
        packed = np.zeros(1 + self._dim)
        packed[0] = not formed
        if formed:
            packed[1 + part.kept_scalars] = part.reduced_b()
        total = self._comm.sum(packed)
        if total[0]:
            return None
        numbers = part.reduced_values()
        values = np.zeros(self._pattern.values_size)
        received = self._comm.exchange([numbers[rows] for rows in self._sent])
        for places, rows in zip(self._places, received, strict=True):
            values[places] += rows
        solved = not len(self._scalars) or self._solver.factorize(values, damping[self._scalars])
        if self._comm.sum(np.array([float(not solved)]))[0]:
            return None
        return total[1:]

    def apply(self, residual: np.ndarray) -> np.ndarray:
        """Each rank solves its part; one sum."""
        found = np.zeros(self._dim)
        if len(self._scalars):
            found[self._scalars] = self._solver.solve(np.ascontiguousarray(residual[self._scalars]))
        return self._comm.sum(found)


def _with_neighbours(blocks: np.ndarray, keys: np.ndarray, count: int) -> np.ndarray:
    """Some blocks, ascending, and all that share a block of the matrix with one of them."""
    columns, rows = np.divmod(keys, max(count, 1))
    inside = np.zeros(count, bool)
    inside[blocks] = True
    touched = inside[columns] | inside[rows]
    inside[columns[touched]] = inside[rows[touched]] = True
    return np.flatnonzero(inside)


def _within(keys: np.ndarray, blocks: np.ndarray, count: int) -> np.ndarray:
    """(n,) bool: both ends are among `blocks`."""
    columns, rows = np.divmod(keys, max(count, 1))
    inside = np.zeros(count, bool)
    inside[blocks] = True
    return inside[columns] & inside[rows]


def _pattern_of(keys: np.ndarray, blocks: np.ndarray, dims: np.ndarray) -> BlockPattern:
    """The pattern of some blocks (k,) of a matrix; keys: ascending, within these."""
    columns, rows = np.divmod(keys, max(len(dims), 1))
    pointers = np.searchsorted(np.searchsorted(blocks, columns), np.arange(len(blocks) + 1))
    return BlockPattern(
        dims[blocks].astype(np.int32), pointers, np.searchsorted(blocks, rows).astype(np.int32)
    )


def _places(keys: np.ndarray, all_keys: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Places of the numbers of some blocks, one after the other."""
    where = np.searchsorted(all_keys, keys)
    sizes = first[where + 1] - first[where]
    within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return np.repeat(first[where], sizes) + within
