"""Batches of expressions on a device have the CPU's values, for every operation, in one submission."""

from __future__ import annotations

import re
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from random_expressions import random_text
from vulkan_devices import shared_device

import graphopt
from graphopt.errors import DeviceError
from graphopt.expressions import on_device
from graphopt.expressions.operations import OPERATIONS


@pytest.fixture(params=["address", "storage"])
def device(request):
    """One device per access variant, which evaluate_batch gets; no validation message may be left."""
    opened = shared_device(request.param)
    with mock.patch.object(on_device, "open_device", lambda spec: opened):
        yield opened
    assert opened.messages == []


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-10), (np.float32, 1e-3)])
def test_values_and_sums_are_those_of_the_cpu(device, dtype, tolerance):
    """Random expressions, numbers of sets that differ, points that fill no workgroup."""
    rng = np.random.default_rng(0)
    texts = [random_text(rng, 4, 2, 2) for _ in range(40)]
    texts += [
        "p1",
        "2.5",
        "x1",
        "p1*p2",
        "where(x1 < p1, x2, floor(x1) + sign(x2))",
        "tan(x1*0.1)+acos(x2/4)",
    ]
    texts += ["asin(x1/4) + (x1 <= x2) + (x1 == x1)"]
    data = rng.uniform(-3, 3, (150, 2)).astype(dtype)
    target = rng.normal(size=150).astype(dtype)
    sets = [rng.uniform(0.5, 2, (1 + k % 3, 2)).astype(np.float32).astype(float) for k in range(len(texts))]
    for requested in (None, target):
        here = graphopt.evaluate_batch(texts, data, sets, requested)
        there = graphopt.evaluate_batch(texts, data, sets, requested, device="vulkan")
        wrong = total = 0
        for text, a, b in zip(texts, here, there, strict=True):
            assert a.dtype == b.dtype and a.shape == b.shape
            usual = np.isfinite(a) & (np.abs(a) < 1e6)
            if dtype == np.float64:
                np.testing.assert_array_equal(np.isfinite(a), np.isfinite(b), err_msg=text)
            error = np.abs(a[usual] - b[usual]) / (1 + np.abs(a[usual]))
            wrong, total = wrong + int((~(error <= tolerance)).sum()), total + error.size
        # jumps may fall to either side, and float32 loses digits to cancellation
        assert wrong <= (0 if dtype == np.float64 else 0.03) * total and total > 60


def test_results_take_the_shape_of_the_cpu(device):
    """One set without an axis, `out`, nothing at all."""
    data = np.linspace(1, 2, 300)[:, None]
    out = np.empty((2, 300))
    assert graphopt.evaluate_batch(["p1*x1", "x1^p1"], data, [[2.0], [3.0]], device="vulkan", out=out) is out
    np.testing.assert_allclose(out, [2 * data[:, 0], data[:, 0] ** 3], rtol=1e-12)
    sums = graphopt.evaluate_batch(["x1"], data, None, data[:, 0] + 1, device="vulkan")
    np.testing.assert_allclose(sums, [300.0], rtol=1e-12)
    assert graphopt.evaluate_batch([], data, device="vulkan").shape == (0, 300)
    texts, values = ["p1*x1", "p1", "x1 - p1", "sin(p1*x1)", "p1/x1"], np.arange(1.0, 6.0)[:, None]
    whole = graphopt.evaluate_batch(texts, data, values, device="vulkan")
    with mock.patch.object(on_device, "_MOST_GROUPS", 6):  # two expressions at a time
        np.testing.assert_array_equal(graphopt.evaluate_batch(texts, data, values, device="vulkan"), whole)


def test_one_submission_for_all(device):
    """However many expressions and kernels."""
    texts = ["x1 + p1", " + ".join(f"sin({k}*x1)*p1*x1^{k}" for k in range(2, 40))]
    with mock.patch.object(type(device), "submit", autospec=True, side_effect=type(device).submit) as submit:
        graphopt.evaluate_batch(texts, np.ones((10, 1)), np.ones((2, 3, 1)), np.ones(10), device="vulkan")
    assert submit.call_count == 1


def test_what_a_device_cannot_is_said(device):
    """Float64 without float64, results past 4 GiB."""
    with (
        mock.patch.object(type(device), "has_float64", False),
        pytest.raises(DeviceError, match="Pass data in float32"),
    ):
        graphopt.evaluate_batch(["x1"], np.ones((5, 1)), device="vulkan")
    with (
        mock.patch.object(on_device, "_LARGEST", 1000),
        pytest.raises(DeviceError, match="fewer expressions"),
    ):
        graphopt.evaluate_batch(["x1"], np.ones((500, 1)), device="vulkan")
    with pytest.raises(DeviceError, match="4294967296 bytes"):
        on_device.refuse_large(np.zeros(1), nbytes=1 << 32)


def test_the_shader_knows_the_operations():
    """In the order of Python's table."""
    text = (Path(__file__).resolve().parents[2] / "shaders/include/batch_opcodes.glsl").read_text()
    assert re.findall(r"OP_(\w+) = (\d+)", text) == [(name, str(k)) for k, name in enumerate(OPERATIONS)]
