"""Direct solvers: sparse and dense Cholesky factorisation of `H + D = L L'`.

With method "ldlt" the pivots may have both signs, `H + D = L S L'` with `S = diag(+-1)`: LDL' without
pivoting, for symmetric systems that are not positive definite, such as saddle points with a regular diagonal.
Both have one interface:

    solver.factorize(values, damping=None) -> bool
        values (values_size,) in the layout of the pattern, damping (dim,) the diagonal D or None for
        zero. False if H + D is not (numerically) positive definite, holds NaN or infinity: then
        `failed_block` is the block whose pivot failed. A pivot must exceed 2.2e-16 times its diagonal
        entry of H + D; with "ldlt" its magnitude.
    solver.solve(b, out=None) -> x
        b (dim,); `out` may be b. Several right sides: b (dim, k) gives (dim, k).
        Raises SolverError if there is no factorisation. With "ldlt" solutions are refined, since pivots that
        are small beside their rows make the factor inaccurate; `residual` is then the largest |b - (H + D) x|
        over |H + D| |x| + |b| of the last solve, and SolverError is raised where it stays above 1.5e-8.
    solver.marginals(block_pairs) -> list of arrays
        Blocks (row, col) of inv(H + D), i.e. covariances, for integer block_pairs (n, 2); one array
        (dims[row], dims[col]) each. With "ldlt" as accurate as the factor: solve for columns of the identity
        where `residual` tells of growth.

and the attributes `num_nonzeros` (scalars of L), `flops` (of one factorisation), `memory_bytes`,
`failed_block` (None after success), `num_negative` (pivots; with "ldlt" the negative eigenvalues) and
`residual` (None with "llt" and before a solve).
"""

from __future__ import annotations

import numpy as np

from graphopt.cpu_kernels import kernels
from graphopt.errors import OptionError
from graphopt.linear.memory import require
from graphopt.linear.refined import SignedSystem
from graphopt.linear.table import LinearSolver
from graphopt.problem.pattern import BlockPattern
from graphopt.switches import is_off

ORDERINGS = ("auto", "amd", "metis", "dissection", "natural")
METHODS = ("llt", "ldlt")


class _Solves:
    """Solutions of both solvers: with "ldlt" they are refined."""

    _system: SignedSystem | None = None

    def factorize(self, values: np.ndarray, damping: np.ndarray | None = None) -> bool:
        """Whether H + D has a factorisation; see the module."""
        is_good = super().factorize(values, damping)  # type: ignore[misc]
        if is_good and self._system is not None:
            self._system.take(values, damping)
        return is_good

    def solve(self, b: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """x of b; see the module."""
        correct = super().solve  # type: ignore[misc]
        if self._system is None:
            return correct(b, out)
        correct(b)  # refuses what is no right-hand side
        x = self._system.solve(correct, np.asarray(b, np.float64))
        if out is None:
            return x
        correct(x, out)  # refuses what is no place for it
        out[:] = x
        return out

    @property
    def residual(self) -> float | None:
        """Of the last solve with "ldlt"."""
        return None if self._system is None else self._system.residual


class SparseCholesky(_Solves, kernels.SparseCholesky):
    """Supernodal multifrontal Cholesky with a fill-reducing ordering of the blocks.

    Orderings: `amd` (approximate minimum degree), `metis` (nested dissection by METIS, on one core),
    `dissection` (the same by us, on all cores), `natural` (none), `auto`: AMD, where the factorisation is
    expensive enough to pay for it once more after blocks of few neighbours, and dissection as well (METIS for
    small graphs, ours for large ones, both for very expensive factorisations); the one with the fewest flops
    is kept. None depends on the number of threads. The attribute `ordering` tells which one was taken,
    `permutation` is its elimination order of the blocks, `num_supernodes` counts the dense fronts. Another
    solver as `ordering`: its order, of a pattern with as many blocks.
    """

    def __init__(
        self, pattern: BlockPattern, ordering: str | SparseCholesky = "auto", method: str = "llt"
    ) -> None:
        """Analyse the structure: ordering, elimination tree, supernodes, places of all blocks.

        Raises `SolverError` if the factor, whose size is then known, is larger than the memory there is.
        """
        if isinstance(ordering, str) and ordering not in ORDERINGS:
            raise OptionError(f"ordering is {ordering!r}, expected one of {', '.join(ORDERINGS)}.")
        if ordering == "auto" and is_off("dissection"):
            ordering = "amd"
        kernels.SparseCholesky.__init__(self, pattern, ordering, _is_signed(method))
        self._system = _system_of(pattern, method)
        require(self.required_bytes, f"The factor of {pattern.dim} rows")


class DenseCholesky(_Solves, kernels.DenseCholesky):
    """Blocked dense Cholesky; takes the same block values. For small or nearly full systems."""

    def __init__(self, pattern: BlockPattern, method: str = "llt") -> None:
        """Nothing is analysed; memory is taken at the first `factorize`."""
        kernels.DenseCholesky.__init__(self, pattern, _is_signed(method))
        self._system = _system_of(pattern, method)
        require(4 * pattern.dim * (pattern.dim + 8), f"The dense factor of {pattern.dim} rows")


def _system_of(pattern: BlockPattern, method: str) -> SignedSystem | None:
    return SignedSystem(pattern, float(np.finfo(np.float64).eps)) if method == "ldlt" else None


def _is_signed(method: str) -> bool:
    if method not in METHODS:
        raise OptionError(f"method is {method!r}, expected one of {', '.join(METHODS)}.")
    return method == "ldlt"


SPARSE = LinearSolver(SparseCholesky, native=True, ordering="auto")
DENSE = LinearSolver(DenseCholesky, native=True, ordering="dense")
