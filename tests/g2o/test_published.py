"""Ways in which published programs call the bindings, each of which once failed here."""

from __future__ import annotations

import numpy as np
import pytest
from both import assert_same, both, isometry, optimizer_of, ring, rotation_of

import graphopt.g2o as g2o


def test_quaternion_of_an_array():
    """w first, as in the older bindings; `coeffs` has it last."""
    w, x, y, z = 0.5, 0.1, -0.7, 0.5
    for given in ([w, x, y, z], np.array([w, x, y, z]), np.array([[w], [x], [y], [z]])):
        q = g2o.Quaternion(given)
        assert (q.w(), q.x(), q.y(), q.z()) == (w, x, y, z)
    np.testing.assert_array_equal(q.coeffs(), [x, y, z, w])
    np.testing.assert_allclose(g2o.SE3Quat([w, x, y, z], np.zeros(3)).rotation().w(), w)


@pytest.mark.parametrize("cls", [g2o.Isometry2d, g2o.Isometry3d])
def test_copy_of_an_isometry(cls):
    """Pose classes of SLAM systems keep one and copy it."""
    size = cls().t.size
    pose = cls(np.eye(size), np.arange(1.0, 1.0 + size))
    other = pose.copy()
    pose.set_translation(np.zeros(size))
    assert type(other) is cls
    np.testing.assert_array_equal(other.t, np.arange(1.0, 1.0 + size))


def test_an_id_instead_of_a_vertex():
    """The message says what to give."""
    optimizer = ring(g2o)
    for call in (optimizer.remove_vertex, optimizer.detach_vertex, optimizer.add_vertex):
        with pytest.raises(TypeError, match=r"Expected a vertex, got 3; vertex\(id\)"):
            call(3)
    assert optimizer.remove_vertex(optimizer.vertex(3)) and len(optimizer.vertices()) == 7


def test_single_numbers_of_hessian_and_b():
    """`hessian(i, j)` and `b(i)` of older bindings."""
    optimizer = ring(g2o)
    optimizer.initialize_optimization()
    optimizer.optimize(1)
    vertex = optimizer.vertex(2)
    assert vertex.hessian(1, 2) == vertex.hessian()[1, 2] != 0.0
    assert vertex.b(4) == vertex.b()[4]


def _turned_back(axis):
    """Difference quotient of an inverse rotation by the quaternion's vector part."""
    turn = np.zeros(3)
    turn[axis] = 2e-6  # a rotation vector of twice the vector part
    return (rotation_of(turn).T - rotation_of(-turn).T) / 2e-6


@pytest.mark.parametrize("cls", [g2o.Edge_V_V_GICP, g2o.VertexSCam])
def test_derivatives_of_rotations(cls):
    """Static members of the GICP classes."""
    for axis, name in enumerate(("dRidx", "dRidy", "dRidz")):
        np.testing.assert_allclose(getattr(cls, name), _turned_back(axis), atol=1e-9)
        np.testing.assert_array_equal(getattr(cls(), name), getattr(cls, name))


def test_stereo_camera_at_a_matrix():
    """`VertexSCam` takes what `VertexSE3` takes."""
    vertex = g2o.VertexSCam()
    vertex.set_estimate(isometry(g2o, [1.0, 2.0, 3.0]).matrix())
    np.testing.assert_array_equal(vertex.estimate().t, [1.0, 2.0, 3.0])


@pytest.mark.oracle
def test_built_in_jacobians_for_a_watching_class():
    """`super().linearize_oplus()` gives the built-in Jacobians, also where `compute_error` is overridden."""

    def script(module):
        seen = []

        class Watching(module.EdgeSE2):
            def compute_error(self):
                super().compute_error()

            def linearize_oplus(self):
                super().linearize_oplus()
                seen.append([np.array(self.jacobian_oplus_xi), np.array(self.jacobian_oplus_xj)])

        optimizer = optimizer_of(module, "GaussNewton")
        for i in range(2):
            vertex = module.VertexSE2()
            vertex.set_id(i)
            vertex.set_estimate(module.SE2(1.5 * i, 0.2, 0.3))
            vertex.set_fixed(i == 0)
            optimizer.add_vertex(vertex)
        edge = Watching()
        for i in range(2):
            edge.set_vertex(i, optimizer.vertex(i))
        edge.set_measurement(module.SE2(2.0, 1.0, 0.5))
        edge.set_information(np.eye(3))
        optimizer.add_edge(edge)
        optimizer.initialize_optimization()
        optimizer.optimize(2)
        return [seen[0][1], seen[1][1], optimizer.vertex(1).estimate().to_vector()]

    actual, expected = both(script)
    assert_same(actual, expected, rtol=1e-12, atol=1e-12)


def test_error_of_its_own_on_a_built_in_edge():
    """A class that only overrides `compute_error` is linearized by differences of that."""

    class Half(g2o.EdgeSE2):
        def compute_error(self):
            super().compute_error()
            self.error = 0.5 * self.error

    edges = [Half(), g2o.EdgeSE2()]
    for edge in edges:
        for i in range(2):
            vertex = g2o.VertexSE2()
            vertex.set_estimate(g2o.SE2(1.5 * i, 0.2, 0.3))
            edge.set_vertex(i, vertex)
        edge.set_measurement(g2o.SE2(2.0, 1.0, 0.5))
    np.testing.assert_allclose(edges[0].jacobian(1), 0.5 * edges[1].jacobian(1), atol=1e-6)


def test_numbers_made_of_an_error():
    """Sums of `edge.error()` are numbers, as losses that programs print, hash and write to files."""
    optimizer = ring(g2o)
    edge = next(iter(optimizer.edges()))
    edge.compute_error()
    total = 0.0 + (edge.error()[:3] ** 2).sum()
    assert isinstance(total, float)
    assert isinstance(edge.error @ edge.information() @ edge.error(), float)
    assert type(edge.error() * 2.0) is np.ndarray
    np.testing.assert_array_equal(edge.error, edge.error())


@pytest.mark.oracle
@pytest.mark.parametrize("algorithm", ["GaussNewton", "Levenberg"])
def test_points_that_are_not_marginalised(algorithm):
    """`BlockSolverSE2` with points does what g2o does with `BlockSolverX`."""

    def script(module, size):
        optimizer = optimizer_of(module, algorithm, size=size)
        random = np.random.default_rng(5)
        for i in range(9):
            vertex = module.VertexSE2() if i < 5 else module.VertexPointXY()
            vertex.set_id(i)
            if i < 5:
                vertex.set_estimate(module.SE2(i + random.normal(0.0, 0.1), 0.2 * i, 0.1 * i))
                vertex.set_fixed(i == 0)
            else:
                vertex.set_estimate(np.array([2.0 * (i - 5), 3.0]) + random.normal(0.0, 0.2, 2))
            optimizer.add_vertex(vertex)
        for i in range(5):
            for j in range(5, 9):
                edge = module.EdgeSE2PointXY()
                edge.set_vertex(0, optimizer.vertex(i))
                edge.set_vertex(1, optimizer.vertex(j))
                seen = module.SE2(float(i), 0.2 * i, 0.1 * i).inverse() * np.array([2.0 * (j - 5), 3.0])
                edge.set_measurement(seen + random.normal(0.0, 0.05, 2))
                edge.set_information(np.eye(2))
                optimizer.add_edge(edge)
        optimizer.initialize_optimization()
        optimizer.optimize(8)
        optimizer.compute_active_errors()
        return [optimizer.active_chi2(), *(optimizer.vertex(i).get_estimate_data() for i in range(9))]

    theirs = pytest.importorskip("g2opy")
    assert_same(script(g2o, "SE2"), script(theirs, "X"), rtol=1e-8, atol=1e-8)
