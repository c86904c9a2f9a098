"""A user's edges between one vertex and any number of others: files, copies, devices, scipy's minimum."""

import pickle

import numpy as np
import pytest
from examples_modules import own_types
from scipy.optimize import least_squares
from vulkan_devices import shared_device

import graphopt
from graphopt.errors import FormatError, GraphError, ShapeError

__all__ = ["own_types"]  # a fixture of this module
pytestmark = pytest.mark.usefixtures("own_types")


def define():
    """Points seen from a pose; and a tie of their mean, whose residual has always two numbers."""

    @graphopt.variadic_edge_type(first="VERTEX_SE2", rest="VERTEX_XY", measurement_dim_per_vertex=2)
    def VarSeen(pose, points, measured):
        """Points in the frame of a pose."""
        return np.concatenate([pose.inverse_act(point) for point in points], axis=-1) - measured

    @graphopt.variadic_edge_type(first="VERTEX_SE2", rest="VERTEX_XY")
    def VarMean(pose, points):
        """The points' mean is where the pose is, roughly."""
        return 0.1 * (pose.translation - sum(points) / len(points))

    return VarSeen, VarMean


ARITIES = (3, 4, 2, 3)


def problem():
    """Poses that see three, two, one and two points."""
    VarSeen, VarMean = define()
    rng = np.random.default_rng(0)
    graph = graphopt.Graph()
    graph.add_vertices("VERTEX_SE2", np.arange(4), rng.normal(0.0, 0.3, (4, 3)))
    graph.add_vertices("VERTEX_XY", np.arange(10, 16), rng.normal(0.0, 2.0, (6, 2)))
    graph.vertex_set("VERTEX_SE2").fixed[0] = True
    vertices = [[k, *rng.choice(np.arange(10, 16), n - 1, replace=False)] for k, n in enumerate(ARITIES)]
    seen = [rng.normal(0.0, 2.0, 2 * n - 2) for n in ARITIES]
    weights = [np.diag(rng.uniform(0.5, 2.0, 2 * n - 2)) for n in ARITIES]
    rows = graph.add_variadic_edges(VarSeen, vertices, seen, weights, kernel="Huber", kernel_width=1.5)
    assert {num: row.stop - row.start for num, row in rows.items()} == {2: 1, 3: 2, 4: 1}
    graph.add_variadic_edges(VarMean, vertices)
    graph.add_edges("EDGE_PRIOR_XY", np.arange(10, 16)[:, None], rng.normal(0.0, 2.0, (6, 2)))
    graph.add_edges("EDGE_PRIOR_SE2", np.arange(4)[:, None], np.zeros((4, 3)))
    return graph, vertices, seen, weights


def by_hand(graph, vertices, seen, weights):
    """Residuals in numpy at (poses, points); robust ones as roots of their cost."""
    priors = graph.edge_set("EDGE_PRIOR_XY").measurement

    def residual(x):
        poses, points = np.concatenate([graph.vertex(0).estimate, x[:9]]).reshape(4, 3), x[9:].reshape(6, 2)
        found = [(points - priors).ravel(), poses[1:].ravel()]  # the first pose is fixed
        for k, ids in enumerate(vertices):
            own = points[np.array(ids[1:]) - 10]
            c, s = np.cos(poses[k, 2]), np.sin(poses[k, 2])
            e = ((own - poses[k, :2]) @ np.array([[c, -s], [s, c]])).ravel() - seen[k]
            chi2 = e @ weights[k] @ e
            rho = chi2 if chi2 <= 1.5**2 else 2.0 * 1.5 * np.sqrt(chi2) - 1.5**2
            found.append([np.sqrt(rho)])
            found.append(0.1 * (poses[k, :2] - own.mean(axis=0)))
        return np.concatenate(found)

    return residual


def test_minimum_is_scipys_on_both_devices():
    """With arities mixed, a robust kernel and weights."""
    shared_device("address")
    graph, *rest = problem()
    residual = by_hand(graph, *rest)
    start = np.concatenate([graph.vertex_set(tag).estimate.ravel() for tag in ("VERTEX_SE2", "VERTEX_XY")])
    assert (residual(start[3:]) ** 2).sum() == pytest.approx(graph.chi2(), rel=1e-10)
    expected = 2.0 * least_squares(residual, start[3:], xtol=1e-14, ftol=1e-14).cost
    for device in ("cpu", "vulkan"):
        own = graph.copy()
        summary = graphopt.optimize(
            own, "lm", 60, device=device, precision="double" if device != "cpu" else "auto"
        )
        assert summary.final_chi2 == pytest.approx(expected, rel=1e-6)


def test_files_copies_and_pickles(tmp_path):
    """The same edges in the same order."""
    graph, *_ = problem()
    graphopt.write(graph, tmp_path / "graph.g2o")
    again = graphopt.read(tmp_path / "graph.g2o")
    assert again.num_edges == graph.num_edges
    order = [len(edge.vertices) for edge in again.edges() if edge.type.tag == "EDGE_VAR_SEEN"]
    assert order == list(ARITIES)
    for other in (pickle.loads(pickle.dumps(graph)), graph.copy()):
        assert other.chi2() == pytest.approx(graph.chi2(), rel=1e-12)
    for graph_ in (graph, again):  # files hold no robust kernels
        for edge_set in graph_.edge_sets:
            edge_set.kernel[:] = 0
    assert again.chi2() == pytest.approx(graph.chi2(), rel=1e-9)


def test_archives_keep_every_digit(tmp_path):
    """Arities, robust kernels, levels, order and flags, and parameters; bad archives say what is wrong."""
    graph, *_ = problem()
    graph.add_parameters("PARAMS_SE2OFFSET", [3], [[0.1, 0.2, 0.3]])
    graph.edge_set("EDGE_PRIOR_XY").level[2] = 4
    graphopt.write(graph, tmp_path / "graph.npz", format="graph_npz")
    again = graphopt.read(tmp_path / "graph.npz")
    assert again.chi2() == graph.chi2()
    ids = [[[vertex.id for vertex in edge.vertices] for edge in graph.edges()] for graph in (graph, again)]
    assert ids[0] == ids[1]
    for a, b in zip(graph.edge_sets, again.edge_sets, strict=True):
        for name in ("vertices", "measurement", "information", "kernel", "kernel_width", "level"):
            np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
    for a, b in zip(graph.vertex_sets, again.vertex_sets, strict=True):
        np.testing.assert_array_equal(a.fixed, b.fixed)
        np.testing.assert_array_equal(a.estimate, b.estimate)
    np.testing.assert_array_equal(again.parameter_set("PARAMS_SE2OFFSET").values, [[0.1, 0.2, 0.3]])
    with np.load(tmp_path / "graph.npz") as archive:
        arrays = {name: archive[name] for name in archive.files}
    for change, message in (
        ({"e0_tag": "EDGE_UNHEARD_OF"}, "EDGE_UNHEARD_OF"),
        ({"graphopt": np.array(7)}, "layout 7"),
        ({"v0_ids": np.arange(3)}, r"expected"),
    ):
        np.savez(tmp_path / "bad.npz", **{**arrays, **change})
        with pytest.raises(FormatError, match=message):
            graphopt.read(tmp_path / "bad.npz")


def test_what_cannot_be_is_refused():
    """With what was expected."""
    graph, vertices, seen, _ = problem()
    with pytest.raises(GraphError, match="use add_edges"):
        graph.add_variadic_edges("EDGE_SE2", [[0, 1]])
    with pytest.raises(ShapeError, match="3 measurements for 4 edges"):
        graph.add_variadic_edges("EDGE_VAR_SEEN", vertices, seen[:3])
    with pytest.raises(GraphError, match="at least 2"):
        graph.add_variadic_edges("EDGE_VAR_SEEN", [[0]], [[]])
    with pytest.raises(ShapeError):
        graphopt.variadic_edge_type(first="VERTEX_SE2", rest="VERTEX_XY")(lambda pose: pose)
