"""Inequality edges: optima equal scipy's SLSQP and meet the KKT conditions."""

import pickle

import numpy as np
import pytest
import scipy.optimize

import graphopt
from graphopt.errors import GraphError, OptionError
from graphopt.optimizer import TerminationType

Vector = graphopt.vertex_type(tag="VERTEX_UNEQUAL_2", tangent_dim=2, name="Vector")(
    lambda x, delta: x + delta
)


@graphopt.edge_type(tag="EDGE_SUM", vertices=(Vector, Vector), measurement_dim=2)
def EdgeSum(a, b, z):
    """A residual that is not linear."""
    return np.stack([a[..., 0] * b[..., 1], np.sin(a[..., 1]) + b[..., 0]], axis=-1) - z


@graphopt.edge_type(tag="EDGE_AT", vertices=(Vector,), measurement_dim=2)
def EdgeAt(a, z):
    """Draws a vertex somewhere."""
    return a - z


@graphopt.edge_type(tag="EDGE_DISK", vertices=(Vector,), measurement_dim=1, inequality=True)
def EdgeDisk(a, radius):
    """Within a circle around the origin."""
    return radius**2 - (a * a).sum(axis=-1)


@graphopt.edge_type(tag="EDGE_ORDER", vertices=(Vector, Vector), inequality=True)
def EdgeOrder(a, b):
    """Above and right of another one."""
    return a - b


def random_graph(seed):
    """Four vectors within circles, each above and right of the next."""
    rng = np.random.default_rng(seed)
    graph = graphopt.Graph()
    graph.add_vertices(Vector, range(4), 0.3 * rng.normal(size=(4, 2)))
    graph.add_edges(EdgeSum, [[0, 1], [1, 2], [2, 3], [3, 0]], rng.normal(size=(4, 2)))
    graph.add_edges(EdgeAt, np.arange(4)[:, None], 2.0 * rng.normal(size=(4, 2)))
    graph.add_edges(EdgeDisk, [[0], [3]], [[1.0], [1.5]])
    graph.add_edges(EdgeOrder, [[0, 1], [1, 2], [2, 3]])
    return graph


def functions(graph):
    """chi2 and all inequalities as functions of all numbers."""
    vertex_set = graph.vertex_sets[0]

    def at(x, inequality):
        vertex_set.estimate = np.reshape(x, (-1, 2))
        sets = [each for each in graph.edge_sets if each.type.inequality == inequality]
        return np.concatenate([each.errors().ravel() for each in sets])

    return lambda x: float(np.square(at(x, False)).sum()), lambda x: at(x, True)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"method": "lm", "max_iterations": 200},
        {"method": "dogleg", "max_iterations": 200},
        {"device": "vulkan"},
        {"linear_solver": "pcg"},
    ],
    ids=str,
)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_optimum_is_scipys(options, seed):
    """chi2 is SLSQP's from there; multipliers balance the gradient; what is not active has none."""
    graph = random_graph(seed)
    bounds = None
    if seed == 2:
        graph.set_bounds(Vector, -0.8, 0.9)
        bounds = [(-0.8, 0.9)] * 8
    chi2, inequalities = functions(graph)
    summary = graphopt.optimize(graph, **options)
    assert summary.termination in (TerminationType.CONVERGENCE, TerminationType.NO_IMPROVEMENT)
    x = graph.vertex_sets[0].estimate.ravel().copy()
    assert summary.final_chi2 == pytest.approx(chi2(x), rel=1e-12) == pytest.approx(graph.chi2(), rel=1e-12)
    assert inequalities(x).min() > -1e-7
    found = scipy.optimize.minimize(
        chi2, x, method="SLSQP", bounds=bounds, constraints={"type": "ineq", "fun": inequalities},
        options={"ftol": 1e-14, "maxiter": 500},
    )  # fmt: skip
    assert summary.final_chi2 == pytest.approx(found.fun, rel=1e-7)
    kkt = summary.kkt
    assert kkt.inequalities and kkt.violation < 1e-7 and kkt.complementarity < 1e-6
    step = 1e-6 * np.eye(8)
    gradient = np.array([(chi2(x + d) - chi2(x - d)) / 2e-6 for d in step])
    slopes = np.array([(inequalities(x + d) - inequalities(x - d)) / 2e-6 for d in step])
    first = {"EDGE_DISK": 0, "EDGE_ORDER": 2}
    for each in kkt.inequalities:
        dim = 1 if each.tag == "EDGE_DISK" else 2
        gradient -= each.multiplier * slopes[:, first[each.tag] + each.row * dim + each.component]
    for each in kkt.bounds:
        gradient[2 * each.vertex + each.component] -= (1 if each.side == "lower" else -1) * each.multiplier
    assert np.abs(gradient).max() < 1e-4


def test_inactive_inequalities_change_nothing():
    """Where none is violated the optimum is that without; levels choose among them."""
    graph = random_graph(4)
    free = random_graph(4)
    for edge_set in [each for each in free.edge_sets if each.type.inequality]:
        free.remove_edges(edge_set, np.arange(len(edge_set)))
    graph.edge_set(EdgeDisk).level = 1
    graph.edge_set(EdgeOrder).level = 1
    options = graphopt.AutoOptions(function_tolerance=1e-14)
    summary, expected = graphopt.optimize(graph, options=options), graphopt.optimize(free, options=options)
    assert summary.final_chi2 == pytest.approx(expected.final_chi2, rel=1e-12)
    assert summary.kkt.inequalities == ()


def test_contradictions_are_said():
    """Inequalities that cannot hold together end as INFEASIBLE, with the worst one."""
    graph = random_graph(5)
    graph.add_edges(EdgeOrder, [[3, 0]])
    graph.add_edges(EdgeDisk, [[1]], [[0.5]])
    graph.vertex(0).estimate = [4.0, 4.0]
    graph.set_fixed([0])
    summary = graphopt.optimize(graph)
    assert summary.termination is TerminationType.INFEASIBLE and not summary.is_usable
    assert "EDGE_" in summary.message and summary.kkt.violation > 0.1


def test_they_travel_and_are_no_residuals():
    """pickle and copy keep them; chi2 and linearize leave them out; weights are refused."""
    graph = random_graph(6)
    other = pickle.loads(pickle.dumps(graph.copy()))
    assert graphopt.optimize(other).final_chi2 == graphopt.optimize(graph).final_chi2
    assert graph.chi2() == pytest.approx(functions(graph)[0](graph.vertex_sets[0].estimate), rel=1e-12)
    assert len(graphopt.linearize(graph).residuals) == 16
    with pytest.raises(GraphError, match="no information"):
        graph.add_edges(EdgeOrder, [[0, 2]], None, 2.0 * np.eye(2))
    with pytest.raises(GraphError, match="no robust kernel"):
        graph.add_edges(EdgeOrder, [[0, 2]], kernel="Huber")
    with pytest.raises(OptionError, match="'gn' takes every step"):
        graphopt.optimize(graph, method="gn")
    with pytest.raises(OptionError, match="Ranks do not keep to the inequalities EDGE_DISK"):
        graphopt.distributed.optimize(graph)


def test_iterations_count_on():
    """The callback sees iterations of all rounds in one count; False stops."""
    graph, seen = random_graph(0), []
    summary = graphopt.optimize(graph, callback=lambda iteration: seen.append(iteration.iteration))
    assert seen == list(range(len(summary.iterations))) == [each.iteration for each in summary.iterations]
    summary = graphopt.optimize(random_graph(0), callback=lambda iteration: iteration.iteration < 3)
    assert summary.termination is TerminationType.USER_STOP and len(summary.iterations) == 4
