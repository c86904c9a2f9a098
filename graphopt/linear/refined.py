"""Solves by LDL' without pivoting, refined to the residual that a stable factorization would leave.

    r = b - (H + D) x,    x += (L S L')^-1 r,    residual = |r| / (|H + D| |x| + |b|),   largest norms

A pivot that is small beside its row makes L large: the factor is that of a matrix which differs from H + D by
unit roundoff times the growth max |L| |L'| / max |H + D|, and so does the residual of x. As long as that
difference is smaller than the smallest eigenvalues, each step gains as many digits as it leaves. Reference:
Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., sections 11.1 and 12.2.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from graphopt.cpu_kernels import kernels
from graphopt.errors import SolverError
from graphopt.problem.pattern import BlockPattern

STEPS = 4
"""Refinements of a solve at most."""
_ENOUGH = 4.0 * np.finfo(np.float64).eps
"""Residual that needs no refinement; a step that does not halve it is the last one, too."""


class SignedSystem:
    """H + D of a pattern, and solutions to it by a factor that may be inaccurate."""

    def __init__(self, pattern: BlockPattern, unit: float):
        """unit: machine epsilon of the factor's numbers; residuals up to its square root are accepted."""
        self.limit = float(np.sqrt(unit))
        self.residual: float | None = None
        """Largest of the last solve."""
        self._pattern = pattern
        self._product = kernels.SymmetricProduct(pattern)
        self._values, self._damping = np.empty(0), 0.0
        self._norm = 0.0

    def take(self, values: np.ndarray, damping: np.ndarray | None) -> None:
        """Keep the numbers of a factorization, (values_size,) and (dim,)."""
        self._values = np.array(values, np.float64)
        self._damping = 0.0 if damping is None else np.array(damping, np.float64)
        self.residual = None
        self._norm = float(self._rows(np.abs(self._values), np.ones(self._pattern.dim)).max(initial=0.0))

    def _rows(self, values: np.ndarray, x: np.ndarray) -> np.ndarray:
        damping = np.abs(self._damping) if values is not self._values else self._damping
        return self._product.multiply(values, x) + damping * x

    def solve(self, correct: Callable[[np.ndarray], np.ndarray], b: np.ndarray) -> np.ndarray:
        """x of b, both (dim,) or (dim, k); `correct` applies the factor's inverse to (dim,).

        Raises `SolverError` if a residual stays beyond `limit`.
        """
        sides = b.reshape(len(b), -1).T
        solved = [self._solve(correct, np.ascontiguousarray(side)) for side in sides]
        self.residual = max((residual for _, residual in solved), default=0.0)
        x = np.array([solution for solution, _ in solved]).reshape(sides.shape)
        return x[0] if b.ndim == 1 else np.ascontiguousarray(x.T)

    def _solve(self, correct: Callable[[np.ndarray], np.ndarray], b: np.ndarray) -> tuple[np.ndarray, float]:
        x = correct(b)
        rest, residual = self._rest(x, b)
        for _ in range(STEPS):
            if not _ENOUGH < residual < np.inf:
                break
            next_x = x + correct(rest)
            next_rest, next_residual = self._rest(next_x, b)
            is_better, is_last = next_residual < residual, not next_residual < 0.5 * residual
            if is_better:
                x, rest, residual = next_x, next_rest, next_residual
            if is_last:
                break
        if not residual <= self.limit and np.isfinite(b).all():
            raise SolverError(
                f"LDL' without pivoting is too inaccurate for this matrix: after refinement the residual is "
                f"{residual:.1e} of |H + D| |x| + |b|, expected at most {self.limit:.1e}. A pivot is almost "
                "0 where its row is not. Add damping, put a block with a regular diagonal where that pivot "
                "is (ordering='natural' keeps yours), or factorize in float64 if it was float32."
            )
        return x, residual

    def _rest(self, x: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, float]:
        """b - (H + D) x and its residual; infinite where x is not finite."""
        with np.errstate(all="ignore"):
            rest = b - self._rows(self._values, x)
            scale = self._norm * np.abs(x).max(initial=0.0) + np.abs(b).max(initial=0.0)
            largest = np.abs(rest).max(initial=0.0)
            residual = largest / scale if scale > 0.0 else largest
        return rest, float(residual) if np.isfinite(residual) else np.inf
