"""Slow reference interpreter: the meaning of an expression graph on numpy arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from graphopt.symbolic.expr import Expr, topological
from graphopt.symbolic.ops import OPS


def evaluate(
    roots: Sequence[Expr], values: Mapping[str, np.ndarray], robust: Callable | None = None
) -> list[np.ndarray]:
    """Values of `roots` where the variable called `name` is `values[name]`, any broadcastable shapes.

    `robust(chi2) -> (rho, weight)` stands for the robust kernel (none: rho is chi2, weight is 1).
    """
    found: dict[int, np.ndarray] = {}
    with np.errstate(all="ignore"):
        for e in topological(list(roots)):
            if e.op == "const":
                found[e.id] = np.asarray(e.value)
            elif e.op == "var":
                found[e.id] = np.asarray(values[e.value], dtype=float)
            elif robust is not None and e.op in ("robust_rho", "robust_weight"):
                found[e.id] = robust(found[e.args[0].id])[e.op == "robust_weight"]
            else:
                found[e.id] = OPS[e.op].evaluate(*(found[a.id] for a in e.args))
    return [found[e.id] for e in roots]


def evaluate_with(
    functions: Mapping[str, Callable[..., Any]],
    constant: Callable[[float], Any],
    roots: Sequence[Expr],
    values: Mapping[str, Any],
) -> list[Any]:
    """`evaluate` on arrays of another library; functions: by operation, constant: makes a number."""
    found: dict[int, Any] = {}
    for e in topological(list(roots)):
        if e.op == "const":
            found[e.id] = constant(float(e.value))  # type: ignore[arg-type]
        elif e.op == "var":
            found[e.id] = values[str(e.value)]
        else:
            found[e.id] = functions[e.op](*(found[a.id] for a in e.args))
    return [found[e.id] for e in roots]
