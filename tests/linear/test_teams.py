"""The tree is shared by any number of threads: equal factors, failures named, memory as predicted."""

from __future__ import annotations

import numpy as np
import pytest
from linear_problems import lattice

from graphopt.cpu_kernels import kernels
from graphopt.errors import Stopped
from graphopt.linear import BlockPattern, SparseCholesky

THREADS = (2, 3, 5, 8)


def factorized(pattern: BlockPattern, values: np.ndarray, damping: np.ndarray, threads: int) -> np.ndarray:
    """A solution by one thread from the factor of several: bits of the factor show."""
    kernels.set_num_threads(threads)
    solver = SparseCholesky(pattern, "auto", "ldlt")
    assert solver.factorize(values, damping)
    kernels.set_num_threads(1)
    return solver.solve(np.ones(pattern.dim))


@pytest.mark.parametrize("side", [12, 45])
def test_factors_are_equal_bit_by_bit(side: int) -> None:
    """Small fronts of a thread each, teams of some, the root of all; LDL' with pivots of both signs."""
    pattern, values = lattice(side, 4)
    sign = np.where(np.random.default_rng(1).random(pattern.dim) < 0.3, -1.0, 1.0)
    expected = factorized(pattern, values, 40.0 * sign, 1)
    for threads in THREADS:
        assert np.array_equal(factorized(pattern, values, 40.0 * sign, threads), expected)


@pytest.mark.parametrize("block", [0, 700, 1000, 2024])
def test_a_failure_ends_all_threads(block: int) -> None:
    """Wherever it is in the tree, it is named, and the next factorization is whole."""
    pattern, values = lattice(45, 4)
    damping = np.full(pattern.dim, 40.0)
    bad = damping.copy()
    bad[4 * block] = -1e6
    for threads in THREADS:
        kernels.set_num_threads(threads)
        solver = SparseCholesky(pattern)
        assert not solver.factorize(values, bad)
        assert solver.failed_block == block
        assert solver.factorize(values, damping) and solver.failed_block is None


def test_two_failures_name_one_of_them() -> None:
    """Far apart, so that two teams find them."""
    pattern, values = lattice(45, 4)
    bad = np.full(pattern.dim, 40.0)
    bad[[40, 7000]] = -1e6
    for threads in THREADS:
        kernels.set_num_threads(threads)
        solver = SparseCholesky(pattern)
        assert not solver.factorize(values, bad) and solver.failed_block in (10, 1750)


def test_all_threads_stop() -> None:
    """Nobody is left waiting for one that has stopped."""
    pattern, values = lattice(60, 6)
    damping = np.full(pattern.dim, 60.0)
    for threads in THREADS:
        kernels.set_num_threads(threads)
        solver = SparseCholesky(pattern)
        watch = kernels.Watch(lambda: True, 0.0)
        watch.begin()
        try:
            with pytest.raises(Stopped):
                solver.factorize(values, damping)
        finally:
            watch.end()
        assert solver.factorize(values, damping)


def test_solves_by_several_threads() -> None:
    """The residual is rounding's."""
    pattern, values = lattice(45, 4)
    damping = np.full(pattern.dim, 40.0)
    product = kernels.SymmetricProduct(pattern)
    b = np.random.default_rng(2).normal(size=pattern.dim)
    for threads in (1, *THREADS):
        kernels.set_num_threads(threads)
        solver = SparseCholesky(pattern)
        assert solver.factorize(values, damping)
        for _ in range(2):  # what a thread keeps for others is cleared
            x = solver.solve(b)
            np.testing.assert_allclose(product.multiply(values, x) + damping * x, b, rtol=0, atol=1e-11)
        assert solver.required_bytes <= 1.2 * solver.memory_bytes
