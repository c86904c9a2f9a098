"""Scalar expressions in a hash-consed directed acyclic graph.

Equal expressions are the same object, so common sub-expressions are shared as they are built. `id` grows with
creation: the arguments of an expression have smaller ids than itself, so sorting by id is a topological
order. `make` simplifies on the way in with the rules of `rules.RULES`.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from typing import Any, NamedTuple, NoReturn

import numpy as np

from graphopt.errors import SymbolicError
from graphopt.symbolic.ops import OPS, fold
from graphopt.symbolic.source import user_line

_COMMUTATIVE = frozenset(op.name for op in OPS.values() if op.commutative)
_OPEN = frozenset(op.name for op in OPS.values() if op.is_open)
_counter = itertools.count()


class _Known(threading.local):
    """The expressions that a thread knows; others may trace at the same time."""

    def __init__(self) -> None:
        self.table: dict[tuple, Expr] = {}
        """(operation, *arguments) or (kind of leaf, value) -> the expression that this is."""
        self.made: dict[tuple, Expr] = {}
        """(operation, *arguments) -> what `make` returned: the same whenever it is asked again."""


_known = _Known()
_choices: dict[tuple[str, ...], tuple[Simplify, ...]] = {}
"""(operation, *operations of its arguments) -> what is asked for something simpler, in this order."""
_simplifies = True

Simplify = Callable[..., "Expr | None"]
"""Arguments of an operation -> something simpler than the operation, or None."""


class Rule(NamedTuple):
    """One simplification."""

    algebra: str
    may_apply: Callable[..., bool]
    """Operations of the arguments -> whether `simplify` may be asked."""
    simplify: Simplify


RULES: dict[str, list[Rule]] = {name: [] for name in OPS}
"""Simplifications by operation, filled by `rules.py`."""


numpy_calls: dict[str, Callable[..., Any]] = {}
"""What numpy asks of symbols, filled by `arrays`: "ufunc", "function" carry out a call, "array" makes one."""


class Expr:
    """One scalar: a constant, a variable, or an operation on other scalars.

    Works with numpy: operators, ufuncs (`np.sin(x)`), `np.where`, and as element of object arrays.
    """

    __slots__ = ("args", "id", "op", "value")

    op: str
    args: tuple[Expr, ...]
    value: Any
    id: int

    # --- arithmetic ---------------------------------------------------------------------------------------
    def __add__(self, other):
        return _binary("add", self, other)

    def __radd__(self, other):
        return _binary("add", other, self)

    def __sub__(self, other):
        return _binary("sub", self, other)

    def __rsub__(self, other):
        return _binary("sub", other, self)

    def __mul__(self, other):
        return _binary("mul", self, other)

    def __rmul__(self, other):
        return _binary("mul", other, self)

    def __truediv__(self, other):
        return NotImplemented if isinstance(other, np.ndarray) else div(self, lift(other))

    def __rtruediv__(self, other):
        return NotImplemented if isinstance(other, np.ndarray) else div(lift(other), self)

    def __pow__(self, other):
        return NotImplemented if isinstance(other, np.ndarray) else power(self, lift(other))

    def __rpow__(self, other):
        return NotImplemented if isinstance(other, np.ndarray) else power(lift(other), self)

    def __mod__(self, other):
        return NotImplemented if isinstance(other, np.ndarray) else mod(self, lift(other))

    def __rmod__(self, other):
        return NotImplemented if isinstance(other, np.ndarray) else mod(lift(other), self)

    def __floordiv__(self, other):
        return NotImplemented if isinstance(other, np.ndarray) else make("floor", div(self, lift(other)))

    def __rfloordiv__(self, other):
        return NotImplemented if isinstance(other, np.ndarray) else make("floor", div(lift(other), self))

    def __neg__(self):
        return make("neg", self)

    def __pos__(self):
        return self

    def __abs__(self):
        return make("abs", self)

    def __floor__(self):
        return make("floor", self)

    def __ceil__(self):
        return make("neg", make("floor", make("neg", self)))

    # --- comparisons and logic ----------------------------------------------------------------------------
    def __lt__(self, other):
        return _binary("lt", self, other)

    def __le__(self, other):
        return _binary("le", self, other)

    def __gt__(self, other):
        return _binary("lt", other, self)

    def __ge__(self, other):
        return _binary("le", other, self)

    def __eq__(self, other):
        return _binary("eq", self, other)

    def __ne__(self, other):
        same = _binary("eq", self, other)
        return same if same is NotImplemented else make("not", same)

    def __and__(self, other):
        return _binary("and", self, other)

    def __rand__(self, other):
        return _binary("and", other, self)

    def __or__(self, other):
        return _binary("or", self, other)

    def __ror__(self, other):
        return _binary("or", other, self)

    def __invert__(self):
        return make("not", self)

    __hash__ = object.__hash__

    # --- what a symbol cannot do --------------------------------------------------------------------------
    def __bool__(self) -> NoReturn:
        raise SymbolicError(
            "A symbol has no truth value yet: Python's if, while, and, or, not, in, min(), max() and chained "
            "comparisons cannot look at it.\n"
            f"  {user_line()}\n"
            "Write np.where(condition, x, y), np.minimum, np.maximum, (a < x) & (x < b), "
            "np.logical_or; and build arrays with np.stack: np.array() makes a plain array whose comparisons "
            "end here."
        )

    def _no_number(self, kind: str) -> NoReturn:
        raise SymbolicError(
            f"A symbol has no value yet, so it cannot become a Python {kind}.\n"
            f"  {user_line()}\n"
            "Use numpy functions (np.sin, not math.sin), "
            "build arrays with np.stack([...], axis=-1) instead of filling np.zeros(...), "
            "and do not convert values with dtype=float."
        )

    def __float__(self) -> float:
        self._no_number("float")

    def __int__(self) -> int:
        self._no_number("int")

    def __index__(self) -> int:
        self._no_number("index")

    def __complex__(self) -> complex:
        self._no_number("complex")

    def __round__(self, digits: int | None = None) -> NoReturn:
        raise SymbolicError(f"round() does not work on symbols.\n  {user_line()}\nWrite np.rint(x).")

    def __iter__(self) -> NoReturn:
        raise SymbolicError(
            f"A symbol is one number: it cannot be unpacked or looped over.\n  {user_line()}\n"
            "Loop over range(n) with a fixed n, or over the components of an array: for x in point."
        )

    # --- numpy --------------------------------------------------------------------------------------------
    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        return numpy_calls["ufunc"](ufunc, method, inputs, kwargs)

    def __array_function__(self, function, types, args, kwargs):
        return numpy_calls["function"](function, args, kwargs)

    def __getitem__(self, index):
        return numpy_calls["array"](self)[index]

    def sin(self):
        """Sine; numpy calls it for elements of object arrays, like all the following methods."""
        return make("sin", self)

    def cos(self):
        """Cosine."""
        return make("cos", self)

    def tan(self):
        """Tangent."""
        return make("tan", self)

    def arcsin(self):
        """Inverse sine."""
        return make("asin", self)

    def arccos(self):
        """Inverse cosine."""
        return make("acos", self)

    def arctan(self):
        """Inverse tangent."""
        return make("atan", self)

    def arctan2(self, other):
        """Angle of (other, self)."""
        return make("atan2", self, lift(other))

    def exp(self):
        """Exponential."""
        return make("exp", self)

    def log(self):
        """Natural logarithm."""
        return make("log", self)

    def sqrt(self):
        """Square root."""
        return make("sqrt", self)

    def square(self):
        """Square."""
        return make("mul", self, self)

    def hypot(self, other):
        """Length of (self, other)."""
        other = lift(other)
        return make("sqrt", make("add", make("mul", self, self), make("mul", other, other)))

    def conjugate(self):
        """Itself: symbols are real."""
        return self

    def copy(self):
        """Itself: expressions never change."""
        return self

    def __repr__(self) -> str:
        return format_expr(self)


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


def _intern(key: tuple, args: tuple[Expr, ...], value: Any) -> Expr:
    """Return the expression of this key in the thread's table."""
    table = _known.table
    found = table.get(key)
    if found is None:
        found = object.__new__(Expr)
        found.op, found.args, found.value, found.id = key[0], args, value, next(_counter)
        table[key] = found
    return found


@contextmanager
def fresh_table() -> Iterator[None]:
    """Forget the expressions that this thread makes inside when leaving, so that memory does not grow."""
    outer = _known.table, _known.made
    _known.table, _known.made = {}, {}
    try:
        yield
    finally:
        _known.table, _known.made = outer


class Checkpoint:
    """The expressions that are known now: to go on from here several times, each as if it were the first."""

    def __init__(self) -> None:
        self._table, self._made = dict(_known.table), dict(_known.made)

    def restore(self) -> None:
        """Know these expressions and no others, until the surrounding `fresh_table` ends."""
        _known.table, _known.made = dict(self._table), dict(self._made)


@contextmanager
def without_rules() -> Iterator[None]:
    """Make operations as they are written inside, but for constants: to see what the rules are worth."""
    global _simplifies, _choices
    outer = _simplifies, _choices
    _simplifies, _choices = False, {}
    try:
        with fresh_table():
            yield
    finally:
        _simplifies, _choices = outer


def const(value: float) -> Expr:
    """Return a constant."""
    value = float(value) + 0.0  # -0.0 becomes 0.0
    return _intern(("const", value), (), value)


def var(name: str) -> Expr:
    """Return the variable of this name."""
    return _intern(("var", name), (), name)


def is_const(e: Expr, value: float) -> bool:
    """Return whether `e` is the constant `value`."""
    return e.op == "const" and e.value == value


def lift(x: Any) -> Expr:
    """Return `x` as an expression; numbers become constants."""
    if isinstance(x, Expr):
        return x
    if isinstance(x, np.ndarray) and x.ndim == 0:
        return lift(x.item())
    if isinstance(x, bool | int | float | np.number | np.bool_):
        value = float(x)
        if math.isnan(value):
            raise SymbolicError(
                f"A NaN constant enters the expression.\n  {user_line()}\n"
                "Every derivative through it would be NaN."
            )
        return const(value)
    raise SymbolicError(
        f"Expected a number or a symbol, got {type(x).__name__}: {x!r}.\n  {user_line()}\n"
        "A residual returns numbers made of its arguments with numpy operations."
    )


def make(op: str, *args: Expr) -> Expr:
    """Return `op(*args)`, simplified."""
    if op in _COMMUTATIVE and args[0].id > args[1].id:
        args = (args[1], args[0])
    key = (op, *args)
    made = _known.made
    found = made.get(key)
    if found is None:
        found = made[key] = _simplified(key, args)
    return found


def _simplified(key: tuple, args: tuple[Expr, ...]) -> Expr:
    ops = (key[0], *[a.op for a in args])
    choices = _choices.get(ops)
    if choices is None:
        choices = _choices[ops] = _choose(*ops)
    for simplify in choices:
        simpler = simplify(*args)
        if simpler is not None:
            return simpler
    return _intern(key, args, None)


def _choose(op: str, *ops: str) -> tuple[Simplify, ...]:
    """Return what may simplify an operation whose arguments are the operations `ops`."""
    if op not in _OPEN and set(ops) == {"const"}:
        return (partial(_folded, op),)
    return tuple([rule.simplify for rule in RULES[op] if _simplifies and rule.may_apply(*ops)])


def _folded(op: str, *args: Expr) -> Expr:
    return const(fold(op, tuple([a.value for a in args])))


def make_plain(op: str, *args: Expr) -> Expr:
    """Return `op(*args)` as it is, without any simplification."""
    return _intern((op, *args), args, None)


def _binary(op: str, x: Any, y: Any):
    if isinstance(x, np.ndarray) or isinstance(y, np.ndarray):
        return NotImplemented
    return make(op, lift(x), lift(y))


def div(x: Expr, y: Expr) -> Expr:
    """X / y as x * (1 / y), so that divisions by the same y share the reciprocal."""
    if y.op == "const":
        if x.op == "const":
            with np.errstate(all="ignore"):
                return const(float(np.divide(x.value, y.value)))
        if y.value != 0.0:
            return make("mul", x, const(1.0 / y.value))
    return make("mul", x, make("recip", y))


def power(x: Expr, y: Expr) -> Expr:
    """X ** y; small whole and half exponents become products and roots."""
    if y.op == "const":
        exponent = y.value
        if abs(exponent) <= 16 and exponent == int(exponent):
            result = _whole_power(x, abs(int(exponent)))
            return result if exponent >= 0 else make("recip", result)
        if exponent in (0.5, -0.5):
            root = make("sqrt", x)
            return root if exponent > 0 else make("recip", root)
    return make("pow", x, y)


def _whole_power(x: Expr, n: int) -> Expr:
    if n == 0:
        return const(1.0)
    half = _whole_power(x, n // 2) if n > 1 else None
    result = x if half is None else make("mul", half, half)
    return make("mul", result, x) if half is not None and n % 2 else result


def mod(x: Expr, y: Expr) -> Expr:
    """Remainder with the sign of y, as np.mod."""
    return make("sub", x, make("mul", y, make("floor", div(x, y))))


class Roots(tuple[Expr, ...]):
    """Expressions that are asked for; what they need is looked up once."""

    @classmethod
    def of(cls, expressions: Iterable[Expr]) -> Roots:
        """Return the expressions as Roots; the same object where they are."""
        return expressions if isinstance(expressions, cls) else cls(expressions)

    @cached_property
    def nodes(self) -> list[Expr]:
        """All expressions that they need, arguments first."""
        found: dict[int, Expr] = {}
        stack = list(self)
        while stack:
            e = stack.pop()
            if e.id not in found:
                found[e.id] = e
                stack += e.args
        return [found[i] for i in sorted(found)]


def topological(roots: Iterable[Expr]) -> list[Expr]:
    """All expressions that `roots` need, arguments first."""
    return Roots.of(roots).nodes
