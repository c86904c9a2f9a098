"""Iterations of conjugate gradients past the end are skipped by devices that can, without any difference."""

from __future__ import annotations

import numpy as np
import pytest
from vulkan_devices import shared_device
from vulkan_graphs import bundle_adjustment

from graphopt.device import VulkanDevice
from graphopt.linear.options import SolverOptions
from graphopt.problem.structure import Structure
from graphopt.solver.trial import Damping
from graphopt.vulkan.kernels import pcg
from graphopt.vulkan.plan.configuration import Configuration
from graphopt.vulkan.program import Program
from graphopt.vulkan.solver import ResidentBlockSolver, create

DAMPING = Damping(1e-3, True, 1e-6, 1e32)


@pytest.fixture(scope="module")
def lacking():
    """A device without conditional commands."""
    return VulkanDevice(masked_features=["conditional"])


def solver_on(device, schur="implicit"):
    """A solver of a small bundle adjustment, linearised."""
    graph = bundle_adjustment()
    configuration = Configuration("pcg", schur, tolerance=1e-12)
    options = SolverOptions("vulkan", "pcg", schur, "double")
    solver = create(graph, Structure(graph.select()), options, device=device, configuration=configuration)
    assert isinstance(solver, ResidentBlockSolver)
    solver.linearize()
    return solver


def trials_of(solver):
    """Steps, iterations and chi2 of three trials from one estimate."""
    found = []
    for _ in range(3):
        trial = solver.trial(DAMPING)
        assert trial.solved
        found.append((solver.dx.copy(), solver.system.outcome.iterations, trial.chi2, trial.gain))
        solver.pop()
    return found


@pytest.mark.parametrize("schur", ["implicit", "explicit"])
def test_skipping_changes_nothing(lacking, schur):
    """Bit by bit the same, whether kernels return or are not started."""
    device = shared_device("address")
    ours, theirs = (trials_of(solver_on(device, schur)) for device in (device, lacking))
    for (dx, *numbers), (other_dx, *other_numbers) in zip(ours, theirs, strict=True):
        assert np.array_equal(dx, other_dx) and numbers == other_numbers
    assert device.messages == []


def test_a_submission_holds_more_than_the_last_trial_took(monkeypatch):
    """So that a trial is one submission: the second and third of three equal trials wait once each."""
    solver = solver_on(shared_device("address"))
    assert solver.trial(DAMPING).solved
    solver.pop()
    runs = []
    submit = Program.submit
    monkeypatch.setattr(Program, "submit", lambda self: runs.append(1) or submit(self))
    trials_of(solver)
    assert (
        solver.system.outcome is not None
        and solver.system.outcome.iterations > 2 * pcg.PAIRS_AT_ONCE
        and len(runs) == 3
    )


def test_a_cut_inside_a_condition_keeps_it(monkeypatch):
    """A program that moves more than a submission may is cut; each piece asks the flag."""
    whole = trials_of(solver_on(shared_device("address")))
    cut = solver_on(shared_device("address"))
    monkeypatch.setattr(cut.system.context, "submission_bytes", 1.0)
    pieces = trials_of(cut)
    assert max(len(program.recorded) for program in cut.system.programs.known.values()) > 4
    for (dx, *numbers), (other_dx, *other_numbers) in zip(whole, pieces, strict=True):
        assert np.array_equal(dx, other_dx) and numbers == other_numbers
