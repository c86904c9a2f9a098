"""Invariants of an expression graph, checked between passes while debugging (GRAPHOPT_DEBUG=verify)."""

from __future__ import annotations

from collections.abc import Sequence

from graphopt.errors import SymbolicError
from graphopt.symbolic.expr import Expr, topological
from graphopt.symbolic.ops import OPS


def verify(roots: Sequence[Expr], stage: str) -> None:
    """Raise SymbolicError where an expression is malformed; `stage` names the pass that made it."""
    for e in topological(list(roots)):
        problem = _problem(e)
        if problem is not None:
            raise SymbolicError(f"After {stage}: expression {e.id} ({e.op}) {problem}.")


def _problem(e: Expr) -> str | None:
    if e.op == "const":
        return None if isinstance(e.value, float) else f"has the value {e.value!r}, expected a float"
    if e.op == "var":
        return None if isinstance(e.value, str) else f"has the name {e.value!r}, expected text"
    if e.op not in OPS:
        return "is no operation of the table OPS"
    if len(e.args) != OPS[e.op].arity:
        return f"has {len(e.args)} arguments, expected {OPS[e.op].arity}"
    if any(a.id >= e.id for a in e.args):
        return "is older than one of its arguments"
    return None
