"""Residuals from SymPy and SymForce: an expression becomes a function that `edge_type` takes.

    x, y, theta, u, v, d = sympy.symbols("x y theta u v d")
    difference = sympy.sqrt((u - x) ** 2 + (v - y) ** 2) - d
    residual = graphopt.from_sympy(difference, {"pose": [x, y, theta], "point": [u, v], "distance": d})
    EdgeRange = graphopt.edge_type(
        tag="EDGE_RANGE", vertices=("VERTEX_SE2", "VERTEX_XY"), measurement_dim=1, name="EdgeRange"
    )(residual)

An argument is what a vertex stores, number by number: a symbol, a list or matrix of symbols, or an object
with `to_storage()`, as SymForce's geometry types have. SymForce's expressions convert themselves to SymPy's.
SymPy is the optional extra `graphopt[sympy]`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from graphopt.errors import ShapeError, SymbolicError
from graphopt.symbolic.expr import Expr
from graphopt.symbolic.sympy_functions import FUNCTIONS

Array = Any


def from_sympy(
    expression: Any,
    arguments: Mapping[str, Any] | Sequence[Any],
    *,
    name: str = "residual",
    constants: Mapping[Any, float] | None = None,
) -> Callable[..., Array]:
    """Function (*arguments) -> (residual_dim,) of a list or a column of expressions; of one: -> scalar.

    `arguments`: the symbols of each vertex, each parameter and the measurement, in the order in which an
    edge's function takes them; a mapping also names them. `constants` gives symbols a value, such as
    `{sf.epsilon(): 1e-12}`.

    Raises `SymbolicError` for a function without a counterpart here, for a symbol that is no argument or more
    than one, and where SymPy is not installed.
    """
    _sympy()
    groups = _groups(arguments)
    outputs, is_scalar = _outputs(expression)
    values = {_sympy().sympify(symbol): value for symbol, value in (constants or {}).items()}
    program = _Program([output.subs(values).doit() for output in outputs], groups)

    def residual(*stored: Array) -> Array:
        results = program.run(stored)
        if is_scalar:
            return results[0]
        numeric = not any(
            isinstance(result, (Expr, np.ndarray)) and _is_symbolic(result) for result in results
        )
        return np.stack(np.broadcast_arrays(*results) if numeric else results, axis=-1)

    residual.__name__ = residual.__qualname__ = name
    residual.__doc__ = ", ".join(str(output) for output in outputs)
    return residual


class _Program:
    """Operations in the order of evaluation, each a function and the places of its operands."""

    def __init__(self, outputs: list[Any], groups: dict[str, list[Any]]) -> None:
        self._groups = groups
        self._places: dict[Any, int] = {}
        self._steps: list[tuple[Callable[..., Array], tuple[int, ...]]] = []
        for symbol in (symbol for group in groups.values() for symbol in group):
            if symbol in self._places:
                raise SymbolicError(f"The symbol {symbol} is in two arguments, or twice in one.")
            self._places[symbol] = len(self._places)
        self._num_inputs = len(self._places)
        self._outputs = [self._place(output) for output in outputs]

    def run(self, stored: tuple[Array, ...]) -> list[Array]:
        """Values of the outputs where the arguments have these values."""
        if len(stored) != len(self._groups):
            names = ", ".join(self._groups)
            raise ShapeError(f"got {len(stored)} arguments, expected {len(self._groups)}: {names}.")
        values: list[Array] = []
        for (name, symbols), value in zip(self._groups.items(), stored, strict=True):
            values += _numbers(name, symbols, value)
        for function, operands in self._steps:
            values.append(function(*(values[operand] for operand in operands)))
        return [values[output] for output in self._outputs]

    def _place(self, root: Any) -> int:
        """Where the value of an expression is; adds what it needs."""
        waiting = [root]
        while waiting:
            expression = waiting[-1]
            if expression in self._places:
                waiting.pop()
                continue
            operands = _operands(expression)
            missing = [operand for operand in operands if operand not in self._places]
            if missing:
                waiting += missing
                continue
            waiting.pop()
            self._places[expression] = self._num_inputs + len(self._steps)
            self._steps.append(self._step(expression, operands))
        return self._places[root]

    def _step(
        self, expression: Any, operands: tuple[Any, ...]
    ) -> tuple[Callable[..., Array], tuple[int, ...]]:
        if not operands:
            value = _number(expression, self._groups)
            return (lambda: value), ()
        kind = type(expression).__name__
        if kind not in FUNCTIONS:
            raise SymbolicError(
                f"{kind} in {expression} has no counterpart in graphopt. "
                f"Write it with {', '.join(sorted(FUNCTIONS))}."
            )
        return FUNCTIONS[kind], tuple(self._places[operand] for operand in operands)


def _sympy() -> Any:
    try:
        import sympy
    except ImportError as error:
        raise SymbolicError("SymPy is not installed: pip install graphopt[sympy].") from error
    return sympy


def _listed(value: Any) -> list[Any] | None:
    """Elements of a list, a matrix or an object with `to_storage()`; None for a single expression."""
    if hasattr(value, "to_storage"):
        value = value.to_storage()
    if isinstance(value, (list, tuple, np.ndarray)):
        return [item for part in value for item in (_listed(part) or [part])]
    value = _sympy().sympify(value)
    if isinstance(value, _sympy().MatrixExpr):
        value = value.as_explicit()
    return value.flat() if isinstance(value, _sympy().MatrixBase) else None


def _groups(arguments: Mapping[str, Any] | Sequence[Any]) -> dict[str, list[Any]]:
    """Name of each argument and its symbols."""
    if not isinstance(arguments, Mapping):
        arguments = {f"argument {number}": argument for number, argument in enumerate(arguments, 1)}
    groups = {}
    for name, given in arguments.items():
        listed = _listed(given)
        symbols = [_sympy().sympify(symbol) for symbol in ([given] if listed is None else listed)]
        for symbol in symbols:
            if not symbol.is_Symbol and not symbol.is_Indexed and type(symbol).__name__ != "MatrixElement":
                raise SymbolicError(
                    f"{name} holds {symbol}, expected symbols: what a vertex stores, in order."
                )
        groups[name] = symbols
    return groups


def _outputs(expression: Any) -> tuple[list[Any], bool]:
    """The expressions of the residual, and whether it is a single one."""
    listed = _listed(expression)
    outputs = [_sympy().sympify(output) for output in ([expression] if listed is None else listed)]
    if not outputs:
        raise SymbolicError("The residual has no components.")
    return outputs, listed is None


def _operands(expression: Any) -> tuple[Any, ...]:
    """What the value of an expression is computed from; nothing for a number."""
    if expression.is_number and not expression.is_Boolean:
        return ()
    if not expression.is_Piecewise:
        return expression.args
    if expression.args[-1].cond != True:  # noqa: E712  (SymPy's own true)
        raise SymbolicError(
            f"{expression} says nothing about other cases: add (value, True) as its last part."
        )
    parts = [item for part in expression.args[:-1] for item in (part.expr, part.cond)]
    return (*parts, expression.args[-1].expr)


def _number(expression: Any, groups: dict[str, list[Any]]) -> float:
    if expression in (True, False):
        return float(bool(expression))
    if not expression.is_number:
        names = ", ".join(f"{name} = {symbols}" for name, symbols in groups.items())
        raise SymbolicError(
            f"{expression} is no argument; the arguments are {names}. "
            "Add it to one, or give it a value with constants={...}."
        )
    value = complex(expression)
    if value.imag != 0.0 or value != value:
        raise SymbolicError(f"{expression} in the residual is no real number.")
    return value.real


def _numbers(name: str, symbols: list[Any], value: Array) -> list[Array]:
    """One number per symbol of what an edge hands over for an argument."""
    value = getattr(value, "storage", value)
    if len(symbols) == 1 and np.ndim(value) == 0:
        return [value]
    if np.ndim(value) == 0 or np.shape(value)[-1] != len(symbols):
        raise ShapeError(
            f"{name} has {len(symbols)} symbols, but the edge hands over shape {np.shape(value)}."
        )
    return [value[..., i][()] for i in range(len(symbols))]


def _is_symbolic(value: Any) -> bool:
    return isinstance(value, Expr) or value.dtype == object
