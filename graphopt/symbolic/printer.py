"""Expressions as text, for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from graphopt.symbolic.expr import Expr, topological

_INFIX = {"add": "+", "sub": "-", "mul": "*", "lt": "<", "le": "<=", "eq": "==", "and": "&", "or": "|"}
_MAX_DEPTH = 6


def format_expr(e: Expr, depth: int = _MAX_DEPTH) -> str:
    """One expression as a formula; what lies deeper than `depth` operations becomes `...`."""
    if e.op == "const":
        return f"{e.value:g}"
    if e.op == "var":
        return str(e.value)
    if depth == 0:
        return "..."
    args = [format_expr(a, depth - 1) for a in e.args]
    if e.op in _INFIX:
        return f"({args[0]} {_INFIX[e.op]} {args[1]})"
    if e.op == "neg":
        return f"-{args[0]}"
    if e.op == "recip":
        return f"(1 / {args[0]})"
    return f"{e.op}({', '.join(args)})"


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
