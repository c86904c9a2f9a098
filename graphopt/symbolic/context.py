"""Rewrites that depend on what else a program computes, as in Caspar.

An operation is replaced where others that are needed anyway make it cheaper: 1 / x is a division alone, but
one multiplication beside 1 / sqrt(x). Each rewrite is one rule: it looks at the operations of a whole program
and says which of them become what. Rules run after differentiation, so that no derivative changes; their
values agree wherever the plain program's are finite.

    powers        x^3 -> x x x;  x^2.5 -> x x sqrt(x);  x^(c + k) -> x^c x^k beside x^c, c >= 0, k = 1 ... 8
    reciprocals   1 / x -> (1 / sqrt(x))^2 beside 1 / sqrt(x);  1 / (x y) -> (1 / x)(1 / y) beside both
    half angles   sin(2 t) -> 2 sin(t) cos(t),  cos(2 t) -> 1 - 2 sin(t)^2, beside sin(t) or cos(t)
    tangents      tan(x) -> sin(x) / cos(x) beside sin(x) or cos(x)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import is_

from graphopt.symbolic.expr import Expr, Roots, const, make, make_plain, power

_LARGEST_STEP = 8
_MAX_ROUNDS = 4
_LOOKED_AT = frozenset({"pow", "tan", "sin", "cos", "recip", "sqrt"})

Value = Callable[[Expr], Expr]
"""What an expression of the program has become."""
Plan = dict[int, Callable[[Value], Expr]]
"""Id of an expression -> its replacement."""


@dataclass(frozen=True)
class ContextRule:
    """One rewrite."""

    name: str
    algebra: str
    ops: frozenset[str]
    """Operations that it replaces."""
    plan: Callable[[Sequence[Expr]], Plan]
    """The operations of a program that matter, arguments first -> what is replaced."""

    def apply(self, outputs: Sequence[Expr]) -> Roots:
        """`outputs` with this rule carried out; the same objects where nothing is to be done."""
        return apply_rules((self,), outputs)


def apply_rules(rules: Sequence[ContextRule], outputs: Sequence[Expr]) -> Roots:
    """Carry out rules one after the other."""
    roots = Roots.of(outputs)
    looked_at = _looked_at(roots)
    for rule in rules:
        for _ in range(_MAX_ROUNDS):  # a replacement may be replaced: sin(4 t) by sin(2 t) by sin(t)
            plan = rule.plan(looked_at) if any(e.op in rule.ops for e in looked_at) else {}
            if not plan:
                break
            roots = _Rebuild(plan, roots.nodes).outputs(roots)
            looked_at = _looked_at(roots)
    return roots


def _looked_at(roots: Roots) -> list[Expr]:
    return [e for e in roots.nodes if e.op in _LOOKED_AT]


class _Rebuild:
    """Expressions made again with replacements."""

    def __init__(self, plan: Plan, nodes: Sequence[Expr]):
        self.plan = plan
        first = min(plan)
        self.new: dict[int, Expr] = {e.id: e for e in nodes if e.id < first}  # what is older stays
        for e in nodes:  # in this order recursion stays flat
            self.value(e)

    def outputs(self, outputs: Sequence[Expr]) -> Roots:
        """Return what became of these expressions."""
        return Roots([self.new[e.id] for e in outputs])

    def value(self, e: Expr) -> Expr:
        """Return what became of an expression, making it if it is not there yet."""
        new = self.new
        if e.id not in new:
            if e.id in self.plan:
                new[e.id] = self.plan[e.id](self.value)
            else:
                args = [new[a.id] if a.id in new else self.value(a) for a in e.args]
                new[e.id] = e if all(map(is_, args, e.args)) else make(e.op, *args)
        return new[e.id]


# --- rules --------------------------------------------------------------------------------------------------
def _powers(nodes: Sequence[Expr]) -> Plan:
    groups: dict[int, list[tuple[float, Expr]]] = {}
    for e in nodes:
        if e.op == "pow" and e.args[1].op == "const":
            groups.setdefault(e.args[0].id, []).append((e.args[1].value, e))
    plan: Plan = {}
    for members in groups.values():
        bases: list[tuple[float, Expr]] = []
        for exponent, e in sorted(members, key=lambda member: member[0]):
            if abs(exponent) <= 16.0 and (2.0 * exponent).is_integer():
                plan[e.id] = _exact_power(e, exponent)
                continue
            for start, base in bases:
                step = exponent - start
                if abs(step - round(step)) < 1e-12 and 1 <= round(step) <= _LARGEST_STEP:
                    plan[e.id] = _raised(e, base, round(step))
                    break
            else:
                if exponent >= 0.0:
                    bases.append((exponent, e))
    return plan


def _exact_power(e: Expr, exponent: float) -> Callable[[Value], Expr]:
    def replacement(value: Value) -> Expr:
        x, size = value(e.args[0]), abs(exponent)
        result = power(x, const(float(int(size))))
        if not size.is_integer():
            result = make("mul", result, make("sqrt", x))
        return make("recip", result) if exponent < 0.0 else result

    return replacement


def _raised(e: Expr, base: Expr, step: int) -> Callable[[Value], Expr]:
    return lambda value: make("mul", value(base), power(value(e.args[0]), const(float(step))))


def _reciprocals(nodes: Sequence[Expr]) -> Plan:
    inverse = {e.args[0].id: e for e in nodes if e.op == "recip"}
    roots = {e.args[0].id: e for e in nodes if e.op == "sqrt"}
    plan: Plan = {}
    for e in nodes:
        if e.op != "recip":
            continue
        (x,) = e.args
        root = roots.get(x.id)
        if root is not None and root.id in inverse:
            plan[e.id] = _product(inverse[root.id], inverse[root.id])
        elif x.op == "mul" and all(a.id in inverse for a in x.args):
            plan[e.id] = _product(inverse[x.args[0].id], inverse[x.args[1].id])
    return plan


def _product(x: Expr, y: Expr) -> Callable[[Value], Expr]:
    # as it is: a rule makes 1 / x of (1 / sqrt(x))^2 where nobody needs 1 / sqrt(x)
    return lambda value: make_plain("mul", *sorted((value(x), value(y)), key=lambda e: e.id))


def _half_angles(nodes: Sequence[Expr]) -> Plan:
    known: dict[tuple[int, float], Expr] = {}  # (u, c) of a sine's or cosine's argument c u -> that argument
    for e in nodes:
        if e.op in ("sin", "cos"):
            known[_multiple(e.args[0])] = e.args[0]
    plan: Plan = {}
    for e in nodes:
        if e.op in ("sin", "cos"):
            u, c = _multiple(e.args[0])
            half = known.get((u, 0.5 * c))
            if half is not None:
                plan[e.id] = _doubled(e.op, half)
    return plan


def _doubled(op: str, half: Expr) -> Callable[[Value], Expr]:
    def replacement(value: Value) -> Expr:
        t = value(half)
        sine = make("sin", t)
        if op == "sin":
            return make("mul", const(2.0), make("mul", sine, make("cos", t)))
        return make("sub", const(1.0), make("mul", const(2.0), make("mul", sine, sine)))

    return replacement


def _multiple(x: Expr) -> tuple[int, float]:
    """(u, c) of x = c u."""
    if x.op == "mul":
        for factor, rest in (x.args, x.args[::-1]):
            if factor.op == "const":
                return rest.id, factor.value
    return x.id, 1.0


def _tangents(nodes: Sequence[Expr]) -> Plan:
    known = {e.args[0].id for e in nodes if e.op in ("sin", "cos")}
    return {e.id: _quotient(e) for e in nodes if e.op == "tan" and e.args[0].id in known}


def _quotient(e: Expr) -> Callable[[Value], Expr]:
    def replacement(value: Value) -> Expr:
        x = value(e.args[0])
        return make("mul", make("sin", x), make("recip", make("cos", x)))

    return replacement


CONTEXT_RULES: tuple[ContextRule, ...] = (
    ContextRule(
        "powers",
        "x^(c + k) -> x^c x^k; whole and half exponents -> products and roots",
        frozenset({"pow"}),
        _powers,
    ),
    ContextRule(
        "tangents", "tan(x) -> sin(x) / cos(x) beside sin(x) or cos(x)", frozenset({"tan"}), _tangents
    ),
    ContextRule(
        "half angles",
        "sin(2 t) -> 2 sin(t) cos(t), cos(2 t) -> 1 - 2 sin(t)^2",
        frozenset({"sin", "cos"}),
        _half_angles,
    ),
    ContextRule(
        "reciprocals",
        "1 / x -> (1 / sqrt(x))^2; 1 / (x y) -> (1 / x)(1 / y), beside these",
        frozenset({"recip"}),
        _reciprocals,
    ),
)
"""In the order in which they run."""
