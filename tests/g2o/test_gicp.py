"""GICP edges: point to plane, plane to plane, and both in one graph."""

from __future__ import annotations

import numpy as np
import pytest
from both import assert_same, both, estimates, isometry, optimizer_of

import graphopt.g2o as ours


def _correspondence(g2o, random, poses):
    """Noisy points and normals of one plane in both frames."""
    point, normal = np.array([0.0, 0.0, 5.0]) + random.uniform(-1.0, 1.0, 3), random.normal(size=3)
    measured = g2o.EdgeGICP()
    into = [np.linalg.inv(pose.matrix()) for pose in poses]
    measured.pos0, measured.pos1 = (
        transform[:3, :3] @ point + transform[:3, 3] + random.normal(0.0, 0.01, 3) for transform in into
    )
    normal /= np.linalg.norm(normal)
    measured.normal0, measured.normal1 = (transform[:3, :3] @ normal for transform in into)
    return measured


def _scans(g2o, algorithm, robust, camera):
    random = np.random.default_rng(1)
    optimizer = optimizer_of(g2o, algorithm)
    first = isometry(g2o, [0.0, 0.0, 0.0])
    truth = [first, isometry(g2o, [0.1, 0.2, 1.0], [0.1, -0.2, 0.15])]
    start = [first, isometry(g2o, [0.0, 0.0, 0.8], [0.05, -0.1, 0.1])]
    g2o.VertexSCam.set_cam(500.0, 500.0, 320.0, 240.0, 0.1)
    for i in range(2):
        vertex = g2o.VertexSCam() if camera else g2o.VertexSE3()
        vertex.set_id(i)
        vertex.set_estimate(start[i])
        vertex.set_fixed(i == 0)
        optimizer.add_vertex(vertex)
    edges = []
    for number in range(60):
        measured = _correspondence(g2o, random, truth)
        edge = g2o.EdgeVVGicp()
        edge.set_vertex(0, optimizer.vertex(0))
        edge.set_vertex(1, optimizer.vertex(1))
        edge.set_measurement(measured)
        edge.set_information(measured.prec0(0.01))
        if number % 3:
            edge.pl_pl, edge.cov0, edge.cov1 = True, measured.cov0(0.01), measured.cov1(0.01)
        if robust:
            edge.set_robust_kernel(g2o.RobustKernelHuber(0.05))
        optimizer.add_edge(edge)
        edges.append(edge)
    optimizer.initialize_optimization()
    optimizer.compute_active_errors()
    plane = edges[1]
    found = [optimizer.active_chi2(), optimizer.active_robust_chi2(), plane.information()]
    found += [plane.cov0, plane.cov1, plane.pl_pl, optimizer.optimize(6)]
    optimizer.compute_active_errors()
    found += [optimizer.active_chi2(), np.array(plane.error), plane.chi2(), plane.information()]
    return [*found, edges[0].information(), estimates(optimizer)]


@pytest.mark.oracle
@pytest.mark.parametrize("camera", [False, True])
@pytest.mark.parametrize("robust", [False, True])
@pytest.mark.parametrize("algorithm", ["GaussNewton", "Levenberg"])
def test_plane_to_plane(algorithm, robust, camera):
    """Errors, information and estimates are g2o's, in a graph with edges of both kinds."""
    assert_same(*both(_scans, algorithm, robust, camera), atol=1e-6, rtol=1e-7)


def test_kind_may_change_in_a_graph(tmp_path):
    """`pl_pl` is switched off again, and a file holds the edge as it stands."""
    random = np.random.default_rng(2)
    optimizer = optimizer_of(ours)
    for i in range(2):
        vertex = ours.VertexSE3()
        vertex.set_id(i)
        vertex.set_fixed(i == 0)
        optimizer.add_vertex(vertex)
    pose = isometry(ours, [0.1, 0.0, 0.2], [0.0, 0.1, 0.0])
    for _ in range(20):
        edge = ours.EdgeVVGicp()
        edge.set_vertex(0, optimizer.vertex(0))
        edge.set_vertex(1, optimizer.vertex(1))
        edge.set_measurement(_correspondence(ours, random, [isometry(ours, [0.0] * 3), pose]))
        edge.pl_pl = True
        optimizer.add_edge(edge)
    assert optimizer.initialize_optimization() and optimizer.optimize(5) > 0
    np.testing.assert_allclose(edge.information(), 0.5 * np.eye(3), atol=1e-12)  # both covariances are 1
    planes = optimizer.vertex(1).get_estimate_data()
    for edge in optimizer.edges():
        edge.pl_pl = False
        edge.set_information(np.eye(3))
    optimizer.initialize_optimization()
    optimizer.optimize(5)
    np.testing.assert_allclose(optimizer.vertex(1).get_estimate_data(), planes, atol=1e-6)
    assert optimizer.save(str(tmp_path / "icp.g2o"))
    again = optimizer_of(ours)
    assert again.load(str(tmp_path / "icp.g2o")) and len(again.edges()) == 20
