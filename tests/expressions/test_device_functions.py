"""Functions of arrays: CPU and device agree with numpy for every access and result; arrays stay there."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from vulkan_devices import shared_device

import graphopt
from graphopt.errors import DeviceError, OptionError, ShapeError, SymbolicError
from graphopt.expressions import functions as module
from graphopt.expressions.device_arrays import DeviceArray, upload
from graphopt.geometry import SE3

RNG = np.random.default_rng(0)
POSES = RNG.normal(size=(5, 7))
POSES[:, 3:] /= np.linalg.norm(POSES[:, 3:], axis=1, keepdims=True)
POINTS = RNG.normal(size=(333, 3))
ROWS = RNG.integers(0, 5, 333)


def distances(pose, point, origin):
    """Moved point, and its distance from the origin: 4 numbers."""
    moved = SE3(pose).act(point)
    away = np.sqrt(np.sum((moved - origin) ** 2))
    return np.concatenate([moved, np.stack([away])])


def expected_rows() -> np.ndarray:
    """In numpy, batched."""
    moved = SE3(POSES[ROWS]).act(POINTS)
    return np.concatenate([moved, np.linalg.norm(moved - [1, 2, 3], axis=1)[:, None]], axis=1)


def made(returns: str):
    """The function with one result."""
    return graphopt.device_function(
        returns=returns, pose=("indexed", 7), point=("sequential", 3), origin=("unique", 3)
    )(distances)


@pytest.fixture(params=["cpu", "address", "storage"])
def where(request):
    """Name of a device for calls."""
    if request.param == "cpu":
        yield "cpu"
        return
    opened = shared_device(request.param)
    with mock.patch.object(module, "open_device", lambda spec: opened):
        yield "vulkan"
    assert opened.messages == []


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-12), (np.float32, 1e-4)])
def test_rows_and_sums_are_those_of_numpy(where, dtype, tolerance):
    """Indexed, sequential and unique arguments; rows, sums, sums by an index."""
    values = {
        "pose": (POSES.astype(dtype), ROWS),
        "point": POINTS.astype(dtype),
        "origin": np.array([1, 2, 3], dtype),
    }
    rows = expected_rows()
    found = made("rows")(**values, device=where)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, rows, rtol=tolerance, atol=tolerance)
    scale = 100 * tolerance
    np.testing.assert_allclose(made("sum")(**values, device=where), rows.sum(0), rtol=tolerance, atol=scale)
    index = RNG.integers(0, 40, 333) * 2
    expected = np.zeros((90, 4))
    np.add.at(expected, index, rows)
    found = made("indexed sum")(**values, device=where, target=(index, 90))
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=scale)


def test_no_rows(where):
    """Nothing in, nothing out; a sum of nothing is 0."""
    values = {"pose": (POSES, np.zeros(0, int)), "point": np.zeros((0, 3)), "origin": np.ones(3)}
    assert made("rows")(**values, device=where).shape == (0, 4)
    np.testing.assert_array_equal(made("sum")(**values, device=where), np.zeros(4))
    found = made("indexed sum")(**values, device=where, target=(np.zeros(0, int), 3))
    np.testing.assert_array_equal(found, np.zeros((3, 4)))


def test_arrays_stay_on_the_device():
    """A result on the device is an argument of the next call, without a trip to the host."""
    device = shared_device("address")
    double = graphopt.device_function(x=("sequential", 3))(lambda x: 2 * x)
    first = double(x=upload(device, POINTS))
    assert isinstance(first, DeviceArray) and first.shape == (333, 3)
    with mock.patch.object(type(device), "read", side_effect=AssertionError("nothing is read")):
        second = double(x=first)
    np.testing.assert_array_equal(second.numpy(), 4 * POINTS)
    with pytest.raises(OptionError, match="device is 'cpu'"):
        double(x=first, device="cpu")
    with pytest.raises(DeviceError, match="different devices"):
        pair = graphopt.device_function(x=("sequential", 3), y=("sequential", 3))(lambda x, y: x + y)
        pair(x=first, y=upload(shared_device("storage"), POINTS))
    assert device.messages == []


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"point": POINTS[:, :2]}, ShapeError, r"point has shape \(333, 2\), expected \(rows, 3\)"),
        ({"point": POINTS[:7]}, ShapeError, "different numbers of rows"),
        ({"pose": POSES}, ShapeError, "expected a pair"),
        ({"pose": (POSES, ROWS + 1)}, ShapeError, "expected 0 to 4"),
        ({"pose": (POSES, ROWS * 1.0)}, ShapeError, "expected integers"),
        ({"origin": np.zeros((2, 3))}, ShapeError, r"expected \(1, 3\)"),
        ({"other": 1}, OptionError, "expected .*pose.*point.*origin"),
        ({"target": (ROWS, 5)}, OptionError, "expected no target"),
    ],
)
def test_wrong_arguments_are_named(change, error, message):
    """What, got, expected."""
    with pytest.raises(error, match=message):
        made("rows")(**{"pose": (POSES, ROWS), "point": POINTS, "origin": np.ones(3), **change})


def test_wrong_definitions_are_named():
    """Access, result, and functions that cannot be compiled."""
    with pytest.raises(OptionError, match="one of sequential, indexed, unique"):
        graphopt.device_function(x=("random", 3))
    with pytest.raises(OptionError, match="one of rows, sum, indexed sum"):
        graphopt.device_function(x=("sequential", 3), returns="mean")
    with pytest.raises(OptionError, match="how many rows"):
        graphopt.device_function(x=("unique", 3))
    with pytest.raises(SymbolicError, match=r"np\.where"):
        graphopt.device_function(x=("sequential", 1))(lambda x: 1 if x[0] > 0 else 2)
