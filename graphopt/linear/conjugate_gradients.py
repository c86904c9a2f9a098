"""Conjugate gradients over an operator and a preconditioner that are functions of vectors.

    A x = b,   r = b - A x,   stop when   r' inv(M) r <= tolerance * (b' inv(M) b)

For matrices that only products know (`computed.materialized`); block matrices have `linear.Pcg`. The loop of
all is `native/src/linear/conjugate_gradients.h`. Sums do not depend on the number of threads
(`linear.vectors`).
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


class _Vectors:
    """x, r, d, q = A d and s = inv(M) r."""

    def __init__(self, multiply: Operator, precondition: Operator, b: np.ndarray):
        self._multiply, self._precondition = multiply, precondition
        self.x, self._r, self._d = np.zeros(len(b)), b.copy(), np.zeros(len(b))

    def start(self) -> float:
        self._s = self._precondition(self._r)
        return dot(self._r, self._s)

    def curvature(self, beta: float) -> float:
        kernels.check_stop()
        self._d = self._s + beta * self._d
        self._q = self._multiply(self._d)
        return dot(self._d, self._q)

    def step(self, alpha: float) -> float:
        self.x += alpha * self._d
        self._r -= alpha * self._q
        return self.start()


def conjugate_gradients(
    multiply: Operator, precondition: Operator, b: np.ndarray, tolerance: float, max_iterations: int
) -> Solution:
    """Solve A x = b (n,) from x = 0; multiply: A times a vector, precondition: inv(M) times one.

    Both return new arrays. `Stopped` where the calling thread is asked to stop.
    """
    vectors = _Vectors(multiply, precondition, b)
    iterations, residual, is_positive = kernels.conjugate_gradients(vectors, tolerance, max_iterations)
    return Solution(vectors.x, iterations, is_positive and bool(np.isfinite(residual)))
