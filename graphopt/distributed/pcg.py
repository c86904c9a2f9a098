"""Conjugate gradients on the reduced system, which no rank ever has.

    S x = b_s,   S p = D_p p + sum_r S_r p

Every rank holds the vectors of the kept vertices whole. So one sum of a pose-sized vector per iteration, that
of the product, is all that the ranks say to each other: with S p in hand each rank computes the two scalar
products of the iteration by itself, in the same bits. That saves the second all-reduce, of a few scalars,
which Chronopoulos-Gear and pipelined variants (Ghysels and Vanroose 2014) merge or hide. D_p p is computed
while the sum is under way.

Preconditioner: block Jacobi, of S or ("hpp") of H_pp + D_p; or additive Schwarz, see `schwarz`. Stop rule as
in `solver.linear.pcg`: r' inv(M) r <= tolerance * b' inv(M) b.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from graphopt.distributed.communicator import Communicator
from graphopt.distributed.part import Part
from graphopt.optimizer.vectors import dot
from graphopt.solver.linear_systems import PCG_TOLERANCE
from graphopt.solver.registry import SolverOptions


class Preconditioner(Protocol):
    """An approximate inverse of S."""

    def prepare(self, formed: bool, damping: np.ndarray) -> np.ndarray | None:
        """Take new numbers, after each elimination; returns b_s of all ranks, None: not definite.

        What the ranks have to sum for it goes with b_s, in one sum.
        """
        ...

    def apply(self, residual: np.ndarray) -> np.ndarray:
        """inv(M) r."""
        ...


class BlockJacobi:
    """The diagonal blocks of S, or of H_pp + D_p, inverted on every rank."""

    def __init__(self, comm: Communicator, part: Part, dims: np.ndarray, of_h: bool = False):
        self._comm, self._part, self._of_h = comm, part, of_h
        self._dims = dims.astype(np.int64)
        self._dim = int(dims.sum())
        squares = self._dims**2
        first = np.concatenate([[0], np.cumsum(squares)])
        self._size = int(first[-1])
        mine = squares[part.kept_blocks]
        within = np.arange(mine.sum()) - np.repeat(np.cumsum(mine) - mine, mine)
        self._places = np.repeat(first[:-1][part.kept_blocks], mine) + within
        offsets = np.concatenate([[0], np.cumsum(self._dims)])[:-1]
        self._kinds = []
        """Per size of blocks: places of their scalars in a vector (n, d), and of their numbers (n, d, d)."""
        for size in np.unique(self._dims).tolist():
            blocks = np.flatnonzero(self._dims == size)
            numbers = first[blocks][:, None] + np.arange(size * size)
            self._kinds.append((offsets[blocks][:, None] + np.arange(size), numbers.reshape(-1, size, size)))
        self._inverses: list[np.ndarray] = []

    def prepare(self, formed: bool, damping: np.ndarray) -> np.ndarray | None:
        """Sum the blocks and b_s, and invert."""
        part, first = self._part, 1 + self._dim
        packed = np.zeros(first + self._size)
        packed[0] = not formed
        if formed:
            packed[1 + part.kept_scalars] = part.reduced_b()
            packed[first + self._places] = part.diagonal_blocks(self._of_h)
        total = self._comm.sum(packed)
        if total[0]:
            return None
        self._inverses = []
        for scalars, numbers in self._kinds:
            blocks = total[first:][numbers]
            diagonal = np.arange(blocks.shape[1])
            blocks[:, diagonal, diagonal] += damping[scalars]
            inverse = _inverted(blocks)
            if inverse is None:
                return None
            self._inverses.append(inverse)
        return total[1:first]

    def apply(self, residual: np.ndarray) -> np.ndarray:
        """Each block by itself."""
        result = np.empty_like(residual)
        for (scalars, _), inverse in zip(self._kinds, self._inverses, strict=True):
            result[scalars] = np.einsum("nij,nj->ni", inverse, residual[scalars])
        return result


def _inverted(blocks: np.ndarray) -> np.ndarray | None:
    """(n, d, d) inverses; None where a block is not finite or zero.

    Subtraction may leave a block of S indefinite: then |eigenvalues| are what is inverted, and the iteration
    finds out itself whether S is definite.
    """
    if not np.isfinite(blocks).all():
        return None
    try:
        np.linalg.cholesky(blocks)
        return np.linalg.inv(blocks)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(blocks)
        largest = np.abs(values).max(axis=1, keepdims=True)
        if not (largest > 0.0).all():
            return None
        values = np.maximum(np.abs(values), np.finfo(float).eps * largest)
        return np.einsum("nij,nj,nkj->nik", vectors, 1.0 / values, vectors)


class ConjugateGradients:
    """Solves the reduced system; see the module's header."""

    linear_solver = "pcg"

    def __init__(
        self,
        comm: Communicator,
        part: Part,
        dims: np.ndarray,
        preconditioner: Preconditioner,
        options: SolverOptions,
    ):
        self._comm, self._part = comm, part
        self.dim = int(dims.sum())
        self.preconditioner = preconditioner
        self._tolerance = options.pcg_tolerance or PCG_TOLERANCE
        self._most = options.pcg_iterations or max(self.dim, 1)
        self.iterations = 0
        """Products of all solves so far."""
        self._sent = np.zeros(self.dim)

    def solve(self, formed: bool, damping: np.ndarray, accuracy: float = 0.0) -> np.ndarray | None:
        """x_p; accuracy: share of the residual's norm that may be left, if more than the tolerance."""
        residual = self.preconditioner.prepare(formed, damping)
        if residual is None:
            return None
        x = np.zeros(self.dim)
        z = self.preconditioner.apply(residual)
        rho = dot(residual, z)
        bound = max(self._tolerance, accuracy**2) * rho
        direction = z
        for number in range(self._most):
            if not rho > bound:
                break
            product = self.product(direction, damping)
            curvature = dot(direction, product)
            if not curvature > 0.0:  # not definite, or not finite
                return x if number else None
            step = rho / curvature
            x += step * direction
            residual = residual - step * product
            z = self.preconditioner.apply(residual)
            rho, before = dot(residual, z), rho
            direction = z + (rho / before) * direction
        return x if np.isfinite(rho) else None

    def product(self, x: np.ndarray, damping: np.ndarray) -> np.ndarray:
        """S x: this rank's part of it, one sum, and the damping meanwhile."""
        part = self._part
        self._sent.fill(0.0)
        self._sent[part.kept_scalars] = part.product(np.ascontiguousarray(x[part.kept_scalars]))
        pending = self._comm.begin_sum(self._sent)
        damped = damping * x
        self.iterations += 1
        return pending.wait() + damped

    @property
    def memory_bytes(self) -> int:
        """Some vectors."""
        return 8 * 8 * self.dim
