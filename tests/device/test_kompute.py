"""The same solver over Kompute's package kp: same answers, every way to solve."""

from __future__ import annotations

import os

import numpy as np
import pytest

os.environ.setdefault("LP_NUM_THREADS", "0")
if "GRAPHOPT_TEST_INSTALLED" in os.environ:
    import kp  # noqa: F401  `make test` builds it: there a missing one is a failure
else:
    pytest.importorskip("kp", reason="the optional package kp is not installed")

from vulkan_graphs import assert_same_path, bundle_adjustment, pose_graph
from vulkan_problems import make_problem

from graphopt.device import DeviceError, open_device
from graphopt.device.kompute import KomputeDevice
from graphopt.optimizer import optimize
from graphopt.vulkan.kernels.system import DampedSystem
from graphopt.vulkan.plan.configuration import Configuration
from graphopt.vulkan.program import Context

STEP_TOLERANCE = {"double": 1e-9, "mixed": 1e-4}


@pytest.fixture(scope="module")
def device():
    """One device for all tests: opening one takes a tenth of a second."""
    return KomputeDevice()


@pytest.mark.parametrize("precision", ["double", "mixed"])
@pytest.mark.parametrize(
    "linear_solver,schur",
    [
        ("pcg", "explicit"),
        ("pcg", "implicit"),
        ("pcg", "off"),
        ("cholesky", "explicit"),
        ("dense", "explicit"),
    ],
)
def test_steps_equal_dense_numpy(device, precision, linear_solver, schur):
    """One step of every configuration, in both precisions."""
    problem = make_problem([6, 3, 6, 3, 6, 6], [3, 2] * 14, degree=4)
    configuration = Configuration(
        linear_solver, schur, tolerance=1e-24 if precision == "double" else 1e-12, max_iterations=60
    )
    system = DampedSystem(Context(device, precision), problem.layout, configuration)
    system.values[:], system.b[:] = problem.values, problem.b
    system.upload()
    vector = np.random.default_rng(1).uniform(0.1, 2.0, problem.layout.dim)
    for damping in (0.37, vector):
        assert system.solve(damping)
        expected = np.linalg.solve(problem.damped(damping), problem.b)
        error = np.abs(system.dx - expected).max() / np.abs(expected).max()
        assert error < STEP_TOLERANCE[precision]


@pytest.mark.parametrize(
    "options",
    [{"schur": "explicit", "work_queues": kind} for kind in ("cpu", "gpu", "lookup")]
    + [{"schur": "implicit", "preconditioner": "jacobi"}],
    ids=lambda options: "-".join(options.values()),
)
def test_work_queues_and_preconditioners(device, options):
    """Every way to find the pairs of the Schur complement, and block-Jacobi of H_pp."""
    problem = make_problem([6] * 6, [3] * 20, degree=4)
    configuration = Configuration("pcg", tolerance=1e-24, max_iterations=60, **options)
    system = DampedSystem(Context(device, "double"), problem.layout, configuration)
    system.values[:], system.b[:] = problem.values, problem.b
    system.upload()
    assert system.solve(0.37)
    expected = np.linalg.solve(problem.damped(0.37), problem.b)
    assert np.abs(system.dx - expected).max() < STEP_TOLERANCE["double"] * np.abs(expected).max()


@pytest.mark.parametrize("graph,linear_solver", [(bundle_adjustment, "pcg"), (pose_graph, "cholesky")])
def test_chi2_of_every_iteration_equals_the_cpus(graph, linear_solver):
    """`optimize(graph, device="kompute")` takes the CPU's path."""
    expected = optimize(graph(), "lm", 3, device="cpu", linear_solver=linear_solver)
    actual = optimize(graph(), "lm", 3, device="kompute", linear_solver=linear_solver)
    assert_same_path(expected, actual)
    assert actual.device == "kompute:0"


def test_upload_copy_and_errors(device):
    """Arrays come back bit by bit; views past the end and unknown devices are refused."""
    array = np.random.default_rng(0).normal(size=33)
    buffer = device.upload(array)
    np.testing.assert_array_equal(device.download(buffer, np.float64, 33), array)
    other = device.allocate(33 * 8)
    device.submit(device.record().fill(other).copy(buffer, other, 16, 8, 32).finish()).wait()
    expected = np.zeros(33)
    expected[4:6] = array[1:3]
    np.testing.assert_array_equal(device.download(other, np.float64, 33), expected)
    with pytest.raises(DeviceError, match="past the end"):
        buffer.array(np.float64, 0, 34)
    with pytest.raises(DeviceError, match="does not exist"):
        KomputeDevice(99)
    assert open_device("kompute:0").name == device.name
