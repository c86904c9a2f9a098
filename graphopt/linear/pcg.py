"""Preconditioned conjugate gradients, block Jacobi, with the relative stop rule of g2o's LinearSolverPCG.

    A x = b,   M = block diagonal of A,   r = b - A x,   stop when   r' inv(M) r <= bound
    bound = tolerance * (b' inv(M) b)

It also stops where more is not asked for, see `set_early_stop`: iteration i adds g = alpha r' inv(M) r to the
quadratic model 2 b'x - x'A x, and as many iterations again would add i g (Nash, Sofer 1990).

The iteration starts at x = 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphopt.cpu_kernels import kernels
from graphopt.errors import OptionError
from graphopt.linear.schur import SchurComplement
from graphopt.linear.table import PRECONDITIONERS, LinearSolver
from graphopt.option_names import OLD_NAMES
from graphopt.problem.pattern import BlockPattern

if TYPE_CHECKING:
    from graphopt.linear.options import SolverOptions


PCG_TOLERANCE = 1e-12
"""Of r' inv(M) r relative to its start, in an optimization: the residual falls by 1e-6."""
MIXED_PCG_TOLERANCE = 1e-9
"""float32 does not resolve more of it."""


class Pcg(kernels.Pcg):
    """Conjugate gradients on a BlockPattern or on a SchurComplement (never storing S).

    It offers:
        factorize(values, damping=None) -> bool, on a pattern: take new numbers (referred to, not copied) and
            invert the diagonal blocks. On a SchurComplement: factorize() after its form(). False if a
            diagonal block is not positive definite (`failed_block`).
        solve(b, out=None) -> x (dim,).
        reset(): forget the solve before, as at the start of an optimization.
        set_early_stop(share, worth): solves to come also stop where the bound is met with `share` in place of
            the tolerance, or where i g < max(share times the model, worth) after a quarter of the iterations
            of the solve before, 10 to 30; 0, 0: not.

    Attributes after solve:
        iterations: products with A.
        residual: r' inv(M) r.
        converged: whether the bound, or what `set_early_stop` asks for, was met; False at max_iterations, or
            if A turned out indefinite.
    """

    def __init__(
        self,
        matrix: BlockPattern | SchurComplement,
        tolerance: float = 1e-6,
        max_iterations: int | None = None,
        preconditioner: str = "schur_jacobi",
    ) -> None:
        """Defaults are g2o's: tolerance 1e-6, at most `dim` iterations (None).

        preconditioner: on a SchurComplement, block-Jacobi of S ("schur_jacobi") or of H_pp
            ("jacobi"), cheaper and weaker.
        """
        if not tolerance >= 0.0:
            raise OptionError(f"tolerance is {tolerance}, must be >= 0.")
        if max_iterations is not None and max_iterations < 0:
            raise OptionError(f"max_iterations is {max_iterations}, must be >= 0, or None for dim.")
        preconditioner = OLD_NAMES.get(preconditioner, preconditioner)
        if preconditioner not in PRECONDITIONERS:
            raise OptionError(
                f"preconditioner is '{preconditioner}', expected one of {', '.join(PRECONDITIONERS)}."
            )
        super().__init__(matrix, tolerance, max_iterations, PRECONDITIONERS[preconditioner].is_of_h)


def pcg_of(matrix: BlockPattern | SchurComplement, options: SolverOptions) -> Pcg:
    """Conjugate gradients with block-Jacobi, as the options ask for."""
    return Pcg(
        matrix,
        options.pcg_tolerance or PCG_TOLERANCE,
        max_iterations=options.pcg_iterations,
        preconditioner=options.preconditioner,
    )


PCG = LinearSolver(iterate=pcg_of)
