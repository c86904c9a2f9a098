"""Linear solvers for symmetric positive definite block systems `(H + D) x = b`, D diagonal.

    BlockPattern                       where the blocks of H are (docs/architecture.md, section 4)
    SparseCholesky, DenseCholesky      direct: factorize(values, damping) -> bool, solve(b) -> x, marginals(pairs)
    SchurComplement                    eliminates mutually independent blocks (landmarks)
    Pcg                                conjugate gradients on a pattern or on the implicit Schur complement

Structure is analysed once per pattern; a factorisation allocates nothing after the first. All loops have a static
partition: results are bitwise reproducible for a fixed number of threads. Long calls release the GIL.
"""

from graphopt.solver.linear.cholesky import DenseCholesky, SparseCholesky
from graphopt.solver.linear.pattern import BlockPattern

__all__ = ["BlockPattern", "DenseCholesky", "SparseCholesky"]
