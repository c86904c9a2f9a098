"""Expressions of SymPy and SymForce as residuals."""

import functools
import re
from pathlib import Path

import numpy as np
import pytest

import graphopt
from graphopt.errors import ShapeError, SymbolicError
from graphopt.geometry import SE3
from graphopt.symbolic import as_exprs, const, evaluate, jacobian, variables
from graphopt.symbolic.sympy_functions import FUNCTIONS

sympy = pytest.importorskip("sympy")
x, y, z = sympy.symbols("x y z", real=True)

EXPRESSIONS = [
    x + 2 * y - z / 3,
    x**2 * y**-3,
    (x + 2) ** 0.5 + (y + 4) ** sympy.Rational(-1, 2),
    2**x,
    (x + 3) ** y,
    (x + 3) ** sympy.Rational(2, 3),
    sympy.cbrt(x + 4),
    sympy.sqrt(x**2 + y**2 + z**2),
    sympy.pi * x + sympy.E,
    sympy.exp(x * y),
    sympy.log(x + 3),
    sympy.log(x + 3, 10),
    sympy.sin(x) * sympy.cos(y),
    sympy.tan(x),
    sympy.cot(y + 2),
    sympy.sec(x),
    sympy.csc(y + 2),
    sympy.asin(x / 3),
    sympy.acos(y / 3),
    sympy.atan(x * y),
    sympy.acot(x + 3),
    sympy.asec(x + 4),
    sympy.acsc(x + 4),
    sympy.atan2(x, y),
    sympy.sinh(x),
    sympy.cosh(y),
    sympy.tanh(x - y),
    sympy.coth(x + 3),
    sympy.sech(x),
    sympy.csch(x + 3),
    sympy.asinh(x),
    sympy.acosh(x + 4),
    sympy.atanh(y / 3),
    sympy.acoth(x + 4),
    sympy.sinc(x),
    sympy.Abs(x) * sympy.sign(y),
    sympy.Heaviside(x) * y,
    sympy.Min(x, y, z) - sympy.Max(x, 0),
    sympy.Mod(x, 2),
    sympy.floor(3 * x) + sympy.ceiling(y) + sympy.frac(z),
    sympy.Piecewise((x**2, x < y), (sympy.sin(x), (x >= z) | sympy.Eq(y, 0)), (y, True)),
    sympy.Piecewise((x, sympy.And(x > 0, y <= 0)), (-x, sympy.Not(sympy.Or(z <= 0, x > 1))), (z, True)),
    sympy.Piecewise((x, sympy.ITE(x > 0, y > 0, z > 0)), (2 * x, sympy.Ne(x, y)), (z, True)),
    sympy.Piecewise((x, sympy.Not(sympy.And(x > 0, y > 0), evaluate=False)), (z, True)),
    sympy.Piecewise((x, sympy.Xor(x > 0, y > 0)), (z, True)),
    sympy.Sum(x ** sympy.Symbol("k"), (sympy.Symbol("k"), 0, 3)),
    sympy.Derivative(sympy.sin(x * y), x),
]


def points(count=8):
    """Values of x, y, z, all signs."""
    return np.random.default_rng(3).uniform(-1.9, 1.9, (count, 3))


def gradient(expression, point):
    """Derivatives by x, y, z as the compiler has them."""
    state = variables("v", len(point))
    residual = graphopt.from_sympy([expression], [[x, y, z][: len(point)]])
    rows = jacobian(as_exprs(residual(state)), [{symbol: const(1.0)} for symbol in state])
    return np.array(evaluate(rows[0], {f"v[{i}]": value for i, value in enumerate(point)}), float)


@pytest.mark.parametrize("expression", EXPRESSIONS, ids=str)
def test_value_is_that_of_sympy(expression):
    """On floats."""
    residual = graphopt.from_sympy(expression, [[x, y, z]])
    for point in points():
        values = dict(zip((x, y, z), point, strict=True))
        assert float(residual(point)) == pytest.approx(
            float(sympy.N(expression.subs(values).doit())), abs=1e-13
        )


@pytest.mark.parametrize("expression", EXPRESSIONS, ids=str)
def test_derivative_is_that_of_sympy(expression):
    """Through the compiler's derivatives; those of steps are left open by SymPy."""
    if expression.has(sympy.Mod, sympy.floor, sympy.Heaviside, sympy.sign):
        return
    expected = [sympy.diff(expression.doit(), symbol) for symbol in (x, y, z)]
    for point in points():
        values = dict(zip((x, y, z), point, strict=True))
        exact = [float(sympy.N(expected.subs(values).doit())) for expected in expected]
        np.testing.assert_allclose(gradient(expression, point), exact, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("name", "at_zero"), [("tanh", 1.0), ("asinh", 1.0), ("sinc", 0.0), ("atan", 1.0)])
def test_derivatives_are_finite_at_zero_and_far_away(name, at_zero):
    """Where a formula in exponentials would be infinity over infinity, or sin(x) / x is 0 / 0."""
    expression = getattr(sympy, name)(x)
    assert gradient(expression, [0.0])[0] == pytest.approx(at_zero)
    for far in (-1000.0, 1000.0):
        assert gradient(expression, [far])[0] == pytest.approx(0.0, abs=2e-3)


def test_every_function_of_the_table_is_tested():
    """By name, so that a new one gets its expression; SymForce's two are tested below."""
    used = {
        type(node).__name__ for expression in EXPRESSIONS for node in sympy.preorder_traversal(expression)
    }
    used |= {"SignNoZero", "CopysignNoZero"}
    assert set(FUNCTIONS) <= used, sorted(set(FUNCTIONS) - used)


def test_matrices_and_shapes():
    """A column gives a vector, one expression a scalar; arguments may be matrices and nested lists."""
    matrix = sympy.MatrixSymbol("M", 3, 1)
    squared = graphopt.from_sympy((matrix.T * matrix).as_explicit(), [matrix])
    np.testing.assert_allclose(squared(np.array([1.0, 2.0, 3.0])), [14.0])
    column = graphopt.from_sympy(sympy.Matrix([x + y, z, 1]), {"a": [x, [y]], "b": z}, name="Column")
    np.testing.assert_allclose(column(np.array([1.0, 2.0]), 5.0), [3.0, 5.0, 1.0])
    np.testing.assert_allclose(column(np.ones((4, 2)), np.arange(4.0)[:, None])[:, 1], np.arange(4.0))
    assert column.__name__ == "Column"
    b = sympy.IndexedBase("b")
    assert graphopt.from_sympy(b[0] * b[1], [[b[0], b[1]]])(np.array([3.0, 4.0])) == 12.0


def test_edge_type_is_optimized(own_types):
    """A range to a beacon: the same chi2 as with a residual written by hand."""
    u, v, theta, d = sympy.symbols("u v theta d")
    difference = sympy.sqrt((x - u) ** 2 + (y - v) ** 2) - d
    residual = graphopt.from_sympy(difference, {"pose": [u, v, theta], "point": [x, y], "distance": d})
    edge = graphopt.edge_type(
        tag="EDGE_SYMPY_RANGE", vertices=("VERTEX_SE2", "VERTEX_XY"), measurement_dim=1, name="EdgeSympyRange"
    )(residual)
    poses = np.array([[0.0, 0.0, 0.0], [4.0, 0.0, 1.0], [0.0, 4.0, 2.0]])
    graph = graphopt.Graph()
    graph.add_vertices("VERTEX_SE2", range(3), poses, fixed=True)
    graph.add_vertices("VERTEX_XY", [3], [[1.0, 1.0]])
    beacon = np.array([3.0, 2.0])
    distances = np.linalg.norm(poses[:, :2] - beacon, axis=1)
    graph.add_edges(edge, [(i, 3) for i in range(3)], distances[:, None])
    assert graph.chi2() == pytest.approx(
        ((np.linalg.norm(poses[:, :2] - 1.0, axis=1) - distances) ** 2).sum()
    )
    graphopt.optimize(graph, device="cpu")
    np.testing.assert_allclose(graph.vertex(3).estimate, beacon, atol=1e-6)


@pytest.mark.parametrize(
    ("expression", "arguments", "message"),
    [
        (sympy.gamma(x), [[x]], r"gamma in gamma\(x\) has no counterpart.*Write it with Abs, Add"),
        (sympy.Function("f")(x), [[x]], r"f in f\(x\) has no counterpart"),
        (x + sympy.I, [[x]], "I in the residual is no real number"),
        (x + sympy.nan, [[x]], "nan in the residual is no real number"),
        (x + y, {"pose": [x]}, r"y is no argument; the arguments are pose = \[x\].*constants="),
        (x, [[x, x]], "x is in two arguments, or twice in one"),
        (x, [[x], [x]], "x is in two arguments"),
        (x, [[x + y]], r"argument 1 holds x \+ y, expected symbols"),
        (sympy.Piecewise((x, x > 0)), [[x]], "says nothing about other cases"),
        ([], [[x]], "no components"),
    ],
)
def test_what_cannot_be_taken_over_is_named(expression, arguments, message):
    """With the way out."""
    with pytest.raises(SymbolicError, match=message):
        graphopt.from_sympy(expression, arguments)


def test_wrong_lengths_are_named():
    """Numbers of a vertex, and of arguments."""
    residual = graphopt.from_sympy(x + y, {"point": [x, y]})
    with pytest.raises(ShapeError, match=r"point has 2 symbols, but the edge hands over shape \(3,\)"):
        residual(np.zeros(3))
    with pytest.raises(ShapeError, match="got 2 arguments, expected 1: point"):
        residual(np.zeros(2), 1.0)


def test_missing_sympy_is_explained(monkeypatch):
    """Which extra to install."""
    import sys

    monkeypatch.setitem(sys.modules, "sympy", None)
    with pytest.raises(SymbolicError, match=r"pip install graphopt\[sympy\]"):
        graphopt.from_sympy(x, [[x]])


# ------------------------------------------------------------------ SymForce


class SignNoZero(sympy.Function):
    """As SymForce's."""


class CopysignNoZero(sympy.Function):
    """As SymForce's."""


class Storage:
    """Stands for a geometry type."""

    def to_storage(self):
        """What SymForce's types have."""
        return [x, y]


def test_functions_and_storage_of_symforce():
    """Its own two functions, its storage lists, and its epsilon as a constant."""
    epsilon = sympy.Symbol("epsilon")
    expression = SignNoZero(x) + CopysignNoZero(x, y) + epsilon
    residual = graphopt.from_sympy(expression, [Storage()], constants={epsilon: 0.25})
    for point, expected in (([0.0, -2.0], 1.25), ([-3.0, -2.0], -3.75), ([3.0, 0.0], 4.25)):
        assert residual(np.array(point)) == expected


@functools.cache
def symforce_symbolic():
    """SymForce, with its epsilon as a symbol; this can be set only once."""
    pytest.importorskip("symforce").set_epsilon_to_symbol()
    import symforce.symbolic

    return symforce.symbolic


def test_symforce_poses():
    """SymForce's Pose3 against SE3: the same difference of two motions."""
    sf = symforce_symbolic()
    first, second, measured = (sf.Pose3.symbolic(name) for name in ("first", "second", "measured"))
    error = measured.inverse() * (first.inverse() * second)
    arguments = {
        name: [pose.t, pose.R]
        for name, pose in (("first", first), ("second", second), ("measured", measured))
    }
    residual = graphopt.from_sympy(
        [error.R.to_tangent(sf.epsilon()), error.t], arguments, constants={sf.epsilon(): 1e-12}
    )
    rng = np.random.default_rng(0)
    a, b, c = (SE3.exp(rng.normal(size=6)) for _ in range(3))
    expected = c.inverse() * (a.inverse() * b)
    found = residual(a.storage, b.storage, c.storage)
    np.testing.assert_allclose(found, [*expected.rotation.log(), *expected.translation], atol=1e-8)


def documented_code():
    """The Python blocks of docs/examples.md: SymPy's and SymForce's."""
    text = (Path(__file__).resolve().parents[2] / "docs" / "examples.md").read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def test_documented_code_for_sympy_runs(own_types):
    """And gives a range."""
    names: dict = {}
    exec(documented_code()[0], names)
    assert names["residual"](np.array([0.0, 0.0, 1.0]), np.array([3.0, 4.0]), 2.0) == 3.0


def test_documented_code_for_symforce_runs():
    """And gives a motion of no rotation."""
    names = {"sf": symforce_symbolic(), "graphopt": graphopt}
    exec(documented_code()[1], names)
    still, moved = SE3.identity().storage, np.array([1.0, 2.0, 3.0, 0.0, 0.0, 0.0, 1.0])
    np.testing.assert_allclose(names["residual"](still, moved), [1.0, 2.0, 3.0, 0.0, 0.0, 0.0], atol=1e-9)
