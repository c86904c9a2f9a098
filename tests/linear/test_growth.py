"""LDL' without pivoting: small pivots make factors inaccurate; solves are refined or refused."""

from __future__ import annotations

import numpy as np
import pytest
from linear_problems import from_dense, make_pattern, spd_values, to_dense
from vulkan_devices import shared_device

from graphopt.cpu_kernels import kernels
from graphopt.errors import ShapeError, SolverError
from graphopt.linear import DenseCholesky, SparseCholesky
from graphopt.linear.refined import SignedSystem
from graphopt.vulkan.cholesky import DeviceCholesky

EDGES = [(k, k + 1) for k in range(29)] + [(0, 29), (3, 20)]


def solvers(pattern):
    """By name; orderings that keep a small pivot first."""
    device = shared_device("address")
    return {
        "sparse": SparseCholesky(pattern, "natural", "ldlt"),
        "dense": DenseCholesky(pattern, "ldlt"),
        "device": DeviceCholesky(device, pattern, "double", "ldlt", ordering="natural"),
        "device, float32": DeviceCholesky(device, pattern, "mixed", "ldlt", ordering="natural"),
    }


def saddle(pivot: float, dim: int = 4):
    """Regular, but with first blocks whose diagonal is almost nothing."""
    rng = np.random.default_rng(0)
    pattern = make_pattern([dim] * 30, EDGES)
    dense = to_dense(pattern, spd_values(pattern, rng))
    for block in (0, 7, 20):
        rows = slice(pattern.offsets[block], pattern.offsets[block + 1])
        dense[rows, rows] = pivot * np.diag(rng.choice([-1.0, 1.0], dim))
    return pattern, dense, rng.standard_normal((pattern.dim, 3))


def error_of(dense, x, b) -> float:
    """Residual over |A| |x| + |b|."""
    scale = np.abs(dense).sum(axis=1).max() * np.abs(x).max(axis=0) + np.abs(b).max(axis=0)
    return float((np.abs(b - dense @ x).max(axis=0) / scale).max())


@pytest.mark.parametrize("name", ["sparse", "dense", "device", "device, float32"])
def test_small_pivots_are_made_up_for(name: str) -> None:
    """Growth of 1e4 in float32 and 1e10 in float64 leaves residuals of float64; the last one is told."""
    pattern, dense, b = saddle(1e-3 if "float32" in name else 1e-9)
    solver = solvers(pattern)[name]
    assert solver.residual is None
    values, damping = from_dense(pattern, dense), np.full(pattern.dim, 1e-12)
    dense += np.diag(damping)
    assert solver.factorize(values, damping)
    for sides in (b, b[:, 0].copy()):
        x = solver.solve(sides)
        assert x.shape == sides.shape
        assert error_of(dense, x, sides) < 2e-15
        assert solver.residual is not None and solver.residual < 2e-15
    unrefined = {
        "sparse": lambda: kernels.SparseCholesky(pattern, "natural", True),
        "dense": lambda: kernels.DenseCholesky(pattern, True),
    }
    if name in unrefined:
        plain = unrefined[name]()
        assert plain.factorize(values, damping)
        assert error_of(dense, plain.solve(b), b) > 1e-12
    assert solver.factorize(values) and solver.residual is None


def test_residuals_are_relative_to_what_they_are_sums_of():
    """As in the error: of |H + D| |x| + |b|, by largest rows and numbers."""
    pattern, dense, b = saddle(0.1)
    system, damping = SignedSystem(pattern, 2.0**-52), np.full(pattern.dim, 0.3)
    system.take(from_dense(pattern, dense), damping)
    dense += np.diag(damping)
    x = np.random.default_rng(3).normal(size=pattern.dim)
    rest, residual = system._rest(x, b[:, 0])
    np.testing.assert_allclose(rest, b[:, 0] - dense @ x, rtol=1e-9, atol=1e-9)
    assert residual == pytest.approx(error_of(dense, x[:, None], b[:, :1]), rel=0.1)
    scale = (np.abs(dense - np.diag(damping)) + np.diag(damping)).sum(axis=1).max() * np.abs(x).max()
    assert residual == pytest.approx(np.abs(rest).max() / (scale + np.abs(b[:, 0]).max()), rel=1e-12)


@pytest.mark.parametrize("name", ["sparse", "dense", "device"])
def test_pivots_of_rounding_are_refused(name: str) -> None:
    """A pivot that has no digits left gives an error that says so, not a wrong solution."""
    pattern, dense, b = saddle(1e-17)
    solver = solvers(pattern)[name]
    if solver.factorize(from_dense(pattern, dense)):
        with pytest.raises(SolverError, match=r"LDL' without pivoting is too inaccurate.*Add damping"):
            solver.solve(b)
    else:
        raise AssertionError("1e-17 exceeds 2.2e-16 times itself")
    dense[np.diag_indices_from(dense)] += 3.0
    assert solver.factorize(from_dense(pattern, dense))
    assert error_of(dense, solver.solve(b), b) < 2e-15


@pytest.mark.parametrize("make", [SparseCholesky, DenseCholesky])
def test_places_for_solutions(make) -> None:
    """`out` may be b; what is no right side or no place is refused, and so are several sides with a place."""
    pattern, dense, b = saddle(1e-3)
    solver = make(pattern, method="ldlt")
    assert solver.factorize(from_dense(pattern, dense))
    place = b[:, 0].copy()
    expected = solver.solve(place)
    assert solver.solve(place, place) is place
    np.testing.assert_array_equal(place, expected)
    for wrong, out in ((b[:5, 0].copy(), None), (b[:, 0].copy(), np.empty(5)), (b, np.empty(pattern.dim))):
        with pytest.raises(ShapeError):
            solver.solve(wrong, out)
    b[3, 0] = np.nan
    assert np.isnan(solver.solve(b[:, 0].copy())).any()
    llt = make(pattern)
    assert llt.factorize(from_dense(pattern, np.eye(pattern.dim)))
    llt.solve(expected)
    assert llt.residual is None
