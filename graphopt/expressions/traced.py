"""Functions as expressions: called once with symbols, their operations become nodes of a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphopt.codegen.trace import call_with_symbols
from graphopt.errors import SymbolicError
from graphopt.expressions.operations import NUMBER
from graphopt.symbolic import Expr, as_exprs, fresh_table, topological, variables


def trace_nodes(
    function: Callable[..., Any], num_variables: int, num_parameters: int, which: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Operations (n,) uint8, operands (n, 3) int32 and constants (n,) of function(variables, parameters)."""
    with fresh_table():
        x, p = variables("x", num_variables), variables("p", num_parameters)
        result = as_exprs(call_with_symbols(which, function, [x, p]))
        if len(result) != 1:
            raise SymbolicError(f"{which} returns {len(result)} numbers, expected 1: one number per point.")
        leaves = {e.id: ("DATA", k) for k, e in enumerate(as_exprs(x))}
        leaves |= {e.id: ("PARAMETER", k) for k, e in enumerate(as_exprs(p))}
        return _nodes(result[0], leaves, which)


def _nodes(
    root: Expr, leaves: dict[int, tuple[str, int]], which: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    ops: list[int] = [NUMBER["CONST"]]
    operands: list[list[int]] = [[0, 0, 0]]
    values: list[float] = [1.0]  # node 0, for reciprocals
    place: dict[int, int] = {}
    for e in topological([root]):
        sources = [place[a.id] for a in e.args]
        name, value = e.op.upper(), 0.0
        if e.op == "const":
            value = float(e.value)
        elif e.id in leaves:
            name, index = leaves[e.id]
            sources = [index]
        elif e.op == "recip":
            name, sources = "DIV", [0, *sources]
        elif name not in NUMBER:
            raise SymbolicError(
                f"{which} uses the operation '{e.op}', which batches of expressions do not have. "
                "Sampled images and robust kernels belong to edge types (graphopt.edge_type)."
            )
        place[e.id] = len(ops)
        ops.append(NUMBER[name])
        operands.append(sources + [0] * (3 - len(sources)))
        values.append(value)
    return np.array(ops, np.uint8), np.array(operands, np.int32), np.array(values)
