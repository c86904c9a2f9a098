"""Scalar products without BLAS.

numpy hands `a @ b` to a multithreaded BLAS, whose threads cost more than the product and whose order of
summation depends on their number. numpy's own sum is pairwise, as accurate, and always the same.
"""

from __future__ import annotations

import numpy as np


def dot(a: np.ndarray, b: np.ndarray) -> float:
    """Sum of a_i b_i."""
    return float(np.sum(a * b))


def norm(a: np.ndarray) -> float:
    """Euclidean length."""
    return float(np.sqrt(np.sum(a * a)))
