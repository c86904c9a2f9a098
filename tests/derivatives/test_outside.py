"""Edges whose residual torch or jax computes, beside the same residual compiled."""

import numpy as np
import pytest
import torch
from outside_problems import CALLS, jax_bearing, landmark_graph, torch_bearing

import graphopt
import graphopt.jax
import graphopt.torch
from graphopt.errors import GradientError, GraphError, OptionError, ShapeError
from graphopt.types import registry


def of(package, function, tag, **options):
    return package.edge_type(
        tag=tag, vertices=["VERTEX_SE2", "VERTEX_XY"], residual_dim=2, measurement_dim=2, **options
    )(function)


@pytest.fixture(scope="module")
def kinds():
    made = {
        "torch": of(graphopt.torch, torch_bearing, "EDGE_TEST_TORCH"),
        "jax": of(graphopt.jax, jax_bearing, "EDGE_TEST_JAX"),
        "differences": of(graphopt.torch, torch_bearing, "EDGE_TEST_DIFF", jacobian="differences"),
    }
    yield made
    for kind in made.values():
        registry.unregister(kind)


@pytest.mark.parametrize("method", ["lm", "gn", "dogleg", "auto"])
@pytest.mark.parametrize("name", ["torch", "jax", "differences"])
def test_the_optimum_of_compiled_edges(kinds, name, method):
    """Chi2 of every iteration and the estimates are those of the compiled residual."""
    graphs = [landmark_graph(kind) for kind in ("EDGE_SE2_XY", kinds[name])]
    summaries = [graphopt.optimize(graph, method) for graph in graphs]
    expected, found = ([step.chi2 for step in summary.iterations] for summary in summaries)
    np.testing.assert_allclose(found[:5], expected[:5], rtol=1e-6)
    np.testing.assert_allclose(summaries[1].final_chi2, summaries[0].final_chi2, rtol=1e-8)
    for one, other in zip(graphs[0].vertex_sets, graphs[1].vertex_sets, strict=True):
        np.testing.assert_allclose(other.estimate, one.estimate, atol=1e-4)


def test_chi2_and_errors_without_an_optimization(kinds):
    """`Graph.chi2` and `EdgeSet.errors`."""
    compiled, outside = (landmark_graph(kind) for kind in ("EDGE_SE2_XY", kinds["torch"]))
    assert outside.chi2() == pytest.approx(compiled.chi2(), rel=1e-12)
    np.testing.assert_allclose(
        outside.edge_set(kinds["torch"]).errors(), compiled.edge_set("EDGE_SE2_XY").errors(), atol=1e-12
    )


def test_called_once_per_linearization_and_chi2(kinds):
    """With all edges at once."""
    graph = landmark_graph(kinds["torch"])
    CALLS.clear()
    summary = graphopt.optimize(graph, "lm", 4)
    trials = sum(step.trials for step in summary.iterations)
    assert set(CALLS) == {40}
    assert len(CALLS) <= len(summary.iterations) + trials + 2


def test_a_wrong_shape_is_named(own_types):
    """Of the residual."""
    kind = graphopt.torch.edge_type(tag="EDGE_TEST_SHAPE", vertices=["VERTEX_XY"], residual_dim=2)(
        lambda points: points[:, :1]
    )
    graph = graphopt.Graph()
    graph.add_vertices("VERTEX_XY", [0, 1])
    graph.add_edges(kind, [[0], [1]])
    with pytest.raises(
        ShapeError, match=r"EDGE_TEST_SHAPE: the residual has shape \(2, 1\), expected \(2, 2\)"
    ):
        graphopt.optimize(graph)


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (lambda points: [points], ShapeError, "EDGE_TEST_ODD: the residual is a list, expected one tensor"),
        (lambda points: points.detach().numpy(), ShapeError, "EDGE_TEST_ODD: the residual is a ndarray"),
        (lambda points: points.detach(), OptionError, r"EDGE_TEST_ODD: torch has recorded nothing .*detach"),
        (lambda points: points.long(), OptionError, "EDGE_TEST_ODD: .* pass jacobian='differences'"),
    ],
)
def test_residuals_that_cannot_be_differentiated_are_named(own_types, function, error, message):
    """No tensor, or one that torch has not computed from the vertices: its Jacobian would be zero."""
    kind = graphopt.torch.edge_type(tag="EDGE_TEST_ODD", vertices=["VERTEX_XY"], residual_dim=2)(function)
    graph = graphopt.Graph()
    graph.add_vertices("VERTEX_XY", [0, 1], [[1.0, 2.0], [3.0, 4.0]])
    graph.add_edges(kind, [[0], [1]])
    with pytest.raises(error, match=message):
        graphopt.optimize(graph)


def test_what_has_no_second_derivatives_is_refused(kinds):
    """Gradients through a solve with outside edges; options that there are not."""
    graph = landmark_graph(kinds["torch"])
    measurement = torch.tensor(graph.edge_set("EDGE_SE2").measurement.copy())
    with pytest.raises(GradientError, match=r"EDGE_TEST_TORCH is evaluated outside"):
        graphopt.torch.solve(graph, {"EDGE_SE2.measurement": measurement})
    for package in (graphopt.torch, graphopt.jax):
        with pytest.raises(OptionError, match="jacobian"):
            of(package, torch_bearing, "EDGE_TEST_NONE", jacobian="guess")


def test_a_residual_that_is_not_finite_is_named(kinds):
    """By vertices."""
    graph = landmark_graph(kinds["torch"])
    graph.edge_set(kinds["torch"]).measurement[7] = np.nan
    summary = graphopt.optimize(graph)
    assert not summary.is_usable
    assert "EDGE_TEST_TORCH between vertices 1, 12" in summary.message


def test_what_needs_equations_here_is_refused_by_name(kinds):
    """The whole Jacobian, and a held component of a vertex, name the edge type and another way."""
    graph = landmark_graph(kinds["torch"])
    with pytest.raises(GraphError, match=r"EDGE_TEST_TORCH is evaluated outside .* no Jacobian here"):
        graphopt.linearize(graph)
    graph.hold([1], [2])
    with pytest.raises(GraphError, match=r"EDGE_TEST_TORCH is evaluated outside .* Fix the whole vertex"):
        graphopt.optimize(graph)


def test_an_error_in_a_residual_leaves_the_estimates(kinds):
    """In a linearization or a trial: it arrives, chi2 is no larger, and the next call works."""
    expected = graphopt.optimize(landmark_graph(kinds["differences"]), "lm", 20).final_chi2
    for at in range(1, 8):
        graph, calls = landmark_graph(kinds["torch"]), []
        before = graph.chi2()

        def failing(*arguments, at=at, calls=calls):
            calls.append(0)
            if len(calls) == at:
                raise ZeroDivisionError("in the residual")
            return torch_bearing(*arguments)

        kind = of(graphopt.torch, failing, f"EDGE_TEST_FAILING_{at}")
        try:
            graph = landmark_graph(kind)
            with pytest.raises(ZeroDivisionError, match="in the residual"):
                graphopt.optimize(graph, "lm", 20)
            calls[:] = [0] * 100
            assert graph.chi2() <= before * (1.0 + 1e-12)
            assert graphopt.optimize(graph, "lm", 20).final_chi2 == pytest.approx(expected, rel=1e-6)
        finally:
            registry.unregister(kind)


@pytest.mark.parametrize("with_bounds", [False, True])
def test_equations_that_are_not_definite_end_a_run(own_types, with_bounds):
    """With an edge from outside, within bounds too: Gauss-Newton says so and leaves the estimates."""
    graph = graphopt.Graph()
    graph.add_vertices("VERTEX_XY", [0, 1, 2], [[0, 0], [1, 0], [2, 0]], fixed=[True, False, False])
    graph.add_edges("EDGE_POINTXY", [[0, 1], [1, 2]], [1.0, 0.1], np.diag([1.0, -2.0]))
    made = graphopt.torch.edge_type(
        tag="EDGE_TEST_POSITION", vertices=["VERTEX_XY"], residual_dim=2, measurement_dim=2
    )(lambda points, measured: points - measured)
    graph.add_edges(made, [[1]], [1.0, 0.0], 1e-3 * np.eye(2))
    if with_bounds:
        graph.set_bounds([1], lower=[-1.0, -1.0], upper=[1.005, 0.05])
    before = graph.vertex_set("VERTEX_XY").estimate.copy()
    summary = graphopt.optimize(graph, "gn", 5, device="cpu")
    assert summary.termination is graphopt.TerminationType.LINEAR_SOLVER_FAILURE
    np.testing.assert_array_equal(graph.vertex_set("VERTEX_XY").estimate, before)
