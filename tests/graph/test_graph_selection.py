"""Selection, components, gauge and findings."""

import numpy as np
import pytest
import scipy.sparse.csgraph

from graphopt.cpu_kernels import kernels
from graphopt.errors import UnknownIdError
from graphopt.graph import Graph
from graphopt.graph.components import connected_parts
from graphopt.graph.gauge import gauge_vertex
from graphopt.problem.gauge import choose_gauge


def chain(num_vertices=6):
    """Poses 0 - 1 - 2 ..."""
    graph = Graph()
    graph.add_vertices("VERTEX_SE2", np.arange(num_vertices))
    pairs = np.stack([np.arange(num_vertices - 1), np.arange(1, num_vertices)], axis=1)
    graph.add_edges("EDGE_SE2", pairs, np.tile([1.0, 0.0, 0.0], (num_vertices - 1, 1)))
    return graph


def active_ids(selection):
    return np.concatenate(
        [
            vertex_set.ids[mask]
            for vertex_set, mask in zip(selection.vertex_sets, selection.active, strict=True)
        ]
    ).tolist()


def test_edges_between_fixed_vertices_are_not_active():
    """As in g2o: they count neither for chi2 nor for their vertices."""
    graph = chain()
    graph.set_fixed([0, 1])
    selection = graph.select()
    assert selection.edges[0].rows.tolist() == [1, 2, 3, 4]
    assert active_ids(selection) == [1, 2, 3, 4, 5]


def test_levels_and_vertex_sets_restrict():
    """An edge is active if its level matches and all its vertices are in the set."""
    graph = chain()
    graph.edge_set("EDGE_SE2").level[[0, 3]] = 1
    assert graph.select(1).edges[0].rows.tolist() == [0, 3]
    assert graph.select(-1).num_active_edges == 5
    assert active_ids(graph.select(1)) == [0, 1, 3, 4]
    restricted = graph.select(0, vertices=[1, 2, 3, 5])
    assert restricted.edges[0].rows.tolist() == [1, 2]
    assert active_ids(restricted) == [1, 2, 3]
    with pytest.raises(UnknownIdError, match="no vertex 99"):
        graph.select(vertices=[99])


def test_edges_may_be_given_one_by_one():
    """As rows or objects; then neither level nor fixed vertices matter."""
    graph = chain()
    graph.set_fixed([0, 1])
    edges = list(graph.edges())
    by_object = graph.select(edges=[edges[0], edges[2]])
    by_row = graph.select(edges={"EDGE_SE2": [0, 2]})
    assert by_object.edges[0].rows.tolist() == by_row.edges[0].rows.tolist() == [0, 2]
    with pytest.raises(UnknownIdError, match="not an edge of this graph"):
        graph.select(edges=list(chain().edges()))


def test_holding_more_vertices_drops_edges_that_no_longer_move():
    """`with_fixed` gives the selection of a graph with these vertices fixed, and leaves the graph alone."""
    graph = chain()
    held = graph.select().with_fixed([(0, 0), (0, 1)])
    assert not graph.vertex_set("VERTEX_SE2").fixed.any()
    graph.set_fixed([0, 1])
    expected = graph.select()
    assert held.edges[0].rows.tolist() == expected.edges[0].rows.tolist()
    assert active_ids(held) == active_ids(expected)


def test_components_with_and_without_fixed_vertices():
    """A fixed vertex connects what it touches, but no movement goes through it."""
    graph = chain()
    graph.remove_edges("EDGE_SE2", [1])
    count, labels = graph.components()
    assert count == 2
    assert labels[0].tolist() == [0, 0, 1, 1, 1, 1]
    graph.set_fixed([3])
    labels, held = connected_parts(graph.select(), through_fixed=False)
    assert len(held) == 3
    assert labels[0].tolist() == [0, 0, 1, -1, 2, 2]


@pytest.mark.parametrize("seed", range(12))
def test_connected_parts_agree_with_scipy(seed):
    """Edges of three vertices of two sets: none, sparse and many ones, on all threads."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 400, 2) * (1 if seed < 9 else 300)
    count, first = int(sizes.sum()), [0, 0, int(sizes[0])]
    num_edges = [0, count // 2, 3 * count][seed % 3]
    rows = np.stack([rng.integers(0, size, num_edges) for size in sizes[[0, 0, 1]]], axis=1).astype(np.int32)
    taken = rng.random(count) < 0.9
    label, held = kernels.connected_parts(taken, [(rows, first)])
    numbers = rows + np.array(first)
    pairs = np.concatenate([numbers[:, [0, 1]], numbers[:, [1, 2]], numbers[:, [0, 2]]])
    pairs = pairs[taken[pairs].all(axis=1)]
    matrix = scipy.sparse.coo_matrix((np.ones(len(pairs)), pairs.T), (count, count))
    _, expected = scipy.sparse.csgraph.connected_components(matrix, directed=False)
    assert (label < 0).tolist() == (~taken).tolist()
    _, by_first, compact = np.unique(expected[taken], return_index=True, return_inverse=True)
    np.testing.assert_array_equal(label[taken], np.argsort(np.argsort(by_first))[compact])
    beside = numbers[(~taken[numbers]).any(axis=1)]
    assert set(np.flatnonzero(held)) == set(label[beside[taken[beside]]])


def test_each_part_that_nothing_holds_gets_one_vertex():
    """Parts with a fixed neighbour or a prior, are left alone; of points alone one is held."""
    graph = chain(12)
    graph.remove_edges("EDGE_SE2", [2, 5, 8])  # 0-2, 3-5, 6-8, 9-11
    graph.set_fixed([4])
    graph.add_edges("EDGE_PRIOR_SE2_XY", [[7]], np.zeros((1, 2)))
    graph.add_vertices("VERTEX_XY", [20, 21])
    graph.add_edges("EDGE_POINTXY", [[20, 21]], np.zeros((1, 2)))
    graph.add_vertices("VERTEX_XY", [30, 31])
    graph.add_edges("EDGE_POINTXY", [[30, 31]], np.zeros((1, 2)))
    graph.set_fixed([30])
    chosen = choose_gauge(graph, graph.select())
    ids = graph.vertex_set("VERTEX_SE2").ids
    parts = {int(ids[row]) // 3 for number, row in chosen if number == 0}
    assert parts == {0, 3}
    assert len(chosen) == 3 and set(chosen[-1:]) <= {(1, 0), (1, 1)}


def test_a_connected_graph_gets_the_vertex_that_g2o_fixes():
    """choose_gauge and find_gauge agree where there is one part."""
    rng = np.random.default_rng(3)
    ids = rng.permutation(np.arange(0, 4000, 7))
    graph = Graph()
    graph.add_vertices("VERTEX_XY", [-4, 10**9])
    graph.add_vertices("VERTEX_SE2", ids)
    graph.add_edges("EDGE_SE2", np.stack([ids[:-1], ids[1:]], axis=1), np.zeros((len(ids) - 1, 3)))
    ((number, row),) = choose_gauge(graph, graph.select())
    assert graph.vertex_sets[number].ids[row] == graph.find_gauge()
    assert graph.gauge_freedom()
    graph.set_fixed([int(ids[0])])
    assert not graph.gauge_freedom()
    assert choose_gauge(graph, graph.select()) == []


def test_a_full_prior_ends_gauge_freedom_and_a_partial_one_does_not():
    """g2o's rule: a unary edge of the largest dimension."""
    graph = chain()
    graph.add_edges("EDGE_PRIOR_SE2_XY", [[0]], np.zeros((1, 2)))
    assert graph.gauge_freedom()
    graph.add_edges("EDGE_PRIOR_SE2", [[0]], np.zeros((1, 3)))
    assert not graph.gauge_freedom()
    assert not Graph().gauge_freedom()
    assert Graph().find_gauge() is None


def test_findings_name_what_is_wrong():
    """Each defect gives its kind of finding."""
    graph = chain()
    graph.set_fixed([0])
    assert graph.check() == []
    edges = graph.edge_set("EDGE_SE2")
    edges.information[1] = np.diag([1.0, 1.0, -1.0])
    edges.information[2] = np.diag([1.0, 0.0, 1.0])
    graph.add_vertices("VERTEX_XY", [50])
    graph.remove_edges(edges, [3])
    kinds = {finding.kind: finding for finding in graph.check()}
    assert set(kinds) == {
        "information-indefinite",
        "information-singular",
        "isolated-vertices",
        "components",
    }
    assert (
        "vertices 1, 2" in kinds["information-indefinite"].message
        or "1, 2" in kinds["information-indefinite"].message
    )
    assert "50" in kinds["isolated-vertices"].message
    graph.vertex(2).estimate = [np.nan, 0.0, 0.0]
    (finding,) = graph.check()
    assert (finding.kind, finding.severity) == ("non-finite", "error")
    assert [finding.kind for finding in Graph().check()] == ["no-edges"]


@pytest.mark.oracle
@pytest.mark.parametrize("seed", range(12))
def test_iteration_order_is_that_of_g2o(seed):
    """libstdc++'s hash table is replayed for random ids, orders and sizes across several growths."""
    g2o = pytest.importorskip("g2opy")
    rng = np.random.default_rng(seed)
    ids = rng.choice(10 ** int(rng.integers(4, 9)), int(rng.integers(1, 3000)), replace=False)
    optimizer = g2o.SparseOptimizer()
    for id_ in ids.tolist():
        vertex = g2o.VertexSE2()
        vertex.set_id(id_)
        assert optimizer.add_vertex(vertex)
    order = list(optimizer.vertices())
    for _ in range(40):
        is_pose = rng.random(len(ids)) < rng.choice([0.01, 0.1, 1.0])
        first = next((id_ for id_ in order if is_pose[ids == id_].any() or not is_pose.any()), None)
        assert ids[gauge_vertex(ids, np.where(is_pose, 3, 2))] == first
