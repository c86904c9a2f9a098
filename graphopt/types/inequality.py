"""Inequalities as residuals: the terms of an augmented Lagrangian.

    c(x) >= 0        e = max(0, m - c(x)),    e' diag(rho) e       multiplier of chi2: 2 rho e

m is lambda / rho. Reference: Rockafellar, Augmented Lagrange multiplier functions and duality in nonconvex
programming, SIAM J. Control 12 (1974).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from graphopt.types.base import EdgeType, unwrapped
from graphopt.types.cache import per_type_cache

Array = Any


@per_type_cache
def augmented_edge_type(kind: EdgeType) -> EdgeType:
    """The residual of an inequality; its measurement goes on with m (residual_dim,)."""
    return replace(
        kind,
        name=f"{kind.name}[augmented]",
        tag=f"{kind.tag}[augmented]",
        measurement_dim=kind.measurement_dim + kind.residual_dim,
        residual=_residual(kind),
        jacobian=None,
        working_jacobian=None,
        wrap_measurement=unwrapped,
        aliases=(),
        alias_files={},
        home="",
        sees=None,
        relative_pose=None,
        predict={},
        measure=None,
        inequality=False,
        made_by=None,
    )


def _residual(kind: EdgeType) -> Callable[..., Array]:
    def missing(*arguments: Any) -> Array:
        *others, measurement = arguments
        own = kind.wrap_measurement(measurement[..., : kind.measurement_dim])
        return np.maximum(measurement[..., kind.measurement_dim :] - kind.residual(*others, own), 0.0)

    return missing
