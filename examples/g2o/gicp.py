"""Point-to-plane ICP between two frames with known matches, after g2o's `gicp_demo`.

Prints the error of the motion.
"""

from __future__ import annotations

import numpy as np
from module import g2o_module

g2o = g2o_module()


def main() -> tuple[float, float]:
    """Returns the translation error before and after."""
    random = np.random.default_rng(5)
    optimizer = g2o.SparseOptimizer()
    optimizer.set_algorithm(g2o.OptimizationAlgorithmLevenberg(g2o.BlockSolverX(g2o.LinearSolverDenseX())))
    translation = np.array([[0.0], [0.0], [1.0]])
    poses = [g2o.Isometry3d(np.eye(3), np.zeros((3, 1))), g2o.Isometry3d(np.eye(3), translation)]
    for i, pose in enumerate(poses):
        vertex = g2o.VertexSE3()
        vertex.set_id(i)
        shift = np.array([[0.1 * i], [-0.05 * i], [0.2 * i]])
        vertex.set_estimate(g2o.Isometry3d(np.eye(3), pose.translation().reshape(3, 1) + shift))
        vertex.set_fixed(i == 0)
        optimizer.add_vertex(vertex)
    for _ in range(300):
        add_match(optimizer, poses, random)
    before = float(np.linalg.norm(optimizer.vertex(1).estimate().translation() - translation[:, 0]))
    optimizer.initialize_optimization()
    optimizer.optimize(10)
    after = float(np.linalg.norm(optimizer.vertex(1).estimate().translation() - translation[:, 0]))
    print(f"translation error {before:.4f} -> {after:.4f}")
    return before, after


def add_match(optimizer, poses, random) -> None:
    """The same point in both frames, with its plane's normal; noise lies mostly in the plane."""
    point = random.uniform(-3.0, 3.0, 3) + np.array([0.0, 0.0, 6.0])
    normal = random.normal(size=3)
    normal /= np.linalg.norm(normal)
    match = g2o.EdgeGICP()
    noise = random.normal(0.0, 0.1, 3)
    match.pos0 = poses[0].inverse() * point
    match.pos1 = poses[1].inverse() * point + noise - 0.95 * normal * (normal @ noise)
    match.normal0 = normal
    match.normal1 = normal
    edge = g2o.EdgeVVGicp()
    edge.set_vertex(0, optimizer.vertex(0))
    edge.set_vertex(1, optimizer.vertex(1))
    edge.set_measurement(match)
    edge.set_information(match.prec0(0.01))
    optimizer.add_edge(edge)


if __name__ == "__main__":
    main()
