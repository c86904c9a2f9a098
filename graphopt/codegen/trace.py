"""Calls the functions of a vertex or edge type with symbols, and checks what comes back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from graphopt.errors import SymbolicError
from graphopt.symbolic import (
    Expr,
    SymbolicArray,
    as_exprs,
    const,
    jacobian,
    substitute,
    symbolic_array,
    variables,
)
from graphopt.symbolic.expr import Checkpoint
from graphopt.symbolic.source import defining_line, raising_line


@dataclass(frozen=True)
class TracedEdge:
    """The expressions of one edge type."""

    name: str
    inputs: list[Expr]
    """Storage of each vertex, then of each parameter, then the measurement."""
    residual: list[Expr]
    vertex_names: list[str]
    moved: list[MovedVertex]
    """One per vertex."""
    own_jacobian: list[np.ndarray] | None
    """Per vertex (residual_dim, tangent_dim) expressions, where the type has its own Jacobian."""

    def definition(self) -> list[Expr]:
        """Return everything that determines the residual and its derivative."""
        own = [e for block in self.own_jacobian or () for e in block.ravel()]
        return [*self.residual, *own, *(e for vertex in self.moved for e in vertex.moved)]

    def jacobians(self) -> list[np.ndarray]:
        """Return per vertex the (residual_dim, tangent_dim) derivative of the residual by the tangent."""
        if self.own_jacobian is not None:
            return self.own_jacobian
        seeds = [v.seeds(name) for v, name in zip(self.moved, self.vertex_names, strict=True)]
        flat = [seed for of_vertex in seeds for seed in of_vertex]
        rows = np.empty((len(self.residual), len(flat)), dtype=object)
        for i, row in enumerate(jacobian(self.residual, flat)):
            rows[i] = row
        return np.split(rows, np.cumsum([len(of_vertex) for of_vertex in seeds])[:-1], axis=1)


class MovedVertex(NamedTuple):
    """A vertex and what oplus makes of it, as symbols."""

    storage: SymbolicArray
    delta: SymbolicArray
    moved: list[Expr]
    """Storage after oplus."""

    def seeds(self, name: str) -> list[dict[Expr, Expr]]:
        """Return, per tangent direction, the derivative of `moved` by it at 0; `name` is for errors."""
        rows = jacobian(self.moved, [{d: const(1.0)} for d in self.delta])
        flat = substitute([e for row in rows for e in row], {d: const(0.0) for d in self.delta})
        _refuse_nan(flat, f"{name}: the derivative of oplus at delta = 0")
        dim = len(self.delta)
        return [dict(zip(self.storage, flat[j::dim], strict=True)) for j in range(dim)]


def trace_edge(edge_type: Any) -> TracedEdge:
    """Call the residual (and the Jacobian, where the type has its own) with symbols."""
    vertices = [_constant(f"vertex{k}", v.storage_dim) for k, v in enumerate(edge_type.vertices)]
    parameters = [_constant(f"parameter{k}", p.storage_dim) for k, p in enumerate(edge_type.parameters)]
    measurement = _constant("measurement", edge_type.measurement_dim)
    arguments = [
        *(_wrap(v.wrap, x) for v, x in zip(edge_type.vertices, vertices, strict=True)),
        *(_wrap(p.wrap, x) for p, x in zip(edge_type.parameters, parameters, strict=True)),
        _wrap(edge_type.wrap_measurement, measurement),
    ]
    dim = edge_type.residual_dim
    where = f"{edge_type.name}: the residual function"
    residual = _checked(
        call_with_symbols(where, edge_type.residual, arguments), (dim,), where, edge_type.residual
    )
    own = None
    again = _checked(
        call_with_symbols(where, edge_type.residual, arguments), (dim,), where, edge_type.residual
    )
    _refuse_change(residual, again, where, edge_type.residual)
    if edge_type.jacobian is not None:
        where = f"{edge_type.name}: the jacobian function"
        own = _own_jacobian(call_with_symbols(where, edge_type.jacobian, arguments), edge_type, where)
    moved = [trace_oplus(v, x) for v, x in zip(edge_type.vertices, vertices, strict=True)]
    inputs = [e for x in (*vertices, *parameters, measurement) for e in as_exprs(x)]
    names = [v.name for v in edge_type.vertices]
    return TracedEdge(edge_type.name, inputs, list(residual), names, moved, own)


_remembered: WeakKeyDictionary[Any, tuple[TracedEdge, Checkpoint]] = WeakKeyDictionary()
_MOST_REMEMBERED = 8
"""Types; their expressions take a megabyte or two."""


def remember(edge_type: Any, edge: TracedEdge) -> None:
    """Keep what `trace_edge` has just returned in a fresh table, for `traced_before`."""
    _remembered.pop(edge_type, None)
    while len(_remembered) >= _MOST_REMEMBERED:
        _remembered.pop(next(iter(_remembered)), None)
    _remembered[edge_type] = edge, Checkpoint()


def traced_before(edge_type: Any) -> TracedEdge:
    """The last trace that was remembered, in a fresh table; the function is called if there is none."""
    found = _remembered.get(edge_type)
    if found is None:
        return trace_edge(edge_type)
    edge, checkpoint = found
    checkpoint.restore()
    return edge


def trace_oplus(vertex_type: Any, storage: SymbolicArray | None = None) -> MovedVertex:
    """Call oplus with symbols."""
    if storage is None:
        storage = _constant("storage", vertex_type.storage_dim)
    delta = _constant("delta", vertex_type.tangent_dim)
    where = f"{vertex_type.name}: the oplus function"
    result = call_with_symbols(where, vertex_type.oplus, [storage, delta])
    moved = _checked(result, (vertex_type.storage_dim,), where, vertex_type.oplus)
    return MovedVertex(storage, delta, list(moved))


def _constant(name: str, count: int) -> SymbolicArray:
    """Variables that the function cannot overwrite."""
    array = variables(name, count)
    array.flags.writeable = False
    return array


def _wrap(wrap: Callable | None, x: SymbolicArray) -> Any:
    return x if wrap is None else wrap(x)


def call_with_symbols(where: str, function: Callable, arguments: Sequence[Any]) -> Any:
    """`function(*arguments)`; what cannot be compiled becomes a SymbolicError with its line."""
    try:
        return function(*arguments)
    except SymbolicError as error:
        raise SymbolicError(f"{where} cannot be compiled. {error}") from error
    except Exception as error:
        # numpy hides an error that was raised while it looked at an element
        inner = error.__cause__ or error.__context__
        if isinstance(inner, SymbolicError):
            raise SymbolicError(f"{where} cannot be compiled. {inner}") from error
        hint = next((text for words, text in _HINTS if words in str(error)), "")
        what = f"{type(error).__name__}: {error}\n  {raising_line(error)}\n{hint}"
        raise SymbolicError(f"{where} cannot be compiled. {what.rstrip()}") from error


_HINTS = (
    (
        "read-only",
        "The function changes its argument in place. Take a copy first, x = x.copy(), "
        "or build a new array with np.stack([...], axis=-1).",
    ),
    (
        "setting an array element",
        "Symbols do not fit into an array of floats: build the array with np.stack([...], axis=-1).",
    ),
    (
        "only integers, slices",
        "A symbol cannot be an index. Choose with np.where or np.select, look a table up with np.interp, "
        "or make the table a graphopt.Image and sample it: image(u, v).",
    ),
    ("has no attribute", "An argument is a symbol or an array of symbols: use numpy functions on it."),
    ("unsupported format", "A symbol has no value yet: print it without a format, {x} or {x!r}."),
    ("unsupported operand", "Symbols know + - * / // % ** abs, comparisons, & | ~, and numpy functions."),
    (
        "broadcast",
        "Arrays of one edge are (n,) for a vector and (m, n) for a matrix; print(x.shape) shows which.",
    ),
)
"""Words in an error -> what to write instead."""


def _refuse_change(first: np.ndarray, second: np.ndarray, where: str, function: Callable) -> None:
    """Equal expressions are the same objects: two calls with the same symbols must return these."""
    for i, (a, b) in enumerate(zip(first, second, strict=True)):
        if a is not b:
            raise SymbolicError(
                f"{where} cannot be compiled: component {i} differs from one call to the next.\n"
                f"  {defining_line(function)}\n"
                "It is compiled once, so random numbers and counters would be frozen. "
                "Pass such numbers as measurements or parameters."
            )


def _checked(result: Any, shape: tuple[int, ...], where: str, function: Callable) -> np.ndarray:
    """Return `result` as an object array of Expr of this shape."""
    line = defining_line(function)
    try:
        array = np.asarray(getattr(result, "storage", result), dtype=object).view(np.ndarray)
    except (TypeError, ValueError) as error:
        raise SymbolicError(
            f"{where} returns something that is no array: {error}.\n  {line}\n"
            "Join scalars and vectors of one length with np.stack, vectors of any length with np.concatenate."
        ) from error
    if array.shape != shape and not (array.shape == () and shape == (1,)):
        raise SymbolicError(
            f"{where} returns an array of shape {array.shape}, expected {shape}.\n  {line}\n"
            "Join scalars with np.stack([...], axis=-1), vectors with np.concatenate([...])."
        )
    try:
        flat = as_exprs(array)
    except SymbolicError:
        kinds = ", ".join(sorted({type(e).__name__ for e in array.ravel()} - {"Expr"}))
        raise SymbolicError(
            f"{where} returns something that is no number ({kinds}).\n  {line}\n"
            "Return one array of numbers made of the arguments with numpy operations: np.stack joins "
            "scalars, np.concatenate vectors of any lengths."
        ) from None
    _refuse_nan(flat, where)
    expressions = np.empty(len(flat), dtype=object)
    expressions[:] = flat
    return expressions.reshape(shape)


def _refuse_nan(expressions: Sequence[Expr], where: str) -> None:
    for i, e in enumerate(expressions):
        if e.op == "const" and np.isnan(e.value):
            raise SymbolicError(
                f"{where} is NaN in component {i} whatever its arguments are. "
                "Guard the singular case inside the function as well: "
                "y = np.where(x > 0, x, 1.0); np.where(x > 0, np.sqrt(y), 0.0)."
            )


def _own_jacobian(result: Any, edge_type: Any, where: str) -> list[np.ndarray]:
    blocks = result if isinstance(result, tuple | list) else (result,)
    if len(blocks) != len(edge_type.vertices):
        raise SymbolicError(
            f"{where} returns {len(blocks)} blocks, expected one per vertex, {len(edge_type.vertices)}."
        )
    shapes = [(edge_type.residual_dim, v.tangent_dim) for v in edge_type.vertices]
    function = edge_type.jacobian
    return [_checked(symbolic_array(b), s, where, function) for b, s in zip(blocks, shapes, strict=True)]
