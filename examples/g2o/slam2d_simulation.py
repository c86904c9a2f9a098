"""Planar SLAM: a robot drives squares, sees landmarks, has odometry. Prints chi2 before and after."""

from __future__ import annotations

import numpy as np
from module import g2o_module

g2o = g2o_module()


def main() -> tuple[float, float]:
    """Returns chi2 before and after."""
    random = np.random.default_rng(1)
    optimizer = g2o.SparseOptimizer()
    optimizer.set_algorithm(g2o.OptimizationAlgorithmGaussNewton(g2o.BlockSolverX(g2o.LinearSolverEigenX())))
    landmarks = random.uniform(-2.0, 12.0, (20, 2))
    truth, guess = g2o.SE2(0.0, 0.0, 0.0), g2o.SE2(0.0, 0.0, 0.0)
    seen: set[int] = set()
    for step in range(80):
        vertex = g2o.VertexSE2()
        vertex.set_id(step)
        if step:
            motion = g2o.SE2(1.0, 0.0, np.pi / 2 if step % 10 == 0 else 0.0)
            noise = g2o.SE2(*random.normal(0.0, [0.03, 0.03, 0.01]))
            truth, measured = truth * motion, motion * noise
            guess = guess * measured
        vertex.set_estimate(guess)
        vertex.set_fixed(step == 0)
        optimizer.add_vertex(vertex)
        if step:
            edge = g2o.EdgeSE2()
            edge.set_vertex(0, optimizer.vertex(step - 1))
            edge.set_vertex(1, vertex)
            edge.set_measurement(measured)
            edge.set_information(np.diag([1 / 0.03**2, 1 / 0.03**2, 1 / 0.01**2]))
            optimizer.add_edge(edge)
        observe(optimizer, vertex, truth, landmarks, seen, random)
    optimizer.initialize_optimization()
    optimizer.compute_active_errors()
    before = optimizer.active_chi2()
    optimizer.optimize(10)
    optimizer.compute_active_errors()
    after = optimizer.active_chi2()
    print(
        f"{len(optimizer.vertices())} vertices, {len(optimizer.edges())} edges: "
        f"chi2 {before:.1f} -> {after:.1f}"
    )
    return before, after


def observe(optimizer, vertex, truth, landmarks, seen, random) -> None:
    """Landmarks within 4 m."""
    for number, position in enumerate(landmarks):
        local = truth.inverse() * position
        if np.linalg.norm(local) > 4.0:
            continue
        measured = local + random.normal(0.0, 0.05, 2)
        if number not in seen:
            seen.add(number)
            landmark = g2o.VertexPointXY()
            landmark.set_id(1000 + number)
            landmark.set_estimate(vertex.estimate() * measured)
            optimizer.add_vertex(landmark)
        edge = g2o.EdgeSE2PointXY()
        edge.set_vertex(0, vertex)
        edge.set_vertex(1, optimizer.vertex(1000 + number))
        edge.set_measurement(measured)
        edge.set_information(np.eye(2) / 0.05**2)
        optimizer.add_edge(edge)


if __name__ == "__main__":
    main()
