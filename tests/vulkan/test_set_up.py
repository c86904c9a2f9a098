"""A solver whose kernels are there is set up by its caller, and finds what one set up by threads finds."""

from __future__ import annotations

import numpy as np
import pytest
from vulkan_graphs import bundle_adjustment

from graphopt.errors import SolverError, Stopped
from graphopt.optimizer import optimize
from graphopt.solver import reuse
from graphopt.vulkan import set_up
from graphopt.vulkan.set_up import Deferred, SetUp

OPTIONS = {"device": "vulkan", "precision": "double", "max_iterations": 3}
SOLVERS = [
    {},
    {"linear_solver": "pcg", "schur": "implicit", "schedule": "matrix-free"},
    {"linear_solver": "pcg", "schur": "implicit", "schedule": "blocks"},
    {"linear_solver": "pcg", "schur": "explicit"},
    {"linear_solver": "cholesky"},
]


def camera_added(graph):
    """One more camera, which sees what the last one sees."""
    cameras, edges = graph.vertex_sets[0], graph.edge_sets[0]
    new, last = int(max(vertices.ids.max() for vertices in graph.vertex_sets)) + 1, cameras.ids[-1]
    seen = edges.vertices[:, 0] == last
    estimate, ends = cameras.estimate[-1:].copy(), edges.vertices[seen].copy()
    ends[:, 0] = new
    measured, parameters = edges.measurement[seen].copy(), edges.parameters[seen].copy()
    graph.add_vertices(cameras.type, [new], estimate)
    graph.add_edges(edges.type, ends, measured, parameters=parameters)


def camera_removed(graph):
    """The second one, with its edges."""
    graph.remove_vertices([int(graph.vertex_sets[0].ids[1])])


def landmark_added(graph):
    """One more, beside another one."""
    points, edges = graph.vertex_sets[1], graph.edge_sets[0]
    new, other = int(max(vertices.ids.max() for vertices in graph.vertex_sets)) + 1, points.ids[3]
    seen = edges.vertices[:, 1] == other
    estimate, ends = points.estimate[3:4].copy(), edges.vertices[seen].copy()
    ends[:, 1] = new
    measured, parameters = edges.measurement[seen] + 0.1, edges.parameters[seen].copy()
    graph.add_vertices(points.type, [new], estimate, marginalized=True)
    graph.add_edges(edges.type, ends, measured, parameters=parameters)


def landmark_removed(graph):
    """One, with its edges."""
    graph.remove_vertices([int(graph.vertex_sets[1].ids[2])])


def observations_removed(graph):
    """One observation does not take part."""
    graph.edge_sets[0].level[7] = 1


def landmarks_merged(graph):
    """The observations of one are another one's."""
    points, edges = graph.vertex_sets[1], graph.edge_sets[0]
    first, second = int(points.ids[4]), int(points.ids[5])
    taken = set(edges.vertices[edges.vertices[:, 1] == first, 0].tolist())
    rows = np.flatnonzero(edges.vertices[:, 1] == second)
    rows = rows[[int(edges.vertices[row, 0]) not in taken for row in rows]]
    ends, measured = edges.vertices[rows].copy(), edges.measurement[rows].copy()
    parameters = edges.parameters[rows].copy()
    ends[:, 1] = first
    graph.remove_vertices([second])
    graph.add_edges(edges.type, ends, measured, parameters=parameters)


CHANGES = [
    camera_added,
    camera_removed,
    landmark_added,
    landmark_removed,
    observations_removed,
    landmarks_merged,
]


def outcome(graph, options):
    """chi2 and damping of all iterations, and where they end; with a new solver, which is nobody's then."""
    reuse.forget(graph)
    summary = optimize(graph, **OPTIONS, **options)
    reuse.forget(graph)
    steps = [(iteration.chi2, iteration.lambda_) for iteration in summary.iterations]
    return summary.initial_chi2, steps, [vertices.estimate.copy() for vertices in graph.vertex_sets]


@pytest.mark.parametrize("options", SOLVERS, ids=str)
def test_a_changed_structure_is_set_up_without_threads_and_alike(options, monkeypatch):
    """Whatever has changed: bit for bit what threads prepare for a fresh graph."""
    graph = bundle_adjustment()
    outcome(graph, options)
    ways = []
    original = SetUp.start

    def start(self, name, *rest):
        ways.append(self.by_caller)
        return original(self, name, *rest)

    monkeypatch.setattr(SetUp, "start", start)
    for change in CHANGES:
        change(graph)
        fresh = graph.copy()
        ways.clear()
        chi2, steps, estimates = outcome(graph, options)
        assert ways == [True, True], change.__name__
        with monkeypatch.context() as patch:
            patch.setattr(set_up, "FEW_EDGES", -1)
            ways.clear()
            expected_chi2, expected_steps, expected = outcome(fresh, options)
            assert ways == [False, False]
        assert (chi2, steps) == (expected_chi2, expected_steps), change.__name__
        for own, other in zip(estimates, expected, strict=True):
            np.testing.assert_array_equal(own, other, err_msg=change.__name__)


def test_what_goes_wrong_is_raised_by_everyone_who_asks():
    """As a future does; it is not tried again."""
    calls = []

    def fails():
        calls.append(None)
        raise SolverError("no room")

    later = Deferred(fails)
    assert not later.done()
    for _ in range(2):
        with pytest.raises(SolverError, match="no room"):
            later.result()
    assert later.done()
    assert len(calls) == 1


@pytest.mark.parametrize("stop", [Stopped, KeyboardInterrupt])
def test_a_set_up_that_was_stopped_is_done_by_the_next_call(stop):
    """The solver is kept and asked again: the stop was its caller's, no fault of the set-up."""
    calls = []

    def stopped_once(number):
        calls.append(number)
        if len(calls) == 1:
            raise stop
        return number

    later = Deferred(stopped_once, 7)
    with pytest.raises(stop):
        later.result()
    assert not later.done()
    assert later.result() == later.result() == 7
    assert calls == [7, 7]
