"""SymPy's functions in numpy: the table that `imports.from_sympy` reads.

Every entry works on float arrays and on symbols; its derivative is finite wherever the function has one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

Array = Any


def _fold(function: Callable[[Array, Array], Array]) -> Callable[..., Array]:
    """A function of two arguments for any number of them."""
    return lambda *values: reduce(function, values)


def _power(base: Array, exponent: Array) -> Array:
    if isinstance(exponent, float) and exponent in (0.5, -0.5):
        return np.sqrt(base) if exponent > 0.0 else 1.0 / np.sqrt(base)
    if isinstance(exponent, float) and exponent == int(exponent) and abs(exponent) <= 16:
        return base ** int(exponent) if exponent >= 0.0 else 1.0 / base ** int(-exponent)
    return np.power(base, exponent)


def _sinc(x: Array) -> Array:
    small = x * x < 1e-6
    safe = np.where(small, 1.0, x)
    return np.where(small, 1.0 - x * x * (1.0 - x * x / 20.0) / 6.0, np.sin(safe) / safe)


def _sign_no_zero(x: Array) -> Array:
    return np.where(x < 0.0, -1.0, 1.0)


def choose(*parts: Array) -> Array:
    """Piecewise: value, condition, value, condition, ..., value that holds otherwise."""
    *pairs, result = parts
    for value, condition in zip(pairs[-2::-2], pairs[::-2], strict=True):
        result = np.where(condition, value, result)
    return result


FUNCTIONS: dict[str, Callable[..., Array]] = {
    "Add": _fold(np.add),
    "Mul": _fold(np.multiply),
    "Pow": _power,
    "exp": np.exp,
    "log": np.log,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "cot": lambda x: np.cos(x) / np.sin(x),
    "sec": lambda x: 1.0 / np.cos(x),
    "csc": lambda x: 1.0 / np.sin(x),
    "sinc": _sinc,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "acot": lambda x: np.arctan(1.0 / x),
    "asec": lambda x: np.arccos(1.0 / x),
    "acsc": lambda x: np.arcsin(1.0 / x),
    "atan2": np.arctan2,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "coth": lambda x: 1.0 / np.tanh(x),
    "sech": lambda x: 1.0 / np.cosh(x),
    "csch": lambda x: 1.0 / np.sinh(x),
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "acoth": lambda x: np.arctanh(1.0 / x),
    "Abs": np.abs,
    "sign": np.sign,
    "floor": np.floor,
    "ceiling": np.ceil,
    "frac": lambda x: x - np.floor(x),
    "Mod": np.mod,
    "Min": _fold(np.minimum),
    "Max": _fold(np.maximum),
    "Heaviside": np.heaviside,
    "StrictLessThan": np.less,
    "LessThan": np.less_equal,
    "StrictGreaterThan": np.greater,
    "GreaterThan": np.greater_equal,
    "Equality": np.equal,
    "Unequality": np.not_equal,
    "And": _fold(np.logical_and),
    "Or": _fold(np.logical_or),
    "Xor": _fold(np.logical_xor),
    "Not": np.logical_not,
    "ITE": np.where,
    "Piecewise": choose,
    # SymForce's own
    "SignNoZero": _sign_no_zero,
    "CopysignNoZero": lambda x, y: _sign_no_zero(y) * np.abs(x),
}
"""Name of a SymPy class -> the same on numpy arrays and symbols."""
