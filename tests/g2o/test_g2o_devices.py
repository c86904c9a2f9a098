"""`set_default_device`: the drop-in on a Vulkan device gives the CPU's numbers, Python elements included."""

from __future__ import annotations

import numpy as np
import pytest
from both import assert_same, estimates, isometry, optimizer_of
from vulkan_devices import shared_device

import graphopt.g2o as g2o


@pytest.fixture
def on_device(monkeypatch):
    """Run a script on the CPU and on the Vulkan device, under validation."""
    monkeypatch.setenv("GRAPHOPT_VALIDATION", "1")
    shared_device("address")

    def both_devices(script):
        results = []
        for name in ("cpu", "vulkan"):
            g2o.set_default_device(name)
            results.append(script())
        return results

    before = g2o.default_device()
    yield both_devices
    g2o.set_default_device(before)
    assert shared_device("address").messages == []


def _camera_edge(optimizer, point, pose, pixel):
    edge = g2o.EdgeSE3ProjectXYZ()
    edge.set_vertex(0, point)
    edge.set_vertex(1, pose)
    edge.fx = edge.fy = 300.0
    edge.cx, edge.cy = 160.0, 120.0
    edge.set_measurement(pixel)
    edge.set_robust_kernel(g2o.RobustKernelHuber(2.0))
    optimizer.add_edge(edge)


def _bundle(linear):
    random = np.random.default_rng(4)
    optimizer = optimizer_of(g2o, "Levenberg", linear, "SE3")
    for i in range(4):
        pose = g2o.VertexSE3Expmap()
        pose.set_id(i)
        pose.set_estimate(g2o.SE3Quat(np.eye(3), [0.2 * i, 0.0, 0.0]))
        pose.set_fixed(i < 2)
        optimizer.add_vertex(pose)
    for number in range(20):
        x = random.uniform([-1.0, -1.0, 3.0], [1.0, 1.0, 5.0])
        point = g2o.VertexSBAPointXYZ()
        point.set_id(10 + number)
        point.set_marginalized(True)
        point.set_estimate(x + random.normal(0.0, 0.05, 3))
        optimizer.add_vertex(point)
        for i in range(4):
            at = x + np.array([0.2 * i, 0.01 * i, 0.0])
            pixel = 300.0 * at[:2] / at[2] + [160.0, 120.0] + random.normal(0.0, 0.5, 2)
            _camera_edge(optimizer, point, optimizer.vertex(i), pixel)
    return optimizer


@pytest.mark.parametrize("linear", ["Eigen", "PCG"])
def test_bundle_adjustment(on_device, linear):
    """Landmarks are eliminated; estimates, Hessian blocks and covariances are the CPU's."""

    def script():
        optimizer = _bundle(linear)
        optimizer.initialize_optimization()
        count = optimizer.optimize(4)
        free = [vertex for vertex in optimizer.index_mapping() if not vertex.marginalized()]
        matrix, good = optimizer.compute_marginals(free)
        blocks = [matrix.block(vertex.hessian_index(), vertex.hessian_index()) for vertex in free]
        return [
            count,
            optimizer.active_chi2(),
            good,
            [vertex.hessian() for vertex in free],
            blocks,
            estimates(optimizer),
        ]

    actual, expected = on_device(script)[::-1]
    assert_same(actual, expected, rtol=1e-6, atol=1e-6)


def test_plane_to_plane(on_device):
    """Information that follows from the estimates reaches the device too."""

    def script():
        random = np.random.default_rng(7)
        optimizer = optimizer_of(g2o)
        for i in range(2):
            vertex = g2o.VertexSE3()
            vertex.set_id(i)
            vertex.set_fixed(i == 0)
            optimizer.add_vertex(vertex)
        turn = isometry(g2o, [0.1, -0.1, 0.3], [0.1, 0.05, -0.1])
        for _ in range(30):
            measured, point = g2o.EdgeGICP(), random.uniform(-1.0, 1.0, 3)
            measured.pos1, measured.pos0 = point, turn * point + random.normal(0.0, 0.01, 3)
            edge = g2o.EdgeVVGicp()
            edge.set_vertex(0, optimizer.vertex(0))
            edge.set_vertex(1, optimizer.vertex(1))
            edge.set_measurement(measured)
            edge.pl_pl, edge.cov0, edge.cov1 = True, np.diag([1.0, 1.0, 0.01]), np.diag([1.0, 0.5, 0.01])
            optimizer.add_edge(edge)
        optimizer.initialize_optimization()
        return [optimizer.optimize(5), optimizer.active_chi2(), estimates(optimizer)]

    expected, actual = on_device(script)
    assert_same(actual, expected, rtol=1e-6, atol=1e-6)
