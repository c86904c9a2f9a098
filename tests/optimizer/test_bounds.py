"""Bounds of estimates: optima equal scipy's and meet the KKT conditions, with every method and device."""

import pickle

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st

import graphopt
from graphopt import io
from graphopt.errors import FormatError, GraphError, OptionError, UnknownIdError
from graphopt.evaluate import datasets
from graphopt.linear.options import SolverOptions
from graphopt.problem.structure import Structure
from graphopt.solver.bounded import within_bounds
from graphopt.solver.create import create_block_solver
from graphopt.solver.trial import Damping

METHODS = {
    "auto": {"options": graphopt.AutoOptions(function_tolerance=1e-15, contest=False)},
    "lm": {
        "method": "lm",
        "options": graphopt.LevenbergMarquardtOptions(max_iterations=400, function_tolerance=1e-15),
    },
    "dogleg": {
        "method": "dogleg",
        "options": graphopt.DoglegOptions(max_iterations=400, function_tolerance=1e-15),
    },
    "gn": {"method": "gn", "max_iterations": 60},
    "pcg": {"linear_solver": "pcg", "schur": "off"},
    "vulkan": {"device": "vulkan"},
    "vulkan pcg": {"device": "vulkan", "linear_solver": "pcg"},
}


@graphopt.vertex_type(tag="VERTEX_BOUNDED_2", tangent_dim=2)
def VertexBounded(x, delta):
    """A vector of two numbers."""
    return x + delta


@graphopt.edge_type(tag="EDGE_CURVED", vertices=(VertexBounded, VertexBounded), measurement_dim=3)
def EdgeCurved(a, b, z):
    """A residual that is not linear."""
    terms = [
        np.sin(a[..., 0]) * b[..., 1] + a[..., 1],
        np.exp(0.2 * b[..., 0]) - 0.3 * a[..., 0] * a[..., 1],
        a[..., 0] + b[..., 0],
    ]
    return np.stack(terms, axis=-1) - z


@graphopt.edge_type(tag="EDGE_TOWARDS", vertices=(VertexBounded,), measurement_dim=2)
def EdgeTowards(a, z):
    """Draws a vertex somewhere."""
    return a - z


def random_graph(seed, count=6, noise=1.0):
    """Vectors with random residuals, and random bounds of which about half are active at the optimum."""
    rng = np.random.default_rng(seed)
    graph = graphopt.Graph()
    graph.add_vertices(VertexBounded, range(count), rng.normal(size=(count, 2)))
    pairs = [(i, j) for i in range(count) for j in range(count) if i != j and rng.random() < 0.5]
    graph.add_edges(EdgeCurved, np.reshape(pairs, (-1, 2)), noise * rng.normal(size=(len(pairs), 3)))
    graph.add_edges(
        EdgeTowards, np.arange(count)[:, None], 2.0 * rng.normal(size=(count, 2)), 3.0 * np.eye(2)
    )
    lower = rng.normal(size=(count, 2)) - 0.5
    upper = lower + 1.5 * rng.exponential(size=(count, 2))
    lower[rng.random((count, 2)) < 0.2] = -np.inf
    upper[rng.random((count, 2)) < 0.2] = np.inf
    return graph, lower, upper


def dense_residuals(graph):
    """Function of all numbers of the first vertex set -> whitened residuals, as scipy wants it."""
    vertex_set = graph.vertex_sets[0]

    def whitened(x):
        vertex_set.estimate = np.reshape(x, vertex_set.estimate.shape)
        roots = [np.linalg.cholesky(each.information).transpose(0, 2, 1) for each in graph.edge_sets]
        parts = zip(roots, graph.edge_sets, strict=True)
        return np.concatenate([np.einsum("kij,kj->ki", root, each.errors()).ravel() for root, each in parts])

    return whitened


def scipy_minimum(graph, lower, upper):
    """chi2 at the optimum that scipy finds from the graph's estimates."""
    vertex_set = graph.vertex_sets[0]
    start = vertex_set.estimate.copy()
    inside = np.clip(start, np.nextafter(lower, np.inf), np.nextafter(upper, -np.inf)).ravel()
    found = scipy.optimize.least_squares(
        dense_residuals(graph),
        inside,
        bounds=(lower.ravel(), upper.ravel()),
        xtol=1e-15,
        ftol=1e-15,
        gtol=1e-15,
    )
    vertex_set.estimate = start
    return 2.0 * found.cost


def assert_kkt(graph, summary, tolerance):
    """Bounds hold, and -grad chi2 points out of the active ones only; found by `graphopt.linearize`."""
    found = graphopt.linearize(graph)
    scale = np.sqrt(found.H.diagonal() * max(found.chi2, 1e-30))
    active = {(bound.vertex, bound.component): bound for bound in summary.kkt.bounds}
    for vertex_set in graph.vertex_sets:
        lower, upper = vertex_set.lower, vertex_set.upper
        for row, id_ in enumerate(vertex_set.ids.tolist()):
            if vertex_set.fixed[row] or id_ not in found.vertex_ids:
                continue
            x, columns = vertex_set.estimate[row], found.columns(id_)
            b, of_b = found.b[columns], scale[columns]
            for k in range(len(b)):
                low, high = (-np.inf, np.inf) if lower is None else (lower[row, k], upper[row, k])
                assert low <= x[k] <= high
                bound = active.get((id_, k))
                if bound is None:
                    assert abs(b[k]) <= tolerance * of_b[k]
                    continue
                assert x[k] == bound.value == (low if bound.side == "lower" else high)
                assert bound.multiplier == pytest.approx(2.0 * abs(b[k]), rel=1e-6, abs=1e-9)
                assert low == high or (b[k] < 0.0) == (bound.side == "lower")
    assert summary.kkt.scaled_stationarity <= tolerance


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seed", [0, 1])
def test_optimum_is_scipys(method, seed):
    """chi2 is that of scipy's least_squares within the bounds, and the KKT conditions hold."""
    graph, lower, upper = random_graph(seed)
    graph.set_bounds(VertexBounded, lower, upper)
    summary = graphopt.optimize(graph, **METHODS[method])
    assert summary.is_usable, summary.full_report()
    expected = scipy_minimum(graph, lower, upper)
    assert summary.final_chi2 == pytest.approx(expected, rel=1e-9)
    assert graph.chi2() == pytest.approx(summary.final_chi2, rel=1e-12)
    assert len(summary.kkt.bounds) > 1
    assert_kkt(graph, summary, 1e-5 if method in ("pcg", "vulkan", "vulkan pcg") else 1e-7)


@settings(max_examples=15, deadline=None)
@given(st.integers(2, 10_000), st.sampled_from(["auto", "lm", "dogleg"]), st.sampled_from([0.1, 1.0, 2.0]))
def test_random_graphs(seed, method, noise):
    """Whatever the graph and its bounds: a KKT point, not above what scipy finds from there."""
    graph, lower, upper = random_graph(seed, count=4, noise=noise)
    graph.set_bounds(VertexBounded, lower, upper)
    summary = graphopt.optimize(graph, **METHODS[method])
    assert summary.is_usable, summary.full_report()
    assert_kkt(graph, summary, 3e-6)
    assert summary.final_chi2 <= scipy_minimum(graph, lower, upper) * (1.0 + 1e-9)


@pytest.mark.parametrize(
    "solver",
    [
        {},
        {"linear_solver": "pcg"},
        {"device": "vulkan"},
        {"device": "vulkan", "precision": "mixed", "linear_solver": "pcg"},
        {"method": "lm", "max_iterations": 60},
    ],
    ids=str,
)
def test_bundle_adjustment(solver):
    """Focal lengths, distortion and coordinates of eliminated points, through the Schur complement."""
    graph = datasets.ba(cameras=4, points=40, seed=4)
    cameras, points = graph.vertex_set("VERTEX_CAM_BAL"), graph.vertex_set("VERTEX_TRACKXYZ")
    graphopt.optimize(graph)
    graph.set_fixed(cameras.ids[:2])
    free = graph.copy()
    f, k1, k2 = free.vertex_set("VERTEX_CAM_BAL").estimate[2:, 6:].mean(axis=0)
    place = np.median(free.vertex_set("VERTEX_TRACKXYZ").estimate[:, 2])
    graph.set_bounds(cameras.ids[2:], [0.5 * f, k1, k2 - 1.0], [f, k1 + 1.0, k2], components=[6, 7, 8])
    graph.set_bounds("VERTEX_TRACKXYZ", [-np.inf, -np.inf, place])
    assert points.marginalized.all()
    summary = graphopt.optimize(graph, **solver)
    assert summary.is_usable and "moved onto them" in summary.message
    assert summary.final_chi2 > free.chi2()
    sides = {bound.side for bound in summary.kkt.bounds}
    assert sides == {"lower", "upper"} and any(bound.vertex in points.ids for bound in summary.kkt.bounds)
    assert_kkt(graph, summary, 1e-3)


def test_what_is_inactive_changes_nothing():
    """Far bounds leave all digits of the result of the same method."""
    graph, _, _ = random_graph(3)
    other = graph.copy()
    other.set_bounds(VertexBounded, -1e6, 1e6)
    options = {"method": "lm", "max_iterations": 7}
    first, second = graphopt.optimize(graph, **options), graphopt.optimize(other, **options)
    np.testing.assert_array_equal(graph.vertex_sets[0].estimate, other.vertex_sets[0].estimate)
    assert [each.chi2 for each in first.iterations] == [each.chi2 for each in second.iterations]
    assert second.kkt.bounds == () and first.kkt is None


@pytest.mark.parametrize("value", [0.0, 0.7])
@pytest.mark.parametrize("scaled", [False, True])
def test_the_gain_of_a_step_within_bounds_is_that_of_its_model(value, scaled):
    """Where residuals are linear the model is chi2: an undamped or damped step gains what it promises."""
    differences = graphopt.edge_type(
        tag="EDGE_APART_2", name="EDGE_APART_2", vertices=(VertexBounded, VertexBounded), measurement_dim=2
    )(lambda a, b, z: b + 0.5 * a - z)
    rng = np.random.default_rng(5)
    graph = graphopt.Graph()
    graph.add_vertices(VertexBounded, range(4), np.zeros((4, 2)))
    graph.add_edges(differences, [[0, 1], [1, 2], [2, 3], [3, 0]], 2.0 * rng.normal(size=(4, 2)))
    graph.add_edges(EdgeTowards, [[0], [2]], 3.0 * rng.normal(size=(2, 2)))
    upper = np.full((4, 2), np.inf)
    upper[0, 0], upper[2, 1] = 0.05, 0.1
    graph.set_bounds(VertexBounded, -upper, upper)
    solver = within_bounds(create_block_solver(graph, Structure(graph.select()), SolverOptions()))
    chi2 = solver.linearize()
    found = solver.trial(Damping(value, scaled))
    assert found.solved and np.isclose(np.abs(solver.dx[[0, 5]]), [0.05, 0.1]).sum() >= 1
    assert found.gain == pytest.approx(chi2 - found.chi2, rel=1e-6)


def test_equal_bounds_fix_a_component():
    """lower == upper holds a number there; held components and robust kernels go with bounds."""
    graph, _, _ = random_graph(5)
    graph.set_bounds([2], [0.25, -np.inf], [0.25, 0.1])
    graph.hold([1], [0])
    graph.set_robust_kernel("Huber", 1.0)
    before = graph.vertex(1).estimate[0]
    summary = graphopt.optimize(graph, options=graphopt.AutoOptions(function_tolerance=1e-14))
    assert graph.vertex(2).estimate[0] == 0.25 and graph.vertex(2).estimate[1] <= 0.1
    assert graph.vertex(1).estimate[0] == before
    assert summary.kkt.scaled_stationarity < 1e-6


def test_bounds_travel(tmp_path):
    """copy, pickle and .npz keep them, subsets obey them, they go with the vertex, other formats refuse."""
    graph, lower, upper = random_graph(7)
    graph.set_bounds(VertexBounded, lower, upper)
    path = tmp_path / "graph.npz"
    graphopt.write(graph, path)
    for other in (graph.copy(), pickle.loads(pickle.dumps(graph)), graphopt.read(path)):
        np.testing.assert_array_equal(other.vertex_sets[0].lower, lower)
        np.testing.assert_array_equal(other.vertex_sets[0].upper, upper)
        other.add_vertices(VertexBounded, [100], [[0.0, 0.0]])
        assert np.isinf(other.vertex(100).bounds).all()
    with pytest.raises(FormatError, match="have bounds"):
        io.write(graph, tmp_path / "graph.g2o")
    graph.remove_vertices([2])
    np.testing.assert_array_equal(graph.vertex(3).bounds, (lower[3], upper[3]))
    graphopt.optimize(graph, vertices=[0, 1, 3])
    assert (graph.vertex(3).estimate >= lower[3]).all() and (graph.vertex(3).estimate <= upper[3]).all()
    graph.set_bounds(VertexBounded)
    assert not graph.vertex_sets[0].has_bounds
    graphopt.write(graph, tmp_path / "graph.g2o")


def test_infeasible_start_is_moved_or_refused():
    """`check` says it before, the summary after; what is fixed outside its bounds is an error by name."""
    graph, _, _ = random_graph(8)
    graph.set_bounds([0, 1], 10.0, 11.0)
    (finding,) = [each for each in graph.check() if each.kind == "bounds-violated"]
    assert finding.severity == "warning"
    assert "vertices 0, 1" in graphopt.optimize(graph).message
    graph.set_fixed([1])
    graph.vertex(1).estimate = [0.0, 0.0]
    assert [each.severity for each in graph.check() if each.kind == "bounds-violated"] == ["error"]
    with pytest.raises(GraphError, match=r"VERTEX_BOUNDED_2 1 is fixed in component 0"):
        graphopt.optimize(graph)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0], 2.0, 1.0), "above its upper bound"),
        (([0], np.nan), "NaN"),
        (([0], [1.0, 2.0, 3.0]), "shape"),
        (([0], 0.0, None, [5]), "no component 5"),
        (("VERTEX_SE3:QUAT", [0.0] * 7), "cannot be bounded"),
        (("VERTEX_SE2", [-np.inf, -np.inf, 0.0]), "only components 0, 1 are"),
    ],
)
def test_wrong_bounds(arguments, message):
    """Bad input is refused, and nothing is changed."""
    graph, _, _ = random_graph(9)
    graph.add_vertices("VERTEX_SE3:QUAT", [50])
    graph.add_vertices("VERTEX_SE2", [51])
    with pytest.raises(graphopt.GraphOptError, match=message):
        graph.set_bounds(*arguments)
    assert not any(vertex_set.has_bounds for vertex_set in graph.vertex_sets)


def test_wrong_bounds_through_views():
    """Live views may cross bounds: `check` and `optimize` name the vertex."""
    graph, _, _ = random_graph(10)
    graph.set_bounds([3], 0.0, 1.0)
    graph.vertex_sets[0].upper[3, 1] = -1.0
    assert [each.kind for each in graph.check() if each.severity == "error"] == ["bounds-crossed"]
    with pytest.raises(GraphError, match="3 has the bounds 0 and -1 of component 1"):
        graphopt.optimize(graph)
    with pytest.raises(UnknownIdError):
        graph.set_bounds([77], 0.0)
    with pytest.raises(OptionError, match="Ranks do not keep to bounds"):
        graphopt.distributed.optimize(graph)
    with pytest.raises(GraphError, match="Online does not keep to bounds"):
        graphopt.Online(graph)
