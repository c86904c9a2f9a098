"""Fit a line y = a x + b to points: a vertex and an edge defined in Python. Prints a and b."""

from __future__ import annotations

import numpy as np
from module import g2o_module

g2o = g2o_module()


class Line(g2o.VectorXVertex):
    """Slope and intercept."""

    def __init__(self) -> None:
        super().__init__()
        self.set_dimension(2)
        self.set_estimate(np.zeros(2))

    def oplus_impl(self, update: np.ndarray) -> None:
        """Add the update."""
        self.set_estimate(self.estimate() + update)


class PointOnLine(g2o.VariableVectorXEdge):
    """Vertical distance of a point from the line."""

    def __init__(self) -> None:
        super().__init__()
        self.set_dimension(1)
        self.resize(1)
        self.set_measurement(np.zeros(2))

    def compute_error(self) -> None:
        """Store a x + b - y."""
        slope, intercept = self.vertex(0).estimate()
        x, y = self.measurement()
        self.error = np.array([slope * x + intercept - y])


def main() -> np.ndarray:
    """Returns (a, b)."""
    random = np.random.default_rng(0)
    optimizer = g2o.SparseOptimizer()
    optimizer.set_algorithm(g2o.OptimizationAlgorithmLevenberg(g2o.BlockSolverX(g2o.LinearSolverDenseX())))
    line = Line()
    line.set_id(0)
    optimizer.add_vertex(line)
    for x in np.linspace(-5.0, 5.0, 200):
        edge = PointOnLine()
        edge.set_vertex(0, line)
        edge.set_measurement(np.array([x, 2.0 * x - 1.0 + random.normal(0.0, 0.1)]))
        edge.set_information(np.eye(1))
        optimizer.add_edge(edge)
    optimizer.initialize_optimization()
    optimizer.optimize(10)
    slope, intercept = line.estimate()
    print(f"y = {slope:.4f} x {intercept:+.4f}, expected about 2 x - 1")
    return line.estimate()


if __name__ == "__main__":
    main()
