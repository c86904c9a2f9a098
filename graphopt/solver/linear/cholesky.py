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
        Raises SolverError if there is no factorisation.
    solver.marginals(block_pairs) -> list of arrays
        Blocks (row, col) of inv(H + D), i.e. covariances, for integer block_pairs (n, 2); one array
        (dims[row], dims[col]) each.

and the attributes `num_nonzeros` (scalars of L), `flops` (of one factorisation), `memory_bytes`,
`failed_block` (None after success) and `num_negative` (pivots; with "ldlt" the negative eigenvalues).
"""

from __future__ import annotations

from graphopt.cpu_kernels import kernels
from graphopt.errors import OptionError
from graphopt.solver.linear import memory
from graphopt.solver.linear.pattern import BlockPattern

ORDERINGS = ("auto", "amd", "metis", "dissection", "natural")
METHODS = ("llt", "ldlt")


class SparseCholesky(kernels.SparseCholesky):
    """Supernodal multifrontal Cholesky with a fill-reducing ordering of the blocks.

    Orderings: `amd` (approximate minimum degree), `metis` (nested dissection by METIS, on one core),
    `dissection` (the same by us, on all cores), `natural` (none), `auto`: AMD, and dissection as well where
    the factorisation is expensive enough to pay for it (METIS for small graphs, ours for large ones, both
    for very expensive factorisations); the one with the fewest flops is kept. None depends on the number of
    threads. The attribute `ordering` tells which one was taken, `permutation` is its elimination order of
    the blocks, `num_supernodes` counts the dense fronts.
    """

    def __init__(self, pattern: BlockPattern, ordering: str = "auto", method: str = "llt") -> None:
        """Analyse the structure: ordering, elimination tree, supernodes, places of all blocks.

        Raises `SolverError` if the factor, whose size is then known, is larger than the memory there is.
        """
        if ordering not in ORDERINGS:
            raise OptionError(f"ordering is {ordering!r}, expected one of {', '.join(ORDERINGS)}.")
        super().__init__(pattern, ordering, _is_signed(method))
        memory.require(self.required_bytes, f"The factor of {pattern.dim} rows")


class DenseCholesky(kernels.DenseCholesky):
    """Blocked dense Cholesky; takes the same block values. For small or nearly full systems."""

    def __init__(self, pattern: BlockPattern, method: str = "llt") -> None:
        """Nothing is analysed; memory is taken at the first `factorize`."""
        super().__init__(pattern, _is_signed(method))
        memory.require(4 * pattern.dim * (pattern.dim + 8), f"The dense factor of {pattern.dim} rows")


def _is_signed(method: str) -> bool:
    if method not in METHODS:
        raise OptionError(f"method is {method!r}, expected one of {', '.join(METHODS)}.")
    return method == "ldlt"
