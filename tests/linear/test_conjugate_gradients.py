"""Conjugate gradients over functions: dense solutions, the stop rule, and matrices that are not definite."""

import numpy as np
import pytest

from graphopt.linear.conjugate_gradients import conjugate_gradients


def system(seed, n):
    """A positive definite matrix with a diagonal of several sizes, and a right-hand side."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(n, n)) * 10.0 ** rng.uniform(-2.0, 2.0, n)
    return root.T @ root + np.diag(np.full(n, 1e-2)), rng.normal(size=n)


@pytest.mark.parametrize("seed", range(4))
def test_the_solution_is_numpys(seed):
    """With the diagonal as preconditioner, to a tight tolerance."""
    matrix, b = system(seed, 12)
    diagonal = matrix.diagonal()
    found = conjugate_gradients(lambda d: matrix @ d, lambda r: r / diagonal, b, 1e-26, 200)
    assert found.is_definite
    np.testing.assert_allclose(found.x, np.linalg.solve(matrix, b), rtol=1e-6, atol=1e-9)


def test_it_stops_at_the_tolerance():
    """r' inv(M) r is below the bound at the end, and was not before the last iteration."""
    matrix, b = system(5, 30)
    diagonal = matrix.diagonal()
    power = []

    def precondition(r):
        power.append(float(r @ (r / diagonal)))
        return r / diagonal

    found = conjugate_gradients(lambda d: matrix @ d, precondition, b, 1e-4, 1000)
    bound = 1e-4 * power[0]
    assert power[-1] <= bound < power[-2] and found.iterations == len(power) - 1


@pytest.mark.parametrize(("most", "expected"), [(0, 0), (3, 3)])
def test_at_most_so_many_iterations(most, expected):
    """Then x is what these reached."""
    matrix, b = system(6, 20)
    found = conjugate_gradients(lambda d: matrix @ d, lambda r: r, b, 0.0, most)
    assert found.iterations == expected and found.is_definite
    assert (found.x == 0.0).all() == (most == 0)


def test_an_indefinite_matrix_is_said():
    """A direction of negative curvature ends it."""
    found = conjugate_gradients(lambda d: -d, lambda r: r, np.ones(3), 1e-6, 10)
    assert not found.is_definite and found.iterations == 0
