"""What a residual may use gives the same numbers on symbols and on floats, with the right derivative."""

import numpy as np
import pytest

from graphopt import geometry
from graphopt.errors import SymbolicError
from graphopt.geometry import CAMERA_MODELS, SE2, SE3, SO2, SO3, Sim3, components, product_group, vector_group
from graphopt.symbolic import as_exprs, const, evaluate, jacobian, variables

FUNCTIONS = {
    "arithmetic": lambda x: -x + 2.0 * x - x / 3.0 + x**2 + 1.0 / (2.0 + x) + x % 0.7 + x // 0.3,
    "powers": lambda x: np.abs(x) ** 1.5 + np.power(2.0, x) + np.square(x) + np.cbrt(x) + np.abs(x) ** -0.5,
    "roots": lambda x: np.sqrt(np.abs(x)) + np.hypot(x, 2.0) + np.reciprocal(x),
    "angles": lambda x: np.sin(x) * np.cos(x) + np.tan(x) + np.arctan2(x, 0.4) + np.arctan(x),
    "inverse angles": lambda x: np.arcsin(x / 9.0) + np.arccos(x / 9.0) + np.radians(x) + np.degrees(x),
    "exponentials": lambda x: np.exp(x) + np.log(np.abs(x)) + np.expm1(x) + np.log1p(np.abs(x)) + np.exp2(x),
    "logarithms": lambda x: np.log2(np.abs(x)) + np.log10(np.abs(x)) + np.logaddexp(x, 0.3),
    "hyperbolic": lambda x: np.sinh(x) + np.cosh(x) + np.tanh(x),
    "inverse hyperbolic": lambda x: np.arcsinh(x) + np.arccosh(2.0 + x * x) + np.arctanh(x / 9.0),
    "steps": lambda x: (
        np.sign(x) * np.floor(x) + np.ceil(x) + np.trunc(x) + np.rint(x) + np.heaviside(x, 0.5)
    ),
    "where": lambda x: np.where((x > 0.0) & (x < 1.0) | ~(x >= -0.5), x, 2.0 * x),
    "logic": lambda x: np.where(np.logical_xor(x > 0.0, x != 1.0), x, np.copysign(x, -1.0)),
    "clip": lambda x: np.clip(x, -0.5, 0.7) + x.clip(-0.2, 0.9),
    "extremes": lambda x: np.minimum(x, 0.1) + np.maximum(x, 0.2) + np.fmin(x, x[0]) + np.max(x) - x.min(),
    "select": lambda x: np.select([x > 0.5, x > 0.0], [x, x * x], -x),
    "remainders": lambda x: np.fmod(x, 0.3) + np.mod(x, 0.3) + np.floor_divide(x, 0.3),
    "sums": lambda x: np.stack([x.sum(), np.mean(x), np.prod(x), np.average(x, weights=[1, 2, 3, 4])]),
    "spread": lambda x: np.stack([np.var(x), np.std(x), np.ptp(x)]),
    "norms": lambda x: np.stack([np.linalg.norm(x), np.linalg.norm(x, 1), np.linalg.norm(x, np.inf)]),
    "norms of rows": lambda x: np.linalg.norm(x.reshape(2, 2), axis=1),
    "norms of a matrix": lambda x: np.stack(
        [np.linalg.norm(x.reshape(2, 2)), np.linalg.norm(x.reshape(2, 2), "fro")]
    ),
    "vectors": lambda x: np.concatenate([np.cross(x[:3], x[1:]), [x @ x, np.dot(x, x), np.inner(x, x)]]),
    "matrices": lambda x: (np.outer(x, x) + np.eye(4)) @ x + np.trace(np.outer(x, x)),
    "einsum": lambda x: np.einsum("i,j,j->i", x, x, x),
    "determinant": lambda x: np.linalg.det(x.reshape(2, 2)) + np.linalg.det(np.outer(x, x) + np.eye(4)),
    "inverse": lambda x: np.linalg.inv(np.outer(x, x) + np.diag([1.0, 2.0, 3.0, 4.0])),
    "solve": lambda x: np.linalg.solve(np.outer(x[:3], x[1:]) + 2.0 * np.eye(3), x[:3]),
    "matrix powers": lambda x: (
        np.linalg.matrix_power(x.reshape(2, 2), 3) + np.linalg.multi_dot([np.eye(2)] * 3)
    ),
    "along axes": lambda x: np.concatenate([np.cumsum(x), np.diff(x), x[::-1], np.roll(x, 1)]),
    "along axes of a matrix": lambda x: np.concatenate(
        [
            np.cumsum(x.reshape(2, 2), axis=0).ravel(),
            np.cumsum(x.reshape(2, 2)),
            np.diff(x, 2),
            np.diff(x.reshape(2, 2), axis=0).ravel(),
            np.average(x.reshape(2, 2), axis=0),
            np.average(x.reshape(2, 2), axis=0, weights=np.array([[0.3, 2.0], [1.0, 0.5]])),
        ]
    ),
    "spread along axes": lambda x: np.concatenate(
        [
            np.var(x.reshape(2, 2), axis=0, ddof=1),
            np.std(x.reshape(2, 2), axis=1),
            np.ptp(x.reshape(2, 2), axis=0),
            [np.std(x, ddof=2)],
        ]
    ),
    "norms along axes": lambda x: np.concatenate(
        [
            np.linalg.norm(x.reshape(2, 2), 1, axis=0),
            np.linalg.norm(x.reshape(2, 2), np.inf, axis=1),
            np.linalg.norm(x.reshape(2, 2), 2, axis=0),
            np.linalg.norm(x.reshape(2, 2), axis=1, keepdims=True)[0],
        ]
    ),
    "powers of matrices": lambda x: (
        np.linalg.matrix_power(x.reshape(2, 2) + 3.0 * np.eye(2), -2)
        + np.linalg.matrix_power(x.reshape(2, 2), 0)
        + np.linalg.multi_dot([x.reshape(2, 2), np.outer(x[:2], x[2:]), x[:1] * np.eye(2)])
    ),
    "inverse of a matrix": lambda x: np.linalg.inv(np.outer(x[:3], x[1:]) + np.diag([1.0, 2.0, 3.0])),
    "table with ends": lambda x: np.interp(x, [-1.0, 0.3, 0.6], [3.0, 1.0, 4.0], left=-7.0, right=9.0),
    "polynomial": lambda x: np.polyval([1.0, -2.0, 3.0], x) + np.interp(x, [-1.0, 0.0, 2.0], [3.0, 1.0, 4.0]),
    "sinc and round": lambda x: np.sinc(x) + np.round(x, 1),
    "unpacking": lambda x: np.stack([a * b for a, b in zip(x, reversed(list(x)), strict=True)]),
    "geometry": lambda x: geometry.norm(x) * geometry.safe_sqrt(x[0]) + geometry.normalize_angle(4.0 * x),
}


def check(function, x):
    """Values on symbols equal those on floats; derivatives equal central differences."""
    symbols = variables("x", len(x))
    outputs = as_exprs(function(symbols))
    rates = [r for row in jacobian(outputs, [{s: const(1.0)} for s in symbols]) for r in row]
    at = {f"x[{i}]": value for i, value in enumerate(x)}
    expected = np.ravel(function(x))
    np.testing.assert_allclose(np.array(evaluate(outputs, at), float), expected, rtol=1e-11, atol=1e-12)
    columns = []
    for i in range(len(x)):
        step = 1e-6 * np.eye(len(x))[i]
        columns.append((np.ravel(function(x + step)) - np.ravel(function(x - step))) / 2e-6)
    actual = np.array(evaluate(rates, at), float).reshape(len(outputs), len(x))
    np.testing.assert_allclose(actual, np.stack(columns, axis=-1), rtol=2e-7, atol=2e-7)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name):
    """At two random places, where nothing jumps."""
    for x in ([0.37, -0.81, 1.23, 0.58], [-1.44, 0.29, -0.62, 0.91]):
        with np.errstate(invalid="ignore"):
            check(FUNCTIONS[name], np.array(x))


def test_sinc_at_zero():
    """1, with a derivative of 0; beside it the quotient."""
    check(np.sinc, np.array([0.0, 1e-3]))


SWITCHES = {
    np.tanh: [-400.0, -20.5, -19.5, 0.0, 19.5, 400.0],
    np.arcsinh: [-1e6, -1.0, 0.0, 1e6],
    np.cbrt: [-8.0, 0.0, 27.0],
    np.trunc: [-1.5, -1.0, 0.0, 1.0, 1.5],
    np.round: [-2.5, -1.5, -0.5, 0.4, 0.49999999999999994, 0.5, 0.6, 1.5, 2.5, 2.6],
    (lambda x: np.heaviside(x, 0.25)): [-1.0, 0.0, 0.5, 2.0],
    (lambda x: np.logaddexp(x, 3.0)): [-800.0, 3.0, 800.0],
    (lambda x: np.fmod(x, 0.5)): [-1.25, 0.0, 1.25],
    (lambda x: np.interp(x, [0.0, 1.0, 2.0], [3.0, 1.0, 4.0])): [-1.0, 0.0, 1.0, 2.0, 3.0],
    (lambda x: np.interp(x, [0.0, 1.0], [3.0, 1.0], left=7.0, right=8.0)): [-1.0, 0.0, 1.0, 2.0],
    (lambda x: 1.0 * np.logical_xor(x > 0.0, x < 2.0)): [-1.0, 1.0, 3.0],
    (lambda x: np.select([x > 2.0, x > 1.0], [3.0 * x, x * x])): [0.5, 1.5, 2.5],
}


@pytest.mark.parametrize("function", SWITCHES)
def test_values_where_something_switches(function):
    """Beside the place, on it, and far away."""
    places = np.array(SWITCHES[function])
    (found,) = evaluate(as_exprs(function(variables("x", 1))), {"x[0]": places})
    np.testing.assert_allclose(found, function(places), rtol=1e-14, atol=1e-16)


def test_sizes_of_matrices():
    """Up to 6 x 6, and square."""
    values = np.random.default_rng(0).normal(size=(6, 6))
    symbols = np.stack([*variables("x", 1), *values.ravel()[1:]]).reshape(6, 6)
    (found,) = evaluate(as_exprs(np.linalg.det(symbols)), {"x[0]": values[0, 0]})
    assert found == pytest.approx(np.linalg.det(values), rel=1e-12)
    for shape in ((7, 7), (2, 3), (4,)):
        with pytest.raises(SymbolicError, match="one square matrix of up to 6 x 6"):
            np.linalg.det(variables("x", int(np.prod(shape))).reshape(shape))


def test_the_largest_singular_value_is_refused():
    """numpy's norm(matrix, 2) is no sum of squares."""
    with pytest.raises(SymbolicError, match="norm on symbols knows"):
        np.linalg.norm(variables("x", 4).reshape(2, 2), 2)


Product = product_group("Product", pose=SE3, bias=2, turn=SO2)
GROUPS = (SO2, SE2, SO3, SE3, Sim3, vector_group(3), Product)


def test_where_parts_of_a_product_begin():
    """Each is where the ones before it end, and so are the quaternions."""
    value, three = Product(np.arange(10.0)), product_group("Three", turn=SO2, first=SO3, second=SE3)
    np.testing.assert_array_equal(value.pose.storage, np.arange(7.0))
    np.testing.assert_array_equal(value.bias, [7.0, 8.0])
    np.testing.assert_array_equal(value.turn.storage, [9.0])
    assert three.quaternions == (1, 8)


@pytest.mark.parametrize("group", GROUPS, ids=lambda g: g.__name__)
def test_groups(group):
    """exp, log, composition, inverse and adjoint of every group."""

    def function(tangent):
        a = group.exp(tangent)
        b = group.exp(0.5 * tangent[::-1])
        rate = a.adjoint() @ tangent
        return np.concatenate([a.storage, (a * b).log(), a.between(b).log(), a.inverse().storage, rate])

    check(function, 0.3 * np.random.default_rng(0).normal(size=group.tangent_dim))


def test_parts_of_a_product():
    """Parts are seen as group elements and arrays, and put together by name."""
    product = Product.from_parts(bias=np.array([1.0, 2.0]), pose=SE3.identity(), turn=SO2(np.array([0.5])))
    assert isinstance(product.pose, SE3) and isinstance(product.turn, SO2)
    np.testing.assert_array_equal(product.bias, [1.0, 2.0])
    np.testing.assert_array_equal(product.storage[7:], [1.0, 2.0, 0.5])
    assert (Product.storage_dim, Product.tangent_dim) == (10, 9)


@pytest.mark.parametrize("name", CAMERA_MODELS)
def test_cameras(name):
    """Every camera model, by its parameters and by the point."""
    model = CAMERA_MODELS[name]
    values = {"f": 500.0, "fx": 510.0, "fy": 490.0, "cx": 320.0, "cy": 240.0}
    parameters = [values.get(key, 0.02 * (1 + k)) for k, key in enumerate(model.parameter_names)]
    scale = np.array([*parameters, 0.3, -0.2, 2.0])

    def function(relative):
        x = relative * scale
        return 1e-3 * np.stack(components(model.project(x[:-3], x[-3:])))

    check(function, np.ones(len(scale)))
