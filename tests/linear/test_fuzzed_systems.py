"""Random structures, scales and damage: what LL' accepts is solved to rounding, what it refuses is named.

Residuals are those of the matrix scaled to a diagonal of ones, which Cholesky keeps small whatever the scales
(Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., theorem 10.6).
"""

from __future__ import annotations

import numpy as np
import pytest
from linear_problems import from_dense, make_pattern

from graphopt.cpu_kernels import kernels
from graphopt.linear import DenseCholesky, SparseCholesky

SEEDS = range(40)
EPS = np.finfo(np.float64).eps


def structure(rng: np.random.Generator):
    """Chains, arrows, trees, scattered and full patterns, blocks of 1 to 20."""
    num = int(rng.integers(1, 30))
    edges = {
        "chain": [(k, k + 1) for k in range(num - 1)],
        "arrow": [(k, num - 1) for k in range(num - 1)],
        "tree": [(k, int(rng.integers(0, k))) for k in range(1, num)],
        "scattered": rng.integers(0, num, (2 * num, 2)),
        "full": [(i, j) for j in range(min(num, 12)) for i in range(j)],
        "none": np.empty((0, 2), int),
    }[str(rng.choice(["chain", "arrow", "tree", "scattered", "full", "none"]))]
    return make_pattern(rng.integers(1, int(rng.choice([4, 10, 21])), num), edges)


def definite(pattern, rng: np.random.Generator):
    """Sum of squares on the blocks of the pattern, scaled to a diagonal of ones; its smallest eigenvalue."""
    dense = np.zeros((pattern.dim, pattern.dim))
    weight = 10.0 ** rng.uniform(-9, 1)
    for col in range(pattern.num_blocks):
        for row in pattern.row_idx[pattern.col_ptr[col] : pattern.col_ptr[col + 1]]:
            scalars = [np.arange(pattern.offsets[k], pattern.offsets[k + 1]) for k in {col, int(row)}]
            both = np.concatenate(scalars)
            factor = rng.standard_normal((len(both), len(both))) * (weight if row == col else 1.0)
            dense[np.ix_(both, both)] += factor.T @ factor
    root = np.sqrt(np.diag(dense))
    dense /= np.outer(root, root)
    return dense, float(np.linalg.eigvalsh(dense)[0])


def solvers(pattern, rng: np.random.Generator):
    """Both, on any number of threads."""
    kernels.set_num_threads(int(rng.choice([1, 2, 3, 8, 24])))
    return SparseCholesky(pattern, str(rng.choice(["auto", "metis", "natural"]))), DenseCholesky(pattern)


@pytest.mark.parametrize("seed", SEEDS)
def test_scales_do_not_matter(seed: int) -> None:
    """Entries from 1e-280 to 1e280, all of one size or each row of its own; inverse blocks, too."""
    rng = np.random.default_rng(seed)
    pattern = structure(rng)
    plain, smallest = definite(pattern, rng)
    scale = np.full(pattern.dim, 10.0 ** rng.uniform(-140, 140))
    if seed % 2:
        scale = 10.0 ** rng.uniform(-140, 140, pattern.dim)
    dense = plain * scale[:, None] * scale
    true = rng.standard_normal(pattern.dim) / scale
    b = dense @ true
    for solver in solvers(pattern, rng):
        assert solver.factorize(from_dense(pattern, dense)) or smallest < 4.0 * pattern.dim * EPS
        if solver.failed_block is not None:
            continue
        x = solver.solve(b)
        size = scale * np.sum(scale * np.abs(x)) + np.abs(b)
        assert (np.abs(b - dense @ x) <= 2.0 * np.sqrt(pattern.dim) * EPS * size).all()
        if smallest < 1e-6:
            continue
        own = np.arange(pattern.offsets[1]) if pattern.num_blocks > 1 else np.arange(pattern.dim)
        block = solver.marginals(np.array([[0, 0]]))[0] * np.outer(scale[own], scale[own])
        expected = np.linalg.inv(plain)[np.ix_(own, own)]
        assert np.abs(block - expected).max() < 100 * EPS / smallest * np.abs(np.linalg.inv(plain)).max()


@pytest.mark.parametrize("seed", SEEDS)
def test_damage_is_found(seed: int) -> None:
    """A number that is not finite, a block of zeros, a negative entry of the diagonal."""
    rng = np.random.default_rng(100 + seed)
    pattern = structure(rng)
    dense, _ = definite(pattern, rng)
    dense += np.eye(pattern.dim)
    block = int(rng.integers(0, pattern.num_blocks))
    rows = np.arange(pattern.offsets[block], pattern.offsets[block + 1])
    scalar = int(rng.choice(rows))
    kind = ("nan", "inf", "zero", "negative")[seed % 4]
    if kind == "zero":
        dense[rows] = dense[:, rows] = 0.0
    elif kind == "negative":
        dense[scalar, scalar] *= -1.0
    else:
        dense[scalar, rows[0]] = dense[rows[0], scalar] = np.nan if kind == "nan" else np.inf
    for solver in solvers(pattern, rng):
        assert not solver.factorize(from_dense(pattern, dense))
        assert solver.failed_block is not None
        if kind == "zero":
            assert solver.failed_block == block
