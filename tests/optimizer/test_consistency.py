"""Loop closures that confirm each other are found, and with them the truth among 70 % wrong closures."""

import numpy as np
import pytest

import graphopt
from graphopt.geometry import SE3
from graphopt.strategies.consistency import confirmed


def with_wrong_closures(graph: graphopt.Graph, share: float, seed: int) -> tuple[graphopt.Graph, int]:
    """The graph with closures between random poses, so many that they are this share; and their number."""
    rng = np.random.default_rng(seed)
    edges = graph.edge_sets[0]
    ids, closures = graph.vertex_sets[0].ids, np.abs(np.diff(edges.vertices, axis=1)).ravel() > 1
    ends = rng.choice(ids, (int(closures.sum() * share / (1.0 - share)), 2))
    ends = ends[np.abs(np.diff(ends, axis=1)).ravel() > 1]
    extent = np.ptp(graph.vertex_sets[0].estimate[:, :2], axis=0).max()
    if edges.measurement.shape[1] == 3:
        motion = np.column_stack(
            [rng.normal(0, 0.1 * extent, (len(ends), 2)), rng.uniform(-3.1, 3.1, len(ends))]
        )
    else:
        motion = np.asarray(SE3.exp(rng.normal(0.0, 1.0, (len(ends), 6))).storage).copy()
        motion[:, :3] = rng.normal(0.0, 0.1 * extent, (len(ends), 3))
    information = np.broadcast_to(
        np.median(edges.information, axis=0), (len(ends), *edges.information.shape[1:])
    )
    graph.add_edges(edges.type.tag, ends, motion, information)
    return graph, len(ends)


@pytest.mark.data
@pytest.mark.parametrize("name", ["intel.g2o", "CSAIL.g2o", "M3500.g2o.xz", "sphere2500.g2o.xz"])
def test_seventy_percent_wrong_closures(name, shared_data):
    """No wrong closure is kept, at most 1 % of the right ones are lost."""
    graph, report = graphopt.io.read_with_report(shared_data / "posegraph" / name)
    if report.needs_initialization:
        graphopt.initialize(graph, "spanning-tree")
    right = len(graph.edge_sets[0])
    truth = graph.copy()
    graphopt.optimize(truth, device="cpu")
    graph, wrong = with_wrong_closures(graph, 0.7, seed=11)
    summary = graphopt.optimize(graph, robust="graduated", device="cpu")
    left_out = {row for _, row in summary.outliers}
    assert sum(row not in left_out for row in range(right, right + wrong)) == 0
    assert sum(row in left_out for row in range(right)) <= 0.01 * right
    assert summary.final_chi2 <= 1.001 * truth.chi2()


def test_right_closures_confirm_each_other_and_wrong_ones_nobody():
    """On a small world at its truth, closures beside others are found, and no random one."""
    graph = graphopt.datasets.manhattan(nodes=300, seed=4, start="truth")
    right = len(graph.edge_sets[0])
    graph, _ = with_wrong_closures(graph, 0.5, seed=2)
    edges = graph.edge_sets[0]
    suspect = np.abs(np.diff(edges.vertices, axis=1)).ravel() > 1
    found, noise = confirmed(graph, edges, np.arange(len(edges)), suspect)
    assert not found[~suspect].any()
    assert found[:right][suspect[:right]].mean() > 0.5
    assert found[right:].mean() < 0.02
    assert 0.3 < noise <= 1.0


def test_too_small_information_is_noticed():
    """Where the matrices say a hundredth of what the measurements know, the noise is found to be smaller."""
    graph = graphopt.datasets.manhattan(nodes=300, seed=4, start="truth")
    edges = graph.edge_sets[0]
    edges.information[:] *= 0.01
    suspect = np.abs(np.diff(edges.vertices, axis=1)).ravel() > 1
    _, noise = confirmed(graph, edges, np.arange(len(edges)), suspect)
    assert noise < 0.1


def test_edges_that_are_no_motions_have_no_partners():
    """Observations of landmarks are not compared."""
    graph = graphopt.datasets.ba(cameras=4, points=20)
    edges = graph.edge_sets[0]
    found, noise = confirmed(graph, edges, np.arange(len(edges)), np.ones(len(edges), bool))
    assert not found.any() and noise == 1.0
