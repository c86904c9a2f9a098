"""Fits of batches of expressions reach scipy's minima, and those that fail are marked."""

from __future__ import annotations

import numpy as np
import pytest
from random_expressions import numpy_value, random_text
from scipy.optimize import least_squares

import graphopt
from graphopt import FitStatus
from graphopt.errors import OptionError

SMOOTH_BINARY = ("{} + {}", "{} - {}", "{} * {}", "{} / (1.5 + ({})^2)", "(1 + ({})^2) ^ sin({})")
SMOOTH_UNARY = (
    "exp(-({})^2)",
    "sin({})",
    "cos({})",
    "atan({})",
    "sqrt(1 + ({})^2)",
    "log(2 + ({})^2)",
    "-{}",
)


def test_random_expressions_end_where_scipy_ends():
    """From the same start: as small a sum, and a gradient that vanishes."""
    rng = np.random.default_rng(0)
    data = rng.uniform(0.2, 2, (40, 2))
    target = np.sin(2 * data[:, 0]) + data[:, 1]
    texts = []
    while len(texts) < 60:
        text = random_text(rng, 4, 2, 2, SMOOTH_BINARY, SMOOTH_UNARY)
        if "p1" in text and "p2" in text:
            texts.append(text)
    start = rng.uniform(0.5, 1.5, (len(texts), 2))
    fits = graphopt.fit_batch(texts, data, target, start, max_num_iterations=400)
    worse = 0
    for k, text in enumerate(texts):

        def residual(p, text=text):
            return numpy_value(text, data, p) - target

        assert fits.sum_of_squares[k] == pytest.approx((residual(fits.parameters[k]) ** 2).sum(), rel=1e-9)
        assert fits.sum_of_squares[k] <= (residual(start[k]) ** 2).sum()
        theirs = least_squares(residual, start[k], method="lm", max_nfev=2000, xtol=1e-12, ftol=1e-12)
        worse += fits.sum_of_squares[k] > 2 * theirs.cost * (1 + 1e-5) + 1e-12
        if fits.status[k] == FitStatus.CONVERGED:
            step = 1e-6
            r = residual(fits.parameters[k])
            for j in range(2):
                move = step * np.eye(2)[j]
                column = (residual(fits.parameters[k] + move) - residual(fits.parameters[k] - move)) / (
                    2 * step
                )
                size = np.linalg.norm(column) * np.linalg.norm(r)
                assert abs(column @ r) <= 1e-3 * size + 1e-4 * (r @ r), text
    assert worse <= 6  # another valley of a function with several
    assert (fits.status == FitStatus.CONVERGED).mean() > 0.8


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_known_models_are_found(dtype):
    """Exact data: the parameters that made them; from many starts at once, best is the best."""
    rng = np.random.default_rng(1)
    x = rng.uniform(0.5, 4, (300, 1)).astype(dtype)
    models = {
        "p1*exp(-p2*x1)": (3.0, 0.7),
        "p1*x1^p2": (2.0, 1.3),
        "p1/(1+p2*x1)": (4.0, 0.6),
        "p1+p2*log(x1)": (-1.0, 2.0),
    }
    for text, truth in models.items():
        target = numpy_value(text, x.astype(float), np.array(truth)).astype(dtype)
        starts = rng.uniform(0.3, 2, (1, 150, 2))
        fits = graphopt.fit_batch([text], x, target, starts)
        assert fits.best[0] == np.argmin(np.where(fits.is_usable[0], fits.sum_of_squares[0], np.inf))
        tolerance = 1e-6 if dtype == np.float64 else 2e-3
        np.testing.assert_allclose(fits.parameters[0][fits.best[0]], truth, rtol=tolerance, err_msg=text)


def test_every_operation_is_differentiated():
    """Gauss-Newton directions are right: exact fits through every function converge quadratically."""
    x = np.linspace(0.1, 0.6, 50)[:, None]
    texts = [
        "sin(p1*x1)", "cos(p1*x1)", "tan(p1*x1)", "asin(p1*x1)", "acos(p1*x1)", "atan(p1*x1)",
        "atan2(p1, x1)", "atan2(x1, p1)", "exp(p1*x1)", "log(p1+x1)", "sqrt(p1*x1)", "abs(-p1*x1)",
        "x1^p1", "p1^x1", "(p1*x1)^3", "p1/x1", "x1/p1", "min(p1*x1, 5)", "max(p1*x1, -5)",
        "where(x1 < 0.3, p1*x1, p1)", "-(x1-p1)",
        "tanh(p1*x1)", "(p1*x1)^p1", "p1^p1*x1", "floor(x1)+p1*x1+sign(p1)",
    ]  # fmt: skip
    targets = [numpy_value(text, x, np.array([1.2])) for text in texts]
    for text, target in zip(texts, targets, strict=True):
        fits = graphopt.fit_batch([text], x, target, [[1.0]])
        assert fits.status[0] == FitStatus.CONVERGED, text
        np.testing.assert_allclose(fits.parameters[0], [1.2], rtol=1e-6, err_msg=text)
        assert fits.num_iterations[0] <= 12, text


def test_fits_that_fail_are_marked():
    """NaN at the start, no parameters, no influence, too few iterations, directions that do not matter."""
    x = np.linspace(-1, 1, 30)[:, None]
    target = 2 * x[:, 0] + 1
    texts = ["log(p1*x1)", "x1/(p1-p1)", "3*x1", "p1*x1", "p1*p2*x1+p3", "exp(p1*1000*x1)"]
    start = np.ones((len(texts), 3))
    fits = graphopt.fit_batch(texts, x, target, start)
    assert fits.status[:2].tolist() == [FitStatus.NON_FINITE] * 2
    assert np.isnan(fits.sum_of_squares[0]) and fits.best[:2].tolist() == [-1, -1]
    np.testing.assert_array_equal(fits.parameters[0], start[0])
    assert fits.status[2:5].tolist() == [FitStatus.CONVERGED] * 3
    assert fits.parameters[3][0] == pytest.approx(2.0) and fits.parameters[3][1:].tolist() == [1, 1]
    assert fits.parameters[4][0] * fits.parameters[4][1] == pytest.approx(2.0)
    assert fits.status[5] == FitStatus.NON_FINITE
    few = graphopt.fit_batch(["exp(p1*x1)*p2"], x, target, [[3.0, -2.0]], max_num_iterations=1)
    assert few.status[0] == FitStatus.MAX_ITERATIONS and few.num_iterations[0] == 1
    assert few.is_usable.tolist() == [True] and fits.is_usable.tolist() == [False] * 2 + [True] * 3 + [False]


def test_steps_into_places_without_values_are_taken_back():
    """sqrt of a negative number on the way is a rejected step, not the end."""
    x = np.linspace(0.5, 2, 40)[:, None]
    target = np.sqrt(0.05 + 0.01 * x[:, 0])
    fits = graphopt.fit_batch(["sqrt(p1+p2*x1)"], x, target, [[1.0, 1.0]])
    assert fits.status[0] == FitStatus.CONVERGED
    np.testing.assert_allclose(fits.parameters[0], [0.05, 0.01], rtol=1e-4)


def test_residuals_without_a_target():
    """Expressions may be residuals themselves, with data as weights."""
    rng = np.random.default_rng(2)
    data = rng.uniform(1, 2, (100, 3))
    fits = graphopt.fit_batch(["(p1*x1-x2)*x3"], data, None, [[0.0]])
    x, y, w = data.T
    assert fits.parameters[0][0] == pytest.approx((w * w * x * y).sum() / (w * w * x * x).sum(), rel=1e-9)
    untouched = graphopt.fit_batch(["p1"], data, None, [[0.5]], max_num_iterations=0)
    assert untouched.status[0] == FitStatus.MAX_ITERATIONS and untouched.parameters[0] == [0.5]


@pytest.mark.parametrize(
    "options", [{"max_num_iterations": -1}, {"gradient_tolerance": 1.0}, {"function_tolerance": -1e-9}]
)
def test_wrong_options_are_named(options):
    """Each with its value."""
    with pytest.raises(OptionError, match=f"{next(iter(options.values()))}"):
        graphopt.fit_batch(["p1"], np.ones((3, 1)), None, [[0.0]], **options)


def test_different_numbers_of_starts():
    """Results come as one array per expression."""
    x = np.linspace(1, 2, 10)[:, None]
    starts = [np.ones((3, 1)), np.ones((0, 1)), np.ones((2, 2))]
    fits = graphopt.fit_batch(["p1*x1", "p1", "p1+p2"], x, x[:, 0], starts)
    assert [p.shape for p in fits.parameters] == [(3, 1), (0, 1), (2, 2)]
    assert [s.shape for s in fits.status] == [(3,), (0,), (2,)] and len(fits.is_usable) == 3
    assert fits.best.tolist() == [0, -1, 0]
