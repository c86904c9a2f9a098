"""Stereo bundle adjustment as SLAM systems do it: Huber, then outliers to level 1, then again.

Prints pose errors [m].
"""

from __future__ import annotations

import numpy as np
from module import g2o_module

g2o = g2o_module()

CAMERA = (450.0, 450.0, 320.0, 240.0, 45.0)  # fx fy cx cy [px], bf [px m]
CHI2_LIMIT = 7.815


def main() -> tuple[float, float]:
    """Returns the mean position error of the cameras before and after."""
    random = np.random.default_rng(3)
    optimizer = g2o.SparseOptimizer()
    optimizer.set_algorithm(
        g2o.OptimizationAlgorithmLevenberg(g2o.BlockSolverSE3(g2o.LinearSolverEigenSE3()))
    )
    truth = [np.array([-0.2 * i, 0.0, 0.05 * i]) for i in range(10)]
    for i, translation in enumerate(truth):
        vertex = g2o.VertexSE3Expmap()
        vertex.set_id(i)
        noise = random.normal(0.0, 0.05, 3) if i else np.zeros(3)
        vertex.set_estimate(g2o.SE3Quat(np.eye(3), translation + noise))
        vertex.set_fixed(i == 0)
        optimizer.add_vertex(vertex)
    edges = []
    for number in range(250):
        edges += observations(optimizer, truth, number, random)
    before = error(optimizer, truth)
    optimizer.initialize_optimization()
    optimizer.optimize(5)
    for edge in edges:
        if edge.chi2() > CHI2_LIMIT or not edge.is_depth_positive():
            edge.set_level(1)
    optimizer.initialize_optimization()
    optimizer.optimize(10)
    after = error(optimizer, truth)
    kept = len(optimizer.active_edges())
    print(f"{kept} of {len(edges)} observations kept, position error {before:.4f} -> {after:.4f}")
    return before, after


def observations(optimizer, truth, number, random) -> list:
    """A point and its observations by all cameras, some of them wrong."""
    point = random.uniform([-3.0, -2.0, 4.0], [3.0, 2.0, 12.0])
    vertex = g2o.VertexPointXYZ()
    vertex.set_id(100 + number)
    vertex.set_marginalized(True)
    vertex.set_estimate(point + random.normal(0.0, 0.1, 3))
    optimizer.add_vertex(vertex)
    edges = []
    fx, fy, cx, cy, bf = CAMERA
    for i, translation in enumerate(truth):
        x, y, z = point + translation
        pixel = np.array([fx * x / z + cx, fy * y / z + cy, fx * x / z + cx - bf / z]) + random.normal(
            0.0, 0.7, 3
        )
        if random.random() < 0.05:
            pixel += random.uniform(-50.0, 50.0, 3)
        edge = g2o.EdgeStereoSE3ProjectXYZ()
        edge.set_vertex(0, vertex)
        edge.set_vertex(1, optimizer.vertex(i))
        edge.set_measurement(pixel)
        edge.set_information(np.eye(3) / 0.7**2)
        edge.set_robust_kernel(g2o.RobustKernelHuber(np.sqrt(CHI2_LIMIT)))
        edge.fx, edge.fy, edge.cx, edge.cy, edge.bf = CAMERA
        optimizer.add_edge(edge)
        edges.append(edge)
    return edges


def error(optimizer, truth) -> float:
    """Mean distance of the cameras from their true translation."""
    return float(
        np.mean(
            [np.linalg.norm(optimizer.vertex(i).estimate().translation() - t) for i, t in enumerate(truth)]
        )
    )


if __name__ == "__main__":
    main()
