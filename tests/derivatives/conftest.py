import numpy as np
import pytest

import graphopt


@pytest.fixture
def pose_graph():
    """Six poses in a plane with two closures that contradict the odometry."""
    rng = np.random.default_rng(0)
    graph = graphopt.Graph()
    truth = np.arange(6)[:, None] * [1.0, 0.3, 0.2]
    graph.add_vertices("VERTEX_SE2", range(6), truth + 0.05 * rng.standard_normal((6, 3)))
    pairs = [(i, i + 1) for i in range(5)] + [(0, 3), (2, 5)]
    measured = 0.3 * rng.standard_normal((7, 3)) + [1.0, 0.2, 0.1]
    graph.add_edges("EDGE_SE2", pairs, measured, 4.0 * np.eye(3))
    return graph
