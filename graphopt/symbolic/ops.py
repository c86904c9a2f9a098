"""The closed set of operations, and what each means on numpy arrays.

This table is the definition of every operation: the simplifier folds constants with it, `evaluate` runs whole
expressions with it, and the bytecode interpreters are tested against it. Truth values are 1.0 and 0.0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

import graphopt.symbolic.sampling as sampling


@dataclass(frozen=True)
class Op:
    """One operation of the expression graph."""

    name: str
    arity: int
    evaluate: Callable
    """(arity arrays) -> array; float64 in, float64 out, no warning is ever raised."""
    commutative: bool = False
    is_open: bool = False
    """The value depends on more than the arguments (a robust kernel, pixels): never folded."""


def _part(sample: Callable, k: int) -> Callable:
    return lambda plane, u, v: sample(plane, u, v)[k]


def _truth(function: Callable) -> Callable:
    return lambda *args: np.where(function(*args), 1.0, 0.0)


def _select(condition, x, y):
    return np.where(np.not_equal(condition, 0.0), x, y)


OPS: dict[str, Op] = {
    op.name: op
    for op in (
        Op("add", 2, np.add, True),
        Op("sub", 2, np.subtract),
        Op("mul", 2, np.multiply, True),
        Op("neg", 1, np.negative),
        Op("recip", 1, lambda x: np.divide(1.0, x)),
        Op("sqrt", 1, np.sqrt),
        Op("sin", 1, np.sin),
        Op("cos", 1, np.cos),
        Op("tan", 1, np.tan),
        Op("asin", 1, np.arcsin),
        Op("acos", 1, np.arccos),
        Op("atan", 1, np.arctan),
        Op("atan2", 2, np.arctan2),
        Op("exp", 1, np.exp),
        Op("log", 1, np.log),
        Op("pow", 2, np.power),
        Op("abs", 1, np.abs),
        Op("sign", 1, np.sign),
        Op("floor", 1, np.floor),
        Op("min", 2, np.minimum, True),
        Op("max", 2, np.maximum, True),
        Op("lt", 2, _truth(np.less)),
        Op("le", 2, _truth(np.less_equal)),
        Op("eq", 2, _truth(np.equal), True),
        Op("and", 2, _truth(np.logical_and), True),
        Op("or", 2, _truth(np.logical_or), True),
        Op("not", 1, _truth(np.logical_not)),
        Op("select", 3, _select),
        # rho and weight of the robust kernel at this chi2. The kernel is another program, chosen per edge
        # group, so its value is not known here; an evaluator must be given it.
        Op("robust_rho", 1, lambda chi2: chi2, is_open=True),
        Op("robust_weight", 1, lambda chi2: np.ones_like(chi2), is_open=True),
        # image at (plane, u, v), and its derivatives by u and v, see `sampling`
        Op("sample", 3, _part(sampling.bilinear, 0), is_open=True),
        Op("sample_du", 3, _part(sampling.bilinear, 1), is_open=True),
        Op("sample_dv", 3, _part(sampling.bilinear, 2), is_open=True),
        Op("sample_cubic", 3, _part(sampling.bicubic, 0), is_open=True),
        Op("sample_cubic_du", 3, _part(sampling.bicubic, 1), is_open=True),
        Op("sample_cubic_dv", 3, _part(sampling.bicubic, 2), is_open=True),
    )
}


def fold(op: str, values: tuple[float, ...]) -> float:
    """Value of an operation on constants; infinities and NaN follow IEEE 754."""
    with np.errstate(all="ignore"):
        return float(OPS[op].evaluate(*(np.float64(v) for v in values)))
