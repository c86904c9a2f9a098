"""Scalar products without BLAS.

numpy hands `a @ b` to a multithreaded BLAS, whose threads cost more than the product and whose order of
summation depends on their number. These are summed by pieces of fixed size, with all threads where the
vectors are long (`native/src/linear/dot.h`). Vectors of which a rank has a part bring a product of their own
(`distributed.vectors`): whatever an algorithm decides by one has to be the same on all ranks.
"""

from __future__ import annotations

import numpy as np

from graphopt.cpu_kernels import kernels


def dot(a: np.ndarray, b: np.ndarray) -> float:
    """Sum of a_i b_i of two float64 vectors of one length; `a.inner(b)` where there is one."""
    inner = getattr(a, "inner", None)
    if inner is not None:
        return inner(b)
    return kernels.dot(np.ascontiguousarray(a), np.ascontiguousarray(b))


def norm(a: np.ndarray) -> float:
    """Euclidean length."""
    return float(np.sqrt(dot(a, a)))
