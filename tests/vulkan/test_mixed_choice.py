"""precision="mixed" computes in double where float32 saves too little to pay for its checks, and says so."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from vulkan_devices import shared_device

from graphopt.device.figures import DeviceFigures
from graphopt.evaluate import datasets
from graphopt.linear.options import SolverOptions
from graphopt.problem.structure import Structure
from graphopt.vulkan import solver as solvers
from graphopt.vulkan.plan import choice
from graphopt.vulkan.plan.choice import choose_plan, configuration_of, pays_in_mixed
from graphopt.vulkan.solver import AS_FAST_IN_DOUBLE, create

FAST = DeviceFigures("launches take longer than passes", 4e12, 5.6e13, 2.8e13, 1.4e11, 2e-6, 4e-5)
SLOW = DeviceFigures("passes take longer than launches", 4e9, 5.6e10, 2.8e10, 1.4e9, 1e-8, 4e-5)
WEAK = replace(FAST, name="hardly any float64", float64_flops=8e11)
CASES = {
    "a small problem on a fast GPU": ("pcg", "discrete", FAST, False),
    "the same on a slow one": ("pcg", "discrete", SLOW, True),
    "where float64 is weak": ("pcg", "discrete", WEAK, True),
    "a factorization": ("cholesky", "discrete", SLOW, False),
    "a factorization where float64 is weak": ("cholesky", "discrete", WEAK, True),
    "a software driver": ("pcg", "cpu", FAST, True),
}


@pytest.mark.parametrize("name", CASES)
def test_what_a_device_says_of_itself_decides(name, monkeypatch):
    """By the predicted time of an iteration, or the rates where S is factored."""
    linear_solver, kind, figures, expected = CASES[name]
    monkeypatch.setattr(choice, "device_figures", lambda device: figures)
    structure = Structure(datasets.ba(cameras=6, points=400).select())
    options = SolverOptions("vulkan", linear_solver, precision="mixed")
    configuration = configuration_of(options, "mixed")
    plan = choose_plan("auto", shared_device("address"), structure, configuration, "mixed")
    device: Any = SimpleNamespace(info={"kind": kind})
    assert pays_in_mixed(plan, device, structure) == expected


def test_the_solver_is_that_of_double_and_says_why(monkeypatch):
    """Precision, tolerance and note; a configuration of one's own is taken as it is."""
    monkeypatch.setattr(solvers, "pays_in_mixed", lambda *_: False)
    graph = datasets.ba(cameras=6, points=100)
    device, structure = shared_device("address"), Structure(graph.select())
    options = SolverOptions("vulkan", "pcg", precision="mixed")
    found, double = (
        create(graph, structure, chosen, device=device)
        for chosen in (options, replace(options, precision="double"))
    )
    assert (found.precision, found.describe()["precision_note"]) == ("double", AS_FAST_IN_DOUBLE)
    assert found.describe()["schedule"] == double.describe()["schedule"]
    own = configuration_of(options, "mixed")
    assert create(graph, structure, options, device=device, configuration=own).precision == "mixed"
