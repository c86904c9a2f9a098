"""Generated graphs: noise as promised, truth consistent, connected, reproducible."""

import numpy as np
import pytest

from graphopt.errors import OptionError
from graphopt.evaluate import datasets
from graphopt.geometry import SE2, SE3

KINDS = {
    "sphere": (datasets.sphere, {"nodes_per_level": 20, "laps": 15}),
    "torus": (datasets.torus, {"nodes_per_ring": 20, "rings": 15}),
    "manhattan": (datasets.manhattan, {"nodes": 800}),
    "grid": (datasets.grid, {"size": 6}),
    "ba-bal": (datasets.ba, {"cameras": 12, "points": 300, "noise_pixel": 1.0}),
    "ba-expmap": (datasets.ba, {"cameras": 12, "points": 300, "noise_pixel": 1.0, "camera": "expmap"}),
}
NOISELESS = {
    "sphere": {"noise_translation": 0.0, "noise_rotation": 0.0},
    "torus": {"noise_translation": 0.0, "noise_rotation": 0.0},
    "manhattan": {"noise_translation": 0.0, "noise_rotation": 0.0},
    "grid": {"noise_translation": 0.0, "noise_rotation": 0.0},
    "ba-bal": {"noise_pixel": 0.0},
    "ba-expmap": {"noise_pixel": 0.0},
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def make(kind, **changes):
    """Return the small graph of a kind."""
    function, options = KINDS[kind]
    return function(**{**options, **changes})


def num_residuals(graph):
    """Return the number of scalar residuals."""
    return sum(len(edges) * edges.type.residual_dim for edges in graph.edge_sets)


@every_kind
def test_chi2_at_the_truth_is_that_of_the_noise(kind):
    """At the truth chi2 has the mean and spread of a chi-squared variable: the information fits the noise."""
    expected = num_residuals(make(kind))
    values = [make(kind, seed=seed, start="truth").chi2() for seed in range(3)]
    for seed, value in enumerate(values):
        expected = num_residuals(make(kind, seed=seed))
        assert abs(value - expected) < 6.0 * np.sqrt(2.0 * expected)


@every_kind
def test_without_noise_the_truth_has_no_error(kind):
    """Measurements, estimates and the types' residuals agree: chi2 at the truth is zero without noise."""
    graph = make(kind, start="truth", **NOISELESS[kind])
    assert graph.chi2() < 1e-15 * num_residuals(graph)


@every_kind
def test_the_start_is_worse_than_the_truth(kind):
    """There is something to optimize: the start's chi2 is at least ten times that of the truth."""
    assert make(kind).chi2() > 10.0 * make(kind, start="truth").chi2()


@every_kind
def test_the_same_seed_gives_the_same_graph(kind):
    """Equal seeds give equal bits, different seeds do not; the start does not change the measurements."""
    first, again, other = make(kind, seed=4), make(kind, seed=4), make(kind, seed=5)
    truth = make(kind, seed=4, start="truth")
    measured = [
        np.concatenate([edges.measurement.ravel() for edges in graph.edge_sets])
        for graph in (first, again, other, truth)
    ]
    np.testing.assert_array_equal(measured[0], measured[1])
    np.testing.assert_array_equal(measured[0], measured[3])
    assert not np.array_equal(measured[0], measured[2])


@every_kind
def test_graphs_are_sound(kind):
    """Every graph is one component without an error; its gauge is fixed (BAL files cannot)."""
    graph = make(kind)
    assert graph.components()[0] == 1
    assert graph.gauge_freedom() == (kind == "ba-bal")
    assert [finding.message for finding in graph.check() if finding.severity == "error"] == []


@pytest.mark.parametrize("group", [SE2, SE3])
@pytest.mark.parametrize("count", [1, 2, 3, 7, 64, 65])
def test_chaining_by_doubling_is_chaining_one_by_one(group, count):
    """`chain` equals the sequential product for lengths around powers of two."""
    from graphopt.evaluate.datasets.noise import chain, small_motions_2d, small_motions_3d

    rng = np.random.default_rng(count)
    motions = small_motions_2d if group is SE2 else small_motions_3d
    first = motions(rng, 1, 1.0, 1.0).storage[0]
    steps = motions(rng, count, 1.0, 1.0)
    pose, expected = group(first), [first]
    for row in range(count):
        pose = pose * group(steps.storage[row])
        expected.append(pose.storage)
    actual = group(chain(first, steps)).to_matrix()
    np.testing.assert_allclose(actual, group(np.array(expected)).to_matrix(), atol=1e-12)


def test_odometry_starts_at_the_chained_measurements():
    """The start of a pose graph has no error on its odometry edges, only on its loop closures."""
    graph = make("sphere")
    errors = np.array([edge.chi2() for edge in graph.edges()])
    steps = graph.num_vertices - 1
    assert errors[:steps].max() < 1e-12
    assert errors[steps:].min() > 1e-6


def test_outliers_are_the_share_asked_for():
    """With outliers, that share of the observations is off by many standard deviations."""
    clean = make("ba-expmap", start="truth")
    dirty = make("ba-expmap", start="truth", outliers=0.2)
    large = np.mean([edge.chi2() > 50.0 for edge in dirty.edges()])
    assert all(edge.chi2() < 50.0 for edge in clean.edges())
    assert 0.15 < large < 0.25


def test_every_point_has_two_views_and_lies_before_its_cameras():
    """A point with one view would leave its depth open; points behind a camera cannot be seen."""
    graph = make("ba-expmap", start="truth")
    (edges,) = graph.edge_sets
    _, views = np.unique(edges.vertices[:, 0], return_counts=True)
    assert views.min() >= 2
    points, cameras = graph.vertex_set("VERTEX_TRACKXYZ"), graph.vertex_set("VERTEX_SE3:EXPMAP")
    point = points.estimate[edges.vertices[:, 0] - len(cameras)]
    assert SE3(cameras.estimate[edges.vertices[:, 1]]).act(point)[:, 2].min() > 0.1


def test_senseless_sizes_are_refused():
    """A tube wider than its torus and a scene with one camera are option errors."""
    with pytest.raises(OptionError, match="tube"):
        datasets.torus(radius=1.0, tube=2.0)
    with pytest.raises(OptionError, match="cameras"):
        datasets.ba(cameras=1)
