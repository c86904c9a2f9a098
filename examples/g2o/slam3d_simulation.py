"""SLAM in space by the built-in simulator: odometry, points, GPS. Prints chi2 before and after."""

from __future__ import annotations

from module import g2o_module

g2o = g2o_module()


def main() -> tuple[float, float]:
    """Returns chi2 before and after."""
    simulator = g2o.Simulator3D()
    config = simulator.config
    config.world_size, config.nlandmarks, config.sim_steps = 15.0, 60, 100
    config.has_odom = config.has_point_sensor = config.has_gps = True
    simulator.seed(4)
    simulator.setup()
    simulator.simulate()
    optimizer = g2o.SparseOptimizer()
    optimizer.add_graph(simulator.graph())
    optimizer.set_algorithm(
        g2o.OptimizationAlgorithmLevenberg(g2o.BlockSolverSE3(g2o.LinearSolverEigenSE3()))
    )
    optimizer.initialize_optimization()
    optimizer.compute_active_errors()
    before = optimizer.active_chi2()
    optimizer.optimize(15)
    after = optimizer.active_chi2()
    print(
        f"{len(optimizer.vertices())} vertices, {len(optimizer.edges())} edges: "
        f"chi2 {before:.1f} -> {after:.1f}"
    )
    return before, after


if __name__ == "__main__":
    main()
