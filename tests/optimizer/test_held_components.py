"""Single components of vertices held: they stay, the others end at the constrained optimum, everywhere."""

import pickle

import numpy as np
import pytest
import scipy.optimize

import graphopt
from graphopt import io
from graphopt.errors import FormatError, GraphError, SolverError, UnknownIdError
from graphopt.evaluate import datasets
from graphopt.geometry import SE2

SOLVERS = {
    "auto": {},
    "lm": {"method": "lm", "max_iterations": 60},
    "gn": {"method": "gn", "max_iterations": 20},
    "dogleg": {"method": "dogleg", "max_iterations": 60},
    "pcg": {"linear_solver": "pcg", "schur": "off"},
    "dense": {"linear_solver": "dense"},
    "vulkan": {"device": "vulkan"},
    "vulkan pcg": {"device": "vulkan", "linear_solver": "pcg"},
}


def loop(kind="SE2"):
    """A few poses with loops and noise, the first one fixed."""
    if kind == "SE3":
        graph = datasets.sphere(4, 2, seed=1)
    else:
        rng = np.random.default_rng(5)
        poses = np.cumsum(rng.normal(size=(10, 3)) + np.array([1.0, 0.0, 0.4]), axis=0)
        ends = np.array([[i, (i + step) % 10] for step in (1, 3) for i in range(10)])
        steps = (SE2(poses[ends[:, 0]]).inverse() * SE2(poses[ends[:, 1]])).storage
        graph = graphopt.Graph()
        graph.add_vertices("VERTEX_SE2", range(10), poses + 0.1 * rng.normal(size=poses.shape))
        graph.add_edges(
            "EDGE_SE2", ends, steps + 0.05 * rng.normal(size=steps.shape), np.diag([4.0, 5.0, 9.0])
        )
    graph.set_fixed([int(graph.vertex_ids()[0])])
    return graph


def minimum(graph, held):
    """chi2 at the optimum over the tangent components that are not held, found by scipy."""
    vertices = [each_vertex for each_vertex in graph.vertices() if not each_vertex.fixed]
    starts = [each_vertex.estimate.copy() for each_vertex in vertices]
    free = [
        [k for k in range(each_vertex.type.tangent_dim) if k not in held.get(each_vertex.id, ())]
        for each_vertex in vertices
    ]
    sizes = np.cumsum([0, *map(len, free)])

    def whitened(d):
        for vertex, start, chosen, first in zip(vertices, starts, free, sizes[:-1], strict=True):
            delta = np.zeros(vertex.type.tangent_dim)
            delta[chosen] = d[first : first + len(chosen)]
            vertex.estimate = vertex.type.oplus(start, delta)
        parts = []
        for edge_set in graph.edge_sets:
            roots = np.linalg.cholesky(edge_set.information).transpose(0, 2, 1)
            parts.append(np.einsum("kij,kj->ki", roots, edge_set.errors()).ravel())
        return np.concatenate(parts)

    found = scipy.optimize.least_squares(whitened, np.zeros(sizes[-1]), xtol=1e-14, ftol=1e-14, gtol=1e-14)
    whitened(np.zeros(sizes[-1]))
    return 2.0 * found.cost


@pytest.mark.parametrize("solver", SOLVERS)
def test_planar_poses_with_a_held_angle(solver):
    """Angles of two vertices stay; x and y of them and all else take the constrained optimum."""
    graph = loop()
    ids = graph.vertex_ids()[[3, 5]].tolist()
    expected = minimum(graph, {id_: (2,) for id_ in ids})
    before = {id_: graph.vertex(id_).estimate.copy() for id_ in ids}
    graph.hold(ids, [2])
    assert graph.vertex(ids[0]).held == (2,) and graph.vertex(int(graph.vertex_ids()[1])).held == ()
    summary = graphopt.optimize(graph, **SOLVERS[solver])
    assert summary.is_usable, summary.full_report()
    assert summary.final_chi2 == pytest.approx(expected, rel=1e-6)
    assert graph.chi2() == pytest.approx(summary.final_chi2, rel=1e-9)
    for id_ in ids:
        assert graph.vertex(id_).estimate[2] == before[id_][2]
        assert np.abs(graph.vertex(id_).estimate[:2] - before[id_][:2]).max() > 1e-6
    graph.hold(ids, [2], held=False)
    assert graphopt.optimize(graph).final_chi2 < 0.999 * expected


@pytest.mark.parametrize("device", ["cpu", "vulkan"])
def test_points_and_cameras(device):
    """Bundle adjustment with all focal lengths and one point's depth held, through the Schur complement."""
    graph = datasets.ba(cameras=4, points=40, seed=4)
    cameras = graph.vertex_set("VERTEX_CAM_BAL")
    lens = cameras.estimate[:, 6:].copy()
    point = int(graph.vertex_set("VERTEX_TRACKXYZ").ids[7])
    depth = graph.vertex(point).estimate[2]
    start = graph.chi2()
    graph.hold(cameras.ids, [6, 7, 8])
    graph.vertex(point).held = [2]
    summary = graphopt.optimize(graph, device=device)
    assert summary.is_usable and summary.final_chi2 < 0.5 * start
    assert np.array_equal(cameras.estimate[:, 6:], lens) and graph.vertex(point).estimate[2] == depth
    assert np.abs(graphopt.linearize(graph).b).max() < 1e-3 * start


def test_poses_in_space_in_their_working_form():
    """Types with hand-written Jacobians and a working form: the gradient vanishes along what is free."""
    graph = loop("SE3")
    ids = graph.vertex_ids()[2:5]
    graph.hold(ids, [3, 4])
    start = np.abs(graphopt.linearize(graph).b).max()
    summary = graphopt.optimize(graph, options=graphopt.AutoOptions(function_tolerance=1e-14))
    assert summary.is_usable
    found = graphopt.linearize(graph)
    assert found.columns(int(ids[0])).stop - found.columns(int(ids[0])).start == 4
    assert np.abs(found.b).max() < 1e-7 * start
    blocks = graphopt.compute_marginals(graph, [int(ids[0])])
    covariance = blocks[int(ids[0]), int(ids[0])]
    part = found.columns(int(ids[0]))
    np.testing.assert_allclose(covariance, np.linalg.inv(found.H.toarray())[part, part], rtol=1e-6)


@pytest.mark.parametrize("num_held", [1, 3, 18])
@pytest.mark.parametrize("device", ["cpu", "vulkan"])
def test_covariances_where_components_are_held(device, num_held):
    """Blocks of vertices, also between them, are those of the inverse of H without the held scalars."""
    graph = loop()
    ids = graph.vertex_ids()
    for k in range(num_held):
        graph.hold([int(ids[1 + k // 2])], [2 * (k % 2)])
    pairs = [(int(ids[i]), int(ids[j])) for i, j in ((1, 1), (1, 2), (2, 1), (3, 3), (9, 5), (7, 7))]
    blocks = graphopt.compute_marginals(graph, pairs, device=device)
    found = graphopt.linearize(graph)
    inverse = np.linalg.inv(found.H.toarray())
    for first, second in pairs:
        expected = inverse[found.columns(first), found.columns(second)]
        assert blocks[first, second].shape == expected.shape
        largest = np.abs(expected).max()
        np.testing.assert_allclose(blocks[first, second], expected, rtol=1e-7, atol=1e-9 * largest)


def test_few_held_components_need_no_other_graph(monkeypatch):
    """H is conditioned on them."""
    graph = loop()
    ids = graph.vertex_ids().tolist()
    graph.hold([ids[2]], [1])
    monkeypatch.setattr("graphopt.solver.marginals.FIXED_COMPONENTS", None)
    assert graphopt.compute_marginals(graph, [ids[2]])[ids[2], ids[2]].shape == (2, 2)


def test_a_graph_with_a_held_component_can_still_move():
    """It is said which vertices do."""
    graph = loop()
    ids = graph.vertex_ids().tolist()
    graph.set_fixed(ids[:1], False)
    graph.hold([ids[3]], [0])
    with pytest.raises(SolverError, match="H is singular"):
        graphopt.compute_marginals(graph, [ids[3]])


def test_all_components_held_is_fixed():
    """The same answer as with the flag."""
    graph, other = loop(), loop()
    vertex_id = int(graph.vertex_ids()[4])
    graph.hold([vertex_id], range(3))
    other.set_fixed([vertex_id])
    results = [graphopt.optimize(graph, "gn", 6).final_chi2 for graph in (graph, other)]
    assert results[0] == pytest.approx(results[1], rel=1e-12)


def test_callbacks_see_the_estimates():
    """Of the user's graph, at every iteration; components stay there too."""
    graph = loop()
    vertex_id = int(graph.vertex_ids()[4])
    graph.hold([vertex_id], [0])
    seen = []
    summary = graphopt.optimize(graph, "lm", 4, callback=lambda iteration: seen.append(graph.chi2()))
    assert seen == pytest.approx([each_iteration.chi2 for each_iteration in summary.iterations], rel=1e-9)


def test_the_gauge_is_the_one_that_holds_components():
    """Nothing else fixes the graph: its holder is held as a whole; of several holders nobody is."""
    graph = loop()
    graph.set_fixed(graph.vertex_ids(), False)
    free = graphopt.optimize(graph.copy()).final_chi2
    vertex_id = int(graph.vertex_ids()[5])
    graph.hold([vertex_id], [0])
    copied = graph.copy()
    summary = graphopt.optimize(copied)
    assert summary.fixed_by_gauge == [vertex_id] and summary.final_chi2 == pytest.approx(free, rel=1e-7)
    graph.hold([int(graph.vertex_ids()[2])], [1])
    assert graphopt.optimize(graph, "lm", 30).fixed_by_gauge == []


def test_copies_and_growth_keep_it():
    """pickle, copy, adding and removing vertices."""
    graph = loop()
    ids = graph.vertex_ids().tolist()
    graph.hold(ids[3:5], [1])
    graph.add_vertices("VERTEX_SE2", range(1000, 1100))
    graph.remove_vertices([ids[3]])
    for other in (graph, graph.copy(), pickle.loads(pickle.dumps(graph))):
        assert other.vertex(ids[4]).held == (1,) and other.vertex(1050).held == ()
        assert int(other.vertex_sets[0].held.sum()) == 1


def test_what_cannot_be():
    """Components and ids that there are not; files that cannot say it."""
    graph = loop()
    with pytest.raises(GraphError, match="VERTEX_SE2 has no component 3: its updates have 3 numbers"):
        graph.hold([int(graph.vertex_ids()[0])], [3])
    with pytest.raises(UnknownIdError, match="no vertex 12345"):
        graph.hold([12345], [0])
    assert graph.vertex_sets[0].held is None
    graph.hold([int(graph.vertex_ids()[1])], [0])
    with pytest.raises(FormatError, match=r"VERTEX_SE2 hold single components.*held=False"):
        io.write(graph, "never.g2o")
