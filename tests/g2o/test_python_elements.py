"""Vertices and edges that are defined in Python."""

from __future__ import annotations

import numpy as np
import pytest
from both import assert_same, both, estimates, isometry, optimizer_of, ring, rotation_of, same_as_g2opy

import graphopt.g2o as ours


def line_fit(g2o, size: str = "X"):
    """A line through ten points; the error is set."""

    class Line(g2o.VectorXVertex):
        def __init__(self):
            super().__init__()
            self.set_dimension(2)
            self.set_estimate(np.zeros(2))

        def oplus_impl(self, update):
            self.set_estimate(self.estimate() + update)

    class PointOnLine(g2o.VariableVectorXEdge):
        def __init__(self):
            super().__init__()
            self.set_dimension(1)
            self.resize(1)
            self.set_measurement(np.zeros(2))

        def compute_error(self):
            slope, offset = self.vertex(0).estimate()
            x, y = self.measurement()
            self.error = np.array([slope * x + offset - y])

    optimizer = optimizer_of(g2o, size=size)
    line = Line()
    line.set_id(0)
    optimizer.add_vertex(line)
    edges = []
    for i in range(10):
        edge = PointOnLine()
        edge.set_vertex(0, line)
        edge.set_measurement(np.array([float(i), 2.0 * i + 1.0 + 0.1 * (-1.0) ** i]))
        edge.set_information(2.0 * np.eye(1))
        assert optimizer.add_edge(edge)
        edges.append(edge)
    return optimizer, line, edges


@pytest.mark.oracle
@same_as_g2opy(rtol=1e-6, atol=1e-7)
def test_line_fit(g2o):
    """Estimate, chi2 and number of iterations of a line fit with numeric Jacobians."""
    optimizer, line, edges = line_fit(g2o)
    optimizer.initialize_optimization()
    count = optimizer.optimize(3)
    return [count, line.estimate(), optimizer.active_chi2(), np.array(edges[3].error), edges[3].chi2()]


def exact_line(edges) -> np.ndarray:
    """The least-squares line by numpy."""
    points = np.array([edge.measurement() for edge in edges])
    return np.polyfit(points[:, 0], points[:, 1], 1)


def test_error_may_be_returned():
    """As programs for g2o-python 0.0.12 do it; `compute_error()` called directly stores it as well."""
    optimizer, line, edges = line_fit(ours)

    class Returning(type(edges[0])):
        def compute_error(self):
            slope, offset = self.vertex(0).estimate()
            x, y = self.measurement()
            return [slope * x + offset - y]

    for edge in edges:
        optimizer.remove_edge(edge)
        other = Returning()
        other.set_vertex(0, line)
        other.set_measurement(edge.measurement())
        optimizer.add_edge(other)
    assert other.compute_error() == [-19.0 + 0.1] or other.chi2() > 0.0
    optimizer.initialize_optimization()
    optimizer.optimize(10)
    np.testing.assert_allclose(line.estimate(), exact_line(edges), atol=1e-6)


def test_own_jacobian_is_used():
    """`linearize_oplus` with `set_jacobian`: the exact step of Gauss-Newton in one iteration."""
    optimizer, line, edges = line_fit(ours)
    calls = []

    class WithJacobian(type(edges[0])):
        def linearize_oplus(self):
            calls.append(self)
            self.set_jacobian(0, [[self.measurement()[0], 1.0]])

    exact = exact_line(edges)
    for edge in edges:
        optimizer.remove_edge(edge)
        other = WithJacobian()
        other.set_vertex(0, line)
        other.set_measurement(edge.measurement())
        optimizer.add_edge(other)
    optimizer.set_algorithm(
        ours.OptimizationAlgorithmGaussNewton(ours.BlockSolverX(ours.LinearSolverDenseX()))
    )
    optimizer.initialize_optimization()
    assert optimizer.optimize(1) == 1 and len(calls) == 10
    np.testing.assert_allclose(line.estimate(), exact, atol=1e-12)
    with pytest.raises(ValueError, match=r"expected \(1, 2\)"):
        other.set_jacobian(0, np.zeros((2, 2)))


def python_between(g2o):
    """EdgeSE3Expmap written in Python."""

    class Between(g2o.VariableVectorXEdge):
        def __init__(self, measured):
            super().__init__()
            self.set_dimension(6)
            self.resize(2)
            self.set_measurement(measured.vector())
            self.measured = measured

        def compute_error(self):
            first, second = (self.vertex(i).estimate() for i in range(2))
            self.error = (second.inverse() * self.measured * first).log()

    return Between


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("linear", ["Eigen", "Dense", "PCG"])
def test_mixed_with_native_edges(share, linear):
    """Any share of Python edges with robust kernels gives the estimates of native edges alone."""

    def solve(python_share):
        random = np.random.default_rng(6)
        optimizer = optimizer_of(ours, size="SE3", linear=linear)
        between = python_between(ours)
        for i in range(6):
            vertex = ours.VertexSE3Expmap(i)
            vertex.set_estimate(
                ours.SE3Quat(rotation_of(random.normal(0.0, 0.1, 3)), [i, *random.normal(0.0, 0.1, 2)])
            )
            vertex.set_fixed(i == 0)
            optimizer.add_vertex(vertex)
        for k, (i, j) in enumerate([(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0), (1, 4)]):
            noise = random.normal(0.0, 0.05, 3)
            measured = ours.SE3Quat(rotation_of(noise), [float(j - i), *noise[:2]])
            if k < 7 * python_share:
                edge = between(measured)
            else:
                edge = ours.EdgeSE3Expmap()
                edge.set_measurement(measured)
            edge.set_vertex(0, optimizer.vertex(i))
            edge.set_vertex(1, optimizer.vertex(j))
            edge.set_information(np.diag([40.0, 40.0, 40.0, 10.0, 10.0, 10.0]))
            edge.set_robust_kernel(ours.RobustKernelHuber(0.4))
            optimizer.add_edge(edge)
        optimizer.initialize_optimization()
        assert optimizer.optimize(5) == 5
        return {
            "chi2": optimizer.active_chi2(),
            "robust": optimizer.active_robust_chi2(),
            **estimates(optimizer),
        }

    assert_same(solve(share), solve(0.0), rtol=1e-5, atol=1e-5)


def test_python_oplus_moves_the_vertex():
    """A unit vector: two numbers with one degree of freedom; its neighbour is eliminated by Schur."""

    class Direction(ours.VectorXVertex):
        def __init__(self):
            super().__init__()
            self.set_dimension(1)
            self.set_estimate([1.0, 0.0])

        def oplus_impl(self, update):
            c, s = self.estimate()
            turn = float(update[0])
            self.set_estimate([c * np.cos(turn) - s * np.sin(turn), s * np.cos(turn) + c * np.sin(turn)])

    class Observed(ours.VariableVectorXEdge):
        def __init__(self):
            super().__init__()
            self.set_dimension(2)
            self.resize(2)

        def compute_error(self):
            return self.vertex(0).estimate() + self.vertex(1).estimate() - self.measurement()

    optimizer = optimizer_of(ours)
    direction, center = Direction(), ours.VertexPointXY(1)
    direction.set_id(0)
    center.set_marginalized(True)
    prior = ours.EdgeXYPrior()
    prior.set_vertex(0, center)
    prior.set_measurement([0.5, 0.5])
    prior.set_information(100.0 * np.eye(2))
    edge = Observed()
    edge.set_measurement([0.5 + np.cos(2.0), 0.5 + np.sin(2.0)])
    for element in (direction, center):
        optimizer.add_vertex(element)
    edge.set_vertex(0, direction)
    edge.set_vertex(1, center)
    assert optimizer.add_edge(prior) and optimizer.add_edge(edge)
    optimizer.initialize_optimization()
    optimizer.optimize(30)
    assert optimizer.active_chi2() < 1e-12
    np.testing.assert_allclose(direction.estimate(), [np.cos(2.0), np.sin(2.0)], atol=1e-6)
    assert np.linalg.norm(direction.estimate()) == pytest.approx(1.0, abs=1e-12)


def test_native_edge_with_a_python_error():
    """A subclass of a native edge that overrides `compute_error` is evaluated by it."""

    class Doubled(ours.EdgeXYZPrior):
        def compute_error(self):
            self.error = 2.0 * (self.vertex(0).estimate() - self.measurement())

    optimizer = optimizer_of(ours)
    point = ours.VertexPointXYZ(0)
    optimizer.add_vertex(point)
    for target, cls in ((0.0, ours.EdgeXYZPrior), (1.0, Doubled)):
        edge = cls()
        edge.set_vertex(0, point)
        edge.set_measurement(np.full(3, target))
        optimizer.add_edge(edge)
    optimizer.initialize_optimization()
    optimizer.optimize(10)
    np.testing.assert_allclose(point.estimate(), np.full(3, 0.8), atol=1e-6)  # (0 + 4 * 1) / 5


def test_missing_definitions_are_explained():
    """No dimension, no error, an estimate of another size without oplus."""
    optimizer = ours.SparseOptimizer()
    vertex = ours.VectorXVertex(0)
    optimizer.add_vertex(vertex)
    with pytest.raises(ValueError, match="call set_dimension"):
        optimizer.initialize_optimization()
    vertex.set_dimension(2)
    vertex.set_estimate(np.zeros(3))
    with pytest.raises(ValueError, match="override oplus_impl"):
        optimizer.initialize_optimization()
    with pytest.raises(ValueError, match="does not define compute_error"):
        ours.VariableVectorXEdge().compute_error()


def test_files_refuse_python_edges(tmp_path, capsys):
    """There is no tag for them: save returns False and says so."""
    optimizer, _, _ = line_fit(ours)
    assert not optimizer.save(str(tmp_path / "line.g2o"))
    assert "defined in Python" in capsys.readouterr().err


def test_no_python_edges_stay_native():
    """An optimizer without Python elements does not use the Python block solver."""
    optimizer = ring(ours)
    optimizer.initialize_optimization()
    optimizer.optimize(1)
    assert type(optimizer.block_solver()).__name__ == "CpuBlockSolver"


def _derived_between_poses(g2o, algorithm):
    class Derived(g2o.EdgeSE3):
        def compute_error(self):
            super().compute_error()

        def linearize_oplus(self):
            super().linearize_oplus()

    optimizer = ring(g2o, algorithm=algorithm)
    random = np.random.default_rng(0)
    edges = []
    for i in range(3):
        edge = Derived()
        edge.set_vertex(0, optimizer.vertex(i))
        edge.set_vertex(1, optimizer.vertex(i + 4))
        edge.set_measurement(isometry(g2o, random.normal(size=3), 0.1 * random.normal(size=3)))
        edge.set_information(np.eye(6))
        optimizer.add_edge(edge)
        edges.append(edge)
    optimizer.initialize_optimization()
    count = optimizer.optimize(5)
    optimizer.compute_active_errors()
    return [count, optimizer.active_chi2(), estimates(optimizer)]


@pytest.mark.oracle
@pytest.mark.parametrize("algorithm", ["GaussNewton", "Levenberg", "Dogleg"])
def test_derived_edges_beside_native_ones(algorithm):
    """Python sees the estimates of this iteration also where poses have a working form of their own."""
    assert_same(*both(_derived_between_poses, algorithm), atol=1e-7)


def _derived_vertex(g2o):
    class Moved(g2o.VertexSE2):
        def oplus_impl(self, update):
            raise AssertionError

    optimizer = optimizer_of(g2o, "GaussNewton")
    for i in range(3):
        vertex = Moved()
        vertex.set_id(i)
        vertex.set_estimate(g2o.SE2(float(i), 0.1, 0.2))
        vertex.set_fixed(i == 0)
        optimizer.add_vertex(vertex)
    for i in range(2):
        edge = g2o.EdgeSE2()
        edge.set_vertex(0, optimizer.vertex(i))
        edge.set_vertex(1, optimizer.vertex(i + 1))
        edge.set_measurement(g2o.SE2(1.0, 0.5, 0.3))
        edge.set_information(np.eye(3))
        optimizer.add_edge(edge)
    optimizer.initialize_optimization()
    return [optimizer.optimize(1), estimates(optimizer)]


@pytest.mark.oracle
def test_only_vector_vertices_are_moved_by_python():
    """g2o's own vertices move by their own oplus, whatever a subclass defines."""
    assert_same(*both(_derived_vertex))
