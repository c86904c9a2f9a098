"""Expressions: simplification keeps values, numpy functions work elementwise, mistakes are explained."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphopt import symbolic
from graphopt.errors import SymbolicError
from graphopt.symbolic import expr as expr_module
from graphopt.symbolic.derivative import PARTIALS
from graphopt.symbolic.expr import RULES, make, make_plain, topological
from graphopt.symbolic.ops import OPS

NAMES = ("x", "y", "z")
TREE_OPS = sorted(set(OPS) - {"robust_rho", "robust_weight"})


def leaves():
    """Variables and constants, small whole ones often: they trigger rules."""
    constants = st.sampled_from([0.0, 1.0, -1.0, 2.0, 0.5, 3.0])
    return st.one_of(st.sampled_from(NAMES).map(lambda n: ("var", n)), constants.map(lambda c: ("const", c)))


def trees():
    """Nested tuples (op, tree, ...), not yet expressions."""

    def extend(inner):
        def of(op):
            return st.tuples(st.just(op), *[inner] * OPS[op].arity)

        return st.one_of([of(op) for op in TREE_OPS])

    return st.recursive(leaves(), extend, max_leaves=12)


def build(tree, constructor):
    """Expression of a tree made by `make` or `make_plain`."""
    if tree[0] == "var":
        return symbolic.var(tree[1])
    if tree[0] == "const":
        return symbolic.const(tree[1])
    return constructor(tree[0], *(build(t, constructor) for t in tree[1:]))


def is_tame(value):
    """Whether rounding of the intermediate results cannot explain a difference."""
    return np.isfinite(value) & (np.abs(value) < 1e6)


@settings(max_examples=200, deadline=None)
@given(trees(), st.integers(0, 2**32 - 1))
def test_simplification_keeps_the_value(tree, seed):
    """A simplified expression has the value of the plain one wherever all its parts are finite and tame."""
    plain, simple = build(tree, make_plain), build(tree, make)
    rng = np.random.default_rng(seed)
    # irrational values far from each other: no comparison hangs on the last digit
    values = {n: rng.uniform(-3, 3, size=8) for n in NAMES}
    parts = symbolic.evaluate(topological([plain]), values)
    jumping = ("lt", "le", "eq", "floor", "sign", "not", "and", "or", "atan2")
    branches = [e for e in topological([plain]) if e.op in jumping]
    with np.errstate(invalid="ignore"):  # infinity - infinity
        if any(np.any(np.abs(a) < 1e-6) for a in _differences(branches, values)):
            return
    tame = np.all([np.broadcast_to(is_tame(p), 8) for p in parts], axis=0)
    tiny = np.any([np.broadcast_to((np.abs(p) > 0) & (np.abs(p) < 1e-6), 8) for p in parts], axis=0)
    (expected,), (actual,) = symbolic.evaluate([plain], values), symbolic.evaluate([simple], values)
    expected, actual = (np.broadcast_to(v, 8) for v in (expected, actual))
    ok = tame & ~tiny
    np.testing.assert_allclose(actual[ok], expected[ok], rtol=1e-7, atol=1e-7)


def _differences(branches, values):
    """Distance of each discontinuous operation from its jump."""
    for e in branches:
        arguments = symbolic.evaluate(list(e.args), values)
        if e.op == "floor":
            yield np.abs(arguments[0] - np.round(arguments[0]))
        elif e.op in ("lt", "le", "eq"):
            yield arguments[0] - arguments[1]
        elif e.op == "atan2":  # the sign of a zero is not kept: pi or -pi, 0 or pi
            yield np.where(arguments[1] <= 0.0, arguments[0], 1.0)
        else:
            yield from arguments


def _of(condition, x, y):
    """Truth value, then numbers, of what holds and what does not."""
    return np.where(condition, x, y)


IDENTITIES = {
    "x + 0 -> x": lambda x, y: [(x + 0, x), (0 + y, y)],
    "x + x -> 2 x": lambda x, y: [(x + x, 2 * x)],
    "(-x) + (-y) -> -(x + y)": lambda x, y: [((-x) + (-y), -(x + y))],
    "x + (-y) -> x - y": lambda x, y: [(x + (-y), x - y), (-x + y, y - x)],
    "(x - y) + y -> x": lambda x, y: [((x - y) + y, x), (x + (y - x), y)],
    "c x + d x -> (c + d) x, c and d constants": lambda x, y: [(2 * x + 3 * x, 5 * x), (x + 3 * x, 4 * x)],
    "sin(x)^2 + cos(x)^2 -> 1": lambda x, y: [
        (np.sin(x) ** 2 + np.cos(x) ** 2, 1 + 0 * x),
        (np.cos(x + y) ** 2 + np.sin(x + y) ** 2, 1 + 0 * x),
    ],
    "select(c, x, 0) + select(c, 0, y) -> select(c, x, y)": lambda x, y: [
        (_of(x < y, x, 0) + _of(x < y, 0, y), _of(x < y, x, y)),
        (_of(x < y, 0, y) + _of(x < y, x, 0), _of(x < y, x, y)),
    ],
    "x - 0 -> x; 0 - x -> -x": lambda x, y: [(x - 0, x), (0 - x, -x)],
    "x - x -> 0": lambda x, y: [(x - x, 0 * x)],
    "x - (-y) -> x + y": lambda x, y: [(x - (-y), x + y)],
    "(-x) - y -> -(x + y)": lambda x, y: [((-x) - y, -(x + y))],
    "(x + y) - y -> x; (x - y) - x -> -y": lambda x, y: [
        ((x + y) - y, x), ((x + y) - x, y), ((x - y) - x, -y),
    ],
    "x - (x + y) -> -y; x - (x - y) -> y": lambda x, y: [
        (x - (x + y), -y), (y - (x + y), -x), (x - (x - y), y),
    ],
    "c x - d x -> (c - d) x, c and d constants": lambda x, y: [(2 * x - 5 * x, -3 * x), (x - 3 * x, -2 * x)],
    "-(-x) -> x": lambda x, y: [(np.negative(-x), x)],
    "-(x - y) -> y - x": lambda x, y: [(-(x - y), y - x)],
    "-(c x) -> (-c) x, c constant": lambda x, y: [(-(3 * x), -3 * x)],
    "0 x -> 0": lambda x, y: [(0 * x, x - x), (y * 0, x - x)],
    "1 x -> x": lambda x, y: [(1 * x, x), (x / y * y, x)],
    "(-1) x -> -x": lambda x, y: [(-1 * x, -x), ((x - x - 1) * y, -y)],
    "(-x) y -> -(x y)": lambda x, y: [((-x) * y, -(x * y)), (x * (-y), -(x * y)), ((-x) * (-y), x * y)],
    "c (d x) -> (c d) x, c and d constants": lambda x, y: [
        (2 * (3 * x), 6 * x), ((0.5 * x) * 2, x), ((2 * x) * (3 * y), 6 * (x * y)),
        (x * (3 * y), 3 * (x * y)), ((3 * x) * y, 3 * (x * y)),
    ],
    "x (1 / x) -> 1": lambda x, y: [(x * (1 / x), 1 + 0 * x), ((1 / x) * x, 1 + 0 * x)],
    "(x y) (1 / y) -> x": lambda x, y: [
        ((x * y) / y, x), ((x * y) / x, y), (y * (x / y), x), ((1 / x) * (y * x), y),
    ],
    "sqrt(x) sqrt(x) -> x": lambda x, y: [(np.sqrt(x) * np.sqrt(x), x)],
    "(1 / sqrt(x)) (1 / sqrt(x)) -> 1 / x": lambda x, y: [((1 / np.sqrt(x)) * (1 / np.sqrt(x)), 1 / x)],
    "x select(c, y, 0) -> select(c, x y, 0)": lambda x, y: [
        (x * _of(x < y, y, 0), _of(x < y, x * y, 0)), (x * _of(x < y, 0, y), _of(x < y, 0, x * y)),
        (_of(x < y, y, 0) * (x + y), _of(x < y, (x + y) * y, 0)),
    ],
    "1 / (1 / x) -> x": lambda x, y: [(1 / (1 / x), x)],
    "1 / (-x) -> -(1 / x)": lambda x, y: [(1 / (-x), -(1 / x))],
    "1 / (c x) -> (1 / c) (1 / x), c constant": lambda x, y: [(1 / (4 * x), 0.25 * (1 / x))],
    **{
        f"{op}(-x) -> -{op}(x)": (lambda x, y, f=f: [(f(-x), -f(x))])
        for op, f in (
            ("sin", np.sin), ("tan", np.tan), ("asin", np.arcsin), ("atan", np.arctan), ("sign", np.sign),
        )
    },
    "cos(-x) -> cos(x)": lambda x, y: [(np.cos(-x), np.cos(x))],
    "abs(-x) -> abs(x)": lambda x, y: [(np.abs(-x), np.abs(x))],
    "abs(x) -> x for x = abs(y), sqrt(y), exp(y) or y y": lambda x, y: [
        (np.abs(f(x)), f(x)) for f in (np.abs, np.sqrt, np.exp, np.square)
    ],
    "sqrt(x x) -> abs(x)": lambda x, y: [(np.sqrt(x * x), np.abs(x))],
    "log(exp(x)) -> x": lambda x, y: [(np.log(np.exp(x)), x)],
    "min(x, x) -> x": lambda x, y: [(np.minimum(x, x), x)],
    "max(x, x) -> x": lambda x, y: [(np.maximum(x, x), x)],
    "0 and x -> 0; 1 and x -> x, x a truth value; x and x -> x": lambda x, y: [
        (np.logical_and(x < y, 1), x < y), (np.logical_and(1, x < y), x < y), (np.logical_and(0, x), x < x),
        (np.logical_and(x, 0), x < x), (np.logical_and(x < y, x < y), x < y),
        (np.logical_and(2, x == y), x == y),
    ],
    "1 or x -> 1; 0 or x -> x, x a truth value; x or x -> x": lambda x, y: [
        (np.logical_or(x < y, 0), x < y), (np.logical_or(0, x <= y), x <= y), (np.logical_or(2, x), x == x),
        (np.logical_or(x, 1), x == x), (np.logical_or(x < y, x < y), x < y),
    ],
    "not not x -> x, x a truth value": lambda x, y: [
        (~~(x < y), x < y), (~~((x < y) & (x < 1)), (x < y) & (x < 1)),
        (~~((x < y) | (x < 1)), (x < y) | (x < 1)),
    ],
    "x == x -> 1": lambda x, y: [(x == x, 0 * x == 0)],
    "x <= x -> 1": lambda x, y: [(x <= x, 0 * x == 0)],
    "x < x -> 0": lambda x, y: [(x < x, 0 * x == 1)],
    "select(constant, x, y) -> x or y": lambda x, y: [(_of(0 * x + 2, x, y), x), (_of(0 * x, x, y), y)],
    "select(c, x, x) -> x": lambda x, y: [(_of(x < y, x, x), x)],
    "select(not c, x, y) -> select(c, y, x)": lambda x, y: [(_of(~(x < y), x, y), _of(x < y, y, x))],
    "select(c, select(c, x, y), z) -> select(c, x, z); likewise in the other branch": lambda x, y: [
        (_of(x < y, _of(x < y, x, y), 1), _of(x < y, x, 1)),
        (_of(x < y, 1, _of(x < y, x, y)), _of(x < y, 1, y)),
    ],
}  # fmt: skip
"""Algebra of a rule -> what is written, and what is to be made of it; both as numpy understands them."""


@pytest.mark.parametrize("algebra", [r.algebra for rules in RULES.values() for r in rules])
def test_every_rule_is_the_algebra_that_it_says(algebra, monkeypatch):
    """What is written becomes what the algebra says, by this rule; numpy finds both equal."""
    fired = set()

    def spied(rule):
        def simplify(*args):
            found = rule.simplify(*args)
            fired.update({rule.algebra} if found is not None else ())
            return found

        return rule._replace(simplify=simplify)

    monkeypatch.setattr(expr_module, "RULES", {op: [*map(spied, rules)] for op, rules in RULES.items()})
    monkeypatch.setattr(expr_module, "_choices", {})
    with symbolic.fresh_table():
        for written, made in IDENTITIES[algebra](symbolic.var("x"), symbolic.var("y")):
            assert symbolic.lift(written) is symbolic.lift(made)
    assert algebra in fired
    for written, made in IDENTITIES[algebra](np.array([0.3, 0.8]), np.array([0.7, 0.2])):
        np.testing.assert_allclose(np.asarray(written, float), np.asarray(made, float), rtol=1e-14)


def test_no_rule_changes_a_value():
    """Every operation on many arguments, all pairs of them: as numpy computes it of the arguments."""
    with symbolic.fresh_table():
        x, y = symbolic.var("x"), symbolic.var("y")
        whole = [symbolic.const(c) for c in (0.0, 1.0, -1.0, 2.0)]
        truths = [x < y, y < x, ~(x < y), (x < y) & (x < 1.0), (x < y) | (x < 1.0)]
        parts = [x, y, -x, x + y, x - y, y - x, 2 * x, 3 * x, 2 * y, x * y, x * x, 1 / x, 1 / y]
        parts += [np.sqrt(x), np.sqrt(y), 1 / np.sqrt(x), 1 / np.sqrt(y), np.sin(x), np.exp(x), np.abs(x)]
        parts += [np.sin(x) ** 2, np.cos(x) ** 2, np.cos(y) ** 2, np.sin(x) * np.cos(x)]
        parts += [
            make("select", c, a, b) for c in truths[:2] for a, b in ((x, y), (x, whole[0]), (whole[0], y))
        ]
        pool = [*whole, *truths, *parts]
        ops = [op for op in TREE_OPS if OPS[op].arity < 3]
        asked = [(op, *args) for op in ops for args in product(pool, repeat=OPS[op].arity)]
        asked += [("select", *args) for args in product([*whole, *truths, x], parts, parts)]
        plain = [make_plain(op, *args) for op, *args in asked]
        made = [make(op, *args) for op, *args in asked]
        values = {"x": np.array([0.37, 1.71, 0.83]), "y": np.array([1.13, 0.29, 2.41])}
        expected, actual = (
            np.array([np.broadcast_to(v, 3) for v in symbolic.evaluate(roots, values)], float)
            for roots in (plain, made)
        )
    known = np.isfinite(expected)
    assert known.mean() > 0.9
    np.testing.assert_allclose(actual[known], expected[known], rtol=1e-12, atol=1e-12)


def test_plain_operations_do_not_change_what_is_made():
    """What was made as it is, is simplified when asked for; and is the same where it cannot be."""
    with symbolic.fresh_table():
        x, y = symbolic.var("x"), symbolic.var("y")
        plain = make_plain("mul", x, symbolic.const(1.0))
        assert make("mul", x, symbolic.const(1.0)) is x
        assert make_plain("mul", x, symbolic.const(1.0)) is plain
        assert make_plain("mul", x, y) is make("mul", x, y)


def test_what_follows_a_checkpoint_is_forgotten():
    """After going back, the same operations are made anew, of the same arguments."""
    with symbolic.fresh_table():
        x, y = symbolic.var("x"), symbolic.var("y")
        total = x + y
        known = expr_module.Checkpoint()
        product = x * y
        known.restore()
        again = y * x
        assert again is not product and again is x * y
        assert again.args[0] is x and x + y is total


def test_equal_expressions_are_the_same_object():
    """Hash consing: the same formula built twice is one node, also with commuting arguments exchanged."""
    x, y = symbolic.var("x"), symbolic.var("y")
    assert np.sin(x * y + 1.0) is np.sin(1.0 + y * x)


FUNCTIONS = {
    "where": lambda a, b: np.where(a < b, np.sin(a), b**2),
    "nested logic": lambda a, b: np.where((a < 0.5) & ~(b > 0.2) | (a == b), a, -b),
    "clip": lambda a, b: np.clip(a, -0.5, 0.5) + np.maximum(b, 0.1) - np.minimum(a, b),
    "norm": lambda a, b: np.linalg.norm(a, axis=-1) * b[..., 0],
    "norm keepdims": lambda a, b: a / np.linalg.norm(a, axis=-1, keepdims=True),
    "cross": lambda a, b: np.cross(a, b),
    "dot": lambda a, b: np.dot(a, b) + a @ b + np.sum(a * b) + np.inner(a, b),
    "stack": lambda a, b: np.stack([a[..., 0], b[..., 1] * 2, np.arctan2(a[..., 2], b[..., 2])], axis=-1),
    "concatenate": lambda a, b: np.concatenate([a[..., :2], b, -a[..., 2:]], axis=-1),
    "matrix": lambda a, b: (np.stack([np.stack([a, b]), np.stack([b, a * 2])]) @ a)[..., 1],
    "einsum": lambda a, b: np.einsum("i,j->ij", a, b).ravel(),
    "powers": lambda a, b: np.abs(a) ** 1.5 + b**3 + (1 + a * a) ** -2 + 2.0**a,
    "functions": lambda a, b: np.exp(a) + np.log(b + 4) + np.tan(a) + np.arcsin(a / 4) * np.arccos(b / 4),
    "more functions": lambda a, b: (
        np.hypot(a, b) + np.square(a) + np.arctan(b) + np.log1p(b * b) + np.expm1(a)
    ),
    "rounding": lambda a, b: (
        np.floor(a * 3) + np.ceil(b * 3) + np.mod(a, 0.7) + np.sign(a) + np.copysign(a, b)
    ),
    "reductions": lambda a, b: np.max(a) + np.min(b) + np.prod(a) + np.mean(b) + a.sum(),
    "any and all": lambda a, b: np.where(np.any(a > b) & np.all(a > -10), a, b),
    "in place": lambda a, b: _in_place(a, b),
    "like": lambda a, b: np.zeros_like(a) + np.ones_like(b) + np.full_like(a, 2.0),
    "outer and trace": lambda a, b: np.trace(np.outer(a, b)),
    "broadcast": lambda a, b: a[..., None] * np.array([1.0, 2.0]) + b[..., 0:1, None] * np.eye(2)[0],
    "angle": lambda a, b: np.rad2deg(np.deg2rad(a)) - np.reciprocal(b + 5.0) + np.positive(a),
}


def _in_place(a, b):
    total = a * 1.0
    total += b
    total *= 2.0
    return total


@pytest.mark.parametrize("name", FUNCTIONS)
def test_numpy_functions_mean_the_same_on_symbols(name):
    """The same source gives the same numbers on floats and, evaluated, on symbols."""
    rng = np.random.default_rng(3)
    a, b = rng.normal(size=3), rng.normal(size=3)
    expected = np.asarray(FUNCTIONS[name](a, b), dtype=float)
    symbols = FUNCTIONS[name](symbolic.variables("a", 3), symbolic.variables("b", 3))
    assert np.shape(symbols) == expected.shape
    values = {f"a[{i}]": a[i] for i in range(3)} | {f"b[{i}]": b[i] for i in range(3)}
    actual = symbolic.evaluate(symbolic.as_exprs(symbols), values)
    np.testing.assert_allclose(np.array(actual).reshape(expected.shape), expected, rtol=1e-12, atol=1e-14)


def test_elements_of_ordinary_object_arrays_work():
    """np.array of symbols: arithmetic and the functions that numpy looks up as methods."""
    x, y = symbolic.var("x"), symbolic.var("y")
    plain = np.array([x, y])
    result = np.sqrt(plain) + np.sin(plain) * np.arctan2(plain, 2.0) + np.conjugate(plain)
    actual = symbolic.evaluate(symbolic.as_exprs(result), {"x": 0.5, "y": 2.0})
    v = np.array([0.5, 2.0])
    np.testing.assert_allclose(actual, np.sqrt(v) + np.sin(v) * np.arctan2(v, 2.0) + v, rtol=1e-14)


def _python_if(x):
    if x[0] > 0:
        return x
    return -x


MISTAKES = {
    "Python if": (_python_if, ["truth value", "np.where", "test_symbolic.py", "if x[0] > 0:"]),
    "math module": (lambda x: __import__("math").sin(x[0]), ["Python float", "np.sin", "test_symbolic.py"]),
    "unknown ufunc": (lambda x: np.spacing(x), ["np.spacing", "docs/types.md"]),
    "unknown function": (lambda x: np.linalg.svd(np.stack([x, x])), ["np.svd", "FUNCTIONS"]),
    "NaN constant": (lambda x: x * float("nan"), ["NaN constant"]),
    "odd norm": (lambda x: np.linalg.norm(x, ord=3), ["ord=None, 1, 2"]),
    "text": (lambda x: x[0] + "one", ["number or a symbol", "str"]),
    "int": (lambda x: int(x[0]), ["Python int"]),
    "index": (lambda x: [1, 2, 3][x[0]], ["Python index"]),
    "accumulate": (lambda x: np.add.accumulate(x), ["np.add.accumulate"]),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_explained(name):
    """What symbols cannot do raises SymbolicError that names the cause, and the line or the way out."""
    function, words = MISTAKES[name]
    with pytest.raises(SymbolicError) as caught:
        function(symbolic.variables("x", 3))
    for word in words:
        assert word in str(caught.value)


DERIVATIVES = {
    "products": lambda x, y: x * y * y / (1 + x * x),
    "roots": lambda x, y: np.sqrt(1 + x * x) + (2 + y) ** 1.3 + (2.5 + x) ** y,
    "trigonometry": lambda x, y: np.sin(x * y) * np.cos(x) + np.tan(y / 2),
    "inverse": lambda x, y: np.arcsin(x / 2) + np.arccos(y / 2) + np.arctan(x * y),
    "arctan2": lambda x, y: np.arctan2(x + 0.1, y * y - 2),
    "exponential": lambda x, y: np.exp(x * y) + np.log(3 + x),
    "branches": lambda x, y: (
        np.where(x < y, x * x, y * x) + np.minimum(x, y) * np.maximum(2 * x, y) + np.abs(x - y)
    ),
    "steps": lambda x, y: x * np.floor(y * 3) + np.sign(y) * x,
}


@pytest.mark.parametrize("name", DERIVATIVES)
def test_derivatives_equal_finite_differences(name):
    """The Jacobian along two oblique directions is that of central differences."""
    function = DERIVATIVES[name]
    x, y = symbolic.var("x"), symbolic.var("y")
    directions = np.array([[1.0, 0.5], [-0.3, 2.0]])
    seeds = [{x: symbolic.const(d[0]), y: symbolic.const(d[1])} for d in directions]
    rows = symbolic.jacobian([function(x, y), x * 3.0], seeds)
    at = np.random.default_rng(5).uniform(-0.9, 0.9, size=(2, 20))
    step = 1e-6
    for j, d in enumerate(directions[:, :, None]):
        expected = (function(*(at + step * d)) - function(*(at - step * d))) / (2 * step)
        actual = symbolic.evaluate([row[j] for row in rows], {"x": at[0], "y": at[1]})
        np.testing.assert_allclose(actual[0], expected, rtol=1e-7, atol=1e-7)
        np.testing.assert_allclose(actual[1], 3.0 * d[0], rtol=1e-15)


@pytest.mark.parametrize("op", [op for op in TREE_OPS if op in PARTIALS and not op.startswith("sample")])
def test_derivatives_of_every_operation(op):
    """Towards each argument, by central differences, where nothing jumps."""
    arguments = [symbolic.var(name) for name in NAMES[: OPS[op].arity]]
    outputs = [make_plain(op, *arguments)]
    (found,) = symbolic.jacobian(outputs, [{each: symbolic.const(1.0)} for each in arguments])
    at = {
        name: np.array(values)
        for name, values in zip(NAMES, ([0.3, 0.8], [0.7, 0.2], [0.4, 0.9]), strict=True)
    }
    for each, rate in zip(arguments, symbolic.evaluate(found, at), strict=True):
        (up,), (down,) = (
            symbolic.evaluate(outputs, {**at, each.value: at[each.value] + step}) for step in (1e-6, -1e-6)
        )
        np.testing.assert_allclose(np.broadcast_to(rate, 2), (up - down) / 2e-6, rtol=1e-7, atol=1e-8)


def test_the_branch_not_taken_cannot_spoil_the_derivative():
    """Where one branch's derivative is infinite or NaN, the other's is unharmed, also in products."""
    x = symbolic.var("x")
    y = np.where(x > 0, np.sqrt(x), 0.0)
    (row,) = symbolic.jacobian(
        [y * y * (3.0 + y) + np.where(x > 0, np.arctan2(x, x - x), 2 * x)], [{x: symbolic.const(1)}]
    )
    (value,) = symbolic.evaluate(row, {"x": np.array([0.0, -1.0])})
    np.testing.assert_array_equal(value, [2.0, 2.0])


def test_substitution_simplifies():
    """Putting constants for variables folds everything that no longer varies."""
    x, y = symbolic.var("x"), symbolic.var("y")
    (result,) = symbolic.substitute([np.where(x < 1, y * np.cos(x), np.sqrt(y))], {x: symbolic.const(0)})
    assert result is y


def test_verify_finds_malformed_expressions():
    """An operation with the wrong number of arguments is reported with the stage that made it."""
    x = symbolic.var("x")
    symbolic.verify([x + 1], "test")
    with pytest.raises(SymbolicError, match=r"After test: .* has 1 arguments, expected 2"):
        symbolic.verify([make_plain("mul", x)], "test")


def test_printing_shows_formula_and_program():
    """format_expr is a formula, format_program one operation per line."""
    x, y = symbolic.var("x"), symbolic.var("y")
    e = np.sin(x + y) * x
    assert symbolic.format_expr(e) == repr(e) == "(x * sin((x + y)))"
    assert symbolic.format_program([e]).splitlines() == [
        "v0 = add(x, y)",
        "v1 = sin(v0)",
        "v2 = mul(x, v1)",
        "out[0] = v2",
    ]
    assert symbolic.count_operations([e]) == {"add": 1, "sin": 1, "mul": 1}


def test_derivatives_need_as_few_products_as_the_better_mode():
    """Counted by hand: of many numbers backwards, of one forwards, through a waist both; values by numpy."""
    x, a = symbolic.variables("x", 5), symbolic.var("a")
    chain, waist = symbolic.as_exprs(np.stack([np.prod(x), np.sin(np.prod(x[:4]))]))
    narrow = np.sin(np.exp(np.sin(a)))
    cases = [
        ([chain], x, 3 + 6),  # x0 x1, x0 x1 x2, x0 x1 x2 x3; twice x4 x3, x4 x3 x2, and x1 or x0
        ([narrow * each for each in x], [a], 2 + 5),
        ([np.sin(waist), np.exp(waist), np.cos(waist), np.tan(waist)], x[:4], 3 + 6 + 1 + 16),
    ]
    at = {f"x[{i}]": 0.3 + 0.2 * i for i in range(5)} | {"a": 0.7}
    for outputs, variables, count in cases:
        rows = symbolic.jacobian(outputs, [{each: symbolic.const(1.0)} for each in variables])
        found = [entry for row in rows for entry in row]
        assert symbolic.count_operations(found)["mul"] == count
        columns = []
        for each in variables:
            up, down = ({**at, each.value: at[each.value] + step} for step in (1e-6, -1e-6))
            columns.append(
                (np.array(symbolic.evaluate(outputs, up)) - symbolic.evaluate(outputs, down)) / 2e-6
            )
        np.testing.assert_allclose(symbolic.evaluate(found, at), np.ravel(columns, order="F"), rtol=1e-7)
