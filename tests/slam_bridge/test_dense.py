"""Marginalization of dense systems: small ones natively, large ones with LAPACK, both by the same formula."""

import numpy as np
import pytest

from graphopt.cpu_kernels import kernels
from slam_bridge.dense import _SAFE, _SMALL, eliminated, offset_of
from slam_bridge.marginal_prior import MarginalPrior
from slam_bridge.tables import MapError


def system(dim: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """H positive definite with units that differ by orders, and b."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(2 * dim, dim)) * 10.0 ** rng.uniform(-3, 3, dim)
    return rows.T @ rows, rng.normal(size=dim)


@pytest.mark.parametrize("dim", [2, 30, _SMALL, _SMALL + 1])
def test_minimising_over_the_last_is_the_schur_complement(dim: int) -> None:
    h, b = system(dim)
    kept = dim // 2
    reduced, reduced_b = eliminated(h, b, np.arange(dim) >= kept)
    back = np.linalg.solve(h[kept:, kept:], np.column_stack([h[kept:, :kept], b[kept:]]))
    scale = np.sqrt(np.outer(h.diagonal()[:kept], h.diagonal()[:kept]))
    np.testing.assert_allclose(
        reduced / scale, (h[:kept, :kept] - h[:kept, kept:] @ back[:, :-1]) / scale, atol=1e-9
    )
    np.testing.assert_allclose(reduced_b, b[:kept] - h[:kept, kept:] @ back[:, -1], rtol=1e-6, atol=1e-9)
    assert np.array_equal(reduced, reduced.T)


@pytest.mark.parametrize("dim", [1, 15, _SMALL, _SMALL + 1])
def test_the_offset_is_the_minimum(dim: int) -> None:
    h, b = system(dim, seed=1)
    size = np.sqrt(h.diagonal())
    x = offset_of(h, b)
    np.testing.assert_allclose(h @ x / size, b / size, atol=1e-9 * np.abs(b / size).max())


def test_a_direction_that_nothing_measures_says_nothing() -> None:
    h, b = system(12)
    h[8:, :] = h[:, 8:] = 0.0
    h[8:11, 8:11] = np.eye(3)
    h[11, 10] = h[10, 11] = h[11, 11] = 1.0  # only the sum of the last two is measured
    b[8:] = [0.0, 0.0, 1.0, 1.0]
    assert kernels.eliminate_last(h, b, 8, _SAFE) is None
    assert kernels.solve_scaled(h, b, _SAFE) is None
    reduced, reduced_b = eliminated(h, b, np.arange(12) >= 8)
    np.testing.assert_allclose(reduced, h[:8, :8])
    np.testing.assert_allclose(reduced_b, b[:8])
    x = offset_of(h, b)
    np.testing.assert_allclose(x[10:], [0.5, 0.5])


def test_shapes_are_checked() -> None:
    h, b = system(4)
    with pytest.raises(ValueError, match=r"eliminate_last: h must be \(d, d\)"):
        kernels.eliminate_last(h, b[:3], 2, _SAFE)
    with pytest.raises(ValueError, match=r"kept is 5, expected 0 \.\. 4"):
        kernels.eliminate_last(h, b, 5, _SAFE)


def test_a_prior_takes_arrays_in_any_order_of_memory() -> None:
    h, b = system(15)
    kinds, reference = np.arange(4), np.zeros((4, 7))
    prior = MarginalPrior(kinds, np.zeros(4), reference[:, ::-1], np.asfortranarray(h), np.repeat(b, 2)[::2])
    np.testing.assert_array_equal(prior.information, h)
    with pytest.raises(MapError, match=r"MarginalPrior\.information"):
        MarginalPrior(kinds, np.zeros(4), reference, np.where(h > 0.0, np.nan, h), b)
