"""Calls the functions of a vertex or edge type with symbols, and checks what comes back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

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


@dataclass(frozen=True)
class TracedEdge:
    """The expressions of one edge type."""

    name: str
    inputs: list[Expr]
    """Storage of each vertex, then of each parameter, then the measurement."""
    residual: list[Expr]
    seeds: list[list[dict[Expr, Expr]]]
    """Per vertex and tangent direction: derivative of the vertex's storage by that direction at zero."""
    jacobian: list[np.ndarray] | None
    """Per vertex (residual_dim, tangent_dim) expressions, where the type has its own Jacobian."""

    def jacobians(self) -> list[np.ndarray]:
        """Per vertex the (residual_dim, tangent_dim) derivative of the residual by the tangent."""
        if self.jacobian is not None:
            return self.jacobian
        flat = [seed for seeds in self.seeds for seed in seeds]
        rows = np.empty((len(self.residual), len(flat)), dtype=object)
        for i, row in enumerate(jacobian(self.residual, flat)):
            rows[i] = row
        ends = np.cumsum([len(seeds) for seeds in self.seeds])[:-1]
        return np.split(rows, ends, axis=1)


def trace_edge(edge_type: Any) -> TracedEdge:
    """Call the residual (and the Jacobian, where the type has its own) with symbols."""
    vertices = [variables(f"vertex{k}", v.storage_dim) for k, v in enumerate(edge_type.vertices)]
    parameters = [variables(f"parameter{k}", p.storage_dim) for k, p in enumerate(edge_type.parameters)]
    measurement = variables("measurement", edge_type.measurement_dim)
    arguments = [
        *(_wrap(v.wrap, x) for v, x in zip(edge_type.vertices, vertices, strict=True)),
        *(_wrap(p.wrap, x) for p, x in zip(edge_type.parameters, parameters, strict=True)),
        _wrap(edge_type.wrap_measurement, measurement),
    ]
    dim = edge_type.residual_dim
    where = f"{edge_type.name}: the residual function"
    residual = _checked(_call(where, edge_type.residual, arguments), (dim,), where)
    own = None
    if edge_type.jacobian is not None:
        where = f"{edge_type.name}: the jacobian function"
        own = _own_jacobian(_call(where, edge_type.jacobian, arguments), edge_type, where)
    seeds = [oplus_seeds(v, x) for v, x in zip(edge_type.vertices, vertices, strict=True)]
    inputs = [e for x in (*vertices, *parameters, measurement) for e in as_exprs(x)]
    return TracedEdge(edge_type.name, inputs, list(residual), seeds, own)


def trace_oplus(vertex_type: Any) -> tuple[SymbolicArray, SymbolicArray, list[Expr]]:
    """Storage, tangent vector, and the storage after oplus, as symbols."""
    storage = variables("storage", vertex_type.storage_dim)
    delta = variables("delta", vertex_type.tangent_dim)
    return storage, delta, _oplus(vertex_type, storage, delta)


def oplus_seeds(vertex_type: Any, storage: SymbolicArray) -> list[dict[Expr, Expr]]:
    """Per tangent direction the derivative of `storage oplus delta` by it at delta = 0."""
    delta = variables("delta", vertex_type.tangent_dim)
    moved = _oplus(vertex_type, storage, delta)
    rows = jacobian(moved, [{d: const(1.0)} for d in delta])
    zero = {d: const(0.0) for d in delta}
    rows = [substitute(row, zero) for row in rows]
    for row in rows:
        _refuse_nan(row, f"{vertex_type.name}: the derivative of oplus at delta = 0")
    return [{x: row[j] for x, row in zip(storage, rows, strict=True)} for j in range(len(delta))]


def _oplus(vertex_type: Any, storage: SymbolicArray, delta: SymbolicArray) -> list[Expr]:
    where = f"{vertex_type.name}: the oplus function"
    return list(
        _checked(_call(where, vertex_type.oplus, [storage, delta]), (vertex_type.storage_dim,), where)
    )


def _wrap(wrap: Callable | None, x: SymbolicArray) -> Any:
    return x if wrap is None else wrap(x)


def _call(where: str, function: Callable, arguments: Sequence[Any]) -> Any:
    try:
        return function(*arguments)
    except SymbolicError as error:
        raise SymbolicError(f"{where} cannot be compiled. {error}") from error
    except (TypeError, ValueError) as error:
        # numpy hides an error that was raised while it looked at an element
        inner = error.__cause__ or error.__context__
        if isinstance(inner, SymbolicError):
            raise SymbolicError(f"{where} cannot be compiled. {inner}") from error
        raise


def _checked(result: Any, shape: tuple[int, ...], where: str) -> np.ndarray:
    """`result` as an object array of Expr of this shape."""
    array = np.asarray(getattr(result, "storage", result), dtype=object).view(np.ndarray)
    if array.shape != shape and not (array.shape == () and shape == (1,)):
        raise SymbolicError(
            f"{where} returns an array of shape {array.shape}, expected {shape}. "
            "Join scalars with np.stack([...], axis=-1)."
        )
    try:
        flat = as_exprs(array)
    except SymbolicError as error:
        raise SymbolicError(f"{where} returns something that is no number. {error}") from error
    _refuse_nan(flat, where)
    expressions = np.empty(len(flat), dtype=object)
    expressions[:] = flat
    return expressions.reshape(shape)


def _refuse_nan(expressions: Sequence[Expr], where: str) -> None:
    for i, e in enumerate(expressions):
        if e.op == "const" and np.isnan(e.value):
            raise SymbolicError(
                f"{where} is NaN in component {i} whatever its arguments are. Guard the singular case inside the "
                "function as well: y = np.where(x > 0, x, 1.0); np.where(x > 0, np.sqrt(y), 0.0)."
            )


def _own_jacobian(result: Any, edge_type: Any, where: str) -> list[np.ndarray]:
    blocks = result if isinstance(result, tuple | list) else (result,)
    if len(blocks) != len(edge_type.vertices):
        raise SymbolicError(
            f"{where} returns {len(blocks)} blocks, expected one per vertex, {len(edge_type.vertices)}."
        )
    shapes = [(edge_type.residual_dim, v.tangent_dim) for v in edge_type.vertices]
    return [_checked(symbolic_array(b), s, where) for b, s in zip(blocks, shapes, strict=True)]
