"""Small pose graphs for tests of the optimizer."""

import numpy as np

import graphopt
from graphopt.graph import Graph


def noisy_ring(num_vertices=40, seed=0, noise=0.05):
    """Poses on a circle, noisy odometry and loop closures, a start from the odometry."""
    rng = np.random.default_rng(seed)
    angle = 2.0 * np.pi / num_vertices
    step = np.array([0.5, 0.0, angle])
    poses = [np.zeros(3)]
    measurements = step + noise * rng.normal(size=(num_vertices - 1, 3)) * [1.0, 1.0, 0.3]
    for x, y, theta in measurements:
        px, py, pt = poses[-1]
        poses.append(
            np.array([px + np.cos(pt) * x - np.sin(pt) * y, py + np.sin(pt) * x + np.cos(pt) * y, pt + theta])
        )
    graph = Graph()
    ids = np.arange(num_vertices)
    graph.add_vertices("VERTEX_SE2", ids, np.array(poses))
    graph.add_edges("EDGE_SE2", np.stack([ids[:-1], ids[1:]], 1), measurements, np.diag([50.0, 50.0, 200.0]))
    graph.add_edges("EDGE_SE2", [[num_vertices - 1, 0]], step[None], np.diag([50.0, 50.0, 200.0]))
    return graph


def tangled(num_poses=400, seed=0):
    """Poses in the plane with many random loop closures: one large dense front."""
    rng = np.random.default_rng(seed)
    graph = graphopt.Graph()
    ids = np.arange(num_poses)
    truth = np.column_stack([np.cumsum(rng.normal(size=(num_poses, 2)), 0), rng.normal(size=num_poses)])
    graph.add_vertices("VERTEX_SE2", ids, truth + 0.1 * rng.normal(size=truth.shape))
    pairs = np.concatenate([np.stack([ids[:-1], ids[1:]], 1), rng.integers(0, num_poses, (6 * num_poses, 2))])
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    first, second = truth[pairs[:, 0]], truth[pairs[:, 1]]
    measured = (graphopt.geometry.SE2(first).inverse() * graphopt.geometry.SE2(second)).storage
    graph.add_edges("EDGE_SE2", pairs, measured)
    return graph
