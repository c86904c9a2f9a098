"""What each rewrite of the compiler is worth: operations and live registers, before it and after it.

    as written            the residual, its derivative and the products, operation by operation
    simplification        the rules of symbolic/rules.py as expressions are made
    powers, tangents, half angles, reciprocals           symbolic/context.py
    partial sums and products                            symbolic/share.py
    multiply-adds, sine and cosine                       lower.py
    blocks                                               blocks.py
    order                                                order.py

Operations are what a processor issues: a multiply-add is one, and so is a function or a choice. Live
registers are the most values that are needed later, over all points of the program, constants not counted; up
to the step "order" with the instructions in depth-first order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from graphopt.codegen.blocks import form_blocks
from graphopt.codegen.bytecode import Instruction
from graphopt.codegen.liveness import max_live
from graphopt.codegen.lower import lower
from graphopt.codegen.order import depth_first, order
from graphopt.symbolic.context import CONTEXT_RULES, apply_rules
from graphopt.symbolic.expr import Expr, Roots, topological
from graphopt.symbolic.share import share_partial

ExpressionRewrite = Callable[[Sequence[Expr]], Roots]

EXPRESSION_REWRITES: tuple[tuple[str, ExpressionRewrite], ...] = (
    *((rule.name, rule.apply) for rule in CONTEXT_RULES),
    ("partial sums and products", share_partial),
)
"""Name -> rewrite of the outputs of a program, in the order in which they run."""


class RewriteStep(NamedTuple):
    """A program after a rewrite."""

    rule: str
    operations: int
    live_registers: int


def rewrite_expressions(outputs: Sequence[Expr]) -> Roots:
    """Carry out all rewrites of expressions."""
    return share_partial(apply_rules(CONTEXT_RULES, outputs))


def rewrite_steps(make_outputs: Callable[[], list[Expr]], as_written: Callable[[], Any]) -> list[RewriteStep]:
    """Steps of a program whose outputs `make_outputs` makes; `as_written` is a context without rules."""
    with as_written():
        steps = [_step("as written", make_outputs())]
    outputs = Roots(make_outputs())
    steps.append(_step("simplification", outputs))
    for name, rewrite in EXPRESSION_REWRITES:
        outputs = rewrite(outputs)
        steps.append(_step(name, outputs))
    steps.append(_step("multiply-adds", outputs, lower(outputs, joins=False)))
    instructions = lower(outputs)
    steps.append(_step("sine and cosine", outputs, instructions))
    instructions = form_blocks(instructions)
    steps.append(_step("blocks", outputs, instructions))
    ids, constants = [e.id for e in outputs], _constants(outputs)
    return [*steps, _step("order", outputs, order(instructions, ids, constants))]


def _step(rule: str, outputs: Sequence[Expr], instructions: list[Instruction] | None = None) -> RewriteStep:
    if instructions is None:
        instructions = lower(outputs, fuses=False, joins=False)
    ids = [e.id for e in outputs]
    if rule != "order":
        instructions = depth_first(instructions, ids)
    live = max_live(instructions, ids, _constants(outputs))
    return RewriteStep(rule, sum(i.num_operations for i in instructions), live)


def _constants(outputs: Sequence[Expr]) -> set[int]:
    return {e.id for e in topological(outputs) if e.op == "const"}
