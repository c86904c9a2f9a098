"""Residual functions written for one edge, evaluated for many.

`x, y, z = point` and `a - b` with vectors of one number are right for one edge and wrong for an array of
them, where the first axis counts edges. Such a function is called once with symbols, and the expressions are
evaluated on arrays. A function that works on arrays of any batch shape is called as it is.

Which of the two a function is, is found out by calling it with three edges. Errors that shapes cause (values
that cannot be unpacked, arrays without a truth value) mean one edge at a time; what was raised is kept, and
shown where the function cannot be called with symbols either. Any other error, of a name that does not exist
for instance, is a fault of the function and refuses the definition.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphopt.errors import GraphOptError, ShapeError, SymbolicError
from graphopt.symbolic import Expr, as_exprs, evaluate, fresh_table, variables
from graphopt.symbolic.source import raising_line
from graphopt.types.cache import per_type_cache
from graphopt.types.signature import Residual

Array = Any
_OF_SHAPES = (ValueError, TypeError, IndexError, AttributeError, GraphOptError)


def works_on_batches(kind: Residual, values: Sequence[np.ndarray]) -> tuple[bool, str]:
    """Whether the residual of arrays `values` (k, dim) equals that of each row, and what arrays raised.

    Raises `ShapeError` for an error that shapes do not cause.
    """
    rows = [np.ravel(_call(kind, [value[k] for value in values])) for k in range(len(values[0]))]
    try:
        together = np.asarray(_call(kind, values), np.float64)
        expected = np.asarray(rows, np.float64)
    except Exception as error:
        raised = f"{type(error).__name__}: {error}\n  {raising_line(error)}"
        if isinstance(error, _OF_SHAPES):
            return False, raised
        raise ShapeError(
            f"residual of edge type {kind.name} works on one edge, and raised with arrays of edges {raised}"
        ) from error
    return together.shape == expected.shape and np.allclose(
        together, expected, rtol=1e-9, atol=1e-12, equal_nan=True
    ), ""


def row_by_row(kind: Residual, values: Sequence[Array]) -> Array:
    """(..., residual_dim) residuals of arrays (..., dim), for a function of one edge."""
    names, outputs = _traced(kind)
    found = {
        name: np.asarray(value)[..., i]
        for value, group in zip(values, names, strict=True)
        for i, name in enumerate(group)
    }
    shape = np.broadcast_shapes(*(np.shape(value)[:-1] for value in values))
    return np.stack([np.broadcast_to(x, shape) for x in evaluate(outputs, found)], axis=-1)


@per_type_cache
def _traced(kind: Residual) -> tuple[list[list[str]], list[Expr]]:
    """Names of the numbers of each argument, and the residual as expressions."""
    with fresh_table():
        dims = [slot_type.storage_dim for slot_type in (*kind.vertices, *kind.parameters)] + [
            kind.measurement_dim
        ]
        symbols = [variables(f"argument{k}", dim) for k, dim in enumerate(dims)]
        try:
            outputs = as_exprs(_call(kind, symbols))
        except Exception as error:
            raised = f"{type(error).__name__}: {error}\n  {raising_line(error)}"
            before = f"\nWith arrays of edges it raised {kind.batch_error}" if kind.batch_error else ""
            raise SymbolicError(
                f"residual of edge type {kind.name} is evaluated with symbols, because it takes one edge at "
                f"a time, and raised {raised}{before}"
            ) from error
        return [[e.value for e in as_exprs(x)] for x in symbols], outputs


def _call(kind: Residual, values: Sequence[Any]) -> Any:
    """The residual of stored numbers."""
    wraps = [*(slot_type.wrap for slot_type in (*kind.vertices, *kind.parameters)), kind.wrap_measurement]
    with np.errstate(all="ignore"):
        return kind.residual(*(wrap(value) for wrap, value in zip(wraps, values, strict=True)))
