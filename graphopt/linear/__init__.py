"""Linear solvers for symmetric positive definite block systems `(H + D) x = b`, D diagonal.

    BlockPattern                     where the blocks of H are (docs/internals/architecture.md)
    SparseCholesky, DenseCholesky    direct: factorize(values, damping), solve(b), marginals(block_pairs)
    SchurComplement                  eliminates mutually independent blocks (landmarks)
    Pcg                              conjugate gradients on a pattern or on the implicit Schur complement

Structure is analysed once per pattern; numbers may change any number of times and nothing is allocated
after the first. Results are bitwise reproducible for a fixed number of threads. Long calls release the GIL;
one object serves one call at a time. Arrays are C-contiguous float64; anything else raises ShapeError.
"""

from graphopt.linear.cholesky import DenseCholesky, SparseCholesky
from graphopt.linear.pcg import Pcg
from graphopt.linear.schur import SchurComplement
from graphopt.linear.table import LINEAR_SOLVERS, LinearSolver, register_linear_solver
from graphopt.problem.pattern import BlockPattern

__all__ = [
    "LINEAR_SOLVERS",
    "BlockPattern",
    "DenseCholesky",
    "LinearSolver",
    "Pcg",
    "SchurComplement",
    "SparseCholesky",
    "register_linear_solver",
]
