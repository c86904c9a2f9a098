"""Simplifications: one rule is one statement of algebra.

A rule sees the arguments of an operation that is about to be made and returns a simpler expression or None.
It is asked only where its predicate, one of those below, accepts the operations that these arguments are.
All hold for finite real numbers; `0 * x -> 0` is wanted also where x would be infinite, since a structural
zero of a Jacobian stays zero. Arguments of commutative operations arrive sorted by id.
"""

from __future__ import annotations

from collections.abc import Callable

from graphopt.symbolic.expr import RULES, Expr, Rule, Simplify, const, is_const, make

MayApply = Callable[..., bool]
"""Operations of the arguments -> whether a rule may apply."""


def rule(op: str, algebra: str, may_apply: MayApply) -> Callable[[Simplify], Simplify]:
    """Register a function as the rule `algebra` of operation `op`."""

    def register(function: Simplify) -> Simplify:
        RULES[op].append(Rule(algebra, may_apply, function))
        return function

    return register


def either(*names: str) -> MayApply:
    """Some argument is one of these operations."""
    return lambda *ops: not frozenset(names).isdisjoint(ops)


def all_are(*names: str) -> MayApply:
    """Every argument is one of these operations."""
    return lambda *ops: frozenset(names).issuperset(ops)


def argument(place: int, *names: str) -> MayApply:
    """The argument at this place is one of these operations."""
    return lambda *ops: ops[place] in names


def alike(*ops: str) -> bool:
    """All arguments are the same operation, as of equal arguments."""
    return len(set(ops)) == 1


def anything(*ops: str) -> bool:
    """Whatever the arguments are."""
    return True


# --- sums ---------------------------------------------------------------------------------------------------
@rule("add", "x + 0 -> x", either("const"))
def _(x: Expr, y: Expr) -> Expr | None:
    return y if is_const(x, 0.0) else x if is_const(y, 0.0) else None


@rule("add", "x + x -> 2 x", alike)
def _(x: Expr, y: Expr) -> Expr | None:
    return make("mul", const(2.0), x) if x is y else None


@rule("add", "(-x) + (-y) -> -(x + y)", all_are("neg"))
def _(x: Expr, y: Expr) -> Expr | None:
    return make("neg", make("add", x.args[0], y.args[0]))


@rule("add", "x + (-y) -> x - y", either("neg"))
def _(x: Expr, y: Expr) -> Expr | None:
    return make("sub", x, y.args[0]) if y.op == "neg" else make("sub", y, x.args[0])


@rule("add", "(x - y) + y -> x", either("sub"))
def _(x: Expr, y: Expr) -> Expr | None:
    if x.op == "sub" and x.args[1] is y:
        return x.args[0]
    return y.args[0] if y.op == "sub" and y.args[1] is x else None


@rule("add", "c x + d x -> (c + d) x, c and d constants", either("mul"))
def _(x: Expr, y: Expr) -> Expr | None:
    (c, u), (d, v) = _scaled(x), _scaled(y)
    return make("mul", const(c + d), u) if u is v else None


@rule("add", "sin(x)^2 + cos(x)^2 -> 1", all_are("mul"))
def _(x: Expr, y: Expr) -> Expr | None:
    u, v = x.args[0], y.args[0]
    are_squares = u is x.args[1] and v is y.args[1]
    if are_squares and {u.op, v.op} == {"sin", "cos"} and u.args[0] is v.args[0]:
        return const(1.0)
    return None


@rule("add", "select(c, x, 0) + select(c, 0, y) -> select(c, x, y)", all_are("select"))
def _(x: Expr, y: Expr) -> Expr | None:
    (c, *of_x), (d, *of_y) = x.args, y.args
    if c is not d or not all(map(_add_is_free, of_x, of_y)):
        return None
    return make("select", c, *(make("add", a, b) for a, b in zip(of_x, of_y, strict=True)))


@rule("sub", "x - 0 -> x; 0 - x -> -x", either("const"))
def _(x: Expr, y: Expr) -> Expr | None:
    return x if is_const(y, 0.0) else make("neg", y) if is_const(x, 0.0) else None


@rule("sub", "x - x -> 0", alike)
def _(x: Expr, y: Expr) -> Expr | None:
    return const(0.0) if x is y else None


@rule("sub", "x - (-y) -> x + y", argument(1, "neg"))
def _(x: Expr, y: Expr) -> Expr | None:
    return make("add", x, y.args[0])


@rule("sub", "(-x) - y -> -(x + y)", argument(0, "neg"))
def _(x: Expr, y: Expr) -> Expr | None:
    return make("neg", make("add", x.args[0], y))


@rule("sub", "(x + y) - y -> x; (x - y) - x -> -y", argument(0, "add", "sub"))
def _(x: Expr, y: Expr) -> Expr | None:
    if x.op == "add":
        if x.args[1] is y:
            return x.args[0]
        if x.args[0] is y:
            return x.args[1]
    return make("neg", x.args[1]) if x.op == "sub" and x.args[0] is y else None


@rule("sub", "x - (x + y) -> -y; x - (x - y) -> y", argument(1, "add", "sub"))
def _(x: Expr, y: Expr) -> Expr | None:
    if y.op == "add":
        if y.args[0] is x:
            return make("neg", y.args[1])
        if y.args[1] is x:
            return make("neg", y.args[0])
    return y.args[1] if y.op == "sub" and y.args[0] is x else None


@rule("sub", "c x - d x -> (c - d) x, c and d constants", either("mul"))
def _(x: Expr, y: Expr) -> Expr | None:
    (c, u), (d, v) = _scaled(x), _scaled(y)
    return make("mul", const(c - d), u) if u is v else None


@rule("neg", "-(-x) -> x", either("neg"))
def _(x: Expr) -> Expr | None:
    return x.args[0]


@rule("neg", "-(x - y) -> y - x", either("sub"))
def _(x: Expr) -> Expr | None:
    return make("sub", x.args[1], x.args[0])


@rule("neg", "-(c x) -> (-c) x, c constant", either("mul"))
def _(x: Expr) -> Expr | None:
    c, u = _scaled(x)
    return make("mul", const(-c), u) if c != 1.0 else None


# --- products -----------------------------------------------------------------------------------------------
@rule("mul", "0 x -> 0", either("const"))
def _(x: Expr, y: Expr) -> Expr | None:
    return const(0.0) if is_const(x, 0.0) or is_const(y, 0.0) else None


@rule("mul", "1 x -> x", either("const"))
def _(x: Expr, y: Expr) -> Expr | None:
    return y if is_const(x, 1.0) else x if is_const(y, 1.0) else None


@rule("mul", "(-1) x -> -x", either("const"))
def _(x: Expr, y: Expr) -> Expr | None:
    if is_const(x, -1.0):
        return make("neg", y)
    return make("neg", x) if is_const(y, -1.0) else None


@rule("mul", "(-x) y -> -(x y)", either("neg"))
def _(x: Expr, y: Expr) -> Expr | None:
    return make("neg", make("mul", x.args[0], y) if x.op == "neg" else make("mul", x, y.args[0]))


@rule("mul", "c (d x) -> (c d) x, c and d constants", either("mul"))
def _(x: Expr, y: Expr) -> Expr | None:
    c, u = _scaled(x)
    d, v = _scaled(y)
    if u.op == "const":
        c, u = u.value, v
        return make("mul", const(c * d), u) if d != 1.0 else None
    if v.op == "const":
        return make("mul", const(v.value * c), u) if c != 1.0 else None
    # constants go outside a product of two non-constants
    return make("mul", const(c * d), make("mul", u, v)) if c != 1.0 or d != 1.0 else None


@rule("mul", "x (1 / x) -> 1", either("recip"))
def _(x: Expr, y: Expr) -> Expr | None:
    if (y.op == "recip" and y.args[0] is x) or (x.op == "recip" and x.args[0] is y):
        return const(1.0)
    return None


@rule("mul", "(x y) (1 / y) -> x", either("mul"))
def _(x: Expr, y: Expr) -> Expr | None:
    for product, inverse in ((x, y), (y, x)):
        if product.op == "mul":
            for keep, other in (product.args, product.args[::-1]):
                if _are_reciprocal(other, inverse):
                    return keep
    return None


@rule("mul", "sqrt(x) sqrt(x) -> x", all_are("sqrt"))
def _(x: Expr, y: Expr) -> Expr | None:
    return x.args[0] if x is y else None


@rule("mul", "(1 / sqrt(x)) (1 / sqrt(x)) -> 1 / x", all_are("recip"))
def _(x: Expr, y: Expr) -> Expr | None:
    return make("recip", x.args[0].args[0]) if x is y and x.args[0].op == "sqrt" else None


@rule("mul", "x select(c, y, 0) -> select(c, x y, 0)", either("select"))
def _(x: Expr, y: Expr) -> Expr | None:
    # keeps an infinite derivative of the branch that is not taken away from 0 * inf
    for factor, choice in ((x, y), (y, x)):
        if choice.op == "select":
            c, a, b = choice.args
            if is_const(b, 0.0):
                return make("select", c, make("mul", factor, a), b)
            if is_const(a, 0.0):
                return make("select", c, a, make("mul", factor, b))
    return None


@rule("recip", "1 / (1 / x) -> x", either("recip"))
def _(x: Expr) -> Expr | None:
    return x.args[0]


@rule("recip", "1 / (-x) -> -(1 / x)", either("neg"))
def _(x: Expr) -> Expr | None:
    return make("neg", make("recip", x.args[0]))


@rule("recip", "1 / (c x) -> (1 / c) (1 / x), c constant", either("mul"))
def _(x: Expr) -> Expr | None:
    c, u = _scaled(x)
    return make("mul", const(1.0 / c), make("recip", u)) if c not in (0.0, 1.0) else None


# --- functions ----------------------------------------------------------------------------------------------
for _op in ("sin", "tan", "asin", "atan", "sign"):

    @rule(_op, f"{_op}(-x) -> -{_op}(x)", either("neg"))
    def _(x: Expr, op: str = _op) -> Expr | None:
        return make("neg", make(op, x.args[0]))


for _op in ("cos", "abs"):

    @rule(_op, f"{_op}(-x) -> {_op}(x)", either("neg"))
    def _(x: Expr, op: str = _op) -> Expr | None:
        return make(op, x.args[0])


@rule("abs", "abs(x) -> x for x = abs(y), sqrt(y), exp(y) or y y", either("mul", "abs", "sqrt", "exp"))
def _(x: Expr) -> Expr | None:
    return x if x.op != "mul" or x.args[0] is x.args[1] else None


@rule("sqrt", "sqrt(x x) -> abs(x)", either("mul"))
def _(x: Expr) -> Expr | None:
    return make("abs", x.args[0]) if x.args[0] is x.args[1] else None


@rule("log", "log(exp(x)) -> x", either("exp"))
def _(x: Expr) -> Expr | None:
    return x.args[0]


for _op in ("min", "max"):

    @rule(_op, f"{_op}(x, x) -> x", alike)
    def _(x: Expr, y: Expr) -> Expr | None:
        return x if x is y else None


# --- logic --------------------------------------------------------------------------------------------------
@rule("and", "0 and x -> 0; 1 and x -> x, x a truth value; x and x -> x", anything)
def _(x: Expr, y: Expr) -> Expr | None:
    for a, b in ((x, y), (y, x)):
        if is_const(a, 0.0):
            return a
        if _is_truth(b) and (a is b or a.op == "const"):
            return b
    return None


@rule("or", "1 or x -> 1; 0 or x -> x, x a truth value; x or x -> x", anything)
def _(x: Expr, y: Expr) -> Expr | None:
    for a, b in ((x, y), (y, x)):
        if a.op == "const" and a.value != 0.0:
            return const(1.0)
        if _is_truth(b) and (a is b or is_const(a, 0.0)):
            return b
    return None


@rule("not", "not not x -> x, x a truth value", either("not"))
def _(x: Expr) -> Expr | None:
    return x.args[0] if _is_truth(x.args[0]) else None


@rule("eq", "x == x -> 1", alike)
def _(x: Expr, y: Expr) -> Expr | None:
    return const(1.0) if x is y else None


@rule("le", "x <= x -> 1", alike)
def _(x: Expr, y: Expr) -> Expr | None:
    return const(1.0) if x is y else None


@rule("lt", "x < x -> 0", alike)
def _(x: Expr, y: Expr) -> Expr | None:
    return const(0.0) if x is y else None


@rule("select", "select(constant, x, y) -> x or y", argument(0, "const"))
def _(c: Expr, x: Expr, y: Expr) -> Expr | None:
    return x if c.value != 0.0 else y


@rule("select", "select(c, x, x) -> x", anything)
def _(c: Expr, x: Expr, y: Expr) -> Expr | None:
    return x if x is y else None


@rule("select", "select(not c, x, y) -> select(c, y, x)", argument(0, "not"))
def _(c: Expr, x: Expr, y: Expr) -> Expr | None:
    return make("select", c.args[0], y, x)


@rule(
    "select",
    "select(c, select(c, x, y), z) -> select(c, x, z); likewise in the other branch",
    either("select"),
)
def _(c: Expr, x: Expr, y: Expr) -> Expr | None:
    if x.op == "select" and x.args[0] is c:
        return make("select", c, x.args[1], y)
    if y.op == "select" and y.args[0] is c:
        return make("select", c, x, y.args[2])
    return None


def _scaled(x: Expr) -> tuple[float, Expr]:
    """(c, u) with x = c u; c is 1 where x is no multiple."""
    if x.op == "mul":
        a, b = x.args
        if a.op == "const":
            return a.value, b
        if b.op == "const":
            return b.value, a
    return 1.0, x


def _are_reciprocal(x: Expr, y: Expr) -> bool:
    return (x.op == "recip" and x.args[0] is y) or (y.op == "recip" and y.args[0] is x)


def _is_truth(x: Expr) -> bool:
    return x.op in ("lt", "le", "eq", "and", "or", "not")


def _add_is_free(x: Expr, y: Expr) -> bool:
    """Whether x + y needs no operation."""
    return is_const(x, 0.0) or is_const(y, 0.0)
