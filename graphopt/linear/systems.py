"""Ways to solve (H + D) dx = b: a linear solver, with or without the Schur complement.

    H dx = b                                         whole system
    S dx_p = b_s,   dx_l = inv(H_ll) (b_l - H_lp dx_p)     marginalized vertices eliminated

`choose_system` picks by size and density and says what it picked.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from graphopt.cpu_kernels import kernels
from graphopt.errors import OptionError
from graphopt.linear import (
    BlockPattern,
    DenseCholesky,
    Pcg,
    SchurComplement,
    SparseCholesky,
)
from graphopt.linear.options import SolverOptions
from graphopt.linear.pcg import pcg_of
from graphopt.linear.table import LINEAR_SOLVERS, DirectSolver, factorizes, iterates
from graphopt.problem.structure import Structure

_DENSE_DIM = 90  # below: a dense factorisation is at least as fast as a sparse one
_DENSE_DENSITY = 0.4  # stored scalars of the triangle / all of it, above which dense wins
_MAX_DENSE_DIM = 12_000  # 1.2 GB
_MAX_EXPLICIT_PAIRS = 400_000_000  # pairs of poses over all landmarks: work of forming S
_MAX_FACTOR_FLOPS = 2e14  # beyond, an iterative solver is faster
_WORTH_A_COUNT = 1e8  # operations of a step: below, an ordering of the whole system takes longer
Solver = DirectSolver | Pcg
Direct = tuple[SchurComplement | None, Any]


@dataclass(frozen=True)
class SolveCounts:
    """What a factorization takes, before it runs; 0 where conjugate gradients iterate, or nobody counts."""

    scalars: int
    """Of the triangular factor."""
    flops: float
    """Operations of a factorization."""
    nbytes: int
    """Memory of the factor with its work space."""
    iterations: int
    """Of conjugate gradients in the last solve."""


class LinearSystem(ABC):
    """Solves the damped normal equations."""

    schur: str
    linear_solver: str

    def __init__(self, schur: SchurComplement | None, linear_solver: str, solver: Solver):
        self.linear_solver = linear_solver
        self._schur = schur
        self._solver: Any = solver

    @abstractmethod
    def solve(self, values: np.ndarray, damping: np.ndarray | None, b: np.ndarray, dx: np.ndarray) -> bool:
        """Write the solution to `dx`; False: not positive definite."""

    @abstractmethod
    def solve_again(self, b: np.ndarray, dx: np.ndarray) -> None:
        """Another right-hand side, with what the last `solve` has factorized."""

    @property
    def pcg(self) -> Pcg | None:
        """The conjugate gradients, if it is them."""
        return cast("Pcg", self._solver) if iterates(self.linear_solver) else None

    @property
    def direct(self) -> Direct | None:
        """Who eliminates, if anybody does, and who factorizes; None where native code does not know it."""
        return (self._schur, self._solver) if LINEAR_SOLVERS[self.linear_solver].native else None

    @property
    def memory_bytes(self) -> int:
        """Memory of factors and work space."""
        return int(getattr(self._solver, "memory_bytes", 0))

    @property
    def counts(self) -> SolveCounts:
        """What a solve goes through."""
        taken = self._solver
        return SolveCounts(
            scalars=int(getattr(taken, "num_nonzeros", 0)),
            flops=float(getattr(taken, "flops", 0.0)),
            nbytes=max(self.memory_bytes, int(getattr(taken, "required_bytes", 0))),
            iterations=int(getattr(taken, "iterations", 0)),
        )

    @contextmanager
    def timing(self, seconds: dict[str, float]) -> Iterator[None]:
        """Add up what solves take in "schur" (elimination), "numeric" (factors) and "triangular"."""
        parts = self._schur, self._solver
        if self._schur is not None:
            self._schur = cast(
                "SchurComplement",
                _Timed(self._schur, seconds, form="schur", reduce="schur", back_substitute="schur"),
            )
        self._solver = _Timed(self._solver, seconds, factorize="numeric", solve="triangular")
        try:
            yield
        finally:
            self._schur, self._solver = parts


class _Timed:
    """Passes everything on and adds up the seconds of some methods; methods -> key in `seconds`."""

    def __init__(self, inner: Any, seconds: dict[str, float], **methods: str):
        self._inner, self._seconds, self._methods = inner, seconds, methods

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if name not in self._methods:
            return value

        def call(*arguments: Any, **named: Any) -> Any:
            start = time.perf_counter()
            try:
                return value(*arguments, **named)
            finally:
                self._seconds[self._methods[name]] += time.perf_counter() - start

        return call


class Whole(LinearSystem):
    """H as it is, by a direct solver or by PCG."""

    schur = "off"

    def __init__(self, name: str, solver: Solver):
        super().__init__(None, name, solver)

    def solve(self, values: np.ndarray, damping: np.ndarray | None, b: np.ndarray, dx: np.ndarray) -> bool:
        """Factorize and solve."""
        if not self._solver.factorize(values, damping):
            return False
        self._solver.solve(b, out=dx)
        return True

    def solve_again(self, b: np.ndarray, dx: np.ndarray) -> None:
        """Solve with the same factor."""
        self._solver.solve(b, out=dx)


class Explicit(LinearSystem):
    """The reduced matrix S is formed and solved by a direct solver or by PCG."""

    schur = "explicit"
    _schur: SchurComplement

    def solve(self, values: np.ndarray, damping: np.ndarray | None, b: np.ndarray, dx: np.ndarray) -> bool:
        """Eliminate, solve for the rest, substitute back."""
        if not self._schur.form(values, damping, b):
            return False
        if not self._solver.factorize(self._schur.reduced_values):
            return False
        self._schur.back_substitute(self._solver.solve(self._schur.reduced_b), out=dx)
        return True

    def solve_again(self, b: np.ndarray, dx: np.ndarray) -> None:
        """Eliminate from b, solve with the same factor of S, substitute back."""
        self._schur.reduce(b)
        self._schur.back_substitute(self._solver.solve(self._schur.reduced_b), out=dx)

    @property
    def memory_bytes(self) -> int:
        """Memory of S and its factor."""
        return 8 * self._schur.reduced_pattern.values_size + super().memory_bytes


class Implicit(LinearSystem):
    """S is never formed: PCG multiplies by H_pp - H_pl inv(H_ll) H_lp."""

    schur = "implicit"
    _schur: SchurComplement

    def __init__(self, schur: SchurComplement, options: SolverOptions):
        super().__init__(schur, "pcg", pcg_of(schur, options))
        self._formed: tuple[np.ndarray, np.ndarray | None]

    def solve(self, values: np.ndarray, damping: np.ndarray | None, b: np.ndarray, dx: np.ndarray) -> bool:
        """Eliminate, iterate, substitute back."""
        self._formed = values, damping
        if not self._schur.form(values, damping, b) or not self._solver.factorize():
            return False
        self._schur.back_substitute(self._solver.solve(self._schur.reduced_b), out=dx)
        return True

    def solve_again(self, b: np.ndarray, dx: np.ndarray) -> None:
        """Eliminate and iterate once more."""
        self.solve(*self._formed, b, dx)


def choose_system(structure: Structure, options: SolverOptions) -> LinearSystem:
    """The linear system for a structure; what `options` leave open is decided by size and density."""
    pattern = structure.pattern
    if options.schur in ("explicit", "implicit") and not structure.has_schur:
        raise OptionError(no_schur(options.schur, structure))
    if options.schur == "off" or not structure.has_schur:
        return Whole(*solver_for(pattern, options))
    is_free = options.schur == "auto" and options.linear_solver == "auto"
    if is_free and _may_cost_more_than_it_saves(structure):
        whole = SparseCholesky(pattern)
        if whole.flops < elimination_flops(structure):
            return Whole("cholesky", whole)
    implicit = options.schur == "implicit"
    if options.schur == "auto":
        implicit = not factorizes(options.linear_solver) and too_large_to_form(ReducedSize.of(structure))
    if implicit:
        return Implicit(SchurComplement(pattern, structure.num_kept, mode="implicit"), options)
    schur = SchurComplement(pattern, structure.num_kept, mode="explicit")
    name, solver = solver_for(schur.reduced_pattern, options)
    return Explicit(schur, name, solver)


def no_schur(schur: str, structure: Any) -> str:
    """A sentence: there is no Schur complement to take."""
    return (
        f"schur '{schur}' needs marginalized vertices beside others that stay; this graph has "
        f"{structure.num_blocks - structure.num_kept} to eliminate and {structure.num_kept} to keep. "
        "Mark landmarks with vertex_set.marginalized = True, or use schur='off'."
    )


def elimination_flops(structure: Structure, of_kept: bool = False) -> float:
    """Operations of one step by eliminating the marginalized blocks; of_kept: the kept ones, at most.

    Forming S takes 2 d^2 e for each pair of neighbours of a block (sizes d of the neighbours, e its own), and
    the factor of S at most n^3 / 3. Where S has room for more blocks than there are pairs, the pairs count.
    """
    kept = np.arange(structure.num_blocks) < structure.num_kept
    gone = kept if of_kept else ~kept
    kernels.check_stop()
    if of_kept:
        across = structure.pattern.row_idx[structure.pattern.col_ptr[structure.num_kept] :]
        degrees = np.bincount(across[across < structure.num_kept], minlength=structure.num_kept).astype(float)
    else:  # an eliminated block's column has its kept neighbours and itself
        degrees = np.diff(structure.pattern.col_ptr)[structure.num_kept :] - 1.0
    kernels.check_stop()
    left_dim, num_left = float(structure.dims[~gone].sum()), np.count_nonzero(~gone)
    block = left_dim / num_left
    pairs = 0.5 * degrees**2
    forming = float((2.0 * pairs * structure.dims[gone]).sum()) * block**2
    is_filled = of_kept or pairs.sum() > _DENSE_DENSITY * 0.5 * num_left**2
    return forming + (left_dim**3 / 3.0 if is_filled else 0.0)


def _may_cost_more_than_it_saves(structure: Structure) -> bool:
    """Elimination takes long; that of the other side, as an ordering of all would do it, much less."""
    flops = elimination_flops(structure)
    return flops > _WORTH_A_COUNT and elimination_flops(structure, of_kept=True) < 0.5 * flops


def solver_for(pattern: BlockPattern, options: SolverOptions) -> tuple[str, Solver]:
    """The solver that is asked for, on a pattern."""
    name = options.linear_solver
    if name != "auto":
        return name, LINEAR_SOLVERS.row(name).create(pattern, options)
    if _is_dense(pattern):
        return "dense", DenseCholesky(pattern)
    sparse = SparseCholesky(pattern)
    if sparse.flops > _MAX_FACTOR_FLOPS:
        return "pcg", pcg_of(pattern, options)
    return "cholesky", sparse


def _is_dense(pattern: BlockPattern) -> bool:
    dim = pattern.dim
    if dim <= _DENSE_DIM:
        return True
    return dim <= _MAX_DENSE_DIM and pattern.values_size > _DENSE_DENSITY * 0.5 * dim * dim


@dataclass(frozen=True)
class ReducedSize:
    """What forming S takes."""

    pairs: float
    """Pairs of kept neighbours over all eliminated blocks."""
    kept_dim: int
    num_kept: int

    @classmethod
    def of(cls, structure: Structure) -> ReducedSize:
        """Of a structure."""
        degrees = np.diff(structure.pattern.col_ptr)[structure.num_kept :] - 1  # poses of each landmark
        return cls(float((degrees.astype(float) ** 2).sum()) / 2.0, structure.kept_dim, structure.num_kept)


def too_large_to_form(size: ReducedSize) -> bool:
    """S would take too much work or memory: iterate on the implicit one instead."""
    full = 0.5 * float(size.kept_dim) ** 2
    mean_block = (size.kept_dim / size.num_kept) ** 2
    filled = min(size.pairs * mean_block, full)
    return size.pairs > _MAX_EXPLICIT_PAIRS or (size.kept_dim > _MAX_DENSE_DIM and filled > 0.1 * full)
