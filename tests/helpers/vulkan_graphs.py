"""Small graphs for the tests of the Vulkan solver, and the comparison with the CPU."""

from __future__ import annotations

import numpy as np

from graphopt.graph import Graph

CHI2_TOLERANCE = 1e-8  # relative, per iteration, against the CPU in double precision


def bundle_adjustment(num_cameras=6, num_points=40, seed=0) -> Graph:
    """Cameras in a row that see a box of points, with noise on everything."""
    rng = np.random.default_rng(seed)
    points = rng.uniform([-3, -2, -12], [3, 2, -8], (num_points, 3))
    cameras = np.zeros((num_cameras, 9))
    cameras[:, 3] = np.linspace(-2, 2, num_cameras)
    cameras[:, 6] = 500.0
    camera, point = (index.ravel() for index in np.indices((num_cameras, num_points)))
    seen = rng.random(len(camera)) < 0.6
    camera, point = camera[seen], point[seen]
    in_camera = points[point] + cameras[camera, 3:6]
    pixels = -500.0 * in_camera[:, :2] / in_camera[:, 2:] + rng.normal(size=(len(camera), 2))
    graph = Graph()
    start = cameras + 1e-3 * rng.normal(size=cameras.shape)
    start[:2] = cameras[:2]
    graph.add_vertices("VERTEX_CAM_BAL", np.arange(num_cameras), start, fixed=np.arange(num_cameras) < 2)
    ids = num_cameras + np.arange(num_points)
    graph.add_vertices(
        "VERTEX_TRACKXYZ", ids, points + 0.05 * rng.normal(size=points.shape), marginalized=True
    )
    graph.add_edges("EDGE_OBSERVATION_BAL", np.stack([camera, ids[point]], axis=1), pixels)
    return graph


def pose_graph(num=40, seed=1) -> Graph:
    """A noisy loop in the plane."""
    rng = np.random.default_rng(seed)
    turn = 2 * np.pi / num
    poses = np.stack(
        [np.cos(turn * np.arange(num)), np.sin(turn * np.arange(num)), turn * np.arange(num)], axis=1
    )
    step = 2 * np.sin(turn / 2)
    measured = np.tile([step * np.cos(turn / 2), step * np.sin(turn / 2), turn], (num, 1))
    graph = Graph()
    graph.add_vertices("VERTEX_SE2", np.arange(num), poses + 0.1 * rng.normal(size=poses.shape))
    pairs = np.stack([np.arange(num), (np.arange(num) + 1) % num], axis=1)
    graph.add_edges("EDGE_SE2", pairs, measured + 0.02 * rng.normal(size=measured.shape))
    return graph


def assert_same_path(expected, actual, tolerance=CHI2_TOLERANCE):
    """Same chi2 after every iteration, same trials."""
    assert [i.trials for i in actual.iterations] == [i.trials for i in expected.iterations]
    np.testing.assert_allclose(
        [i.chi2 for i in actual.iterations], [i.chi2 for i in expected.iterations], rtol=tolerance
    )
