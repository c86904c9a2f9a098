"""Robust kernels against g2o's, through an edge whose chi2 is known."""

import numpy as np
import pytest

from graphopt.types.robust_kernels import KERNELS, huber, scale_delta

pytestmark = pytest.mark.oracle

RATIOS = [0.0, 1e-12, 1e-6, 1e-3, 0.3, 0.99, 1.0, 1.01, 1.7, 2.0, 3.0, 10.0, 1e3, 1e8]
WIDTHS = [0.1, 1.0, 2.5]


def robust_chi2_and_weight(g2o, kernel, chi2, call):
    """g2o's rho and weight: chi2 of one prior on one point, and its b = -weight e."""
    optimizer = g2o.SparseOptimizer()
    solver = g2o.BlockSolverX(g2o.LinearSolverDenseX())
    optimizer.set_algorithm(g2o.OptimizationAlgorithmLevenberg(solver))
    point = g2o.VertexPointXY()
    point.set_id(0)
    point.set_estimate(np.array([np.sqrt(chi2), 0.0]))
    edge = g2o.EdgeXYPrior()
    edge.set_vertex(0, point)
    edge.set_measurement(np.zeros(2))
    edge.set_information(np.eye(2))
    edge.set_robust_kernel(kernel)
    optimizer.add_vertex(point)
    optimizer.add_edge(edge)
    optimizer.initialize_optimization()
    optimizer.compute_active_errors()
    rho = optimizer.active_robust_chi2()
    optimizer.optimize(1)
    b = np.ravel(call(point.b))
    return edge_chi2(chi2), rho, -b[0] / np.sqrt(chi2) if chi2 > 0.0 else None


def edge_chi2(chi2):
    """chi2 after the square root of the set-up."""
    return np.sqrt(chi2) ** 2


def g2o_kernel(g2o, name, width):
    """g2o's kernel object."""
    return getattr(g2o, f"RobustKernel{name}")(width)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("kernel", KERNELS[1:], ids=lambda kernel: kernel.name)
def test_rho_and_weight(kernel, width, g2o, call):
    """Function values are g2o's rho[0] and rho[1] from zero to far beyond the width, on both sides of it."""
    for ratio in RATIOS:
        for limit in (width, width * width):
            chi2, rho, weight = robust_chi2_and_weight(
                g2o, g2o_kernel(g2o, kernel.name, width), ratio * limit, call
            )
            got_rho, got_weight = kernel.function(chi2, width)
            # 1 - x in g2o's formulas cancels for small chi2: an absolute error of the bound's size
            np.testing.assert_allclose(got_rho, rho, rtol=1e-12, atol=1e-15 * max(1.0, width * width))
            if weight is not None:
                np.testing.assert_allclose(got_weight, weight, rtol=1e-12, atol=1e-14)


def test_scale_delta_with_an_inner_kernel(g2o, call):
    """scale_delta(huber, w) is RobustKernelScaleDelta around RobustKernelHuber."""
    inner = g2o.RobustKernelHuber(0.7)
    kernel = g2o.RobustKernelScaleDelta(inner, 2.0)
    for chi2 in (0.1, 1.9, 2.1, 50.0):
        exact, rho, weight = robust_chi2_and_weight(g2o, kernel, chi2, call)
        np.testing.assert_allclose(scale_delta(huber, 0.7)(exact, 2.0), (rho, weight), rtol=1e-12)
