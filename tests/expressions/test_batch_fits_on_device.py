"""Fits of batches on a device end where those of the CPU do, by the same way."""

import numpy as np
import pytest
from scipy.optimize import least_squares
from vulkan_devices import shared_device

import graphopt
from graphopt.device import DeviceError
from graphopt.expressions import fit_on_device
from graphopt.expressions.fit import FitStatus

TEXTS = [
    "p1 * exp(p2 * x1) + p3",
    "p1 * sin(x2) + p2 * x1^2 + p3 * x1 + p4",
    "log(p1^2 + x1) + x2",  # r is not small anywhere
    "p1 + x1 * 0",
    "x1 - x2",  # nothing to fit
    "where(x1 > 1, p1 * x1, p2)",
    "(p1 + p2) * x1",  # only the sum is determined
    "sqrt(p1) * x2",  # has no value at a negative start
]
STARTS = [
    np.array([[1.0, 0.3, 0.0], [2.0, -0.2, 1.0], [0.5, 0.5, 0.5]]),
    np.ones((2, 5)),  # one number more than there are parameters
    np.array([[0.7]]),
    np.array([[5.0], [-1.0]]),
    np.empty((2, 0)),
    np.array([[0.1, 0.2]]),
    np.array([[1.0, 2.0]]),
    np.array([[-1.0], [4.0]]),
]


def points(dtype):
    """Data of two columns, and a target near the first expression."""
    rng = np.random.default_rng(0)
    data = rng.uniform(0.2, 2.0, (150, 2))
    target = 1.5 * np.exp(0.4 * data[:, 0]) - 0.3 + rng.normal(0.0, 0.05, 150)
    return data.astype(dtype), target.astype(dtype)


@pytest.fixture(params=["address", "storage"])
def device(request, monkeypatch):
    """One with and one without buffer addresses."""
    opened = shared_device(request.param)
    monkeypatch.setattr(fit_on_device, "open_device", lambda spec: opened)
    yield opened
    assert opened.messages == []


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_fits_are_those_of_the_cpu(device, dtype):
    """Status, sums and parameters; the steps as well in float64."""
    data, target = points(dtype)
    expected = graphopt.fit_batch(TEXTS, data, target, STARTS)
    found = graphopt.fit_batch(TEXTS, data, target, STARTS, device="vulkan")
    tight = dtype == np.float64
    for e in range(len(TEXTS)):
        np.testing.assert_array_equal(found.status[e], expected.status[e])
        np.testing.assert_allclose(
            found.sum_of_squares[e], expected.sum_of_squares[e], rtol=1e-9 if tight else 1e-4
        )
        if e != 6:  # of which only a sum is determined
            np.testing.assert_allclose(
                found.parameters[e], expected.parameters[e], rtol=1e-6 if tight else 2e-2, atol=1e-6
            )
        if tight:
            np.testing.assert_array_equal(found.num_iterations[e], expected.num_iterations[e])
        best = found.sum_of_squares[e][found.best[e]], expected.sum_of_squares[e][expected.best[e]]
        assert best[0] == pytest.approx(best[1], rel=1e-9 if tight else 1e-4)
    assert FitStatus.NON_FINITE in found.status[7] and found.best[7] == 1


def test_scipy_finds_the_same(device):
    """The minimum of the first expression."""
    data, target = points(np.float64)
    fits = graphopt.fit_batch(TEXTS[:1], data, target, STARTS[:1], device="vulkan")
    found = least_squares(
        lambda p: p[0] * np.exp(p[1] * data[:, 0]) + p[2] - target, STARTS[0][0], xtol=1e-14, ftol=1e-14
    )
    assert fits.sum_of_squares[0][0] == pytest.approx(2.0 * found.cost, rel=1e-9)
    np.testing.assert_allclose(fits.parameters[0][0], found.x, rtol=1e-4)


def test_options_and_expressions_as_residuals(device):
    """No target, and no more iterations than were asked for."""
    data, _ = points(np.float64)
    given = {"max_num_iterations": 3}
    expected = graphopt.fit_batch(TEXTS[:2], data, None, STARTS[:2], **given)
    found = graphopt.fit_batch(TEXTS[:2], data, None, STARTS[:2], device="vulkan", **given)
    for e in range(2):
        np.testing.assert_array_equal(found.status[e], expected.status[e])
        np.testing.assert_array_equal(found.num_iterations[e], expected.num_iterations[e])
        np.testing.assert_allclose(found.sum_of_squares[e], expected.sum_of_squares[e], rtol=1e-6)
    assert FitStatus.MAX_ITERATIONS in np.concatenate(found.status)


def test_two_runs_give_the_same_bits(device):
    """Sums have a fixed order; work is cut into several submissions in the second run."""
    data, target = points(np.float32)
    first = graphopt.fit_batch(TEXTS, data, target, STARTS, device="vulkan")
    limits = dict.fromkeys(fit_on_device._VALUES_PER_SUBMISSION, 300.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fit_on_device, "_VALUES_PER_SUBMISSION", limits)
        second = graphopt.fit_batch(TEXTS, data, target, STARTS, device="vulkan")
    for e in range(len(TEXTS)):
        np.testing.assert_array_equal(first.parameters[e], second.parameters[e])


def test_without_float64(device, monkeypatch):
    """float32 data: nearly the same sums; float64 data: an error that says so."""
    monkeypatch.setattr(type(device), "has_float64", False)
    data, target = points(np.float32)
    expected = graphopt.fit_batch(TEXTS[:4], data, target, STARTS[:4])
    found = graphopt.fit_batch(TEXTS[:4], data, target, STARTS[:4], device="vulkan")
    for e in range(4):
        np.testing.assert_allclose(found.sum_of_squares[e], expected.sum_of_squares[e], rtol=1e-3)
    with pytest.raises(DeviceError, match="float32"):
        graphopt.fit_batch(TEXTS[:1], data.astype(np.float64), None, STARTS[:1], device="vulkan")
