"""LDL' on the CPU: symmetric systems with pivots of both signs, sparse and dense, against numpy."""

from __future__ import annotations

import numpy as np
import pytest
from linear_problems import from_dense, make_pattern, spd_values, to_dense

from graphopt.cpu_kernels import kernels
from graphopt.errors import OptionError
from graphopt.linear import DenseCholesky, SparseCholesky


def indefinite(dims, edges, seed=0):
    """Pattern, values and the dense matrix: dominant, with a third of the diagonal negative."""
    rng = np.random.default_rng(seed)
    pattern = make_pattern(dims, edges)
    dense = to_dense(pattern, spd_values(pattern, rng))
    dense[np.diag_indices_from(dense)] *= np.where(rng.random(pattern.dim) < 0.3, -1.0, 1.0)
    return pattern, from_dense(pattern, dense), dense


CASES = {
    "chain": ([6] * 40, [(k, k + 1) for k in range(39)]),
    "full": ([7] * 40, [(j, i) for i in range(40) for j in range(i)]),
    "mixed sizes": (
        list(np.random.default_rng(1).integers(1, 21, 60)),
        np.random.default_rng(2).integers(0, 60, (150, 2)),
    ),
}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("make", [SparseCholesky, DenseCholesky])
@pytest.mark.parametrize("name", CASES)
def test_solutions_signs_and_inverse(name, make, threads):
    """Residual, number of negative eigenvalues, blocks of the inverse."""
    pattern, values, dense = indefinite(*CASES[name])
    kernels.set_num_threads(threads)
    solver = make(pattern, method="ldlt")
    assert solver.factorize(values)
    assert solver.num_negative == (np.linalg.eigvalsh(dense) < 0.0).sum() > 0
    b = np.random.default_rng(3).standard_normal((pattern.dim, 2))
    error = np.abs(dense @ solver.solve(b) - b).max()
    assert error < 1e-13 * np.abs(dense).max()
    inverse = np.linalg.inv(dense)
    pairs = [(k, k) for k in range(pattern.num_blocks)] + [(0, pattern.num_blocks - 1)]
    for (i, j), block in zip(pairs, solver.marginals(np.array(pairs)), strict=True):
        rows, cols = (slice(pattern.offsets[k], pattern.offsets[k + 1]) for k in (i, j))
        assert np.abs(block - inverse[rows, cols]).max() < 1e-12 * np.abs(inverse).max()


def test_definite_systems_have_no_negative_pivots():
    """LL' refuses what LDL' factors; both agree where the matrix is definite."""
    pattern, values, _ = indefinite(*CASES["full"])
    assert not SparseCholesky(pattern).factorize(values)
    good = spd_values(pattern, np.random.default_rng(0))
    first, second = SparseCholesky(pattern), SparseCholesky(pattern, method="ldlt")
    assert first.factorize(good) and second.factorize(good) and second.num_negative == 0
    b = np.ones(pattern.dim)
    assert first.solve(b) == pytest.approx(second.solve(b), rel=1e-13)


def test_a_zero_pivot_is_refused():
    """LDL' does not pivot: a zero on the diagonal ends it, with its block."""
    pattern = make_pattern([2, 2], [(0, 1)])
    dense = np.eye(4)
    dense[2, 2] = 0.0
    solver = SparseCholesky(pattern, "natural", method="ldlt")
    assert not solver.factorize(from_dense(pattern, dense)) and solver.failed_block == 1
    with pytest.raises(OptionError, match="expected one of llt, ldlt"):
        SparseCholesky(pattern, method="qr")
