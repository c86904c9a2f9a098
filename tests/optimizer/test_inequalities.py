"""Inequality edges: optima equal scipy's SLSQP and meet the KKT conditions."""

import pickle
import re

import numpy as np
import pytest
import scipy.optimize
from recorded_runs import assert_recorded

import graphopt
from graphopt.codegen.second_order import compile_constraint
from graphopt.errors import GraphError, OptionError
from graphopt.geometry import SE2
from graphopt.linear.options import SolverOptions
from graphopt.optimizer import TerminationType
from graphopt.optimizer.signals import StopSignals
from graphopt.problem.constrained import constrained
from graphopt.problem.structure import Structure
from graphopt.solver.constrained import ConstrainedSolver
from graphopt.solver.create import create_block_solver
from graphopt.types.base import working_edge_type

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


@graphopt.edge_type(
    tag="EDGE_KEEP_APART", vertices=("VERTEX_SE2", "VERTEX_SE2"), measurement_dim=1, inequality=True
)
def EdgeKeepApart(a, b, distance):
    """At least so far from each other."""
    d = a.translation - b.translation
    return (d * d).sum(axis=-1) - distance**2


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
        {"method": "gn", "max_iterations": 200},
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
    if not options.keys() & {"device", "linear_solver"}:  # conjugate gradients end by rounding
        assert_recorded(f"inequalities, random {seed}, {options}", summary)
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


TEXTBOOK = {
    "HS15": (
        [-2.0, 1.0],
        lambda x, y: (10.0 * (y - x * x), 1.0 - x),
        lambda x, y: (x * y - 1.0, x + y * y, 0.5 - x),
        306.5,
    ),
    "HS20": (
        [-2.0, 1.0],
        lambda x, y: (10.0 * (y - x * x), 1.0 - x),
        lambda x, y: (x + y * y, x * x + y, x * x + y * y - 1.0, 0.5 - x, x + 0.5),
        81.5 - 25.0 * np.sqrt(3.0) + 2.0,
    ),
    "HS22": ([2.0, 2.0], lambda x, y: (x - 2.0, y - 1.0), lambda x, y: (2.0 - x - y, y - x * x), 1.0),
    "HS43": (
        [0.0, 0.0, 0.0, 0.0],
        lambda a, b, c, d: (a - 2.5, b - 2.5, np.sqrt(2.0) * (c - 5.25), d + 3.5),
        lambda a, b, c, d: (
            8.0 - a * a - b * b - c * c - d * d - a + b - c + d,
            10.0 - a * a - 2.0 * b * b - c * c - 2.0 * d * d + a + d,
            5.0 - 2.0 * a * a - b * b - c * c - 2.0 * a + b + d,
        ),
        -44.0 + 2.0 * 2.5**2 + 2.0 * 5.25**2 + 3.5**2,
    ),
    "HS65": (
        [-5.0, 5.0, 0.0],
        lambda a, b, c: (a - b, (a + b - 10.0) / 3.0, c - 5.0),
        lambda a, b, c: (48.0 - a * a - b * b - c * c, a + 4.5, 4.5 - a, b + 4.5, 4.5 - b, c + 5.0, 5.0 - c),
        0.9535288567,
    ),
    "disk": (
        [0.5, 0.0],
        lambda x, y: (x - 3.0, y - 4.0),
        lambda x, y: (1.0 - x * x - y * y,),
        16.0,
    ),
    "start inside what is kept out": (
        [0.3, 0.1],
        lambda x, y: (x - 0.5, y - 0.2),
        lambda x, y: (x * x + y * y - 1.0,),
        (1.0 - np.sqrt(0.29)) ** 2,
    ),
    "a step out of the domain": ([3.0], lambda x: (x + 5.0,), lambda x: (np.log(2.0 * x),), 5.5**2),
    "equality as a pair": (
        [0.3, 0.1],
        lambda x, y: (x - 3.0, y - 4.0),
        lambda x, y: (x * x + y * y - 1.0, 1.0 - x * x - y * y),
        16.0,
    ),
}
"""Start, errors, inequalities, chi2.

HS: Hock and Schittkowski, Test Examples for Nonlinear Programming."""


@pytest.mark.parametrize("name", TEXTBOOK)
def test_textbook_optima(name):
    """Published optima of curved inequalities: KKT conditions to 1e-7, in the recorded iterations."""
    start, residual, inequality, expected = TEXTBOOK[name]
    kind = graphopt.group_type(f"Textbook{len(start)}", len(start))

    def edges(function, inequality):
        def stacked(x):
            return np.stack(function(*(x[..., k] for k in range(len(start)))), axis=-1)

        label = f"{name.replace(' ', '_')}_{inequality}"
        return graphopt.edge_type(tag=label, name=label, vertices=(kind,), inequality=inequality)(stacked)

    graph = graphopt.Graph()
    graph.add_vertices(kind, [0], [start])
    graph.add_edges(edges(residual, False), [[0]])
    graph.add_edges(edges(inequality, True), [[0]])
    summary = graphopt.optimize(graph)
    assert_recorded(f"inequalities, {name}", summary)
    if summary.termination is TerminationType.CONVERGENCE:
        assert summary.iterations[-1].trials == 0  # the last one finds that nothing is left to do
    assert summary.final_chi2 == pytest.approx(expected, rel=1e-7)
    assert summary.kkt.violation < 1e-7 and summary.kkt.complementarity < 1e-7 * expected + 1e-7
    assert summary.kkt.scaled_stationarity < 1e-6


def test_poses_that_keep_a_distance():
    """A ring of SE(2) poses that shrinks: opposite ones stay apart, as SLSQP has it."""
    angle = np.linspace(0.0, 2.0 * np.pi, 10, endpoint=False)
    truth = np.stack([5.0 * np.cos(angle), 5.0 * np.sin(angle), angle + 0.5 * np.pi], axis=1)
    graph = graphopt.Graph()
    graph.add_vertices("VERTEX_SE2", range(10), truth)
    step = SE2(truth[0]).inverse().compose(SE2(truth[1])).storage * [0.9, 0.9, 1.0]
    information = np.diag([100.0, 100.0, 400.0])
    graph.add_edges("EDGE_SE2", [[k, (k + 1) % 10] for k in range(10)], np.tile(step, (10, 1)), information)
    graph.add_edges(EdgeKeepApart, [[k, k + 5] for k in range(5)], [[9.5]] * 5)
    graph.set_fixed([0])
    summary = graphopt.optimize(graph)
    assert_recorded("inequalities, ring of poses", summary)
    poses = graph.vertex_set("VERTEX_SE2")

    def at(function):
        def of(x):
            poses.estimate[1:] = x.reshape(-1, 3)
            return function()

        return of

    x = poses.estimate[1:].ravel().copy()
    found = scipy.optimize.minimize(
        at(graph.chi2), x, method="SLSQP", options={"ftol": 1e-14, "maxiter": 300},
        constraints={"type": "ineq", "fun": at(lambda: graph.edge_set(EdgeKeepApart).errors().ravel())},
    )  # fmt: skip
    assert summary.final_chi2 == pytest.approx(found.fun, rel=1e-7)
    assert len(summary.kkt.inequalities) == 5 and summary.kkt.violation < 1e-7


@pytest.mark.parametrize("tag", ["VERTEX_SE2", "VERTEX_SE3:QUAT", "VERTEX_SE3:EXPMAP"])
def test_curvature_is_that_along_oplus(tag):
    """Second derivatives of c(x oplus delta) are central differences', y weighs them."""
    label = f"Apart{tag.replace(':', '_')}"

    @graphopt.edge_type(tag=label, name=label, vertices=(tag, tag), measurement_dim=1, inequality=True)
    def apart(a, b, distance):
        d = a.translation - b.inverse().translation
        return (d * d).sum(axis=-1) - distance**2

    kind = working_edge_type(apart)
    graph = graphopt.Graph()
    graph.add_vertices(tag, [0, 1])
    form, vertex = apart.vertices[0].working, kind.vertices[0]
    start = graph.vertex_sets[0].estimate
    dim = vertex.tangent_dim
    turn = 0.3 * np.random.default_rng(0).normal(size=(2, dim))
    storage = np.asarray(vertex.oplus(start if form is None else form.encode(start), turn))

    def c(delta):
        moved = [np.asarray(vertex.oplus(storage[k], delta[k * dim : (k + 1) * dim])) for k in range(2)]
        return np.asarray(kind.error(tuple(moved), (), np.array([1.0]))).item()

    h = 1e-4 * np.eye(2 * dim)
    expected = [
        (c(a + b) - c(a - b) - c(b - a) + c(-a - b)) / 4e-8
        for first, second in ((0, 0), (0, 1), (1, 1))
        for j, b in enumerate(h[second * dim : (second + 1) * dim])
        for a in h[first * dim : first * dim + (j + 1 if first == second else dim)]
    ]
    found = compile_constraint(kind).run(np.concatenate([storage.ravel(), [1.0, 3.0]])[None])[0]
    np.testing.assert_allclose(found[1 + 2 * dim :], 3.0 * np.array(expected), atol=1e-6)


def test_curvature_along_a_step_is_a_second_difference():
    """dx' (sum y d2 c) dx of inequalities of one vertex, and of two, with pairs of blocks on both sides."""
    twisted = graphopt.edge_type(
        tag="EDGE_TWISTED", name="EDGE_TWISTED", vertices=(Vector, Vector), inequality=True
    )(lambda a, b: (a * b)[..., :1] * b[..., 1:] - a[..., 1:])
    rng = np.random.default_rng(1)
    graph = graphopt.Graph()
    graph.add_vertices(Vector, range(3), rng.normal(size=(3, 2)))
    graph.add_edges(EdgeAt, [[0], [1], [2]], rng.normal(size=(3, 2)))
    graph.add_edges(EdgeDisk, [[0], [2]], [[1.0], [2.0]])
    graph.add_edges(twisted, [[0, 1], [2, 1]])
    graph.vertex(2).fixed = True
    graph = constrained(graph).graph
    inner = create_block_solver(graph, Structure(graph.select()), SolverOptions())
    solver = ConstrainedSolver(inner, graph)
    y = solver.multipliers[:] = rng.uniform(0.5, 2.0, solver.multipliers.shape)
    solver.evaluate()
    solver.linearize()
    step = rng.normal(size=solver.dim)

    def weighted(share):
        solver.dx = share * step
        solver.move()
        found = float(y @ solver.values())
        solver.pop()
        return found

    h = 1e-3
    expected = (weighted(h) - 2.0 * weighted(0.0) + weighted(-h)) / h**2
    assert solver.bent_along(step) == pytest.approx(expected, rel=1e-4)


def test_sizes_do_not_matter():
    """Inequalities of one type in metres and in kilometres are met equally well."""
    graph = graphopt.Graph()
    graph.add_vertices(Vector, [0, 1], [[1e4, 2e3], [1e-3, 2e-4]])
    information = [1e-8 * np.eye(2), 1e6 * np.eye(2)]
    graph.add_edges(EdgeAt, [[0], [1]], [[3e4, 4e4], [3e-3, 4e-3]], information)
    graph.add_edges(EdgeDisk, [[0], [1]], [[1e4], [1e-3]])
    graphopt.optimize(graph)
    expected = [[6e3, 8e3], [6e-4, 8e-4]]
    np.testing.assert_allclose(graph.vertex_sets[0].estimate, expected, rtol=1e-6)


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
    (violation,) = map(float, re.findall(r"violation is (\S+),", summary.message))
    assert 0.0 < violation <= 1.01 * summary.kkt.violation


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
    with pytest.raises(OptionError, match="Ranks do not keep to the inequalities EDGE_DISK"):
        graphopt.distributed.optimize(graph)


def test_iterations_count_on():
    """The callback sees iterations of all rounds in one count; False stops."""
    graph, seen = random_graph(0), []
    summary = graphopt.optimize(graph, callback=lambda iteration: seen.append(iteration.iteration))
    assert seen == list(range(len(summary.iterations))) == [each.iteration for each in summary.iterations]
    summary = graphopt.optimize(random_graph(0), callback=lambda iteration: iteration.iteration < 3)
    assert summary.termination is TerminationType.USER_STOP and len(summary.iterations) == 4


def chosen_edges(graph):
    """The same edges, all, in the ways that `edges` takes them; the last names sets by tag."""
    sets = {each: np.arange(len(each)) for each in graph.edge_sets}
    return [list(graph.edges()), sets, {each.type.tag: rows for each, rows in sets.items()}]


@pytest.mark.parametrize("way", range(3))
def test_inequalities_among_chosen_edges(way):
    """All that are chosen take part, with a search for wrong edges too."""
    expected = graphopt.optimize(random_graph(0)).final_chi2
    graph = random_graph(0)
    assert graphopt.optimize(graph, edges=chosen_edges(graph)[way]).final_chi2 == pytest.approx(expected)
    graph = random_graph(0)
    robust = graphopt.optimize(graph, edges=chosen_edges(graph)[way], robust="graduated")
    assert robust.kkt.violation < 1e-6


class Questions:
    """Answers "stop" from question number `at` on."""

    def __init__(self, at):
        self.at = at

    def is_set(self):
        """Asked before each trial."""
        self.at -= 1
        return self.at < 0


def test_stopping_at_any_question_leaves_numbers(monkeypatch):
    """Before the first chi2 and between trials of a step, too: the summary's chi2 is the graph's."""
    monkeypatch.setattr(StopSignals, "should_stop_within", lambda self: False)  # how often it asks is chance
    trials = set()
    for at in (0, 1, 4, 17, 19):
        graph = random_graph(3)
        summary = graphopt.optimize(graph, stop=Questions(at))
        assert summary.termination is TerminationType.USER_STOP
        assert np.isfinite(graph.vertex_sets[0].estimate).all()
        assert graph.chi2() == pytest.approx(summary.final_chi2, rel=1e-9)
        trials |= {each.trials for each in summary.iterations[-1:]}
    assert trials == {1, 3, 5}


def test_edges_with_parameters_beside_inequalities():
    """The nearest point of a circle's disk to what they draw a vertex to."""
    Shift = graphopt.parameter_type(tag="PARAMS_UNEQUAL_SHIFT", storage_dim=2, name="Shift")(lambda x: x)

    @graphopt.edge_type(tag="EDGE_SHIFTED", vertices=(Vector,), parameters=(Shift,), measurement_dim=2)
    def EdgeShifted(a, shift, z):
        return a - shift - z

    graph = graphopt.Graph()
    graph.add_vertices(Vector, [0], [[0.1, 0.2]])
    graph.add_parameters(Shift, [7], [[1.0, 2.0]])
    graph.add_edges(EdgeShifted, [[0]], [[2.0, 2.0]], parameters=[[7]])
    graph.add_edges(EdgeDisk, [[0]], [[1.0]])
    summary = graphopt.optimize(graph)
    assert summary.final_chi2 == pytest.approx(16.0, rel=1e-7)
    np.testing.assert_allclose(graph.vertex(0).estimate, [0.6, 0.8], atol=1e-7)


def test_inequalities_between_computed_values_are_refused():
    """Of any kind."""
    graph = random_graph(0)

    @graphopt.computed_type(tag="COMPUTED_HALF", vertices=(Vector,))
    def ComputedHalf(a):
        return 0.5 * a[..., :1]

    graph.add_computed(ComputedHalf, graph.add_array(Vector, np.ones((3, 2))), [0])
    with pytest.raises(OptionError, match=r"computed values .* are not supported"):
        graphopt.optimize(graph)
