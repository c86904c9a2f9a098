"""Batches of expressions have numpy's values, tell what is wrong with which text, and do not mind sizes."""

from __future__ import annotations

import re

import numpy as np
import pytest
from random_expressions import numpy_value, random_text

import graphopt
from graphopt.cpu_kernels import kernels
from graphopt.errors import OptionError, ShapeError, SymbolicError
from graphopt.expressions.operations import OPERATIONS


def data_of(num_points: int, seed: int = 0) -> np.ndarray:
    """(num_points, 3) numbers of both signs."""
    return np.random.default_rng(seed).uniform(-3, 3, (num_points, 3))


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-11), (np.float32, 2e-3)])
def test_random_expressions_have_the_values_of_numpy(dtype, tolerance):
    """Infinite and NaN where numpy has these; float32 loses digits to cancellation only."""
    rng = np.random.default_rng(1)
    texts = [random_text(rng, 5, 3, 4) for _ in range(300)]
    data = data_of(700).astype(dtype)
    parameters = rng.uniform(-2, 2, (len(texts), 3, 4)).astype(np.float32).astype(float)
    values = graphopt.evaluate_batch(texts, data, parameters)
    assert values.shape == (300, 3, 700) and values.dtype == dtype
    wrong, compared = [], 0
    for text, found, sets in zip(texts, values, parameters, strict=True):
        for row_values, p in zip(found, sets, strict=True):
            expected = numpy_value(text, data.astype(float), p)
            usual = np.isfinite(expected) & (np.abs(expected) < 1e6)
            if dtype == np.float64:
                np.testing.assert_array_equal(np.isnan(row_values), np.isnan(expected), err_msg=text)
            error = np.abs(row_values[usual] - expected[usual]) / (1.0 + np.abs(expected[usual]))
            compared += error.size
            wrong.append((error > tolerance).sum() + np.isnan(error).sum())
    # jumps (a comparison, an angle of two zeros) may fall to either side
    assert sum(wrong) <= (1e-4 if dtype == np.float64 else 2e-2) * compared
    assert compared > 3e5


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2^3^2", 512.0),
        ("-2^2", -4.0),
        ("2^-1", 0.5),
        ("2**3", 8.0),
        ("8/2/2", 2.0),
        ("8-2-3", 3.0),
        ("1+2*3", 7.0),
        ("(1+2)*3", 9.0),
        ("--3", 3.0),
        ("+3", 3.0),
        (".5 + 1.e1 + 2e-1", 10.7),
        ("2*-3", -6.0),
        ("1 < 2", 1.0),
        ("1 >= 2", 0.0),
        ("where(2 == 2, 5, 6)", 5.0),
        ("tanh(0.3)", np.tanh(0.3)),
        ("log10(1000) + log2(8) + square(3) + cube(2) + inv(4)", 23.25),
        ("sinh(1) + cosh(1)", np.e),
        ("(-8)^3", -512.0),
        ("(-8)^0.3", np.nan),
        ("0^0", 1.0),
        ("1/0", np.inf),
        ("sin(pi/6)", 0.5),
    ],
)
def test_texts_mean_what_they_mean_in_mathematics(text, value):
    """Powers bind before signs and from right to left; constants of a text and of a set are the same."""
    found = graphopt.evaluate_batch([text], np.zeros((1, 1)))
    np.testing.assert_allclose(found, [[value]], rtol=1e-14)
    as_parameters = re.sub(r"(?<![\w.])\d+(?![\w.])", "p1", text)
    sets = np.array([[float(n)] for n in re.findall(r"(?<![\w.])\d+(?![\w.])", text)] or [[0.0]])
    if len(np.unique(sets)) == 1 and "e" not in text:
        found = graphopt.evaluate_batch([as_parameters], np.zeros((1, 1)), sets[:1])
        np.testing.assert_allclose(found, [[value]], rtol=1e-14)


@pytest.mark.parametrize("num_points", [1, 7, 255, 256, 257, 20000])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_any_number_of_points_and_sets(num_points, dtype):
    """Whole vectors, blocks and items or not: values, and their sums of squares."""
    rng = np.random.default_rng(2)
    data, target = data_of(num_points).astype(dtype), rng.normal(size=num_points).astype(dtype)
    for num_sets in (0, 1, 130):
        sets = rng.uniform(1, 2, (2, num_sets, 2))
        values = graphopt.evaluate_batch(["p1*x1+p2", "abs(x2)^p2"], data, sets)
        assert values.shape == (2, num_sets, num_points)
        x = data.astype(float)
        expected = np.stack([sets[0, :, :1] * x[:, 0] + sets[0, :, 1:], np.abs(x[:, 1]) ** sets[1, :, 1:]])
        tolerance = 1e-12 if dtype == np.float64 else 1e-5
        np.testing.assert_allclose(values, expected, rtol=tolerance, atol=tolerance)
        sums = graphopt.evaluate_batch(["p1*x1+p2", "abs(x2)^p2"], data, sets, target)
        assert sums.dtype == np.float64
        np.testing.assert_allclose(sums, ((expected - target) ** 2).sum(-1), rtol=10 * tolerance)


def test_the_number_of_threads_changes_no_bit():
    """Work is cut by sizes, sums are added in their order."""
    data, sets = data_of(40000), np.random.default_rng(3).uniform(1, 2, (1, 300, 2))
    found = []
    for count in (1, 3):
        kernels.set_num_threads(count)
        found.append(graphopt.evaluate_batch(["sin(p1*x1)+p2"], data, sets, data[:, 2]))
    np.testing.assert_array_equal(*found)


def test_functions_are_expressions_as_well():
    """A function of arrays, a text and numpy agree; names of columns may be chosen."""
    data, sets = data_of(50), [np.array([1.5, 0.7]), np.array([1.5, 0.7])]

    def model(x, p):
        return np.where(x[0] > 0, p[0] * np.exp(-p[1] * x[0] ** 2), 1.0 / (p[1] + x[2] ** 2)) + np.tanh(x[1])

    text = "where(t > 0, p1*exp(-p2*t^2), 1/(p2+w^2)) + tanh(v)"
    found = graphopt.evaluate_batch([model, text], data, sets, variables=("t", "v", "w"))
    t, v, w = data.T
    expected = np.where(t > 0, 1.5 * np.exp(-0.7 * t**2), 1 / (0.7 + w**2)) + np.tanh(v)
    np.testing.assert_allclose(found, [expected, expected], rtol=1e-13)


def test_every_text_that_cannot_be_read_is_named():
    """Which, where in the text, what was expected, what is there; nothing is evaluated."""
    texts = ["x1 + * p1", "x1", "sin(x1", "x1 ? 2", "foo(2)", "x9", "", "pow(1)", "2 x1"]
    with pytest.raises(graphopt.ExpressionError) as caught:
        graphopt.evaluate_batch(texts, data_of(5))
    problems = {p.expression: (p.position, p.reason) for p in caught.value.problems}
    assert problems == {
        0: (5, "expected a number, a name, '-' or '(', got '*'"),
        2: (6, "expected ')' (sin takes 1), got the end of the text"),
        3: (3, "expected an operator or the end, got '?'"),
        4: (
            0,
            "expected a function (abs, exp, log, sqrt, sin, cos, tan, pow, min, max, where, ...), got 'foo'",
        ),
        5: (0, "expected x1 to x3, a parameter p1, p2, ..., or a function, got 'x9'"),
        6: (0, "expected a number, a name, '-' or '(', got the end of the text"),
        7: (5, "expected ',' (pow takes 2), got ')'"),
        8: (2, "expected an operator or the end, got 'x1'"),
    }
    assert "Expression 0: expected a number" in str(caught.value)
    assert "\n  x1 + * p1\n       ^" in str(caught.value)
    assert "and 3 more" in str(caught.value)


def test_deep_and_large_texts():
    """Ten thousand terms are no problem; brackets without end are refused."""
    data = data_of(3)
    long = " + ".join(["x1 * 2"] * 10000)
    np.testing.assert_allclose(graphopt.evaluate_batch([long], data)[0], 20000 * data[:, 0], rtol=1e-12)
    with pytest.raises(graphopt.ExpressionError, match="at most 500 levels"):
        graphopt.evaluate_batch(["(" * 100000 + "1" + ")" * 100000], data)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            (["p3"], np.zeros((4, 1)), [[1.0, 2.0]]),
            ShapeError,
            "expression 0 have 2 numbers, expected at least 3",
        ),
        ((["p1"], np.zeros((4, 1))), ShapeError, "have 0 numbers, expected at least 1"),
        (
            (["x1"], np.zeros((4, 1)), None, np.zeros(3)),
            ShapeError,
            r"target has shape \(3,\), expected \(4,\)",
        ),
        ((["x1"], np.zeros((0, 1))), ShapeError, "num_points > 0"),
        ((["x1"], np.array([["a"]])), ShapeError, "expected real numbers"),
        ((["x1", "x1"], np.zeros((4, 1)), [[]]), ShapeError, "has 1 entries, expected 2"),
        (("x1", np.zeros((4, 1))), OptionError, "expected a list"),
        (([3], np.zeros((4, 1))), OptionError, "expected a text or a function"),
        (([lambda x, p: x], np.zeros((4, 2))), SymbolicError, "returns 2 numbers, expected 1"),
        (([lambda x, p: 1 if x[0] > 0 else 2], np.zeros((4, 2))), SymbolicError, "np.where"),
    ],
)
def test_wrong_arguments_are_named(arguments, error, message):
    """What, got, expected."""
    with pytest.raises(error, match=message):
        graphopt.evaluate_batch(*arguments)


def test_results_go_where_they_are_wanted():
    """`out` is written and returned; one of another shape is refused; numbers of sets may differ."""
    data = data_of(9)
    batch = graphopt.ExpressionBatch(["p1*x1", "x2"], 3)
    assert len(batch) == 2 and batch.num_parameters.tolist() == [1, 0]
    out = np.empty((2, 2, 9))
    assert graphopt.evaluate_batch(batch, data, np.ones((2, 2, 1)), out=out) is out
    np.testing.assert_array_equal(out[1, 0], data[:, 1])
    with pytest.raises(ShapeError, match=r"expected a writeable contiguous float64 of shape \(2, 2, 9\)"):
        graphopt.evaluate_batch(batch, data, np.ones((2, 2, 1)), out=np.empty((2, 9)))
    with pytest.raises(ShapeError, match="made for 3"):
        graphopt.evaluate_batch(batch, data[:, :2])
    found = graphopt.evaluate_batch(batch, data, [np.ones((2, 1)), np.ones((1, 0))])
    assert [values.shape for values in found] == [(2, 9), (1, 9)]
    with pytest.raises(ShapeError, match="different numbers of sets; leave it out"):
        sets = [np.ones((2, 1)), np.ones((1, 0))]
        graphopt.evaluate_batch(batch, data, sets, out=np.empty((2, 2, 9)))
    assert graphopt.evaluate_batch([], data).shape == (0, 9)


def test_operations_have_the_same_numbers_everywhere():
    """Python, C++ and GLSL list them in one order."""
    root = __import__("pathlib").Path(__file__).resolve().parents[2]
    header = (root / "native/src/batch/expression.h").read_text()
    assert tuple(re.findall(r"^  X\((\w+), \d\)", header, re.MULTILINE)) == OPERATIONS
