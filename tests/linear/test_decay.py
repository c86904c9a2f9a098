"""Numbers that decay below the normal range become zero in systems of ordinary size, and only there."""

from __future__ import annotations

import numpy as np
import pytest
from linear_problems import from_dense, make_pattern

from graphopt.linear import SparseCholesky

COUNT = 400
TINY = np.finfo(np.float64).tiny
DENSE = np.kron(10.0 * np.eye(COUNT) - np.eye(COUNT, k=1) - np.eye(COUNT, k=-1), np.eye(3))


def chain():
    """Pattern of a chain; the inverse of `DENSE` falls by ten from a block to the next."""
    return make_pattern([3] * COUNT, [(k, k + 1) for k in range(COUNT - 1)])


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("method", ["llt", "ldlt"])
def test_decay_ends_in_zero(method):
    """A column of the inverse: exact where normal, zero beyond; the caller's own denormals live on."""
    pattern, impulse = chain(), np.zeros(3 * COUNT)
    impulse[0] = 1.0
    solver = SparseCholesky(pattern, method=method)
    assert solver.factorize(from_dense(pattern, DENSE))
    column = np.abs(solver.solve(impulse))[::3]
    assert np.all((column == 0.0) | (column >= TINY)), "denormals are left"
    normal = column > 0.0
    assert 290 < normal.sum() < 320, "the chain does not reach the end of the normal range"
    ratio = (10.0 - np.sqrt(96.0)) / 2.0
    np.testing.assert_allclose(column[:290], column[0] * ratio ** np.arange(290), rtol=1e-11)
    assert np.array([5e-324])[0] * 1.0 == 5e-324
    assert np.all(np.full(64, TINY) / 2.0 > 0.0)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("scale", [1e-290, 1e-150, 1e150, 1e290])
def test_extreme_scales_keep_their_digits(scale):
    """The same solver, an extreme system between two ordinary ones: no digits lost, no bits changed."""
    pattern, b = chain(), np.random.default_rng(0).standard_normal(3 * COUNT)
    solver = SparseCholesky(pattern)
    values = from_dense(pattern, DENSE)
    assert solver.factorize(values)
    plain = solver.solve(b)
    assert solver.factorize(values * scale)
    np.testing.assert_allclose(solver.solve(b * scale), plain, rtol=1e-13)
    small = min(scale, 1.0)
    np.testing.assert_allclose(solver.solve(b * small), plain * (small / scale), rtol=1e-13)
    assert solver.factorize(values)
    assert np.array_equal(solver.solve(b), plain)
