"""`SymbolicArray`: an ndarray of dtype object whose elements are `Expr`; numpy's calls are in `arrays`."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphopt.symbolic.expr import Expr, lift, numpy_calls, var


class SymbolicArray(np.ndarray):
    """Array of `Expr` (dtype object) that numpy functions work on."""

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        return numpy_calls["ufunc"](ufunc, method, inputs, kwargs)

    def __array_function__(self, func, types, args, kwargs):
        return numpy_calls["function"](func, tuple(args), dict(kwargs))


def symbolic_array(x: Any) -> SymbolicArray:
    """Return `x` (an Expr, a number, an array or nested lists of them) as a SymbolicArray."""
    return np.asarray(x, dtype=object).view(SymbolicArray)


def variables(prefix: str, count: int) -> SymbolicArray:
    """(count,) array of the variables `prefix[0]`, `prefix[1]`, ..."""
    result = np.empty(count, dtype=object)
    for i in range(count):
        result[i] = var(f"{prefix}[{i}]")
    return result.view(SymbolicArray)


def as_exprs(x: Any) -> list[Expr]:
    """Elements of an array in C order as expressions."""
    return [lift(e) for e in np.asarray(x, dtype=object).ravel()]


numpy_calls["array"] = symbolic_array
