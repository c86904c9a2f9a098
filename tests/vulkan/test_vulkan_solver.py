"""`optimize(graph, device="vulkan")` gives the CPU's answer."""

from __future__ import annotations

import numpy as np
import pytest
from vulkan_devices import shared_device
from vulkan_graphs import assert_same_path, bundle_adjustment, pose_graph

from graphopt import io
from graphopt.device import DeviceError, VulkanDevice
from graphopt.errors import OptionError
from graphopt.linear.options import SolverOptions
from graphopt.optimizer import optimize
from graphopt.problem.structure import Structure
from graphopt.solver import reuse
from graphopt.solver.configurations import CONFIGURATIONS, configured
from graphopt.solver.create import create_block_solver
from graphopt.vulkan.host import HostLinearizedSolver
from graphopt.vulkan.plan.configuration import Configuration

GRAPHS = {"bundle adjustment": bundle_adjustment, "pose graph": pose_graph}
SETTINGS = [
    ("auto", "auto"),
    ("pcg", "explicit"),
    ("pcg", "implicit"),
    ("pcg", "off"),
    ("cholesky", "auto"),
    ("dense", "auto"),
]


@pytest.fixture(params=["address", "storage"])
def device(request, monkeypatch):
    """The name of the device, which opens one of each access variant under validation."""
    if request.param == "storage":
        monkeypatch.setenv("GRAPHOPT_MASK_FEATURES", "buffer_address")
    monkeypatch.setenv("GRAPHOPT_VALIDATION", "1")
    yield "vulkan"
    assert shared_device(request.param).messages == []


@pytest.mark.parametrize("linear_solver,schur", SETTINGS)
@pytest.mark.parametrize("name", GRAPHS)
def test_chi2_of_every_iteration_equals_the_cpus(device, name, linear_solver, schur):
    """Levenberg-Marquardt in double precision, every way to solve, both access variants."""
    if name == "pose graph" and schur in ("explicit", "implicit"):
        with pytest.raises(OptionError, match="marginalized"):
            optimize(GRAPHS[name](), "lm", 1, device=device, linear_solver=linear_solver, schur=schur)
        return
    options = {"linear_solver": linear_solver, "schur": schur}
    host, gpu = GRAPHS[name](), GRAPHS[name]()
    expected = optimize(host, "lm", 5, device="cpu", **options)
    actual = optimize(gpu, "lm", 5, device=device, **options)
    assert_same_path(expected, actual)
    for vertex_set, two in zip(host.vertex_sets, gpu.vertex_sets, strict=True):
        np.testing.assert_allclose(two.estimate, vertex_set.estimate, rtol=1e-6, atol=1e-6)
    assert actual.device.startswith("vulkan:") and actual.precision == "double"
    assert actual.device_name == shared_device("address").name
    assert actual.memory_bytes > 0


@pytest.mark.parametrize("method", ["gn", "dogleg", "auto"])
def test_other_algorithms_run_on_the_device(method):
    """Gauss-Newton, Dogleg (products with H) and auto (vectors of damping) take the CPU's path.

    Four iterations: later ones gain less than rounding.
    """
    expected = optimize(pose_graph(), method, 4, device="cpu", linear_solver="cholesky")
    actual = optimize(pose_graph(), method, 4, device="vulkan", linear_solver="cholesky")
    assert_same_path(expected, actual)


def test_mixed_precision_reaches_the_minimum(device, monkeypatch):
    """Mixed precision takes another path to the same minimum, to 1e-6 of chi2."""
    monkeypatch.setenv("GRAPHOPT_MASK_FEATURES", "float64,buffer_address")
    expected = optimize(bundle_adjustment(), "lm", 30, device="cpu", linear_solver="pcg")
    actual = optimize(bundle_adjustment(), "lm", 30, device=device, linear_solver="pcg")
    assert actual.precision == "mixed"
    assert actual.final_chi2 == pytest.approx(expected.final_chi2, rel=1e-6)
    with pytest.raises(DeviceError, match="float64"):
        optimize(bundle_adjustment(), "lm", 1, device=device, precision="double")


@pytest.mark.parametrize("name", CONFIGURATIONS)
@pytest.mark.parametrize("schedule", ["auto", "host"])
def test_named_configurations_solve(name, schedule):
    """Every row of the thesis' table 5.3 reaches the same minimum, and a second run repeats every bit."""
    runs = []
    options = configured(SolverOptions(schedule=schedule, configuration=name))
    for _ in range(2):
        graph = bundle_adjustment()
        solver = create_block_solver(graph, Structure(graph.select()), options)
        told = solver.describe()
        assert (told["linear_solver"], told["schur"]) == (options.linear_solver, options.schur)
        chi2 = [solver.linearize()]
        for _ in range(6):
            assert solver.solve(1.0)
            solver.update()
            chi2.append(solver.linearize())
        runs.append(chi2)
    assert runs[0] == runs[1]
    assert runs[0][-1] == pytest.approx(reference_chi2(), rel=1e-3)


def reference_chi2() -> float:
    """The same six steps with exact solves on the CPU."""
    from graphopt.solver.cpu import CpuBlockSolver

    graph = bundle_adjustment()
    solver = CpuBlockSolver(graph, Structure(graph.select()), SolverOptions(linear_solver="cholesky"))
    for _ in range(6):
        solver.linearize()
        assert solver.solve(1.0)
        solver.update()
    return solver.chi2()


def test_solver_is_reused_for_a_repeated_structure(monkeypatch):
    """A second optimization of a graph keeps queues and programs, and gives the same result."""
    made = []

    def counted(*arguments):
        made.append(create_block_solver(*arguments))
        return made[-1]

    monkeypatch.setattr(reuse, "create_block_solver", counted)
    graph = bundle_adjustment()
    estimates = [vertex_set.estimate.copy() for vertex_set in graph.vertex_sets]
    first = optimize(graph, "lm", 3, device="vulkan", linear_solver="pcg")
    for vertex_set, estimate in zip(graph.vertex_sets, estimates, strict=True):
        vertex_set.estimate[:] = estimate
    second = optimize(graph, "lm", 3, device="vulkan", linear_solver="pcg")
    assert [i.chi2 for i in first.iterations] == [i.chi2 for i in second.iterations]
    assert len(made) == 1


def test_configurations_resolve_by_problem():
    """`auto` names what it takes; combinations that cannot work are refused."""
    graph = bundle_adjustment()
    solver = HostLinearizedSolver(
        graph, Structure(graph.select()), SolverOptions(device="vulkan"), device=shared_device("address")
    )
    assert solver.system.configuration.linear_solver == "cholesky"
    assert solver.system.configuration.schur == "explicit"
    with pytest.raises(OptionError, match="needs linear_solver='pcg'"):
        Configuration("cholesky", "implicit")
    with pytest.raises(OptionError, match="expected one of"):
        Configuration(preconditioner="ilu")
    with pytest.raises(OptionError, match="between 0 and 1"):
        Configuration(tolerance=0.0)


def test_seconds_show_what_runs_beside_the_first_linearization():
    """The device's set-up is reported once; its hidden and its waited part, not again on reuse."""
    graph = bundle_adjustment()
    first = optimize(graph, "lm", 1, device="vulkan", linear_solver="pcg").seconds
    assert first["prepare_beside"] + first["prepare_wait"] > 0.0
    assert first["prepare_wait"] <= first["solve"]
    second = optimize(graph, "lm", 1, device="vulkan", linear_solver="pcg").seconds
    assert second["prepare_beside"] == second["prepare_wait"] == 0.0
    assert "prepare_wait" not in optimize(graph, "lm", 1, device="cpu").seconds
    refreshing = optimize(bundle_adjustment(), "auto", 3, device="vulkan").seconds
    assert refreshing["prepare_beside"] + refreshing["prepare_wait"] > 0.0


@pytest.mark.data
@pytest.mark.parametrize(
    "file,linear_solver",
    [("w100.graph", "cholesky"), ("data_bearing_only.g2o", "cholesky"), ("data_bearing_only.g2o", "dense")],
)
def test_exact_solvers_take_the_cpus_path_where_pcg_cannot(shared_data, file, linear_solver):
    """A factorization gives the CPU's chi2 to 1e-10 in every iteration, also where H is ill-conditioned.

    There PCG stops at its tolerance: the CPU's own PCG is as far from its Cholesky (3e-7 and 3e-4 of chi2).
    """
    path = next(shared_data.glob(f"**/{file}*"))
    expected = optimize(io.read(path), "lm", 5, device="cpu", linear_solver=linear_solver)
    actual = optimize(io.read(path), "lm", 5, device="vulkan", linear_solver=linear_solver)
    for iteration, two in zip(expected.iterations, actual.iterations, strict=True):
        assert two.chi2 == pytest.approx(iteration.chi2, rel=1e-10)


@pytest.mark.data
@pytest.mark.parametrize(
    "file,linear_solver",
    [("dubrovnik-3-7-pre.txt", "dense"), ("tinyGrid3D.g2o", "pcg"), ("intel.g2o", "cholesky")],
)
def test_real_graphs_equal_the_cpu(shared_data, file, linear_solver):
    """Small real graphs, chi2 per iteration."""
    path = next(shared_data.glob(f"**/{file}*"))
    expected = optimize(io.read(path), "lm", 4, device="cpu", linear_solver=linear_solver)
    actual = optimize(io.read(path), "lm", 4, device="vulkan", linear_solver=linear_solver)
    assert_same_path(expected, actual)


def test_two_devices_solve_side_by_side():
    """Two open devices in one process, one per access variant, interleaved.

    A driver may contract sums of products differently in the two variants: equal to rounding.
    """
    solvers = []
    for masked in ([], ["buffer_address"]):
        graph = bundle_adjustment()
        device = VulkanDevice(masked_features=masked)
        options = SolverOptions(device="vulkan", linear_solver="pcg")
        solvers.append(HostLinearizedSolver(graph, Structure(graph.select()), options, device=device))
    for _ in range(3):
        assert solvers[0].linearize() == pytest.approx(solvers[1].linearize(), rel=1e-12)
        for solver in solvers:
            assert solver.solve(1.0)
            solver.update()
