"""Expressions as text, for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from graphopt.symbolic.expr import Expr, format_expr, topological


def format_program(roots: Sequence[Expr]) -> str:
    """All operations that `roots` need, one per line, then the outputs."""
    names: dict[int, str] = {}
    lines = []
    for e in topological(list(roots)):
        if e.args:
            names[e.id] = f"v{len(lines)}"
            lines.append(f"{names[e.id]} = {e.op}({', '.join(names[a.id] for a in e.args)})")
        else:
            names[e.id] = format_expr(e)
    lines.extend(f"out[{i}] = {names[e.id]}" for i, e in enumerate(roots))
    return "\n".join(lines)


def count_operations(roots: Sequence[Expr]) -> Counter[str]:
    """How many operations of each kind `roots` need."""
    return Counter(e.op for e in topological(list(roots)) if e.args)
