"""A call that starts on the device before the host knows what has changed finds what one that waits finds."""

from __future__ import annotations

import numpy as np
import pytest
from vulkan_graphs import bundle_adjustment, pose_graph

from graphopt.optimizer import optimize
from graphopt.solver import reuse
from graphopt.vulkan.kernels.system import DampedSystem
from graphopt.vulkan.program import Program
from graphopt.vulkan.solver import ResidentBlockSolver

OPTIONS = {"device": "vulkan", "precision": "double", "max_iterations": 3}


def other_estimates(graph, seed):
    """Move everything a little."""
    rng = np.random.default_rng(seed)
    for vertices in graph.vertex_sets:
        if vertices.estimate.shape[1] != 7:  # leaves quaternions as they are
            vertices.estimate[...] += 1e-3 * rng.standard_normal(vertices.estimate.shape)


def other_measurements(graph):
    """One image elsewhere."""
    graph.edge_sets[0].measurement[3] += 0.3


def other_information(graph):
    """One edge weighs more."""
    graph.edge_sets[0].information[2] *= 2.0


def other_flags(graph):
    """A vertex is held, or no longer."""
    graph.vertex_sets[0].fixed[1] = ~graph.vertex_sets[0].fixed[1]


def other_level(graph):
    """An edge does not take part."""
    graph.edge_sets[0].level[5] = 1


def nothing(graph):
    """As it was."""


CHANGES = [
    nothing,
    other_measurements,
    nothing,
    nothing,
    other_information,
    other_flags,
    nothing,
    other_level,
]


def story(make, **options):
    """chi2 of all iterations of calls between which something changes, and where the last one ends."""
    graph, found = make(), []
    for number, change in enumerate(CHANGES):
        change(graph)
        other_estimates(graph, number)
        summary = optimize(graph, **OPTIONS, **options)
        found.append(
            [summary.initial_chi2, *[(iteration.chi2, iteration.lambda_) for iteration in summary.iterations]]
        )
    return found, [vertices.estimate.copy() for vertices in graph.vertex_sets]


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (bundle_adjustment, {}),
        (bundle_adjustment, {"linear_solver": "pcg", "schur": "implicit"}),
        (bundle_adjustment, {"method": "lm"}),
        (pose_graph, {}),
    ],
)
def test_no_number_changes(make, options, monkeypatch):
    """Whatever has changed since the last call: bit by bit what calls find that wait until they know."""
    begun, begin = [], ResidentBlockSolver.begin
    monkeypatch.setattr(
        ResidentBlockSolver, "begin", lambda self, looks: begun.append(1) or begin(self, looks)
    )
    ours = story(make, **options)
    assert begun
    monkeypatch.setattr(ResidentBlockSolver, "begin", lambda self, looks: None)
    theirs = story(make, **options)
    assert ours[0] == theirs[0]
    assert all(map(np.array_equal, ours[1], theirs[1]))


def submissions(monkeypatch, call):
    """How many programs a call submits."""
    submitted, submit = [], Program.submit
    with monkeypatch.context() as patched:
        patched.setattr(Program, "submit", lambda self: submitted.append(1) or submit(self))
        call()
    return len(submitted)


@pytest.mark.parametrize("options", [{}, {"linear_solver": "pcg", "schur": "implicit"}])
def test_what_is_begun_is_used(options, monkeypatch):
    """A call with other estimates begins with its first trial, and submits no more than without."""
    counts, begun = [], []
    begin = DampedSystem.begin
    monkeypatch.setattr(DampedSystem, "begin", lambda self, *trial: begun.append(1) or begin(self, *trial))
    for begins in (True, False):
        if not begins:
            monkeypatch.setattr(ResidentBlockSolver, "begin", lambda self, looks: None)
        graph = bundle_adjustment()
        optimize(graph, **OPTIONS, **options)
        other_estimates(graph, 1)
        optimize(graph, **OPTIONS, **options)
        other_estimates(graph, 2)
        counts.append(submissions(monkeypatch, lambda graph=graph: optimize(graph, **OPTIONS, **options)))
    assert counts[0] == counts[1] and len(begun) == 2


def test_a_call_that_was_broken_off_leaves_nothing_behind():
    """Begun, then not gone on with: the next solver of the graph takes its estimates anew."""
    graph = bundle_adjustment()
    optimize(graph, **OPTIONS)
    options = reuse.last_solvers[graph].options
    other_estimates(graph, 1)
    commit = reuse.speculate(graph, options, lambda structure: [], lambda structure, chi2: None)
    assert commit is not None
    other_estimates(graph, 2)
    solver = reuse.prepared_solver(graph, graph.select(), options, {"analyze": 0.0, "prepare": 0.0})
    expected = optimize(graph, device="cpu", max_iterations=1).initial_chi2
    assert solver.chi2() == pytest.approx(expected, rel=1e-12)
