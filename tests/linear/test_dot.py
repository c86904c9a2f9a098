"""Scalar products of long vectors are exact to rounding and the same for any number of threads."""

import math

import numpy as np
import pytest

from graphopt.cpu_kernels import kernels
from graphopt.errors import ShapeError
from graphopt.linear.vectors import dot, norm


@pytest.mark.parametrize("size", [0, 1, 15, 17, 4096, 4097, 300_001])
def test_sum_is_exact_to_rounding(size):
    """Against math.fsum of the products; the bound is that of pieces added pairwise."""
    rng = np.random.default_rng(size)
    a, b = rng.normal(size=(2, size)) * 10.0 ** rng.uniform(-6, 6, size)
    exact = math.fsum((a * b).tolist())
    assert abs(dot(a, b) - exact) <= 300 * np.finfo(float).eps * math.fsum(np.abs(a * b).tolist())
    assert norm(a) == pytest.approx(math.sqrt(math.fsum((a * a).tolist())), rel=1e-13)


def test_threads_change_nothing():
    """Bitwise, for one to four threads."""
    a, b = np.random.default_rng(3).normal(size=(2, 1_000_003))
    found = set()
    for threads in (1, 2, 3, 4):
        kernels.set_num_threads(threads)
        found.add(dot(a, b))
    assert len(found) == 1


def test_views_are_summed_and_lengths_checked():
    """A strided view is as good as its copy; different lengths are an error."""
    a = np.arange(20.0)
    assert dot(a[::2], a[::-2]) == float(np.sum(a[::2] * a[::-2]))
    with pytest.raises(ShapeError, match="b: expected a contiguous float64 array of shape"):
        dot(a, a[1:])
