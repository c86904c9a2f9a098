"""A monocular trajectory with scale drift, closed by one Sim3 edge. Prints the gap and the final scale."""

from __future__ import annotations

import numpy as np
from module import g2o_module

g2o = g2o_module()


def main() -> tuple[float, float]:
    """Returns the distance between first and last position before and after."""
    count = 60
    turn = 2.0 * np.pi / count
    step = g2o.Sim3(rotation(turn), np.array([0.2, 0.0, 0.0]), 1.0)
    drifting = g2o.Sim3(rotation(turn), np.array([0.2, 0.0, 0.0]), 0.99)
    optimizer = g2o.SparseOptimizer()
    optimizer.set_algorithm(
        g2o.OptimizationAlgorithmLevenberg(g2o.BlockSolverSim3(g2o.LinearSolverEigenSim3()))
    )
    pose = g2o.Sim3()
    for i in range(count):
        vertex = g2o.VertexSim3Expmap()
        vertex.set_id(i)
        vertex.set_estimate(pose)
        vertex.set_fixed(i == 0)
        optimizer.add_vertex(vertex)
        pose = drifting * pose
    for i in range(count):
        edge = g2o.EdgeSim3()
        edge.set_vertex(0, optimizer.vertex(i))
        edge.set_vertex(1, optimizer.vertex((i + 1) % count))
        edge.set_measurement(step if i == count - 1 else drifting)
        edge.set_information(np.eye(7))
        optimizer.add_edge(edge)
    before = gap(optimizer, count)
    optimizer.initialize_optimization()
    optimizer.optimize(20)
    after = gap(optimizer, count)
    scale = optimizer.vertex(count - 1).estimate().scale()
    print(f"gap at the loop closure {before:.3f} -> {after:.3f}, scale of the last pose {scale:.3f}")
    return before, after


def rotation(angle: float) -> np.ndarray:
    """(3, 3) rotation around z."""
    s, c = np.sin(angle), np.cos(angle)
    return np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])


def gap(optimizer, count: int) -> float:
    """Distance between the camera centers of the first and the last pose."""
    centers = [optimizer.vertex(i).estimate().inverse().translation() for i in (0, count - 1)]
    return float(np.linalg.norm(centers[1] - centers[0]))


if __name__ == "__main__":
    main()
