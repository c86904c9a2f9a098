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
from graphopt.codegen.order import before_use
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
_SIGNS = {"add": (1, 1), "sub": (1, -1), "neg": (-1,)}
"""Sums -> signs of their arguments."""

Product = tuple[int, int]
"""Ids of two factors."""


@dataclass
class _Terms:
    """A signed sum of products and plain terms."""

    pos: list[Product] = field(default_factory=list)
    """Added products."""
    neg: list[Product] = field(default_factory=list)
    """Subtracted products."""
    plus: list[int] = field(default_factory=list)
    """Added terms."""
    minus: list[int] = field(default_factory=list)
    """Subtracted terms."""

    @property
    def is_nested(self) -> bool:
        """Whether it has several plain terms."""
        return len(self.plus) + len(self.minus) > 1

    def append(self, other: _Terms, sign: int) -> None:
        """Add `sign` times the other sum."""
        if sign > 0:
            self.pos += other.pos
            self.neg += other.neg
            self.plus += other.plus
            self.minus += other.minus
        else:
            self.pos += other.neg
            self.neg += other.pos
            self.plus += other.minus
            self.minus += other.plus

    def instruction(self, target: int) -> Instruction:
        """Instruction that computes the sum."""
        counts = (len(self.pos), len(self.neg), len(self.plus), len(self.minus))
        products = [value for product in (*self.pos, *self.neg) for value in product]
        sources = (*products, *self.plus, *self.minus)
        special = _SPECIAL_SUMS.get(counts)
        if special is not None:
            return Instruction(special, (target,), sources)
        return Instruction("SUM", (target,), sources, counts)


_SPECIAL_SUMS = {
    (0, 0, 2, 0): "ADD",
    (0, 0, 1, 1): "SUB",
    (0, 0, 0, 1): "NEG",
    (1, 0, 1, 0): "FMA",
    (1, 0, 0, 1): "FMS",
    (0, 1, 1, 0): "FNMA",
    (2, 0, 0, 0): "DOT2",
    (3, 0, 0, 0): "DOT3",
}


class _Lowering:
    def __init__(self, outputs: Sequence[Expr], fuses: bool, joins: bool):
        self.joins = joins
        self.nodes = topological(outputs)
        self.outputs = {e.id for e in outputs}
        uses = Counter([a.id for e in self.nodes for a in e.args])
        self.private = {i for i, n in uses.items() if n == 1 and fuses} - self.outputs
        """What a single other expression needs, and may take in."""
        self.relatives: dict[tuple, int] = {
            (e.op, *[a.id for a in e.args]): e.id for e in self.nodes if e.op in _FAMILY
        }
        self.sums: dict[int, _Terms] = {}
        """By the id of their last operation."""

    def terms(self, e: Expr) -> _Terms:
        """Return the sum that `e` (add, sub or neg) stands for."""
        found = self.sums.get(e.id)
        if found is None:
            found = self.sums[e.id] = self._terms(e)
        return found

    def _terms(self, e: Expr) -> _Terms:
        result = _Terms()
        inner = [self.terms(a) if a.op in _SIGNS and a.id in self.private else None for a in e.args]
        num_nested = sum([terms is not None and terms.is_nested for terms in inner])
        for position, (sign, a, terms) in enumerate(zip(_SIGNS[e.op], e.args, inner, strict=True)):
            if terms is not None and not (terms.is_nested and (position > 0 or num_nested > 1)):
                result.append(terms, sign)
            elif a.op == "mul" and a.id in self.private:
                x, y = a.args
                (result.pos if sign > 0 else result.neg).append((x.id, y.id))
            else:
                (result.plus if sign > 0 else result.minus).append(a.id)
        return result

    def run(self) -> list[Instruction]:
        """Instructions for all outputs, arguments before their uses."""
        needed = set(self.outputs)
        result: list[Instruction] = []
        joined: set[tuple] = set()
        for e in reversed(self.nodes):
            if e.id not in needed or not e.args:
                continue
            instruction = self._lower(e)
            if len(instruction.destinations) > 1:
                key = (instruction.name, *instruction.sources)
                if key in joined:
                    continue
                joined.add(key)
            needed.update(instruction.sources)
            result.append(instruction)
        result.reverse()
        return _place_pairs_first(result) if joined else result

    def _lower(self, e: Expr) -> Instruction:
        if e.op in _SIGNS:
            return self.terms(e).instruction(e.id)
        sources = tuple([a.id for a in e.args])
        if e.op in _FAMILY:
            name = _FAMILY[e.op]
            found = [self.relatives.get((op, *sources)) for op in _MEMBERS[name]]
            if name not in _ALONE or (self.joins and None not in found):
                # a fresh negative id for a result that nobody needs
                results = tuple(-1 - len(found) * e.id - k if i is None else i for k, i in enumerate(found))
                return Instruction(name, results, sources)
        return Instruction(e.op.upper(), (e.id,), sources)


def _place_pairs_first(instructions: list[Instruction]) -> list[Instruction]:
    """Sort so that all results of an instruction come before their first use."""
    return before_use(instructions, instructions, lambda sources: sources)


def lower(outputs: Sequence[Expr], fuses: bool = True, joins: bool = True) -> list[Instruction]:
    """Instructions that compute `outputs`; value ids are expression ids.

    `fuses` sums of products, `joins` sine and cosine: False only to see what that is worth.
    """
    return _Lowering(outputs, fuses, joins).run()
