"""Conjugate gradients on the reduced system, which no rank ever has.

    S x = b_s,   S p = D_p p + sum_r S_r p

With block-Jacobi, the form of Chronopoulos and Gear (1989), in which the two scalar products of an iteration
belong to the vector that is summed anyway: one all-reduce per iteration is all that ranks say to each other.

    s = J r;  w = S s;  gamma = r's;  delta = s'w                w, gamma, delta: summed over the ranks
    beta = gamma / gamma_before;  alpha = gamma / (delta - beta gamma / alpha_before)
    d = s + beta d;  q = w + beta q;  x += alpha d;  r -= alpha q

What each rank does of it: `iterating`. With the additive Schwarz preconditioner (`schwarz`), which needs a
sum of its own, the usual form.

Stop rule: r' inv(M) r <= tolerance * b' inv(M) b; where less will do also when iterations no longer gain much
(Nash and Sofer 1990), as on one device: see `shaders/pcg_direction.comp`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphopt.distributed.communicator import Communicator
from graphopt.distributed.iterating import TAIL, Iterating
from graphopt.distributed.part import HostPart
from graphopt.distributed.schwarz import AdditiveSchwarz
from graphopt.solver.linear_systems import PCG_TOLERANCE
from graphopt.solver.registry import SolverOptions
from graphopt.solver.vectors import dot

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


class ConjugateGradients:
    """With additive Schwarz, whose application is a sum over the ranks as well. Every vector is whole."""

    linear_solver = "pcg"

    def __init__(
        self,
        comm: Communicator,
        part: HostPart,
        dims: np.ndarray,
        preconditioner: AdditiveSchwarz,
        options: SolverOptions,
    ):
        self._comm, self._part = comm, part
        self.dim = int(dims.sum())
        self.preconditioner = preconditioner
        self._tolerance = options.pcg_tolerance or PCG_TOLERANCE
        self._most = options.pcg_iterations or max(self.dim, 1)
        self.iterations = 0
        """Products of all solves so far."""
        self._sent = np.zeros(self.dim)

    def solve(self, formed: bool, damping: np.ndarray) -> np.ndarray | None:
        """x_p; damping: D_p, of which this rank's elimination knows nothing."""
        residual = self.preconditioner.prepare(formed, damping)
        if residual is None:
            return None
        x = np.zeros(self.dim)
        z = self.preconditioner.apply(residual)
        rho = dot(residual, z)
        bound = self._tolerance * rho
        direction = z
        for number in range(self._most):
            if not rho > bound:
                break
            product = self.product(direction, damping)
            curvature = dot(direction, product)
            if not curvature > 0.0:  # not definite, or not finite
                return x if number else None
            step = rho / curvature
            x += step * direction
            residual = residual - step * product
            z = self.preconditioner.apply(residual)
            rho, before = dot(residual, z), rho
            direction = z + (rho / before) * direction
        return x if np.isfinite(rho) else None

    def product(self, x: np.ndarray, damping: np.ndarray) -> np.ndarray:
        """S x: this rank's part of it, one sum, and the damping meanwhile."""
        part = self._part
        self._sent.fill(0.0)
        self._sent[part.kept_scalars] = part.product(np.ascontiguousarray(x[part.kept_scalars]))
        pending = self._comm.begin_sum(self._sent)
        damped = damping * x
        self.iterations += 1
        return pending.wait() + damped

    @property
    def memory_bytes(self) -> int:
        """Some vectors."""
        return 8 * 8 * self.dim
