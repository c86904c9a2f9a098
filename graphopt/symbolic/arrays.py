"""The numpy functions that work on symbols and arrays of them.

numpy hands every ufunc and function call on a `SymbolicArray` or a single `Expr` to the two tables below,
because numpy's own loops for objects ask comparisons for their truth. What is in neither table is an error
that names the table.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

import graphopt.symbolic.functions as functions
from graphopt.errors import SymbolicError
from graphopt.symbolic.expr import Expr, const, div, lift, make, numpy_calls, power
from graphopt.symbolic.source import user_line
from graphopt.symbolic.symbolic_array import SymbolicArray, symbolic_array


def _of(op: str) -> Callable[..., Expr]:
    return lambda *args: make(op, *args)


def _square(x: Expr) -> Expr:
    return make("mul", x, x)


def _not_equal(x: Expr, y: Expr) -> Expr:
    return make("not", make("eq", x, y))


UFUNCS: dict[np.ufunc, Callable[..., Expr]] = {
    np.add: _of("add"),
    np.subtract: _of("sub"),
    np.multiply: _of("mul"),
    np.true_divide: div,
    np.negative: _of("neg"),
    np.positive: lambda x: x,
    np.power: power,
    np.float_power: power,
    np.square: _square,
    np.sqrt: _of("sqrt"),
    np.reciprocal: _of("recip"),
    np.sin: _of("sin"),
    np.cos: _of("cos"),
    np.tan: _of("tan"),
    np.arcsin: _of("asin"),
    np.arccos: _of("acos"),
    np.arctan: _of("atan"),
    np.arctan2: _of("atan2"),
    np.hypot: lambda x, y: x.hypot(y),
    np.exp: _of("exp"),
    np.log: _of("log"),
    np.absolute: _of("abs"),
    np.fabs: _of("abs"),
    np.sign: _of("sign"),
    np.copysign: lambda x, y: make("select", make("lt", y, const(0.0)), -make("abs", x), make("abs", x)),
    np.floor: _of("floor"),
    np.ceil: lambda x: -make("floor", -x),
    np.minimum: _of("min"),
    np.maximum: _of("max"),
    np.fmin: _of("min"),
    np.fmax: _of("max"),
    np.less: _of("lt"),
    np.less_equal: _of("le"),
    np.greater: lambda x, y: make("lt", y, x),
    np.greater_equal: lambda x, y: make("le", y, x),
    np.equal: _of("eq"),
    np.not_equal: _not_equal,
    np.logical_and: _of("and"),
    np.logical_or: _of("or"),
    np.logical_not: _of("not"),
    np.bitwise_and: _of("and"),
    np.bitwise_or: _of("or"),
    np.invert: _of("not"),
    np.conjugate: lambda x: x,
    np.deg2rad: lambda x: make("mul", x, const(np.pi / 180.0)),
    np.rad2deg: lambda x: make("mul", x, const(180.0 / np.pi)),
    **functions.UFUNCS,
}
"""numpy ufunc -> function of Expr."""


def _plain(x: Any) -> np.ndarray:
    """`x` as an ordinary object array."""
    return np.asarray(x, dtype=object).view(np.ndarray)


def _rewrap(result: Any, scalar: bool) -> Any:
    """Object results become symbolic; a 0-d result stays an array unless all inputs were scalars."""
    if isinstance(result, tuple | list):
        return type(result)(_rewrap(r, scalar) for r in result)
    if isinstance(result, np.ndarray) and result.dtype != object:
        return result
    if isinstance(result, np.ndarray) and (result.ndim > 0 or not scalar):
        return result.view(SymbolicArray)
    if isinstance(result, np.ndarray):
        return result.item()
    return result if scalar or not isinstance(result, Expr) else symbolic_array(result)


def apply_ufunc(ufunc: np.ufunc, method: str, inputs: tuple, kwargs: dict) -> Any:
    """Carry out a ufunc call on symbols (protocol `__array_ufunc__`)."""
    scalar = not any(isinstance(x, np.ndarray) for x in inputs)
    if ufunc is np.matmul and method == "__call__":
        return _rewrap(np.matmul(*(_plain(x) for x in inputs)), scalar)
    function = UFUNCS.get(ufunc)
    if ufunc.__name__ == "clip" and method == "__call__":
        return _clip(*inputs)
    if function is None:
        raise _undefined(getattr(ufunc, "__name__", "function"))
    if method == "__call__":
        return _call(function, inputs, kwargs, scalar)
    if method == "reduce" and ufunc.nin == 2:
        return _reduce(ufunc, function, inputs[0], kwargs)
    raise SymbolicError(f"np.{ufunc.__name__}.{method} is not defined on symbols.\n  {user_line()}")


_IGNORED = frozenset({"out", "dtype", "casting", "subok"})
"""Arguments of ufuncs that say nothing about symbols, and `out`, which is obeyed."""


def _call(function: Callable, inputs: tuple, kwargs: dict, scalar: bool) -> Any:
    unknown = kwargs.keys() - _IGNORED
    if unknown:
        raise SymbolicError(f"Symbols do not support the argument {min(unknown)}=.\n  {user_line()}")
    if scalar:
        return function(*map(lift, inputs))
    elements = np.broadcast(*[_plain(x) for x in inputs])
    result = np.empty(elements.shape, dtype=object)
    result.ravel()[:] = [function(*map(lift, element)) for element in elements]
    if kwargs.get("out") is not None:
        (out,) = kwargs["out"]
        if out.dtype != object:
            raise SymbolicError(
                f"A symbol is written into an array of {out.dtype}.\n  {user_line()}\n"
                "Make the array with np.stack."
            )
        out.view(np.ndarray)[...] = result
        return out
    return result.view(SymbolicArray)


def _reduce(ufunc: np.ufunc, function: Callable, array: Any, kwargs: dict) -> Any:
    values = _plain(array)
    axis = kwargs.get("axis", 0)
    axes = tuple(range(values.ndim)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    axes = tuple(a % values.ndim for a in axes)
    kept = [a for a in range(values.ndim) if a not in axes]
    rows = values.transpose(*kept, *axes).reshape(*(values.shape[a] for a in kept), -1)
    result = np.empty(rows.shape[:-1], dtype=object)
    for index in np.ndindex(result.shape):
        elements = [lift(e) for e in rows[index]]
        if not elements and ufunc.identity is None:
            raise SymbolicError(f"np.{ufunc.__name__}.reduce of no elements.\n  {user_line()}")
        result[index] = functools.reduce(function, elements) if elements else const(ufunc.identity)
    if kwargs.get("keepdims") is True:
        result = result.reshape([1 if a in axes else n for a, n in enumerate(values.shape)])
    return result.view(SymbolicArray)


# --- functions that are not ufuncs --------------------------------------------------------------------------
def _where(condition, x, y):
    return _call(lambda c, a, b: make("select", c, a, b), (condition, x, y), {}, _all_scalar(condition, x, y))


def _clip(x, a_min=None, a_max=None, **kwargs):
    lower, upper = kwargs.get("min", a_min), kwargs.get("max", a_max)
    result = x if lower is None else np.maximum(x, lower)
    return result if upper is None else np.minimum(result, upper)


def _cross(a, b, axis=-1):
    if axis != -1:
        raise SymbolicError(f"np.cross on symbols works along the last axis.\n  {user_line()}")
    a, b = symbolic_array(a), symbolic_array(b)
    x, y, z = (a[..., i] for i in range(3))
    u, v, w = (b[..., i] for i in range(3))
    return np.stack([y * w - z * v, z * u - x * w, x * v - y * u], axis=-1)


def _all_scalar(*args) -> bool:
    return not any(isinstance(x, np.ndarray | list | tuple) for x in args)


FUNCTIONS: dict[Callable, Callable] = {
    np.where: _where,
    np.clip: _clip,
    np.cross: _cross,
    np.linalg.cross if hasattr(np.linalg, "cross") else np.cross: _cross,
    **functions.FUNCTIONS,
}
"""numpy function -> our own version."""

_STRUCTURAL_NAMES = """append array_split atleast_1d atleast_2d atleast_3d block broadcast_arrays broadcast_to
column_stack concatenate copy diag diagonal dot dstack einsum empty_like expand_dims flip full_like hsplit
hstack inner kron moveaxis ndim ones_like outer permute_dims prod ravel repeat reshape roll rollaxis rot90
shape size split squeeze stack sum swapaxes take tensordot tile trace transpose tril triu vdot vsplit vstack
zeros_like""".split()
STRUCTURAL: frozenset[Callable] = frozenset(getattr(np, n) for n in _STRUCTURAL_NAMES if hasattr(np, n))
"""numpy functions that move elements, or add and multiply them: they work on object arrays as they are."""

REDUCTIONS: dict[Callable, np.ufunc] = {
    np.max: np.maximum,
    np.min: np.minimum,
    np.amax: np.maximum,
    np.amin: np.minimum,
    np.all: np.logical_and,
    np.any: np.logical_or,
}
"""numpy function -> the ufunc it reduces with."""


def apply_function(function: Callable, args: tuple, kwargs: dict) -> Any:
    """Carry out a numpy function call on symbols (protocol `__array_function__`)."""
    if function in FUNCTIONS:
        return FUNCTIONS[function](*args, **kwargs)
    if function in REDUCTIONS:
        axis = kwargs["axis"] if "axis" in kwargs else args[1] if args[1:] else None
        return _reduce(REDUCTIONS[function], UFUNCS[REDUCTIONS[function]], args[0], {**kwargs, "axis": axis})
    if function is np.mean:
        total = np.sum(*args, **kwargs)
        return total * (np.size(total) / np.size(args[0]))
    if function in STRUCTURAL:
        result = function(*_without_symbols(args), **{k: _without_symbols(v) for k, v in kwargs.items()})
        return _rewrap(result, scalar=False)
    raise _undefined(function.__name__)


def _undefined(name: str) -> SymbolicError:
    """What is not defined, where, and what to write in its place."""
    hint = functions.INSTEAD.get(name)
    if hint is None:
        known = {f.__name__ for f in (*UFUNCS, *FUNCTIONS, *STRUCTURAL, *REDUCTIONS)}
        close = difflib.get_close_matches(name, sorted(known), n=4, cutoff=0.6)
        hint = f"Known with a similar name: {', '.join(f'np.{name}' for name in close)}. " if close else ""
        hint += "Write it with arithmetic, np.where and the functions listed in docs/types.md."
    return SymbolicError(f"np.{name} is not defined on symbols.\n  {user_line()}\n{hint}")


def _without_symbols(x: Any) -> Any:
    """`x` with every symbolic scalar or array as an ordinary object array."""
    if isinstance(x, Expr | SymbolicArray):
        return _plain(x)
    if isinstance(x, tuple | list):
        return type(x)(_without_symbols(e) for e in x)
    return x


numpy_calls.update(ufunc=apply_ufunc, function=apply_function)
