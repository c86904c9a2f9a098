"""Start values: odometry, spanning tree, chordal, landmarks."""

import numpy as np
import pytest

from graphopt.errors import OptionError
from graphopt.geometry import SE2, SE3, Sim3
from graphopt.graph import Graph
from graphopt.graph.relative_poses import pose_graphs
from graphopt.strategies.initialization import METHODS, initialize


def random_poses(group, num, rng):
    """Draw (num,) poses of `group`."""
    storage = np.tile(np.array(group.identity_storage), (num, 1))
    if group is SE2:
        return group(np.stack([*rng.normal(0, 3, (2, num)), rng.uniform(-3, 3, num)], axis=1))
    quaternion = rng.normal(0, 1, (num, 4))
    storage[:, :3] = rng.normal(0, 3, (num, 3))
    storage[:, 3:7] = quaternion / np.linalg.norm(quaternion, axis=1, keepdims=True)
    if group is Sim3:
        storage[:, 7] = rng.uniform(0.5, 2, num)
    return group(storage)


# vertex tag, edge tag, group, estimate from pose, measurement from i_T_j
CASES = {
    "slam2d": ("VERTEX_SE2", "EDGE_SE2", SE2, lambda p: p, lambda z: z),
    "slam3d": ("VERTEX_SE3:QUAT", "EDGE_SE3:QUAT", SE3, lambda p: p, lambda z: z),
    "expmap": ("VERTEX_SE3:EXPMAP", "EDGE_SE3:EXPMAP", SE3, lambda p: p.inverse(), lambda z: z.inverse()),
    "sim3": ("VERTEX_SIM3:EXPMAP", "EDGE_SIM3:EXPMAP", Sim3, lambda p: p.inverse(), lambda z: z.inverse()),
}


def exact_graph(case, num=30, seed=0):
    """Build a graph with exact measurements whose estimates are the identity, and its true estimates."""
    vertex_tag, edge_tag, group, to_estimate, to_measurement = CASES[case]
    rng = np.random.default_rng(seed)
    poses = random_poses(group, num, rng)
    ids = 10 * np.arange(num) + 5
    pairs = np.concatenate(
        [
            np.stack([np.arange(num - 1), np.arange(1, num)], axis=1),
            np.stack([np.arange(num - 7), np.arange(7, num)], axis=1)[:, ::-1],
        ]
    )
    relative = group(poses.storage[pairs[:, 0]]).inverse() * group(poses.storage[pairs[:, 1]])
    truth = to_estimate(poses).storage
    start = np.tile(np.array(group.identity_storage), (num, 1))
    start[0] = truth[0]
    graph = Graph()
    graph.add_vertices(vertex_tag, ids)
    graph.vertex_sets[0].estimate[:, : group.storage_dim] = start
    graph.add_edges(edge_tag, ids[pairs], to_measurement(relative).storage)
    return graph, truth


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("case", CASES)
def test_exact_measurements_give_chi2_zero(case, method):
    """With measurements that agree, every method finds a start of zero chi2 and keeps the root."""
    graph, truth = exact_graph(case)
    assert graph.chi2() > 1.0
    result = initialize(graph, method)
    assert graph.chi2() < 1e-18
    assert result.roots == [5] and result.num_poses == len(truth) - 1 and result.untouched == []
    np.testing.assert_array_equal(graph.vertex_sets[0].estimate[0, : truth.shape[1]], truth[0])


@pytest.mark.parametrize("method", METHODS)
def test_fixed_vertices_are_the_roots_and_stay(method):
    """Two fixed vertices keep their estimates; with exact measurements all others agree with both."""
    graph, truth = exact_graph("slam3d")
    graph.vertex_sets[0].estimate[[3, 17]] = truth[[3, 17]]
    graph.set_fixed([35, 175], True)
    result = initialize(graph, method)
    assert result.roots == [35, 175]
    assert graph.chi2() < 1e-18


def test_unreached_vertices_are_named_and_untouched():
    """A pose without edges keeps its estimate and is reported."""
    graph, _ = exact_graph("slam2d")
    graph.add_vertices("VERTEX_SE2", [7], [[1.0, 2.0, 0.5]])
    result = initialize(graph, "chordal")
    assert result.untouched == [7]
    np.testing.assert_array_equal(graph.vertex(7).estimate, [1.0, 2.0, 0.5])


def test_each_component_has_its_own_root():
    """Two unconnected parts are chained from the lowest id of each."""
    graph, _ = exact_graph("slam2d", num=12)
    graph.add_vertices("VERTEX_SE2", [1, 2], [[0, 0, 0], [9, 9, 1]])
    graph.add_edges("EDGE_SE2", [[1, 2]], [[1.0, 0.0, 0.0]])
    for method in METHODS:
        result = initialize(graph, method)
        assert sorted(result.roots) == [1, 5]
        np.testing.assert_allclose(graph.vertex(2).estimate, [1, 0, 0], atol=1e-12)


def test_landmarks_are_the_mean_of_their_measurements():
    """A point seen exactly lands where it is, in 2-D and through a sensor offset in 3-D."""
    rng = np.random.default_rng(3)
    graph, truth = exact_graph("slam2d", num=12)
    graph.add_vertices("VERTEX_XY", [1000], [[50.0, 50.0]])
    point = np.array([2.0, -1.0])
    graph.add_edges(
        "EDGE_SE2_XY", [[5, 1000], [45, 1000]], SE2(truth[[0, 4]]).inverse().act(np.tile(point, (2, 1)))
    )
    assert initialize(graph, "spanning-tree").num_landmarks == 1
    np.testing.assert_allclose(graph.vertex(1000).estimate, point, atol=1e-12)

    graph, truth = exact_graph("slam3d", num=12)
    offset = random_poses(SE3, 1, rng)
    graph.add_parameters("PARAMS_SE3OFFSET", [4], offset.storage)
    graph.add_vertices("VERTEX_TRACKXYZ", [1000], [[0.0, 0.0, 0.0]])
    point = np.array([[2.0, -1.0, 4.0]])
    measured = (SE3(truth[[2]]) * offset).inverse().act(point)
    graph.add_edges("EDGE_SE3_TRACKXYZ", [[25, 1000]], measured, parameters=[[4]])
    assert initialize(graph, "chordal").num_landmarks == 1
    np.testing.assert_allclose(graph.vertex(1000).estimate, point[0], atol=1e-10)


def test_chordal_is_better_than_chaining_with_noise():
    """On a noisy loop the relaxation starts much closer than either chain."""
    graph, _ = exact_graph("slam3d", num=200)
    rng = np.random.default_rng(1)
    edges = graph.edge_sets[0]
    noise = 0.02 * rng.standard_normal((len(edges.vertices), 6))
    edges.measurement[:] = (SE3(edges.measurement) * SE3.exp(noise)).storage
    chi2 = {}
    for method in METHODS:
        start = graph.copy()
        initialize(start, method)
        chi2[method] = start.chi2()
    assert chi2["chordal"] < 0.2 * min(chi2["odometry"], chi2["spanning-tree"])


def test_unknown_method_is_refused_by_name():
    """The message lists the methods."""
    with pytest.raises(OptionError, match=r"'magic'.*odometry, spanning-tree, chordal"):
        initialize(Graph(), "magic")


def test_graph_without_poses_is_left_alone():
    """Nothing to do is no error."""
    graph = Graph()
    graph.add_vertices("VERTEX_XY", [1], [[1.0, 2.0]])
    assert initialize(graph, "chordal").untouched == [1]


@pytest.mark.parametrize("case", ["expmap", "sim3"])
def test_weights_of_rotation_first_tangents(case):
    """The same noisy measurements, weighted alike, give the same chordal rotations and positions."""
    rng = np.random.default_rng(3)
    results = {}
    num = 12
    poses = random_poses(SE3, num, rng)
    pairs = np.concatenate([np.stack([np.arange(num), np.roll(np.arange(num), -k)], 1) for k in (1, 3)])
    exact = SE3(poses.storage[pairs[:, 0]]).inverse() * SE3(poses.storage[pairs[:, 1]])
    noise = SE3.exp(0.1 * rng.normal(size=(len(pairs), 6)))
    relative = exact * noise
    translation, rotation = 10.0 ** rng.uniform(-2, 2, (2, len(pairs)))
    for name in ("slam3d", case):
        vertex_tag, edge_tag, group, to_estimate, to_measurement = CASES[name]
        as_group = lambda pose, group=group: group(  # noqa: E731
            np.concatenate([pose.storage, np.ones((len(pose.storage), group.storage_dim - 7))], axis=1)
        )
        graph = Graph()
        graph.add_vertices(vertex_tag, np.arange(num))
        graph.vertex_sets[0].estimate[:, : group.storage_dim] = to_estimate(as_group(poses)).storage
        blocks = [translation, rotation] if name == "slam3d" else [rotation, translation]
        diagonal = np.repeat(np.stack(blocks, axis=1), 3, axis=1)
        if group is Sim3:
            diagonal = np.concatenate([diagonal, np.full((len(pairs), 1), 1e6)], axis=1)
        information = diagonal[:, :, None] * np.eye(diagonal.shape[1])
        graph.add_edges(edge_tag, pairs, to_measurement(as_group(relative)).storage, information)
        (found,) = pose_graphs(graph)
        results[name] = found.weight, found.relative.storage[:, :7]
        if group is SE3:
            initialize(graph, "chordal")
            results[name] += (found.poses.to_matrix(),)
    for expected, actual in zip(results["slam3d"], results[case], strict=False):
        np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-9)
