"""`optimize_batch` gives every problem what `optimize` gives it alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from problem_batches import POINT, POSE, PROBLEMS, SEES, pnp, windows

import graphopt
from graphopt import TerminationType, optimize_batch
from graphopt.cpu_kernels import kernels
from graphopt.errors import DeviceError, GraphError, OptionError, ShapeError, SolverError

OPTIONS = graphopt.LevenbergMarquardtOptions(
    max_iterations=50, function_tolerance=1e-8, gradient_tolerance=1e-12
)


@pytest.mark.parametrize("method", ["lm", "gn", "dogleg"])
@pytest.mark.parametrize("name", PROBLEMS)
def test_each_problem_ends_as_alone(name: str, method: str) -> None:
    """chi2, iterations, termination and estimates are those of `optimize` on each graph."""
    graph, given = PROBLEMS[name]()
    options = {"gn": graphopt.GaussNewtonOptions, "dogleg": graphopt.DoglegOptions}.get(
        method, graphopt.LevenbergMarquardtOptions
    )(max_iterations=5)
    found = optimize_batch(graph, method=method, options=options, **given)
    for k in range(len(found)):
        alone = found.problems.graph_of(k)
        summary = graphopt.optimize(alone, method, options=options)
        assert summary.termination is found.termination[k]
        assert len(summary.iterations) == found.iterations[k]
        np.testing.assert_allclose(found.initial_chi2[k], summary.initial_chi2, rtol=1e-12)
        np.testing.assert_allclose(found.final_chi2[k], summary.final_chi2, rtol=1e-9)
        for vertex_set in alone.vertex_sets:
            np.testing.assert_allclose(
                found.estimates[vertex_set.type.tag][k], vertex_set.estimate, rtol=1e-9, atol=1e-9
            )


def test_small_problems_have_the_same_digits() -> None:
    """Up to 60 scalars both run the same loop, the end by a tolerance included."""
    graph, given = pnp(6, 100)
    found = optimize_batch(graph, **given)
    assert found.converged.all()
    for k in range(len(found)):
        alone = found.problems.graph_of(k)
        summary = graphopt.optimize(alone, "lm", options=OPTIONS)
        assert summary.final_chi2 == found.final_chi2[k]
        np.testing.assert_array_equal(alone.vertex_sets[0].estimate, found.estimates[POSE][k])


@pytest.mark.parametrize("name", ["pnp", "windows", "pose graphs"])
def test_threads_change_nothing(name: str) -> None:
    """One thread and three give the same bits."""
    graph, given = PROBLEMS[name]()
    found = []
    for threads in (1, 3):
        kernels.set_num_threads(threads)
        found.append(optimize_batch(graph, **given))
    np.testing.assert_array_equal(found[0].final_chi2, found[1].final_chi2)
    for tag, estimates in found[0].estimates.items():
        np.testing.assert_array_equal(estimates, found[1].estimates[tag])


@pytest.mark.parametrize("method", ["lm", "gn"])
def test_masks_leave_edges_out(method: str) -> None:
    """A problem with fewer points is the graph without them, whatever the arrays hold for the others."""
    graph, given = pnp(6, 30)
    mask = np.random.default_rng(0).random((6, 30)) < 0.5
    given["measurements"][SEES][~mask] = np.nan
    given["estimates"][POINT][~mask] = np.nan
    found = optimize_batch(graph, masks={SEES: mask}, method=method, max_iterations=8, **given)
    assert found.is_usable.all()
    for k in range(6):
        alone = found.problems.graph_of(k)
        assert alone.num_edges == mask[k].sum()
        rules = found_rules(method)
        summary = graphopt.optimize(alone, method, options=rules)
        np.testing.assert_allclose(found.final_chi2[k], summary.final_chi2, rtol=1e-9)


def found_rules(method: str) -> graphopt.optimizer.StopRules:
    """The defaults of `optimize_batch` with eight iterations."""
    kind = graphopt.LevenbergMarquardtOptions if method == "lm" else graphopt.GaussNewtonOptions
    return kind(max_iterations=8, function_tolerance=1e-8, gradient_tolerance=1e-12)


@pytest.mark.parametrize("method", ["lm", "gn", "dogleg"])
def test_vertices_without_edges_stay(method: str) -> None:
    """A window that does not see a point leaves it where it is, and has the others' optimum."""
    graph, given = windows(3)
    mask = np.ones((3, 120), bool)
    mask[1, :4] = False  # point 10
    found = optimize_batch(graph, masks={SEES: mask}, method=method, covariances=[10, 11], **given)
    assert found.is_usable.all()
    np.testing.assert_array_equal(found.vertex(10)[1], given["estimates"][POINT][1, 0])
    alone = found.problems.graph_of(1)
    summary = graphopt.optimize(alone, "lm", options=OPTIONS)
    np.testing.assert_allclose(found.final_chi2[1], summary.final_chi2, rtol=1e-7)
    assert np.isnan(found.covariances[10][1]).all()
    assert np.isfinite(found.covariances[11]).all() and np.isfinite(found.covariances[10][[0, 2]]).all()


def test_nan_fails_its_problem_alone() -> None:
    """Others have the digits that they have without it, and the message names the edge."""
    graph, given = pnp(5, 20)
    expected = optimize_batch(graph, **given)
    given["measurements"][SEES][2, 7, 0] = np.nan
    found = optimize_batch(graph, **given)
    assert found.is_usable.tolist() == [True, True, False, True, True]
    assert found.termination[2] is TerminationType.NON_FINITE
    assert "vertices 8, 0" in found.message(2) and found.message(2).startswith("Problem 2")
    np.testing.assert_array_equal(np.delete(found.final_chi2, 2), np.delete(expected.final_chi2, 2))
    with pytest.raises(SolverError, match=r"1 of 5 problems failed\. Problem 2"):
        optimize_batch(graph, throw=True, **given)


@pytest.mark.parametrize("name", ["pnp", "windows", "pose graphs"])
def test_covariances_are_those_of_the_graph(name: str) -> None:
    """Marginal covariances equal `compute_marginals` of each problem at its result."""
    graph, given = PROBLEMS[name]()
    ids = {"pnp": [0], "windows": [2, 3, 17], "pose graphs": [3, 12]}[name]
    found = optimize_batch(graph, covariances=ids, **given)
    for k in range(len(found)):
        alone = found.graph(k)
        alone.set_fixed(found.fixed_by_gauge)
        expected = graphopt.compute_marginals(alone, ids)
        for id_ in ids:
            np.testing.assert_allclose(found.covariances[id_][k], expected[id_, id_], rtol=1e-6)


def test_undetermined_covariances_are_refused() -> None:
    """A pose that two points do not determine has none; the others have theirs."""
    graph, given = pnp(3, 20)
    mask = np.ones((3, 20), bool)
    mask[1, 2:] = False
    found = optimize_batch(graph, masks={SEES: mask}, covariances=[0], **given)
    assert np.isfinite(found.covariances[0][[0, 2]]).all()
    assert np.isnan(found.covariances[0][1]).all()


def test_diagonal_information_is_that_of_the_matrices() -> None:
    """(B, m, r) stands for diagonal matrices."""
    graph, given = pnp(3, 20)
    weights = np.random.default_rng(0).uniform(0.5, 2.0, (3, 20, 2))
    diagonal = optimize_batch(graph, information={SEES: weights}, **given)
    full = optimize_batch(graph, information={SEES: weights[..., None] * np.eye(2)}, **given)
    np.testing.assert_array_equal(diagonal.final_chi2, full.final_chi2)


def test_the_graph_and_the_arrays_stay() -> None:
    """Neither the template nor what was given is written to."""
    graph, given = windows(2)
    before = [each.estimate.copy() for each in graph.vertex_sets]
    arrays = {tag: array.copy() for tag, array in given["estimates"].items()}
    for array in (*given["estimates"].values(), *given["measurements"].values()):
        array.flags.writeable = False
    optimize_batch(graph, **given)
    for each, estimate in zip(graph.vertex_sets, before, strict=True):
        np.testing.assert_array_equal(each.estimate, estimate)
    for tag, array in arrays.items():
        np.testing.assert_array_equal(given["estimates"][tag], array)


def test_a_time_limit_leaves_the_rest_at_its_start() -> None:
    """Problems that were not begun say so; those that were have their result."""
    graph, given = pnp(10_000, 100)
    found = optimize_batch(graph, time_limit=1e-3, **given)
    left = np.array([kind is TerminationType.TIME_LIMIT for kind in found.termination])
    assert left.any()
    untouched = left & np.isnan(found.final_chi2)
    np.testing.assert_array_equal(
        found.vertex(0)[untouched],
        np.broadcast_to(graph.vertex_sets[0].estimate, found.vertex(0).shape)[untouched],
    )


WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({}, ShapeError, "no array of problems"),
    ({"measurements": {SEES: np.zeros((2, 19, 2))}}, ShapeError, r"expected \(problems, 20, 2\)"),
    ({"measurements": {SEES: np.zeros((0, 20, 2))}}, ShapeError, "0 problems"),
    ({"measurements": {SEES: np.zeros((2, 20, 2), complex)}}, ShapeError, "cannot be read"),
    ({"measurements": {"EDGE_SE2": np.zeros((2, 20, 2))}}, GraphError, "has no EDGE_SE2"),
    (
        {"measurements": {SEES: np.zeros((2, 20, 2))}, "estimates": {POINT: np.zeros((3, 20, 3))}},
        ShapeError,
        "2 problems|3 problems",
    ),
    ({"estimates": {POSE: np.zeros((4, 7))}}, GraphError, "problem 0, row 0 has the quaternion"),
    (
        {"information": {SEES: np.array([[1.0, 0.5], [0.0, 1.0]]) * np.ones((3, 20, 1, 1))}},
        GraphError,
        "problem 0, row 0 is not symmetric",
    ),
    ({"kernel_widths": {SEES: np.zeros((3, 20))}}, GraphError, "problem 0, row 0 is 0.0"),
    ({"masks": {SEES: np.ones((3, 20))}}, ShapeError, "cannot be read as bool"),
    ({"masks": {SEES: np.ones((3, 20), bool)}, "method": "auto"}, OptionError, "Use 'lm'"),
    ({"masks": {SEES: np.ones((3, 20), bool)}, "device": "ranks"}, DeviceError, "runs on 'cpu'"),
    ({"masks": {SEES: np.ones((3, 20), bool)}, "precision": "mixed"}, DeviceError, "is for GPUs"),
    ({"masks": {SEES: np.ones((3, 20), bool)}, "linear_solver": "pcg"}, OptionError, "'pcg' is not for"),
    ({"masks": {SEES: np.ones((3, 20), bool)}, "covariances": [3]}, GraphError, "Vertex 3 is fixed"),
]


@pytest.mark.parametrize(("given", "error", "said"), WRONG, ids=range(len(WRONG)))
def test_wrong_arguments_are_named(given: dict[str, Any], error: type[Exception], said: str) -> None:
    """The message says which array, of which problem."""
    graph, _ = pnp(2, 20)
    with pytest.raises(error, match=said):
        optimize_batch(graph, **given)


@pytest.mark.parametrize("what", ["bounds", "components"])
def test_what_only_optimize_does_is_refused(what: str) -> None:
    """A graph with bounds or held components is refused by name, not solved without them."""
    graph, given = pnp(2, 20)
    if what == "bounds":
        graph.set_bounds([3], lower=0.0, components=[2])
    else:
        graph.hold([0], [0])
    with pytest.raises(GraphError, match=what):
        optimize_batch(graph, **given)
