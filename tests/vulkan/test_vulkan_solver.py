"""`optimize(graph, device="vulkan")` gives the CPU's answer."""

from __future__ import annotations

import pytest
from vulkan_devices import shared_device
from vulkan_graphs import bundle_adjustment

from graphopt.device import VulkanDevice
from graphopt.errors import OptionError
from graphopt.linear.options import SolverOptions
from graphopt.optimizer import optimize
from graphopt.problem.structure import Structure
from graphopt.solver.configurations import CONFIGURATIONS, configured
from graphopt.solver.create import create_block_solver
from graphopt.vulkan.host import HostLinearizedSolver
from graphopt.vulkan.plan.configuration import Configuration


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
