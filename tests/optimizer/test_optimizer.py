"""The optimizer's loop: stop rules, signals, failures, reuse, the summary."""

import json
import threading
import time

import numpy as np
import pytest
from optimizer_graphs import noisy_ring
from reference import ReferenceSolver

import graphopt
from graphopt.errors import DeviceError, GraphError, OptionError, SolverError
from graphopt.graph import Graph
from graphopt.optimizer import METHODS, TerminationType, optimize
from graphopt.optimizer.run import run
from graphopt.optimizer.signals import StopSignals
from graphopt.optimizer.summary import Summary
from graphopt.problem.structure import Structure
from graphopt.solver import reuse


def gradient(graph, fixed):
    """Largest entry of b at the present estimates, by the reference."""
    graph = graph.copy()
    graph.set_fixed(fixed)
    reference = ReferenceSolver(graph, Structure(graph.select()))
    reference.linearize()
    return np.abs(reference.b).max()


@pytest.mark.parametrize("method", METHODS)
def test_every_method_ends_at_a_stationary_point(method):
    """The gradient, by independent numeric differentiation, vanishes at the answer."""
    graph = noisy_ring()
    before = gradient(graph, [0])
    summary = optimize(graph, method, max_iterations=30, fix=[0])
    assert summary.is_usable
    assert summary.final_chi2 == pytest.approx(graph.chi2(), rel=1e-12)
    assert gradient(graph, [0]) < 1e-6 * before
    assert graph.vertex(0).estimate.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("method", ["lm", "gn", "dogleg"])
def test_the_algorithms_do_the_same_on_the_reference_solver(method):
    """An algorithm over the numpy block solver follows the same chi2 as over the native one."""
    graph = noisy_ring(seed=3, noise=0.3)
    graph.set_fixed([0])
    other = graph.copy()
    summary = optimize(graph, method, max_iterations=6)
    options = METHODS[method].options(max_iterations=6)
    expected = Summary(0, 0, method)
    solver = ReferenceSolver(other, Structure(other.select()))
    run(METHODS[method].make(options), options, solver, expected, StopSignals(None, None, 0.0))
    np.testing.assert_allclose(
        [iteration.chi2 for iteration in summary.iterations],
        [iteration.chi2 for iteration in expected.iterations],
        rtol=1e-6,
    )


def test_gauge_is_held_for_the_call_only():
    """`fix="auto"` holds the vertex that g2o would fix, says so, and leaves the graph's flags alone."""
    graph = noisy_ring()
    gauge = graph.find_gauge()
    before = graph.vertex(gauge).estimate.copy()
    summary = optimize(graph)
    assert summary.fixed_by_gauge == [gauge]
    np.testing.assert_array_equal(graph.vertex(gauge).estimate, before)
    assert not graph.vertex_set("VERTEX_SE2").fixed.any()
    assert str(gauge) in summary.full_report()
    graph.set_fixed([5])
    assert optimize(graph).fixed_by_gauge == []


def test_a_graph_in_parts_is_solved_in_one_call():
    """Each part gets its own gauge, and chi2 is the sum of the parts' minima."""
    one, two = noisy_ring(20, 1), noisy_ring(30, 2)
    both = one.copy()
    poses, edges = two.vertex_set("VERTEX_SE2"), two.edge_set("EDGE_SE2")
    both.add_vertices("VERTEX_SE2", poses.ids + 1000, poses.estimate)
    both.add_edges("EDGE_SE2", edges.vertices + 1000, edges.measurement, edges.information)
    summary = optimize(both)
    assert len(summary.fixed_by_gauge) == 2
    parts = optimize(one).final_chi2 + optimize(two).final_chi2
    assert summary.final_chi2 == pytest.approx(parts, rel=1e-6)


def points_in_a_ring(kind="EDGE_POINTXYZ", count=6):
    rng, graph = np.random.default_rng(3), Graph()
    places = rng.normal(size=(count, 3))
    ends = np.stack([np.arange(count), (np.arange(count) + 1) % count], axis=1)
    graph.add_vertices("VERTEX_TRACKXYZ", np.arange(count), places + rng.normal(0.0, 0.1, places.shape))
    graph.add_edges(kind, ends, np.diff(places[ends], axis=1)[:, 0] + rng.normal(0.0, 0.1, places.shape))
    return graph


def test_one_of_points_that_move_together_is_held():
    """So that every algorithm finds the minimum, which is that of the edges' differences."""
    for method in ("gn", "lm", "auto"):
        graph = points_in_a_ring()
        summary = optimize(graph, method)
        assert summary.is_usable and summary.fixed_by_gauge == [graph.find_gauge()]
        measured = graph.edge_set("EDGE_POINTXYZ").measurement  # their sum is spread evenly around the ring
        assert summary.final_chi2 == pytest.approx((measured.sum(axis=0) ** 2).sum() / len(measured))


def test_no_point_is_held_where_errors_change_with_the_place_of_all():
    """It would change the minimum."""

    @graphopt.edge_type(tag="POINTS_FROM_THE_MIDDLE", vertices=("VERTEX_TRACKXYZ",) * 2, measurement_dim=3)
    def PointsFromTheMiddle(first, second, measured):
        return second - first + 0.1 * second - measured

    assert optimize(points_in_a_ring(PointsFromTheMiddle), "lm").fixed_by_gauge == []


def test_summary_is_json_with_the_documented_keys():
    """`to_dict` holds plain values only."""
    summary = optimize(noisy_ring(), "lm")
    found = json.loads(json.dumps(summary.to_dict()))
    seconds = found["seconds"]
    parts = {"read", "analyze", "prepare", "linearize", "solve", "update", "restart", "verify", "other"}
    assert set(seconds) == parts | {"total"}
    assert sum(seconds[part] for part in parts) == pytest.approx(seconds["total"])
    assert {"iteration", "chi2", "lambda", "trials", "seconds"} == set(found["iterations"][0])
    assert found["vertices"] == 40
    assert found["edges"] == 40
    assert found["final_chi2"] == found["iterations"][-1]["chi2"]
    assert found["memory_bytes"] > 0
    assert found["device"] == "cpu"
    assert found["precision"] == "double"
    assert (
        sum(found["seconds"][name] for name in ("linearize", "solve", "update")) <= found["seconds"]["total"]
    )
    assert "chi2" in summary.brief_report()
    assert len(summary.full_report().splitlines()) >= len(summary.iterations) + 4


def test_the_callback_sees_each_iteration_and_can_stop():
    """It is called after each one; False ends the run with the estimate it saw."""
    seen = []

    def callback(iteration):
        seen.append((iteration.iteration, iteration.chi2, graph.chi2()))
        return len(seen) < 2

    graph = noisy_ring(noise=0.3)
    summary = optimize(graph, "lm", callback=callback)
    assert summary.termination is TerminationType.USER_STOP
    assert [number for number, _, _ in seen] == [0, 1]
    for _, reported, actual in seen:
        assert reported == pytest.approx(actual, rel=1e-12)
    assert summary.final_chi2 == seen[-1][1]


def test_a_stop_flag_that_another_thread_sets_ends_the_run():
    """The estimate of the last accepted step stays."""
    graph, flag = noisy_ring(), graphopt.StopFlag()
    started = threading.Event()

    def set_when_started():
        started.wait()
        flag.set()

    def callback(iteration):
        started.set()
        while not flag.is_set():
            time.sleep(0.001)

    thread = threading.Thread(target=set_when_started)
    thread.start()
    summary = optimize(graph, "gn", 1000, stop=flag, callback=callback)
    thread.join()
    assert summary.termination is TerminationType.USER_STOP
    assert len(summary.iterations) == 1
    assert summary.final_chi2 == pytest.approx(graph.chi2(), rel=1e-12)


def test_an_exception_in_the_callback_leaves_a_consistent_graph():
    """The estimate is that of the last accepted step."""
    graph, seen = noisy_ring(), []

    def callback(iteration):
        seen.append(iteration.chi2)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        optimize(graph, "lm", callback=callback)
    assert graph.chi2() == pytest.approx(seen[0], rel=1e-12)


def test_the_time_limit_is_kept():
    """A limit that is over at once leaves the start; the limit is no failure."""
    graph = noisy_ring()
    before = graph.vertex_set("VERTEX_SE2").estimate.copy()
    summary = optimize(graph, "lm", time_limit=1e-9)
    assert summary.termination is TerminationType.TIME_LIMIT
    assert summary.is_usable
    np.testing.assert_array_equal(graph.vertex_set("VERTEX_SE2").estimate, before)


def test_tolerances_end_g2o_methods_early():
    """They are off by default and work when asked for."""
    full = optimize(noisy_ring(), "gn", max_iterations=30)
    assert len(full.iterations) == 30
    for rule in ({"function_tolerance": 1e-6}, {"gradient_tolerance": 1e-5}, {"step_tolerance": 1e-6}):
        options = graphopt.GaussNewtonOptions(max_iterations=30, **rule)
        short = optimize(noisy_ring(), "gn", options=options)
        assert short.termination is TerminationType.CONVERGENCE, rule
        assert len(short.iterations) < 10
        assert short.final_chi2 == pytest.approx(full.final_chi2, rel=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_an_error_that_is_not_finite_names_its_edge(method):
    """NaN at the start: nothing moves, the summary names tag and vertices."""
    graph = noisy_ring()
    graph.edge_set("EDGE_SE2").measurement[7, 1] = np.nan
    before = graph.vertex_set("VERTEX_SE2").estimate.copy()
    summary = optimize(graph, method)
    assert summary.termination is TerminationType.NON_FINITE
    assert not summary.is_usable
    assert "EDGE_SE2 between vertices 7, 8" in summary.message
    np.testing.assert_array_equal(graph.vertex_set("VERTEX_SE2").estimate, before)
    with pytest.raises(SolverError, match="vertices 7, 8"):
        optimize(graph, method, throw=True)


def test_a_singular_system_ends_gauss_newton_and_not_the_others():
    """Two points and their difference, none held: GN reports failure, the others find the minimum."""
    graph = Graph()
    graph.add_vertices("VERTEX_XY", [0, 1], [[0.0, 0.0], [1.0, 0.0]])
    graph.add_edges("EDGE_POINTXY", [[0, 1]], [[3.0, 1.0]])
    assert optimize(graph.copy(), "gn", fix="none").termination is TerminationType.LINEAR_SOLVER_FAILURE
    for method in ("auto", "lm", "dogleg"):
        summary = optimize(graph.copy(), method, 50, fix="none")
        assert summary.is_usable
        assert summary.final_chi2 < 1e-10, method


@pytest.mark.parametrize("device", ["cpu", "vulkan"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("others", [0, 40])
def test_a_jacobian_that_is_not_finite_is_named(method, device, others):
    """A distance has no derivative at the origin; by the native loop, by Python's, on a device."""

    @graphopt.edge_type(tag="DISTANCE_FROM_ORIGIN", vertices=("VERTEX_XY",), measurement_dim=1)
    def DistanceFromOrigin(point, measured):
        return np.sqrt(point[0] * point[0] + point[1] * point[1]) - measured

    graph = Graph()
    graph.add_vertices("VERTEX_XY", np.arange(others + 2), np.arange(2.0 * others + 4).reshape(-1, 2)[::-1])
    graph.vertex(7 if others else 1).estimate = [0.0, 0.0]
    graph.add_edges(DistanceFromOrigin, np.arange(others + 2)[:, None], np.ones((others + 2, 1)))
    summary = optimize(graph, method, device=device)
    assert summary.termination is TerminationType.NON_FINITE and not summary.is_usable
    number = 7 if others else 1
    assert f"Jacobian of DISTANCE_FROM_ORIGIN of vertex {number} (row {number} " in summary.message
    with pytest.raises(SolverError, match=rf"no covariances: The Jacobian .* of vertex {number} "):
        graphopt.compute_covariances(graph)


def test_indefinite_information_does_not_crash():
    """chi2 without a lower bound: each method ends with a finite estimate."""
    for method in METHODS:
        graph = noisy_ring()
        graph.edge_set("EDGE_SE2").information[3] = -np.eye(3)
        optimize(graph, method, 15)
        assert np.isfinite(graph.vertex_set("VERTEX_SE2").estimate).all(), method


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seed", range(20))
def test_indefinite_information_ends_every_loop(method, seed):
    """Small graphs in which one matrix is indefinite: each run returns, and chi2 below zero is no minimum."""
    rng = np.random.default_rng(seed)
    graph = Graph()
    graph.add_vertices("VERTEX_SE2", range(4), rng.normal(size=(4, 3)))
    pairs = [[0, 1], [1, 2], [2, 3], [0, 2], [0, 3]]
    graph.add_edges("EDGE_SE2", pairs, rng.normal(size=(5, 3)))
    graph.edge_set("EDGE_SE2").information[1] = [[1.0, 3.0, 0.0], [3.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    summary = optimize(graph, method)
    assert summary.final_chi2 == pytest.approx(graph.chi2(), rel=1e-9, abs=1e-9)
    if summary.final_chi2 < -1e-3:
        assert summary.termination in (TerminationType.UNBOUNDED, TerminationType.NON_FINITE)
        assert not summary.is_usable
        assert "EDGE_SE2 between vertices 1, 2" in summary.message


@pytest.mark.parametrize("callback", [None, lambda iteration: None], ids=["native", "python"])
def test_the_damping_of_dogleg_follows_the_scale_of_h(callback):
    """g2o's largest damping, 1e3, is less than rounding beside entries of 1e20."""
    graph = Graph()
    graph.add_vertices("VERTEX_XY", [0, 1], [[0.0, 0.0], [1.0, 0.0]])
    graph.add_edges("EDGE_POINTXY", [[0, 1]], [[3.0, 1.0]], 1e20 * np.eye(2))
    summary = optimize(graph, "dogleg", 30, fix="none", callback=callback)
    assert summary.is_usable
    assert summary.final_chi2 < 1e-6 * summary.initial_chi2


def test_misuse_is_refused():
    """Words, types and values that cannot work raise, naming them."""
    graph = noisy_ring()
    with pytest.raises(OptionError, match="method is 'newton'"):
        optimize(graph, "newton")
    with pytest.raises(OptionError, match="takes LevenbergMarquardtOptions"):
        optimize(graph, "lm", options=graphopt.AutoOptions())
    with pytest.raises(OptionError, match="fix is 'first'"):
        optimize(graph, fix="first")
    with pytest.raises(OptionError, match="time_limit"):
        optimize(graph, time_limit=0.0)
    with pytest.raises(OptionError, match="max_iterations is -1"):
        optimize(graph, max_iterations=-1)
    with pytest.raises(OptionError, match="initial_delta"):
        graphopt.DoglegOptions(initial_delta=0.0)
    with pytest.raises(OptionError, match="lambda_factor is"):
        graphopt.DoglegOptions(lambda_factor=1.0)
    with pytest.raises(DeviceError, match="abacus"):
        optimize(graph, device="abacus")
    with pytest.raises(GraphError, match="nothing to optimize"):
        optimize(Graph())


def assert_parts_of_the_whole(seconds, elapsed):
    """Phases take time, and no more than all took."""
    parts = [value for name, value in seconds.items() if name != "total"]
    assert min(parts) >= 0.0 and seconds["prepare"] > 0.0
    assert sum(parts) <= 1.000001 * seconds["total"] and seconds["total"] <= elapsed


def test_a_second_call_sees_new_numbers_and_a_new_structure(monkeypatch):
    """The block solver is reused while only numbers change, and not when the structure does."""

    def optimize_anew(fresh):
        with monkeypatch.context() as patch:
            patch.setenv("GRAPHOPT_WITHOUT", "reuse")
            return optimize(fresh)

    graph = noisy_ring()
    optimize(graph)
    solver = reuse.last_solvers[graph].solver
    graph.edge_set("EDGE_SE2").measurement[3] += 0.2
    graph.edge_set("EDGE_SE2").information[5] *= 3.0
    fresh, start = graph.copy(), time.perf_counter()
    again, expected = optimize(graph), optimize_anew(fresh)
    elapsed = time.perf_counter() - start
    assert reuse.last_solvers[graph].solver is solver
    assert again.final_chi2 == pytest.approx(expected.final_chi2, rel=1e-12)
    assert_parts_of_the_whole(expected.seconds, elapsed)
    assert_parts_of_the_whole(again.seconds, elapsed)
    for change in (
        lambda g: g.set_fixed([3, 4]),
        lambda g: g.set_robust_kernel("Cauchy", 0.1),
        lambda g: g.add_edges("EDGE_SE2", [[0, 20]], [[1.0, 3.0, 3.0]]),
        lambda g: g.remove_vertices([11]),
        lambda g: setattr(g.edge_set("EDGE_SE2"), "level", np.arange(g.num_edges) % 17 == 16),
        lambda g: setattr(g.edge_set("EDGE_SE2"), "level", np.arange(g.num_edges) % 17 == 15),  # as many
    ):
        change(graph)
        fresh = graph.copy()
        again, expected = optimize(graph), optimize_anew(fresh)
        assert reuse.last_solvers[graph].solver is not solver
        solver = reuse.last_solvers[graph].solver
        assert again.final_chi2 == pytest.approx(expected.final_chi2, rel=1e-12)
    graph.edge_set("EDGE_SE2").level = graph.edge_set("EDGE_SE2").level.copy()  # selected anew: the same
    optimize(graph)
    assert reuse.last_solvers[graph].solver is solver


def test_restriction_to_a_level_and_to_vertices():
    """What is not selected does not move."""
    graph = noisy_ring(noise=0.3)
    before = graph.vertex_set("VERTEX_SE2").estimate.copy()
    optimize(graph, vertices=np.arange(10, 20), fix=[10])
    moved = (graph.vertex_set("VERTEX_SE2").estimate != before).any(axis=1)
    assert not moved[:11].any()
    assert not moved[20:].any()


def test_marginal_covariances_are_blocks_of_the_dense_inverse():
    """Diagonal and off-diagonal blocks against numpy, in the order of the ids asked for."""
    graph = noisy_ring(12)
    graph.set_fixed([0])
    optimize(graph)
    structure = Structure(graph.select())
    reference = ReferenceSolver(graph, structure)
    reference.linearize()
    inverse = np.linalg.inv(reference.hessian.toarray())
    found = graphopt.compute_marginals(graph, [3, (5, 2), (2, 5), graph.vertex(11)])
    assert set(found) == {(3, 3), (5, 2), (2, 5), (11, 11)}
    for (i, j), block in found.items():
        exact = inverse[3 * (i - 1) : 3 * i, 3 * (j - 1) : 3 * j]
        np.testing.assert_allclose(block, exact, atol=1e-7 * np.abs(inverse).max())
    with pytest.raises(GraphError, match="Vertex 0 is fixed"):
        graphopt.compute_marginals(graph, [0])
    graph.set_fixed([0], False)
    with pytest.raises(SolverError, match="singular"):
        graphopt.compute_marginals(graph, [3])


@pytest.mark.parametrize("method", ["auto", "lm", "gn", "dogleg"])
def test_edges_without_information_end_the_run(method):
    """H is zero: every method says that the linear solver failed or that nothing is to be gained."""
    graph = noisy_ring()
    before = graph.vertex_set("VERTEX_SE2").estimate.copy()
    graph.edge_set("EDGE_SE2").information[:] = 0.0
    summary = optimize(graph, method=method)
    assert summary.final_chi2 == 0.0
    assert len(summary.iterations) <= 2
    np.testing.assert_array_equal(graph.vertex_set("VERTEX_SE2").estimate, before)
