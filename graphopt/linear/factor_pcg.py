"""Conjugate gradients whose preconditioner is a Cholesky factor: of older numbers, or of some of the blocks.

    A x = b,  A = H + D    "factor"    M = an A of before: of another damping or another linearization
                           "clusters"  M = the blocks of A between vertices of one cluster, as they are now

A factor of before costs nothing, and an iteration two triangular solves and a product: near the end of an
optimization, where H hardly changes, a few iterations replace a factorization. Where they would take longer
than half of one, A itself is factored, and is the preconditioner from then on. What takes how long is
counted (operations of a factorization, numbers that an iteration reads), not measured: equal input gives
equal bits.

Clusters are METIS' parts of the graph of blocks, of about `CLUSTER_ROWS` rows each, with few blocks between
them. As diagonal blocks of a positive definite matrix they are positive definite. They are for matrices whose
own factor is too large.

`PreconditionedSolve` is the recurrence; it knows the matrix and the preconditioner as two functions.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from graphopt.cpu_kernels import kernels
from graphopt.errors import SolverError
from graphopt.linear.cholesky import SparseCholesky
from graphopt.option_names import FactorPreconditioner
from graphopt.problem.pattern import BlockPattern

CLUSTER_ROWS = 600
_FLOPS_PER_BYTE = 2.0
"""Operations that a factorization does while an iteration reads a byte: 16 GFLOP/s and 8 GB/s of a core."""
_LONGEST_PAUSE = 7
_PATIENCE = 3
"""Iterations after which it is thought about how many are to come."""


def iterations_worth_a_factorization(flops: float, num_nonzeros: float, values_size: float) -> int:
    """So many iterations take half as long as a factorization; at least 1.

    flops: of the factorization. num_nonzeros: scalars of L. values_size: of the matrix.
    """
    nbytes = 8.0 * (2.0 * num_nonzeros + values_size)
    return max(1, int(0.5 * flops / (_FLOPS_PER_BYTE * nbytes)))


def clusters_of(pattern: BlockPattern, rows: int = CLUSTER_ROWS) -> np.ndarray:
    """(num_blocks,) number of each block's cluster, of about so many rows."""
    col = np.repeat(np.arange(pattern.num_blocks), np.diff(pattern.col_ptr))
    off = pattern.row_idx != col
    ends = np.stack([pattern.row_idx[off], col[off]], axis=1)
    owner, neighbor = np.concatenate([ends, ends[:, ::-1]]).T
    order = np.lexsort((neighbor, owner))
    begin = np.searchsorted(owner[order], np.arange(pattern.num_blocks + 1))
    weight = pattern.dims[owner[order]] * pattern.dims[neighbor[order]]
    arrays = (begin, neighbor[order], pattern.dims, weight)
    count = max(1, -(-pattern.dim // rows))
    return kernels.partition_graph(*(np.asarray(array, np.int32) for array in arrays), count)


def within_clusters(pattern: BlockPattern, cluster: np.ndarray) -> tuple[BlockPattern, np.ndarray]:
    """The pattern of the blocks between vertices of one cluster, and where their scalars are in `values`."""
    col = np.repeat(np.arange(pattern.num_blocks), np.diff(pattern.col_ptr))
    kept = cluster[pattern.row_idx] == cluster[col]
    col_ptr = np.concatenate([[0], np.cumsum(np.bincount(col[kept], minlength=pattern.num_blocks))])
    places = np.flatnonzero(np.repeat(kept, np.diff(pattern.value_offsets)))
    return BlockPattern(pattern.dims, col_ptr, pattern.row_idx[kept]), places


class PreconditionedSolve:
    """One run of conjugate gradients from x = 0, with r' inv(M) r <= tolerance (b' inv(M) b) as its end."""

    def __init__(self, multiply: Callable, precondition: Callable, b: np.ndarray, tolerance: float):
        self._multiply, self._precondition = multiply, precondition
        self.x, self._r = np.zeros_like(b), b.copy()
        self._d = precondition(b)
        self.residual = _dot(b, self._d)
        self.bound = tolerance * self.residual
        self._start = self.residual
        self.iterations = 0
        self.is_definite = True

    @property
    def converged(self) -> bool:
        """Whether the end is reached."""
        return bool(self.residual <= self.bound)

    def expected_iterations(self) -> float:
        """In all, at the rate so far; infinite where the residual does not fall."""
        if self.converged:
            return self.iterations
        fall = np.log(self.residual / self._start)
        return self.iterations * np.log(self.bound / self._start) / fall if fall < 0.0 else np.inf

    def iterate(self) -> None:
        """One iteration; `is_definite` falls where the curvature is not positive."""
        q = self._multiply(self._d)
        curvature = _dot(self._d, q)
        if not (curvature > 0.0 and np.isfinite(curvature)):
            self.is_definite = False
            return
        alpha = self.residual / curvature
        self.x += alpha * self._d
        self._r -= alpha * q
        s = self._precondition(self._r)
        after = _dot(self._r, s)
        self._d *= after / self.residual
        self._d += s
        self.residual = after
        self.iterations += 1


class FactorPcg:
    """Solves on a pattern, with the interface of `Pcg`; see the module's header for the kinds.

    tolerance, max_iterations: of a solve; None: as many iterations as there are rows. Attributes after a
    solve: `iterations` (0 where A was factored for it), `residual`, `converged`; `num_factorizations` in all.
    """

    def __init__(
        self,
        pattern: BlockPattern,
        tolerance: float = 1e-12,
        max_iterations: int | None = None,
        kind: FactorPreconditioner = "factor",
    ):
        self._pattern, self._tolerance = pattern, tolerance
        self._most = pattern.dim if max_iterations is None else max_iterations
        self._product = kernels.SymmetricProduct(pattern)
        self._places: np.ndarray | None = None
        own = pattern
        if kind == "clusters":
            own, self._places = within_clusters(pattern, clusters_of(pattern))
        self._factor = SparseCholesky(own)
        size = self._factor.num_nonzeros
        self._worth = iterations_worth_a_factorization(self._factor.flops, size, pattern.values_size)
        self._values, self._damping = np.empty(0), np.zeros(pattern.dim)
        self._has_factor = self._is_exact = False
        self._pause = self._paused = 0  # solves without trying the factor of before, after one in vain
        self._share = 0.0
        self.iterations = self.num_factorizations = 0
        self.residual, self.converged = 0.0, False

    @property
    def failed_block(self) -> int | None:
        """Block whose pivot failed in the last factorization."""
        return self._factor.failed_block

    @property
    def memory_bytes(self) -> int:
        """Of the factor and the vectors."""
        return self._factor.memory_bytes + 6 * 8 * self._pattern.dim

    @property
    def flops(self) -> float:
        """Operations of a factorization."""
        return float(self._factor.flops)

    def reset(self) -> None:
        """At the start of an optimization: forget the factor of the one before, which may be far away."""
        self._has_factor = False
        self._pause = self._paused = 0

    def set_early_stop(self, share: float, worth: float) -> None:
        """Solves to come may end at `share` in place of the tolerance; `worth`: of `Pcg` only."""
        self._share = share

    def factorize(self, values: np.ndarray, damping: np.ndarray | None = None) -> bool:
        """Take new numbers, which are referred to; False: factored, and not positive definite."""
        self._values = values
        self._damping[:] = 0.0 if damping is None else damping
        self._is_exact = False
        if self._places is not None:
            return self._take(values[self._places])
        if self._has_factor and self._paused == 0:
            return True
        self._paused = max(0, self._paused - 1)
        return self._take(values)

    def _take(self, values: np.ndarray) -> bool:
        self._has_factor = self._factor.factorize(values, self._damping)
        self._is_exact = self._has_factor and self._places is None
        self.num_factorizations += 1
        return self._has_factor

    def solve(self, b: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """x (dim,); `out` may be b."""
        if not self._has_factor:
            raise SolverError("solve: call factorize() first and check that it returns True.")
        x = self._solved(b)
        if out is None:
            return x
        out[:] = x
        return out

    def _solved(self, b: np.ndarray) -> np.ndarray:
        if self._is_exact:
            return self._direct(b)
        run = PreconditionedSolve(self._multiply, self._factor.solve, b, max(self._tolerance, self._share))
        is_older = self._places is None
        while run.is_definite and not run.converged and run.iterations < self._most:
            if is_older and run.iterations >= _PATIENCE and run.expected_iterations() > self._worth:
                break
            run.iterate()
        if not run.converged and is_older and run.iterations < self._most:
            self._pause = self._paused = min(2 * self._pause + 1, _LONGEST_PAUSE)
            if self._take(self._values):
                return self._direct(b)
        elif is_older:
            self._pause = 0
        # Not positive definite: the direction of before is as good as any, as with Pcg.
        self._has_factor = self._has_factor and run.is_definite
        self.iterations, self.residual, self.converged = run.iterations, run.residual, run.converged
        return run.x

    def _direct(self, b: np.ndarray) -> np.ndarray:
        self.iterations, self.residual, self.converged = 0, 0.0, True
        return self._factor.solve(b)

    def _multiply(self, x: np.ndarray) -> np.ndarray:
        return self._product.multiply(self._values, x) + self._damping * x


def _dot(a: np.ndarray, b: np.ndarray) -> float:
    """In an order of its own, whatever library numpy has."""
    return float(np.add.reduce(a * b))
