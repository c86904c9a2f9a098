"""What a summary says of its end: gradient, promised decrease, condition, who did what."""

import pickle

import numpy as np
import pytest
from optimizer_graphs import noisy_ring
from reference import ReferenceSolver
from vulkan_graphs import bundle_adjustment, pose_graph

import graphopt
from graphopt.errors import SolverError
from graphopt.problem.gauge import fix_gauge
from graphopt.problem.structure import Structure

PROBLEMS = {"ring": noisy_ring, "poses": pose_graph, "bundle": bundle_adjustment}


def dense(graph):
    """H (n, n), b (n,) and chi2 at the graph's estimates, by finite differences."""
    selection, _ = fix_gauge(graph, graph.select(0), "auto")
    solver = ReferenceSolver(graph, Structure(selection))
    chi2 = solver.linearize()
    columns = [solver.multiply(row) for row in np.eye(solver.dim)]
    return np.array(columns), np.array(solver.b), chi2


@pytest.mark.parametrize("method", ["auto", "lm", "gn", "dogleg"])
@pytest.mark.parametrize("name", PROBLEMS)
def test_the_numbers_are_those_of_dense_algebra(name, method):
    """Before the end, where none of them is rounding; the condition within Hager's factor of 3."""
    graph = PROBLEMS[name]()
    found = graphopt.optimize(graph, method, 1, device="cpu").certificate
    matrix, b, chi2 = dense(graph)
    scale = np.sqrt(np.diag(matrix))
    scaled = matrix / np.outer(scale, scale)
    assert found.chi2 == pytest.approx(chi2, rel=1e-6)
    assert found.gradient == pytest.approx(np.abs(b / scale).max() / np.sqrt(chi2), rel=1e-3, abs=1e-7)
    decrease = b / scale @ np.linalg.lstsq(scaled, b / scale, rcond=1e-9)[0]
    assert found.predicted_decrease == pytest.approx(decrease, rel=1e-5, abs=1e-6 * chi2)
    condition = np.linalg.cond(scaled, 1)
    if name == "bundle":  # a point that one camera sees
        assert min(condition, found.condition) > 1e12
    else:
        assert condition / 3.0 < found.condition < 1.001 * condition


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("method,device", [("auto", "cpu"), ("lm", "cpu"), ("auto", "cpu,cpu")])
def test_a_minimum_is_told_from_a_point_on_the_way(name, method, device):
    """One rank and two; a first step of the way is none."""
    run = graphopt.distributed.optimize if "," in device else graphopt.optimize
    graph = PROBLEMS[name]()
    assert run(graph, method=method, max_iterations=60, device=device).is_minimum()
    rng = np.random.default_rng(0)
    for vertex_set in graph.vertex_sets:
        size = min(2, vertex_set.estimate.shape[1])
        vertex_set.estimate[:, :size] += rng.normal(0.0, 0.05, (len(vertex_set), size))
    assert not run(graph, method="gn", max_iterations=0, device=device).is_minimum()


def test_robust_kernels_and_graduated_runs():
    """Kernels count as in the run: all with Huber's, none in the last round of graduated non-convexity."""
    for robust in ("kernels", "graduated"):
        graph = noisy_ring()
        graph.edge_sets[0].measurement[3] += 5.0
        graph.set_robust_kernel("Cauchy", 1.0)
        summary = graphopt.optimize(graph, device="cpu", robust=robust)
        assert summary.certificate.chi2 == pytest.approx(summary.final_chi2, rel=1e-9)
        assert summary.is_minimum(1e-4)
        assert (graph.edge_sets[0].kernel != 0).all()


def test_exact_measurements_are_a_minimum():
    """chi2 of rounding alone: promised decreases are of its size and mean nothing."""
    graph = noisy_ring(noise=0.0)
    summary = graphopt.optimize(graph, device="cpu")
    assert summary.certificate.is_exact
    assert summary.is_minimum()


def test_an_undetermined_graph_has_infinite_condition():
    """Nothing is held, so all poses may move together."""
    graph = noisy_ring()
    summary = graphopt.optimize(graph, device="cpu", fix="none")
    assert summary.certificate.condition > 1e12
    assert summary.is_minimum()


def test_what_cannot_be_known_is_refused():
    """After changes, after the graph is gone, in another process; what was known stays known."""
    graph = noisy_ring()
    summary, known = graphopt.optimize(graph), graphopt.optimize(graph)
    assert known.is_minimum()
    with pytest.raises(SolverError, match="without its graph"):
        _ = pickle.loads(pickle.dumps(summary)).certificate
    assert pickle.loads(pickle.dumps(known)).is_minimum()
    graph.vertex_sets[0].estimate[5] += 0.1
    with pytest.raises(SolverError, match="change"):
        summary.is_minimum()
    assert known.is_minimum()
    del graph
    with pytest.raises(SolverError, match="gone"):
        summary.is_minimum()


@pytest.mark.parametrize("precision", ["double", "mixed"])
def test_runs_on_a_device(precision):
    """The same certificate as that of the CPU; phases name who did them and in which precision."""
    graph, alone = pose_graph(), pose_graph()
    summary = graphopt.optimize(graph, "lm", 20, device="vulkan", precision=precision)
    expected = graphopt.optimize(alone, "lm", 20, device="cpu").certificate
    assert summary.is_minimum()
    assert summary.certificate.condition == pytest.approx(expected.condition, rel=1e-3)
    phases = {phase.name: phase for phase in summary.phases}
    assert phases["linearize"].device == summary.device
    assert summary.precision in phases["linearize"].precision
    assert phases["analyze"].device == "cpu"
    total = sum(phase.milliseconds for phase in summary.phases if not phase.name.startswith("prepare_"))
    assert total == pytest.approx(1e3 * summary.seconds["total"], rel=1e-9)
    assert "linearize" in summary.full_report()
