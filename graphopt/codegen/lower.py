"""Expression graph -> instructions in single assignment form (every value id is assigned once).

Chains of additions, subtractions and products that nobody else reads become one instruction: FMA, FMS, FNMA,
DOT2, DOT3, or SUM, a signed sum of products and terms that stays in processor registers as it grows. sin and
cos of the same argument become SINCOS; rho and weight of the robust kernel become ROBUST; an image's value
and derivatives at one place become SAMPLE.

A nested sum is only merged into the outer one while its plain terms keep their place: (a - b) + (c - d) is
not reordered to a + c - b - d, which would lose digits where the differences are small.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from graphopt.codegen.bytecode import Instruction
from graphopt.symbolic.expr import Expr, topological

_MEMBERS = {
    "SINCOS": ("sin", "cos"),
    "ROBUST": ("robust_rho", "robust_weight"),
    "SAMPLE": ("sample", "sample_du", "sample_dv"),
    "SAMPLE_CUBIC": ("sample_cubic", "sample_cubic_du", "sample_cubic_dv"),
}
"""Instruction with several results -> the operations that it computes."""
_FAMILY = {op: name for name, members in _MEMBERS.items() for op in members}
_ALONE = {"SINCOS"}
"""Families whose members have instructions of their own, for when one alone is needed."""
_SUMS = ("add", "sub", "neg")


@dataclass
class _Terms:
    """A signed sum: products (sign, a, b) and plain terms (sign, x)."""

    products: list[tuple[int, Expr, Expr]] = field(default_factory=list)
    plain: list[tuple[int, Expr]] = field(default_factory=list)

    def append(self, other: _Terms, sign: int) -> None:
        """Add `sign` times the other sum."""
        self.products += [(sign * s, a, b) for s, a, b in other.products]
        self.plain += [(sign * s, x) for s, x in other.plain]


class _Lowering:
    def __init__(self, outputs: Sequence[Expr], fuses: bool, joins: bool):
        self.fuses, self.joins = fuses, joins
        self.nodes = topological(list(outputs))
        self.outputs = {e.id for e in outputs}
        self.uses = Counter(a.id for e in self.nodes for a in e.args)
        self.relatives: dict[tuple, int] = {
            (e.op, *(a.id for a in e.args)): e.id for e in self.nodes if e.op in _FAMILY
        }

    def is_private(self, e: Expr) -> bool:
        """Whether a single other expression needs `e`."""
        return self.uses[e.id] == 1 and e.id not in self.outputs

    def terms(self, e: Expr) -> _Terms:
        """Return the sum that `e` (add, sub or neg) stands for."""
        result = _Terms()
        signs = (1, -1) if e.op == "sub" else (-1,) if e.op == "neg" else (1, 1)
        operands = [(sign, self._operand(a)) for sign, a in zip(signs, e.args, strict=True)]
        inner = [(sign, terms) for sign, (_, terms) in operands if len(terms.plain) > 1]
        for (sign, (a, terms)), position in zip(operands, range(2), strict=False):
            if len(terms.plain) > 1 and (position > 0 or len(inner) > 1):
                result.plain.append((sign, a))
            else:
                result.append(terms, sign)
        return result

    def _operand(self, a: Expr) -> tuple[Expr, _Terms]:
        if self.fuses and self.is_private(a):
            if a.op in _SUMS:
                return a, self.terms(a)
            if a.op == "mul":
                return a, _Terms(products=[(1, a.args[0], a.args[1])])
        return a, _Terms(plain=[(1, a)])

    def run(self) -> list[Instruction]:
        """Instructions for all outputs, arguments before their uses."""
        needed = set(self.outputs)
        result: list[Instruction] = []
        done: set[tuple] = set()
        for e in reversed(self.nodes):
            if e.id not in needed or not e.args:
                continue
            instruction = self._lower(e)
            key = (instruction.name, *instruction.sources)
            if len(instruction.destinations) > 1:
                if key in done:
                    continue
                done.add(key)
            needed.update(instruction.sources)
            result.append(instruction)
        return _place_pairs_first(result[::-1])

    def _lower(self, e: Expr) -> Instruction:
        if e.op in _SUMS:
            return _sum_instruction(e.id, self.terms(e))
        if e.op in _FAMILY:
            name = _FAMILY[e.op]
            sources = tuple(a.id for a in e.args)
            found = [self.relatives.get((op, *sources)) for op in _MEMBERS[name]]
            if name not in _ALONE or (self.joins and None not in found):
                # a fresh negative id for a result that nobody needs
                results = tuple(-1 - len(found) * e.id - k if i is None else i for k, i in enumerate(found))
                return Instruction(name, results, sources)
        return Instruction(e.op.upper(), (e.id,), tuple(a.id for a in e.args))


def _place_pairs_first(instructions: list[Instruction]) -> list[Instruction]:
    """Sort so that all results of an instruction come before their first use."""
    producer = {d: i for i in instructions for d in i.destinations}
    placed: set[int] = set()
    result: list[Instruction] = []
    for instruction in instructions:
        stack = [instruction]
        while stack:
            top = stack[-1]
            if top.destinations[0] in placed:
                stack.pop()
                continue
            waiting = [producer[s] for s in top.sources if s in producer and s not in placed]
            if waiting:
                stack.extend(waiting)
            else:
                placed.update(top.destinations)
                result.append(top)
                stack.pop()
    return result


def _sum_instruction(target: int, terms: _Terms) -> Instruction:
    pos = [(a.id, b.id) for s, a, b in terms.products if s > 0]
    neg = [(a.id, b.id) for s, a, b in terms.products if s < 0]
    plus = [x.id for s, x in terms.plain if s > 0]
    minus = [x.id for s, x in terms.plain if s < 0]
    counts = (len(pos), len(neg), len(plus), len(minus))
    sources = (*(i for pair in pos for i in pair), *(i for pair in neg for i in pair), *plus, *minus)
    special = {
        (0, 0, 2, 0): "ADD",
        (0, 0, 1, 1): "SUB",
        (0, 0, 0, 1): "NEG",
        (1, 0, 1, 0): "FMA",
        (1, 0, 0, 1): "FMS",
        (0, 1, 1, 0): "FNMA",
        (2, 0, 0, 0): "DOT2",
        (3, 0, 0, 0): "DOT3",
    }.get(counts)
    if special is not None:
        return Instruction(special, (target,), sources)
    return Instruction("SUM", (target,), sources, counts)


def lower(outputs: Sequence[Expr], fuses: bool = True, joins: bool = True) -> list[Instruction]:
    """Instructions that compute `outputs`; value ids are expression ids.

    `fuses` sums of products, `joins` sine and cosine: False only to see what that is worth.
    """
    return _Lowering(outputs, fuses, joins).run()
