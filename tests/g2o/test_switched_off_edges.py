"""Edges that drop out keep the prepared block solver, and the answer is that of a graph without them."""

from __future__ import annotations

import numpy as np
import pytest

import graphopt.g2o as g2o
from graphopt.solver.cpu import CpuBlockSolver

NUM_POINTS, NUM_CAMERAS = 12, 4


@pytest.fixture
def narrowed(monkeypatch) -> list[int]:
    """Number of edges in each call of `choose_edges`."""
    counts: list[int] = []
    original = CpuBlockSolver.choose_edges

    def spy(self, masks):
        counts.append(sum(int(mask.sum()) for mask in masks))
        original(self, masks)

    monkeypatch.setattr(CpuBlockSolver, "choose_edges", spy)
    return counts


def bundle(left_out: frozenset[int] = frozenset(), kernel: bool = True):
    """(optimizer, edges): cameras on a line and points that all of them see."""
    random = np.random.default_rng(5)
    points = random.uniform([-2.0, -2.0, 6.0], [4.0, 2.0, 9.0], (NUM_POINTS, 3))
    optimizer = g2o.SparseOptimizer()
    solver = g2o.BlockSolverSE3(g2o.LinearSolverEigenSE3())
    optimizer.set_algorithm(g2o.OptimizationAlgorithmLevenberg(solver))
    for k in range(NUM_CAMERAS):
        vertex = g2o.VertexSE3Expmap(k)
        vertex.set_estimate(g2o.SE3Quat(np.eye(3), np.array([-0.5 * k, 0.02 * k, 0.0])))
        vertex.set_fixed(k < 2)
        optimizer.add_vertex(vertex)
    for p, point in enumerate(points):
        vertex = g2o.VertexPointXYZ(100 + p)
        vertex.set_marginalized(True)
        vertex.set_estimate(point + 0.05)
        optimizer.add_vertex(vertex)
    edges = []
    for p, point in enumerate(points):
        for k in range(NUM_CAMERAS):
            x, y, z = point - [0.5 * k, 0.0, 0.0]
            pixel = np.array([500 * x / z + 320, 500 * y / z + 240, 500 * x / z + 320 - 50 / z])
            edge = g2o.EdgeStereoSE3ProjectXYZ()
            edge.set_vertex(0, optimizer.vertex(100 + p))
            edge.set_vertex(1, optimizer.vertex(k))
            edge.set_measurement(pixel + random.normal(size=3))
            edge.fx, edge.fy, edge.cx, edge.cy, edge.bf = 500.0, 500.0, 320.0, 240.0, 50.0
            if kernel:
                edge.set_robust_kernel(g2o.RobustKernelHuber(2.0))
            if len(edges) not in left_out:
                optimizer.add_edge(edge)
            edges.append(edge)
    return optimizer, edges


def estimates(optimizer) -> np.ndarray:
    return np.concatenate([optimizer.vertex(k).get_estimate_data() for k in sorted(optimizer.vertices())])


def optimized(optimizer, iterations: int = 15) -> np.ndarray:
    optimizer.initialize_optimization()
    assert optimizer.optimize(iterations) > 0
    return estimates(optimizer)


@pytest.mark.parametrize("off", [frozenset({1, 7, 30}), frozenset(range(0, 48, 4))], ids=["few", "camera"])
def test_the_answer_is_that_without_the_edges(off, narrowed):
    """Also for a fixed camera that loses all its edges."""
    optimizer, edges = bundle()
    optimizer.initialize_optimization()
    optimizer.push()
    optimizer.optimize(3)
    optimizer.pop()
    for number in off:
        edges[number].set_level(1)
    found = optimized(optimizer)
    assert narrowed == [48 - len(off)]
    other, _ = bundle(off)
    expected = optimized(other)
    np.testing.assert_allclose(found, expected, rtol=0.0, atol=1e-7)
    assert optimizer.active_robust_chi2() == pytest.approx(other.active_robust_chi2(), rel=1e-9)
    assert len(optimizer.active_edges()) == 48 - len(off)
    assert edges[min(off)] not in optimizer.active_edges()


def test_edges_come_back(narrowed):
    """Switched off and on again: the digits of the first time."""
    optimizer, edges = bundle()
    first = optimized(optimizer, 3)
    edges[5].set_level(1)
    start, _ = bundle()
    for k, vertex in optimizer.vertices().items():
        vertex.set_estimate_data(start.vertex(k).get_estimate_data())
    optimized(optimizer, 3)
    edges[5].set_level(0)
    for k, vertex in optimizer.vertices().items():
        vertex.set_estimate_data(start.vertex(k).get_estimate_data())
    np.testing.assert_array_equal(optimized(optimizer, 3), first)
    assert narrowed == [47, 48]


def test_an_edge_that_was_off_before_needs_another_structure(narrowed):
    """Also where as many edges take part as then."""
    optimizer, edges = bundle()
    edges[1].set_level(1)
    optimized(optimizer, 3)
    edges[1].set_level(0)
    edges[2].set_level(1)
    found = optimized(optimizer)
    assert narrowed == []
    np.testing.assert_allclose(found, optimized(bundle(frozenset({2}))[0]), rtol=0.0, atol=1e-7)


def test_a_point_without_edges_is_not_optimized(narrowed):
    """A vertex that loses all its edges needs another structure."""
    optimizer, edges = bundle()
    optimized(optimizer, 3)
    for edge in edges[:NUM_CAMERAS]:
        edge.set_level(1)
    before = optimizer.vertex(100).get_estimate_data()
    optimized(optimizer, 3)
    assert narrowed == []
    np.testing.assert_array_equal(optimizer.vertex(100).get_estimate_data(), before)
    assert optimizer.vertex(100) not in optimizer.active_vertices()


def test_kernels_that_change_are_seen(narrowed):
    """ORB-SLAM takes the robust kernels away in its last rounds."""
    optimizer, edges = bundle()
    optimized(optimizer, 3)
    for number, edge in enumerate(edges):
        edge.set_robust_kernel(None)
        edge.set_level(int(number in (1, 7)))
    found = optimized(optimizer)
    assert narrowed == []
    other, _ = bundle(frozenset({1, 7}), kernel=False)
    np.testing.assert_allclose(found, optimized(other), rtol=0.0, atol=1e-7)


def test_measurements_that_change_are_seen(narrowed):
    """New numbers count, of the edges that take part and of those that come back."""
    optimizer, edges = bundle()
    optimized(optimizer, 3)
    edges[1].set_level(1)
    optimized(optimizer, 3)
    for edge in edges[:3]:
        edge.set_measurement(edge.measurement() + 1.0)
    edges[1].set_level(0)
    edges[2].set_level(1)
    found = optimized(optimizer)
    assert narrowed == [47, 47]
    other, others = bundle(frozenset({2}))
    for edge in others[:3]:
        edge.set_measurement(edge.measurement() + 1.0)
    np.testing.assert_allclose(found, optimized(other), rtol=0.0, atol=1e-7)
