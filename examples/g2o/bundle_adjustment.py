"""Bundle adjustment with pixel noise, outliers and a Huber kernel, after g2o's `ba_demo`.

Prints point errors [m].
"""

from __future__ import annotations

import numpy as np
from module import g2o_module

g2o = g2o_module()

PIXEL_NOISE, OUTLIER_RATIO = 1.0, 0.05


def main() -> tuple[float, float]:
    """Returns the root mean square error of the inlier points before and after."""
    random = np.random.default_rng(2)
    optimizer = g2o.SparseOptimizer()
    optimizer.set_algorithm(
        g2o.OptimizationAlgorithmLevenberg(g2o.BlockSolverSE3(g2o.LinearSolverEigenSE3()))
    )
    camera = g2o.CameraParameters(1000.0, np.array([320.0, 240.0]), 0.0)
    camera.set_id(0)
    optimizer.add_parameter(camera)
    points = np.column_stack(
        [random.uniform(-1.5, 1.5, 300), random.uniform(-0.5, 0.5, 300), random.uniform(3.0, 4.0, 300)]
    )
    poses = [g2o.SE3Quat(np.eye(3), np.array([0.04 * i - 0.3, 0.0, 0.0])) for i in range(15)]
    for i, pose in enumerate(poses):
        vertex = g2o.VertexSE3Expmap()
        vertex.set_id(i)
        vertex.set_estimate(pose)
        vertex.set_fixed(i < 2)
        optimizer.add_vertex(vertex)
    inliers = {}
    for number, point in enumerate(points):
        add_point(optimizer, camera, poses, number, point, inliers, random)
    before = error(optimizer, points, inliers)
    optimizer.initialize_optimization()
    optimizer.optimize(15)
    after = error(optimizer, points, inliers)
    print(f"RMSE of {len(inliers)} inlier points: {before:.4f} -> {after:.4f}")
    return before, after


def add_point(optimizer, camera, poses, number, point, inliers, random) -> None:
    """A point that at least two cameras see, and its observations."""
    pixels = {i: camera.cam_map(pose * point) for i, pose in enumerate(poses)}
    pixels = {i: uv for i, uv in pixels.items() if 0 <= uv[0] < 640 and 0 <= uv[1] < 480}
    if len(pixels) < 2:
        return
    vertex = g2o.VertexPointXYZ()
    vertex.set_id(100 + number)
    vertex.set_marginalized(True)
    vertex.set_estimate(point + random.normal(0.0, 1.0, 3) * [0.3, 0.3, 0.3])
    optimizer.add_vertex(vertex)
    is_inlier = True
    for i, uv in pixels.items():
        if random.random() < OUTLIER_RATIO:
            is_inlier = False
            uv = np.array([random.uniform(0.0, 640.0), random.uniform(0.0, 480.0)])
        edge = g2o.EdgeProjectXYZ2UV()
        edge.set_vertex(0, vertex)
        edge.set_vertex(1, optimizer.vertex(i))
        edge.set_measurement(uv + random.normal(0.0, PIXEL_NOISE, 2))
        edge.set_information(np.eye(2))
        edge.set_robust_kernel(g2o.RobustKernelHuber(np.sqrt(5.991)))
        edge.set_parameter_id(0, 0)
        optimizer.add_edge(edge)
    if is_inlier:
        inliers[100 + number] = number


def error(optimizer, points, inliers) -> float:
    """Root mean square distance from the truth [m]."""
    distances = [optimizer.vertex(id).estimate() - points[number] for id, number in inliers.items()]
    return float(np.sqrt(np.mean(np.sum(np.square(distances), axis=1))))


if __name__ == "__main__":
    main()
