"""Conjugate gradients on the reduced system, which no rank ever has.

    S x = b_s,   S p = D_p p + sum_r S_r p

With block-Jacobi, the form of Chronopoulos and Gear (1989), in which the two scalar products of an iteration
belong to the vector that is summed anyway: one all-reduce per iteration is all that ranks say to each other.

    s = J r;  w = S s;  gamma = r's;  delta = s'w                w, gamma, delta: summed over the ranks
    beta = gamma / gamma_before;  alpha = gamma / (delta - beta gamma / alpha_before)
    d = s + beta d;  q = w + beta q;  x += alpha d;  r -= alpha q

What each rank does of it: `iterating`.

Stop rule: r' inv(M) r <= tolerance * b' inv(M) b; where less will do also when iterations no longer gain much
(Nash and Sofer 1990), as on one device: see `shaders/pcg_direction.comp`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphopt.distributed.communicator import Communicator
from graphopt.distributed.iterating import TAIL, Iterating

_LEAST_PATIENCE, _MOST_PATIENCE, _PATIENCE_SHARE = 10, 30, 4  # as on one device, `kernels.iterations`


@dataclass(frozen=True)
class StopRule:
    """When to stop."""

    tolerance: float
    """Of r' inv(M) r, relative to its start."""
    most: int
    """Iterations."""
    share: float = 0.0
    """Of the gain of the quadratic model, what may be left, ..."""
    worth: float = 0.0
    """... or so much of it, ..."""
    patience: int = _MOST_PATIENCE
    """... once so many iterations have run."""


def patience_after(iterations: int | None) -> int:
    """Iterations before their gain counts; iterations: of the solve before, None: it is the first."""
    if iterations is None:
        return _MOST_PATIENCE
    return min(max(iterations // _PATIENCE_SHARE, _LEAST_PATIENCE), _MOST_PATIENCE)


def iterate(comm: Communicator, own: Iterating, total: np.ndarray, rule: StopRule) -> int | None:
    """Solve S x = b_s; the iterations it took, None: S is not definite. Collective.

    total: the sum over the ranks of what `own.reduce` gave.
    """
    message = own.start(total)
    gamma = alpha = beta = gain = total_gain = threshold = 0.0
    number = 0
    while True:
        total = comm.sum(message)
        before = gamma
        gamma, delta, failed = total[-TAIL] + total[-4], total[-3] + total[-2], total[-1]
        if failed or not np.isfinite(gamma):
            return None
        if number == 0:
            threshold = rule.tolerance * gamma
        enough = max(rule.share * total_gain, rule.worth)
        is_enough = number >= rule.patience and number * gain < enough
        if not gamma > threshold or number >= rule.most or is_enough:
            return number
        beta = gamma / before if number else 0.0
        curvature = delta - beta * gamma / alpha if number else delta
        if not curvature > 0.0:  # not definite, or not finite
            return number or None
        alpha = gamma / curvature
        gain = alpha * gamma
        total_gain += gain
        message = own.advance(total, alpha, beta)
        number += 1
