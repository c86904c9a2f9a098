"""Conjugate gradients over an operator and a preconditioner that are functions of vectors.

    A x = b,   r = b - A x,   stop when   r' inv(M) r <= tolerance * (b' inv(M) b)

For matrices that only products know (`computed.materialized`); block matrices have `linear.Pcg`, whose stop
rule this is. Sums do not depend on the number of threads (`linear.vectors`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from graphopt.cpu_kernels import kernels
from graphopt.linear.vectors import dot

Operator = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True, eq=False)
class Solution:
    """Where the iterations ended."""

    x: np.ndarray
    """(n,)."""
    iterations: int
    """Products with A."""
    is_definite: bool
    """False: d' A d of a direction d was not positive; x is that of the iteration before."""


def conjugate_gradients(
    multiply: Operator, precondition: Operator, b: np.ndarray, tolerance: float, max_iterations: int
) -> Solution:
    """Solve A x = b (n,) from x = 0; multiply: A times a vector, precondition: inv(M) times one.

    Both return new arrays. `Stopped` where the calling thread is asked to stop.
    """
    x, r = np.zeros(len(b)), b.copy()
    d = precondition(r)
    residual = dot(r, d)
    bound = tolerance * residual
    for iteration in range(max_iterations):
        if residual <= bound:
            return Solution(x, iteration, True)
        kernels.check_stop()
        product = multiply(d)
        curvature = dot(d, product)
        if not curvature > 0.0:
            return Solution(x, iteration, False)
        alpha = residual / curvature
        x += alpha * d
        r -= alpha * product
        s = precondition(r)
        before, residual = residual, dot(r, s)
        d = s + (residual / before) * d
    return Solution(x, max_iterations, True)
