"""`robust="graduated"` finds the wrong edges among many, and leaves the graph's numbers as they were."""

import numpy as np
import pytest

import graphopt
from graphopt.cli.main import main
from graphopt.errors import OptionError
from graphopt.evaluate.datasets import manhattan, sphere
from graphopt.optimizer import TerminationType, optimize
from graphopt.strategies.graduated import _weights


def with_wrong_closures(graph, share, seed=0):
    """The graph with wrong loop closures, this share of all, and the row of the first of them."""
    edges = graph.edge_sets[0]
    spread = np.abs(np.diff(edges.vertices, axis=1)[:, 0])
    count = int((spread > 1).sum() * share / (1.0 - share))
    rng = np.random.default_rng(seed)
    first, ids = len(edges), np.unique(edges.vertices)
    pairs = rng.choice(ids, (2 * count, 2))
    pairs = pairs[np.abs(pairs[:, 0] - pairs[:, 1]) > 1][:count]
    taken = rng.integers(0, first, len(pairs))
    graph.add_edges(edges.type.tag, pairs, edges.measurement[taken], edges.information[taken])
    return graph, first


WORLDS = {
    "plane": lambda: manhattan(nodes=200, closures=1.0, noise_rotation=0.01, seed=2),
    "space": lambda: sphere(12, 10, radius=20.0, seed=1),
}


@pytest.mark.parametrize("world", WORLDS)
def test_the_truth_is_found_among_70_percent_wrong_closures(world):
    """Nearly all wrong edges are left out, nearly no right one; the poses are those without wrong edges."""
    right = WORLDS[world]()
    truth = right.copy()
    optimize(truth)
    graph, first = with_wrong_closures(right, 0.7)
    information, kernels = graph.edge_sets[0].information.copy(), graph.edge_sets[0].kernel.copy()
    summary = optimize(graph, robust="graduated")
    out = {row for _, row in summary.outliers}
    num_wrong = len(graph.edge_sets[0]) - first
    assert len([row for row in out if row >= first]) >= 0.97 * num_wrong
    assert len([row for row in out if row < first]) <= 0.05 * first
    gap = graph.vertex_sets[0].estimate[:, :2] - truth.vertex_sets[0].estimate[:, :2]
    assert np.abs(gap).max() < 0.3
    np.testing.assert_array_equal(graph.edge_sets[0].information, information)
    np.testing.assert_array_equal(graph.edge_sets[0].kernel, kernels)
    assert "Left out" in summary.message and summary.to_dict()["outliers"]


@pytest.mark.data
def test_intel(shared_data):
    """70 % wrong closures on the real graph."""
    right = graphopt.read(shared_data / "posegraph" / "intel.g2o")
    truth = right.copy()
    optimize(truth)
    graph, _ = with_wrong_closures(right, 0.7, seed=7)
    optimize(graph, robust="graduated")
    gap = graph.vertex_sets[0].estimate[:, :2] - truth.vertex_sets[0].estimate[:, :2]
    assert np.abs(gap).max() < 0.3


def test_edges_with_kernels_are_those_in_question():
    """An edge between neighbours with a kernel may be wrong; loop closures without are trusted."""
    graph = manhattan(nodes=60, seed=0)
    clean = graph.copy()
    edges = graph.edge_sets[0]
    neighbours = np.flatnonzero(np.abs(np.diff(edges.vertices, axis=1)[:, 0]) == 1)
    edges.measurement[neighbours[5], 0] += 7.0
    edges.kernel[neighbours] = 1
    edges.kernel_width[neighbours] = 4.0
    summary = optimize(graph, robust="graduated")
    assert summary.outliers == [(edges.type.tag, int(neighbours[5]))]
    optimize(clean)
    gap = graph.vertex_sets[0].estimate - clean.vertex_sets[0].estimate
    assert np.abs(gap[:, :2]).max() < 0.5


def test_weights_go_from_all_to_none():
    """0 far beyond the bound, 1 well below it, monotone between; sharper with mu."""
    ratio = np.geomspace(1e-6, 1e6, 200)
    for mu in (1e-6, 1e-2, 1.0, 100.0):
        weight = _weights(ratio, mu)
        assert np.all(np.diff(weight) <= 0.0)
        np.testing.assert_array_equal(weight[ratio >= (mu + 1.0) / mu * 1.001], 0.0)
        np.testing.assert_allclose(weight[ratio <= mu / (mu + 1.0)], 1.0)


def test_what_cannot_be_done_is_refused():
    """No edge in question; an unknown word."""
    chain = manhattan(nodes=20, closures=0.0)
    with pytest.raises(OptionError, match="no edge may be wrong"):
        optimize(chain, robust="graduated")
    with pytest.raises(OptionError, match="robust is 'gnc', expected one of kernels, graduated"):
        optimize(chain, robust="gnc")
    graph, first = with_wrong_closures(WORLDS["plane"](), 0.5)
    pair = graph.edge_sets[0].vertices[first]
    graph.edge_sets[0].information[first] = np.diag([1.0, 1.0, -1.0])
    before = graph.edge_sets[0].information.copy()
    with pytest.raises(OptionError, match=f"1 of .* indefinite .* between vertices {pair[0]}, {pair[1]}"):
        optimize(graph, robust="graduated")
    np.testing.assert_array_equal(graph.edge_sets[0].information, before)


def test_what_a_callback_writes_stays():
    """Information and kernels come back where nobody else has written them."""
    graph, _ = with_wrong_closures(WORLDS["plane"](), 0.5)
    edge_set = graph.edge_sets[0]
    before = edge_set.information.copy()

    def write(iteration):
        edge_set.information[3] = 7.0 * np.eye(3)

    optimize(graph, robust="graduated", callback=write, time_limit=20.0)
    before[3] = 7.0 * np.eye(3)
    np.testing.assert_array_equal(edge_set.information, before)


def test_a_time_limit_ends_it_with_the_numbers_as_they_were():
    """Early or late, information matrices come back."""
    graph, _ = with_wrong_closures(WORLDS["plane"](), 0.5)
    before = graph.edge_sets[0].information.copy()
    summary = optimize(graph, robust="graduated", time_limit=1e-4)
    assert summary.termination is TerminationType.TIME_LIMIT
    np.testing.assert_array_equal(graph.edge_sets[0].information, before)


def test_the_command(tmp_path, capsys):
    """`graphopt optimize --robust graduated`."""
    graph, _ = with_wrong_closures(WORLDS["plane"](), 0.5)
    path = tmp_path / "wrong.g2o"
    graphopt.write(graph, path)
    assert main(["optimize", str(path), "--robust", "graduated"]) == 0
    assert "Left out" in capsys.readouterr().out
