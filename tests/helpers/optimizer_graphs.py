"""Small graphs for tests of the optimizer and its solvers."""

import numpy as np

import graphopt
from graphopt.graph import Graph
from graphopt.types import slam3d


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


def map_of_points(seed: int = 1, noise: float = 0.05) -> graphopt.Graph:
    """12 poses that see 80 points, each point from all of them."""
    rng = np.random.default_rng(seed)
    graph, poses, points = graphopt.Graph(), np.zeros((12, 7)), rng.normal(size=(80, 3))
    poses[:, 6] = 1.0
    poses[:, :3] = rng.normal(size=(12, 3))
    graph.add_vertices(slam3d.VertexSE3, np.arange(12), poses + 0.0, fixed=np.arange(12) == 0)
    start = points + noise * rng.normal(size=points.shape)
    graph.add_vertices(slam3d.VertexPointXYZ, 100 + np.arange(80), start, marginalized=True)
    graph.add_parameters(slam3d.ParameterSE3Offset, [0], [poses[0] * [0, 0, 0, 1, 1, 1, 1]])
    ends = np.stack(np.meshgrid(np.arange(12), 100 + np.arange(80)), axis=-1).reshape(-1, 2)
    measured = points[ends[:, 1] - 100] - poses[ends[:, 0], :3] + 0.01 * rng.normal(size=(len(ends), 3))
    graph.add_edges(slam3d.EdgeSE3PointXYZ, ends, measured, parameters=np.zeros((len(ends), 1), np.int64))
    graph.vertex_set(slam3d.VertexSE3).estimate[1:, :3] += noise * rng.normal(size=(11, 3))
    return graph
