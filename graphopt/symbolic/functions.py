"""numpy functions made of others: hyperbolic functions, logarithms, small linear algebra, choices.

`UFUNCS` and `FUNCTIONS` extend the tables of `arrays`. `INSTEAD` says what to write in place of functions
that have no meaning on symbols.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from graphopt.errors import SymbolicError
from graphopt.symbolic.expr import Expr, const, div, lift, make, mod
from graphopt.symbolic.source import user_line
from graphopt.symbolic.symbolic_array import SymbolicArray, symbolic_array

_LARGEST_MATRIX = 6


def _expm1(x: Expr) -> Expr:
    return make("sub", make("exp", x), const(1.0))


def _sinh(x: Expr) -> Expr:
    return 0.5 * (make("exp", x) - make("exp", -x))


def _cosh(x: Expr) -> Expr:
    return 0.5 * (make("exp", x) + make("exp", -x))


def _tanh(x: Expr) -> Expr:
    """1 to the last digit beyond 20, so that the exponential cannot overflow; its derivative at 0 is 1."""
    twice = make("min", make("max", 2.0 * x, const(-40.0)), const(40.0))
    return 1.0 - div(const(2.0), 1.0 + make("exp", twice))


def _arcsinh(x: Expr) -> Expr:
    root = make("sqrt", x * x + 1.0)
    return make("select", x < 0.0, -make("log", root - x), make("log", root + x))


def _cbrt(x: Expr) -> Expr:
    return make("sign", x) * make("pow", abs(x), const(1.0 / 3.0))


def _trunc(x: Expr) -> Expr:
    return make("select", x < 0.0, -make("floor", -x), make("floor", x))


def _rint(x: Expr) -> Expr:
    """Halves to the even number."""
    up = make("floor", x + 0.5)
    return up - make("select", make("le", const(0.5), up - x), mod(up, const(2.0)), const(0.0))


def _logaddexp(x: Expr, y: Expr) -> Expr:
    large = make("max", x, y)
    return large + make("log", 1.0 + make("exp", make("min", x, y) - large))


def _xor(x: Expr, y: Expr) -> Expr:
    return make("and", make("or", x, y), make("not", make("and", x, y)))


def _heaviside(x: Expr, at_zero: Expr) -> Expr:
    return make("select", x < 0.0, const(0.0), make("select", x.__eq__(0.0), at_zero, const(1.0)))


UFUNCS: dict[np.ufunc, Callable[..., Expr]] = {
    np.sinh: _sinh,
    np.cosh: _cosh,
    np.tanh: _tanh,
    np.arcsinh: _arcsinh,
    np.arccosh: lambda x: make("log", x + make("sqrt", x * x - 1.0)),
    np.arctanh: lambda x: 0.5 * make("log", div(1.0 + x, 1.0 - x)),
    np.expm1: _expm1,
    np.exp2: lambda x: make("exp", x * float(np.log(2.0))),
    np.log1p: lambda x: make("log", 1.0 + x),
    np.log2: lambda x: make("log", x) * float(1.0 / np.log(2.0)),
    np.log10: lambda x: make("log", x) * float(1.0 / np.log(10.0)),
    np.logaddexp: _logaddexp,
    np.cbrt: _cbrt,
    np.trunc: _trunc,
    np.rint: _rint,
    np.floor_divide: lambda x, y: make("floor", div(x, y)),
    np.fmod: lambda x, y: x - y * _trunc(div(x, y)),
    np.remainder: mod,
    np.heaviside: _heaviside,
    np.logical_xor: _xor,
    np.bitwise_xor: _xor,
    np.radians: lambda x: x * float(np.pi / 180.0),
    np.degrees: lambda x: x * float(180.0 / np.pi),
}


# --- linear algebra of small matrices -----------------------------------------------------------------------
def _square_matrix(a: Any, what: str) -> SymbolicArray:
    a = symbolic_array(a)
    if a.ndim != 2 or a.shape[0] != a.shape[1] or a.shape[0] > _LARGEST_MATRIX:
        raise SymbolicError(
            f"{what} on symbols takes one square matrix of up to {_LARGEST_MATRIX} x {_LARGEST_MATRIX}, "
            f"got shape {a.shape}.\n  {user_line()}\n"
            "Move larger systems out of the residual: make the solution a vertex."
        )
    return a


def _det(a: Any) -> Any:
    """By expansion along the first row; shared minors are one expression."""
    a = _square_matrix(a, "np.linalg.det")
    return _minor(a, tuple(range(len(a))), 0)


def _minor(a: SymbolicArray, columns: tuple[int, ...], row: int) -> Expr:
    if not columns:
        return const(1.0)
    total = const(0.0)
    for k, column in enumerate(columns):
        product = lift(a[row, column]) * _minor(a, columns[:k] + columns[k + 1 :], row + 1)
        total = total + product if k % 2 == 0 else total - product
    return total


def _inv(a: Any) -> SymbolicArray:
    """Adjugate over determinant."""
    a = _square_matrix(a, "np.linalg.inv")
    n = len(a)
    inverse = make("recip", _minor(a, tuple(range(n)), 0))
    result = np.empty((n, n), dtype=object)
    for i in range(n):
        for j in range(n):
            rest = np.delete(np.delete(a.view(np.ndarray), j, axis=0), i, axis=1)
            cofactor = _minor(symbolic_array(rest), tuple(range(n - 1)), 0)
            result[i, j] = (cofactor if (i + j) % 2 == 0 else -cofactor) * inverse
    return symbolic_array(result)


def _solve(a: Any, b: Any) -> Any:
    return _inv(a) @ symbolic_array(b)


def _norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    x = symbolic_array(x)
    if ord in (None, 2, "fro") and not (ord == 2 and axis is None and x.ndim == 2):
        return np.sqrt(np.sum(x * x, axis=axis, keepdims=keepdims))
    if ord in (1, np.inf) and (axis is not None or x.ndim == 1):
        size = np.abs(x)
        return (np.sum if ord == 1 else np.max)(size, axis=axis, keepdims=keepdims)
    raise SymbolicError(
        f"np.linalg.norm on symbols knows ord=None, 1, 2 and inf of vectors, got {ord!r}.\n  {user_line()}"
    )


# --- along axes ---------------------------------------------------------------------------------------------
def _cumsum(x: Any, axis: int | None = None) -> Any:
    x = symbolic_array(x)
    x, axis = (x.ravel(), 0) if axis is None else (x, axis)
    parts = list(np.moveaxis(x, axis, 0))
    for k in range(1, len(parts)):
        parts[k] = parts[k - 1] + parts[k]
    return np.stack([symbolic_array(part) for part in parts], axis=axis)


def _diff(x: Any, n: int = 1, axis: int = -1) -> Any:
    x = symbolic_array(x)
    for _ in range(n):
        parts = [symbolic_array(part) for part in np.moveaxis(x, axis, 0)]
        x = np.stack([b - a for a, b in pairwise(parts)], axis=axis)
    return x


def _select(conditions: Any, choices: Any, default: Any = 0) -> Any:
    result = default
    for condition, choice in reversed(list(zip(conditions, choices, strict=True))):
        result = np.where(condition, choice, result)
    return result


def _polyval(p: Any, x: Any) -> Any:
    result: Any = 0.0
    for coefficient in list(p):
        result = result * x + coefficient
    return result


def _interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None) -> Any:
    """Piecewise linear in a table of numbers."""
    places, values = np.asarray(xp, float), symbolic_array(fp)
    x = x if isinstance(x, Expr) else symbolic_array(x)
    result = values[-1] if right is None else right
    for k in range(len(places) - 2, -1, -1):
        slope = (values[k + 1] - values[k]) * (1.0 / (places[k + 1] - places[k]))
        result = np.where(x <= places[k + 1], values[k] + slope * (x - places[k]), result)
    return np.where(x < places[0], values[0] if left is None else left, result)


def _average(x: Any, axis: Any = None, weights: Any = None) -> Any:
    if weights is None:
        return np.mean(x, axis=axis)
    return np.sum(x * weights, axis=axis) / np.sum(weights, axis=axis)


def _multi_dot(arrays: Any) -> Any:
    result = arrays[0]
    for a in arrays[1:]:
        result = result @ a
    return result


def _matrix_power(a: Any, n: int) -> Any:
    if n < 0:
        return _matrix_power(_inv(a), -n)
    return _multi_dot([np.eye(len(a)), *[a] * n])


def _var(x: Any, axis: Any = None, ddof: int = 0) -> Any:
    x = symbolic_array(x)
    apart = x - np.mean(x, axis=axis, keepdims=True)
    count = x.size if axis is None else x.shape[axis]
    return np.sum(apart * apart, axis=axis) * (1.0 / (count - ddof))


FUNCTIONS: dict[Callable, Callable] = {
    np.linalg.norm: _norm,
    np.linalg.det: _det,
    np.linalg.inv: _inv,
    np.linalg.solve: _solve,
    np.linalg.multi_dot: _multi_dot,
    np.linalg.matrix_power: _matrix_power,
    np.cumsum: _cumsum,
    np.diff: _diff,
    np.select: _select,
    np.polyval: _polyval,
    np.interp: _interp,
    np.average: _average,
    np.var: _var,
    np.std: lambda x, axis=None, ddof=0: np.sqrt(_var(x, axis, ddof)),
    np.ptp: lambda x, axis=None: np.max(x, axis=axis) - np.min(x, axis=axis),
    np.round: lambda x, decimals=0: np.rint(x * 10.0**decimals) * 10.0**-decimals,
    np.sinc: lambda x: np.where(
        np.equal(x, 0.0), 1.0, np.sin(np.pi * x) / np.where(np.equal(x, 0.0), 1.0, np.pi * x)
    ),
}

_KEEP_OUT = "Keep the case out before it happens: y = np.where(x > 0, x, 1.0); np.where(x > 0, f(y), 0.0)."
INSTEAD: dict[str, str] = {
    "argmin": "Which one is smallest is not known yet: np.minimum gives the value, np.where chooses.",
    "argmax": "Which one is largest is not known yet: np.maximum gives the value, np.where chooses.",
    "sort": "The order is not known yet: np.minimum and np.maximum of two, or sort the measurements outside.",
    "argsort": "The order is not known yet: sort outside of the residual, before adding edges.",
    "piecewise": "np.select([condition, ...], [value, ...], default), or np.where for two cases.",
    "isnan": _KEEP_OUT,
    "isfinite": _KEEP_OUT,
    "nan_to_num": _KEEP_OUT,
    "apply_along_axis": "Numpy functions take axis= themselves; or write the components and np.stack them.",
    "unwrap": "graphopt.geometry.normalize_angle(angle) wraps into (-pi, pi].",
    "angle": "np.arctan2(y, x).",
    "pinv": "np.linalg.inv of a square matrix; or make the unknown a vertex.",
    "eigvalsh": "Make the decomposition's factors vertices, or compute it outside of the residual.",
    "svd": "Make the decomposition's factors vertices, or compute it outside of the residual.",
    "searchsorted": "np.interp for a table; graphopt.Image for a table in one or two dimensions.",
    "convolve": "Write the sum of products; over a grid, use a stencil (Graph.add_stencil).",
    "nonzero": "A choice that depends on symbols: np.where(condition, x, y) with three arguments.",
}
"""Name of a numpy function -> what to write in its place."""
