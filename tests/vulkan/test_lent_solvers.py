"""The block solver of one graph serves another graph of the same structure while nobody uses it."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
from resident_graphs import mixed_plane
from vulkan_graphs import bundle_adjustment, pose_graph

from graphopt.cpu_kernels import kernels
from graphopt.optimizer import optimize
from graphopt.solver import reuse

DEVICES = ["cpu", "vulkan"]


def other_numbers(graph, seed):
    """A graph with other numbers wherever a graph has some, fixed vertices and kernel widths included."""
    rng, graph = np.random.default_rng(seed), graph.copy()
    for vertices in graph.vertex_sets:
        if vertices.estimate.shape[1] != 7:  # leaves quaternions as they are
            vertices.estimate[...] += 1e-3 * rng.standard_normal(vertices.estimate.shape)
    for edges in graph.edge_sets:
        if edges.type.measurement_dim != 7:
            edges.measurement[...] += 1e-3 * rng.standard_normal(edges.measurement.shape)
        if edges.information_kind() != "identity":  # programs leave it out there
            edges.information[...] *= 1.5
        edges.kernel_width[...] *= 1.1
    return graph


def solved(graph, device):
    """chi2 and estimates after two iterations."""
    summary = optimize(graph, device=device, max_iterations=2)
    return [summary.final_chi2], *(vertices.estimate.copy() for vertices in graph.vertex_sets)


def solved_alone(graph, device, monkeypatch):
    """The same by a block solver of its own."""
    with monkeypatch.context() as patch:
        patch.setenv("GRAPHOPT_WITHOUT", "reuse")
        return solved(graph, device)


def is_equal(found, expected):
    """All digits."""
    return all(map(np.array_equal, found, expected))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("make", [pose_graph, bundle_adjustment, mixed_plane])
def test_what_is_lent_computes_what_an_own_one_computes(make, device, monkeypatch):
    """Other numbers, to the bit, there and back: the first graph takes it again."""
    first, second = make(), other_numbers(make(), 1)
    expected = [solved_alone(graph.copy(), device, monkeypatch) for graph in (first, second)]
    own = first.copy()
    assert is_equal(solved(own, device), expected[0])
    solver, other = reuse.last_solvers[own].solver, second.copy()
    assert is_equal(solved(other, device), expected[1])
    assert reuse.last_solvers[other].solver is solver
    assert own not in reuse.last_solvers
    for before, now in zip(first.vertex_sets, own.vertex_sets, strict=True):
        now.estimate[...] = before.estimate
    assert is_equal(solved(own, device), expected[0])
    assert reuse.last_solvers[own].solver is solver


def hold_one(graph):
    """A vertex more is fixed."""
    graph.vertex_sets[0].fixed[2] = True


def take_an_edge(graph):
    """An edge less takes part."""
    graph.edge_sets[0].level[5] = 1


def robust_kernel(graph):
    """All edges have a kernel."""
    graph.set_robust_kernel("Huber", 1.0)


def full_information(graph):
    """The information of an edge is no diagonal any more."""
    graph.edge_sets[0].information[0] = np.eye(3) + 0.1


def marginalize_one(graph):
    """A vertex more is marginalized."""
    graph.vertex_sets[0].marginalized[2] = True


def another_end(graph):
    """The first edge is gone; as many edges have other ends."""
    graph.remove_edges("EDGE_SE2", [0])
    graph.add_edges("EDGE_SE2", [[0, 2]])


def other_ids(graph):
    """Vertices are called otherwise."""
    ids, ends = graph.vertex_sets[0].ids + 100, graph.edge_sets[0].vertices + 100
    estimates, measurements = graph.vertex_sets[0].estimate.copy(), graph.edge_sets[0].measurement.copy()
    graph.clear()
    graph.add_vertices("VERTEX_SE2", ids, estimates)
    graph.add_edges("EDGE_SE2", ends, measurements)


def another_copy_of_an_edge(graph):
    """Of two edges with the same ends the other one takes part."""
    graph.edge_sets[0].level[[-3, -2]] = 1, 0


def more_threads(graph):
    """The pool has another number of threads."""
    kernels.set_num_threads(kernels.num_threads() + 1)


@pytest.mark.parametrize("same", [False, True], ids=["another graph", "the graph itself"])
@pytest.mark.parametrize(
    "change",
    [
        hold_one,
        take_an_edge,
        robust_kernel,
        full_information,
        marginalize_one,
        another_end,
        other_ids,
        another_copy_of_an_edge,
        more_threads,
        None,
    ],
)
def test_another_structure_has_an_own_one(change, same):
    """What programs or the block pattern depend on tells graphs apart; without a change one serves both."""
    graph = pose_graph()
    graph.add_edges("EDGE_SE2", graph.edge_sets[0].vertices[[3, 3]])
    graph.edge_sets[0].level[-1] = 1
    graph.add_edges("EDGE_SE2", [[0, 7]])
    other = graph if same else graph.copy()
    for _ in range(2):
        optimize(graph, device="cpu", max_iterations=1)
    solver = reuse.last_solvers[graph].solver
    if change is not None:
        change(other)
    optimize(other, device="cpu", max_iterations=1)
    assert solver.describe()["memory_bytes"] >= sum(
        each.nbytes for each in (solver.values, solver.structure, solver.b, solver.b, solver.b)
    )
    serves = change is None or (same and change is more_threads)
    assert (reuse.last_solvers[other].solver is solver) == serves


def test_what_is_in_use_is_not_lent():
    """Neither within a call, nor after somebody has asked for it who may keep it, nor for other options."""
    graph = pose_graph()
    copies = [graph.copy() for _ in range(3)]

    def within(iteration):
        optimize(graph, device="cpu", max_iterations=1)  # ends before the call around it
        optimize(copies[0], device="cpu", max_iterations=1)

    optimize(graph, device="cpu", max_iterations=1, callback=within)
    assert reuse.last_solvers[graph].solver is not reuse.last_solvers[copies[0]].solver
    reuse.forget(copies[0])
    options = reuse.last_solvers[graph].options
    seconds = {"analyze": 0.0, "prepare": 0.0}
    optimize(copies[1], device="cpu", linear_solver="pcg", max_iterations=1)
    assert graph in reuse.last_solvers
    reuse.prepared_solver(graph, reuse.last_solvers[graph].selection, options, seconds)
    optimize(graph, device="cpu", max_iterations=1)
    optimize(copies[2], device="cpu", max_iterations=1)
    assert reuse.last_solvers[graph].solver is not reuse.last_solvers[copies[2]].solver


@pytest.mark.parametrize(
    ("opened", "choice", "asked", "expected"),
    [
        (None, "cpu", "auto", True),
        (None, "vulkan:0", "auto", False),
        ("a device", "cpu", "auto", False),
        ("a device", "vulkan:0", "auto", False),
        ("a device", "", "vulkan", True),
        ("another", "", "vulkan", False),
        (None, "", "cpu", True),
    ],
)
def test_who_is_where_a_new_one_would_be(opened, choice, asked, expected, monkeypatch):
    """On the CPU where that is asked for or would be chosen; on the same device."""
    solver = SimpleNamespace() if opened is None else SimpleNamespace(device=opened)
    monkeypatch.setattr(reuse, "choose_device", lambda structure, options: choice)
    monkeypatch.setattr(reuse, "open_device", lambda device: "a device")
    last = SimpleNamespace(solver=solver, structure=None, options=None)
    assert reuse._is_on(last, asked) is expected


def test_columns_of_the_lender_are_its_own():
    """Residuals and estimates that the first graph hands out afterwards follow from its own numbers."""
    graph = pose_graph()
    other = other_numbers(graph, 2)
    optimize(graph, device="cpu", max_iterations=1)
    kept = [vertices.estimate.copy() for vertices in graph.vertex_sets]
    chi2 = graph.chi2()
    optimize(other, device="cpu", max_iterations=1)
    assert all(map(np.array_equal, kept, (vertices.estimate for vertices in graph.vertex_sets)))
    assert graph.chi2() == chi2


def test_a_small_solver_outlives_its_graph_until_it_is_forgotten(monkeypatch):
    """On the CPU: the next graph of the structure takes it, `forget` releases it; a large one is gone."""
    graph = pose_graph()
    copies = [graph.copy() for _ in range(4)]
    solvers = []
    for last in ("gone", "forgotten", "large"):
        if last == "large":
            monkeypatch.setattr(reuse, "MOST_OUTLIVING_BYTES", 100)
        taken = copies.pop()
        optimize(taken, device="cpu", max_iterations=1)
        solvers.append(weakref.ref(reuse.last_solvers[taken].solver))
        if last == "forgotten":
            reuse.forget(taken)
        del taken
        gc.collect()
    optimize(copies[0], device="cpu", max_iterations=1)
    assert solvers[0] is solvers[1]
    assert solvers[1]() is solvers[2]() is None
