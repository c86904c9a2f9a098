"""H and b at the end of a step, computed before it is known whether the step is taken, change no number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from vulkan_devices import shared_device
from vulkan_graphs import bundle_adjustment, pose_graph

from graphopt.linear.options import SolverOptions
from graphopt.optimizer import LevenbergMarquardtOptions, optimize
from graphopt.problem.structure import Structure
from graphopt.solver.trial import Damping
from graphopt.vulkan import solver as module
from graphopt.vulkan.solver import create
from graphopt.vulkan.speculation import Speculation

OPTIONS = {"device": "vulkan", "precision": "double", "linear_solver": "cholesky", "max_iterations": 8}
FAR_OFF = {"method": "lm", "options": LevenbergMarquardtOptions(initial_lambda=1e-12)}
WITH_GRADIENT = {"method": "lm", "options": LevenbergMarquardtOptions(gradient_tolerance=1e-3)}


def far_off():
    """A start from which steps without damping lead away."""
    graph = bundle_adjustment()
    cameras = graph.vertex_sets[0]
    cameras.estimate[2:, :6] += 0.2 * np.random.default_rng(5).normal(size=(len(cameras) - 2, 6))
    return graph


def story(make, monkeypatch, ahead, **options):
    """All iterations and the end of two runs; how often a step was looked beyond, and come back from."""
    counts = {"beyond": 0, "back": 0}
    linearize, discard = Speculation.linearize, Speculation.discard_replacing

    def noted_linearize(self, version, replacing=None):
        counts["beyond"] += replacing is not None
        linearize(self, version, replacing)

    def noted_discard(self, seconds, current):
        counts["back"] += self.replaces
        return discard(self, seconds, current)

    with monkeypatch.context() as patched:
        patched.setattr(Speculation, "linearize", noted_linearize)
        patched.setattr(Speculation, "discard_replacing", noted_discard)
        if not ahead:
            patched.setattr(module, "MOST_SPECULATED_EDGES", 0)
        graph, found = make(), []
        for _ in range(2):
            summary = optimize(graph, **OPTIONS, **options)
            found.append(
                [(iteration.chi2, iteration.lambda_, iteration.trials) for iteration in summary.iterations]
            )
            found.append([vertices.estimate.tolist() for vertices in graph.vertex_sets])
            graph.vertex_sets[-1].estimate[1:] += 0.01
    return found, counts


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (bundle_adjustment, {"method": "lm"}),
        (bundle_adjustment, {"method": "gn"}),
        (bundle_adjustment, {"method": "dogleg"}),
        (bundle_adjustment, {}),
        (pose_graph, {"method": "lm"}),
        (pose_graph, {}),
        (far_off, FAR_OFF),
        (bundle_adjustment, WITH_GRADIENT),
    ],
)
def test_every_iteration_is_the_same(make, options, monkeypatch):
    """Whatever the method asks for between steps."""
    ours, counts = story(make, monkeypatch, True, **options)
    theirs, none = story(make, monkeypatch, False, **options)
    assert ours == theirs
    assert none["beyond"] == 0
    if options.get("method") == "lm":
        assert counts["beyond"] > 0


def test_a_step_that_is_not_taken_is_come_back_from(monkeypatch):
    """H and b of its start are made again for the next trial."""
    found, counts = story(far_off, monkeypatch, True, **FAR_OFF)
    assert max(trials for _, _, trials in found[0]) > 1
    assert counts["back"] > 0


def solver_of(graph) -> Any:
    """Linearised, and told that a step follows."""
    options = SolverOptions("vulkan", "cholesky", "explicit", "double")
    solver = create(graph, Structure(graph.select()), options, device=shared_device("address"))
    solver.linearize()
    return solver


def numbers(solver):
    """b, H, its diagonal and the largest entries."""
    arrays = [solver.b, solver.values, solver.diagonal, solver.multiply(np.ones(solver.dim))]
    return [*(array.copy() for array in arrays), solver.largest_diagonal(), solver.largest_gradient()]


def assert_equal(ours, theirs):
    """Bit by bit."""
    for value, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(value, other)


@pytest.mark.parametrize("taken", [True, False])
def test_until_the_next_linearisation_all_is_that_of_the_start(taken):
    """Largest entries, H and b; then those of where the step has led, or of where it began."""
    graph = bundle_adjustment()
    ahead, plain = solver_of(graph), solver_of(graph)
    ahead.linearizes_trials = True
    start = numbers(plain)
    for solver in (ahead, plain):
        assert solver.trial(Damping(1e-3)).solved
        solver.discard_top() if taken else solver.pop()
    assert ahead.system.speculation.replaces and not plain.system.speculation.replaces
    assert (ahead.largest_diagonal(), ahead.largest_gradient()) == tuple(start[-2:])
    assert ahead.system.speculation.replaces, "they are still on the host"
    assert_equal(numbers(ahead), start)
    assert not ahead.system.speculation.replaces
    assert ahead.linearize() == plain.linearize()
    assert_equal(numbers(ahead), numbers(plain))


@pytest.mark.parametrize("changes", ["update", "move", "take"])
def test_other_estimates_are_linearised_anew(changes):
    """Where what was looked beyond to is not where the estimates are in the end."""
    graph = bundle_adjustment()
    ahead, plain = solver_of(graph), solver_of(graph)
    ahead.linearizes_trials = True
    rows = np.array([3, 5])
    for solver in (ahead, plain):
        assert solver.trial(Damping(1e-3)).solved
        if changes == "update":
            solver.discard_top()
            solver.update()
        elif changes == "move":
            solver.pop()
            solver.dx = 0.5 * solver.dx
            solver.move()
        else:
            solver.discard_top()
            solver.take(1, rows)
    assert ahead.linearize() == plain.linearize()
    assert_equal(numbers(ahead), numbers(plain))


@pytest.mark.parametrize("asks_before", [False, True])
def test_largest_entries_are_found_when_somebody_asks(asks_before):
    """After steps between which nobody did, before or after the next linearisation."""
    graph = bundle_adjustment()
    ahead, plain = solver_of(graph), solver_of(graph)
    ahead.linearizes_trials = True
    found = []
    for solver in (ahead, plain):
        for number in range(4):
            assert solver.trial(Damping(1e-3)).solved
            solver.discard_top()
            if number < 3:
                solver.linearize()
        if not asks_before:
            solver.linearize()
        found.append((solver.largest_diagonal(), solver.largest_gradient()))
    assert found[0] == found[1]
    assert_equal(numbers(ahead), numbers(plain))
