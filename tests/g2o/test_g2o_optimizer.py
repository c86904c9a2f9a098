"""`SparseOptimizer` chooses, optimizes and returns what g2opy's does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from both import assert_same, both, estimates, isometry, optimizer_of, ring, same_as_g2opy

import graphopt.g2o as ours

KERNELS = ["Huber", "PseudoHuber", "Cauchy", "GemanMcClure", "Welsch", "Fair", "Tukey", "Saturated", "DCS"]


def result(optimizer: Any, iterations: int) -> dict[str, Any]:
    """Optimize; what there is to compare, evaluated at the final estimates."""
    count = optimizer.optimize(iterations)
    optimizer.compute_active_errors()
    numbers = {"count": count, "chi2": optimizer.active_chi2(), "robust": optimizer.active_robust_chi2()}
    return {**numbers, "estimates": estimates(optimizer)}


@pytest.mark.oracle
@pytest.mark.parametrize("algorithm", ["Levenberg", "GaussNewton", "Dogleg"])
@pytest.mark.parametrize("iterations", [0, 1, 3])
@same_as_g2opy(rtol=1e-8, atol=1e-8)
def test_algorithms(g2o, algorithm, iterations):
    """Return value, chi2 and estimates after some iterations."""
    optimizer = ring(g2o, algorithm=algorithm)
    assert optimizer.initialize_optimization()
    return result(optimizer, iterations)


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("size", "linear"), [("SE3", "Eigen"), ("X", "Dense"), ("SE3", "Dense"), ("Sim3", "Eigen"), ("X", "PCG")]
)
def test_block_and_linear_solvers(size, linear):
    """Names of both that g2opy has give its answer; PCG to its own tolerance."""

    def script(g2o):
        optimizer = ring(g2o, size="X" if size == "Sim3" else size, linear=linear)
        optimizer.initialize_optimization()
        return result(optimizer, 4)

    tolerance = 1e-3 if linear == "PCG" else 1e-8
    assert_same(*both(script), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("linear", ["Cholmod", "CSparse"])
@pytest.mark.parametrize("size", ["X", "SE2", "SE3", "Sim3"])
def test_names_that_g2opy_lacks(linear, size):
    """Cholmod and CSparse solvers of every size are our sparse Cholesky."""
    expected, actual = ring(ours), ring(ours, linear=linear, size=size)
    for optimizer in (expected, actual):
        optimizer.initialize_optimization()
        optimizer.optimize(3)
    assert_same(estimates(actual), estimates(expected), rtol=0.0, atol=0.0)


@pytest.mark.oracle
@pytest.mark.parametrize("name", KERNELS)
@same_as_g2opy(rtol=1e-7, atol=1e-7)
def test_robust_kernels(g2o, name):
    """chi2, robustified chi2 and estimates, the width changed through the shared kernel object."""
    optimizer = ring(g2o)
    kernel = getattr(g2o, f"RobustKernel{name}")(5.0)
    for edge in optimizer.edges():
        edge.set_robust_kernel(kernel)
    kernel.set_delta(0.7)
    optimizer.initialize_optimization()
    return result(optimizer, 3)


@pytest.mark.oracle
@same_as_g2opy(rtol=1e-7, atol=1e-7)
def test_mixed_and_scaled_kernels(g2o):
    """Different kernels in one graph, edges without one, and a kernel on a scaled error."""
    optimizer = ring(g2o)
    inner = [g2o.RobustKernelHuber(0.5), g2o.RobustKernelDCS(0.6), g2o.RobustKernelGemanMcClure(2.0)]
    kernels = [g2o.RobustKernelScaleDelta(kernel, 1.7) for kernel in inner]
    kernels += [g2o.RobustKernelCauchy(0.8), g2o.RobustKernelHuber(0.3)]
    for edge in optimizer.edges():
        if edge.internal_id() < len(kernels):
            edge.set_robust_kernel(kernels[edge.internal_id()])
    optimizer.initialize_optimization()
    return result(optimizer, 3)


def bundle(g2o: Any, linear: str = "Eigen") -> Any:
    """Four cameras, the first two fixed, 30 points marginalized; some observations are wrong."""
    random = np.random.default_rng(4)
    optimizer = optimizer_of(g2o, size="SE3", linear=linear)
    points = random.uniform([-2.0, -2.0, 4.0], [2.0, 2.0, 8.0], (30, 3))
    for k in range(4):
        vertex = g2o.VertexSE3Expmap()
        vertex.set_id(k)
        vertex.set_estimate(g2o.SE3Quat(np.eye(3), np.array([-0.3 * k, 0.02 * k, 0.01 * k])))
        vertex.set_fixed(k < 2)
        optimizer.add_vertex(vertex)
    for p, point in enumerate(points):
        vertex = g2o.VertexPointXYZ()
        vertex.set_id(10 + p)
        vertex.set_estimate(point + random.normal(0.0, 0.05, 3))
        vertex.set_marginalized(True)
        optimizer.add_vertex(vertex)
        for k in range(4):
            edge = g2o.EdgeStereoSE3ProjectXYZ()
            edge.set_vertex(0, vertex)
            edge.set_vertex(1, optimizer.vertex(k))
            edge.fx, edge.fy, edge.cx, edge.cy, edge.bf = 500.0, 500.0, 320.0, 240.0, 50.0
            pixel = edge.cam_project(point - [0.3 * k, 0.0, 0.0], 50.0) + random.normal(0.0, 1.0, 3)
            edge.set_measurement(pixel + (30.0 if (p + k) % 11 == 0 else 0.0))
            edge.set_information(np.eye(3))
            edge.set_robust_kernel(g2o.RobustKernelHuber(2.8))
            optimizer.add_edge(edge)
    return optimizer


@pytest.mark.oracle
@same_as_g2opy(rtol=1e-7, atol=1e-7)
def test_bundle_adjustment_with_schur(g2o):
    """Stereo BA with Huber kernels; then outliers on level 1 and the rest again, as local BA does it."""
    optimizer = bundle(g2o)
    optimizer.initialize_optimization()
    first = result(optimizer, 5)
    for edge in optimizer.edges():
        if edge.chi2() > 7.815:
            edge.set_level(1)
    optimizer.initialize_optimization()
    return [first, len(optimizer.active_edges()), result(optimizer, 5)]


@pytest.mark.oracle
@same_as_g2opy(rtol=1e-8, atol=1e-8)
def test_selections(g2o):
    """Active edges and vertices by level, by vertices and by edges."""
    optimizer = ring(g2o)
    edges = {edge.internal_id(): edge for edge in optimizer.edges()}
    edges[2].set_level(1)
    found = []

    def note(good):
        active = [edge.internal_id() for edge in optimizer.active_edges()]
        found.append((good, sorted(active), [vertex.id() for vertex in optimizer.active_vertices()]))

    for level in (0, 1, -1, 7):
        note(optimizer.initialize_optimization(level))
    note(optimizer.initialize_optimization({optimizer.vertex(i) for i in (1, 2, 3, 4)}))
    note(optimizer.initialize_optimization({optimizer.vertex(i) for i in (1, 2, 3, 4)}, 1))
    note(optimizer.initialize_optimization({edges[2], edges[3]}))
    return [found, result(optimizer, 3)]


@pytest.mark.oracle
@same_as_g2opy(rtol=1e-8, atol=1e-7)
def test_hessian_index_and_blocks(g2o):
    """`index_mapping`, `hessian_index`, the Hessian block and b of a vertex."""
    optimizer = ring(g2o)
    optimizer.vertex(3).set_marginalized(True)
    optimizer.initialize_optimization()
    order = [vertex.id() for vertex in optimizer.index_mapping()]
    indices = [optimizer.vertex(i).hessian_index() for i in range(8)]
    optimizer.vertex(3).set_marginalized(False)
    optimizer.initialize_optimization()
    optimizer.optimize(1)
    return [order, indices, optimizer.vertex(2).hessian(), optimizer.vertex(2).b()]


@pytest.mark.oracle
@same_as_g2opy()
def test_return_values_of_failures(g2o):
    """-1 without active vertices, 0 when the first system cannot be solved or the stop flag is set."""
    free = ring(g2o, algorithm="GaussNewton")
    counts = [free.optimize(3)]
    free.vertex(0).set_fixed(False)
    free.initialize_optimization()
    counts.append(free.optimize(3))
    stopped = ring(g2o)
    stopped.initialize_optimization()
    stopped.set_force_stop_flag(True)
    counts.append(stopped.optimize(3))
    fixed = ring(g2o)
    fixed.set_fixed(set(fixed.vertices().values()), True)
    fixed.initialize_optimization()
    counts.append(fixed.optimize(3))
    return counts


@pytest.mark.oracle
@same_as_g2opy()
def test_gauge_components_and_verification(g2o):
    """Gauge freedom, the gauge vertex, components and the check of information matrices."""
    optimizer = ring(g2o)
    alone = g2o.VertexSE3()
    alone.set_id(50)
    optimizer.add_vertex(alone)
    facts = [optimizer.gauge_freedom(), optimizer.num_connected_components(), optimizer.is_connected()]
    optimizer.vertex(0).set_fixed(False)
    gauge = optimizer.find_gauge()
    facts += [optimizer.gauge_freedom(), gauge.id(), optimizer.verify_information_matrices()]
    next(iter(optimizer.edges())).set_information(-np.eye(6))
    return [
        *facts,
        optimizer.verify_information_matrices(),
        optimizer.dimensions(),
        optimizer.max_dimension(),
    ]


@pytest.mark.oracle
@same_as_g2opy(rtol=1e-7, atol=1e-9)
def test_statistics_and_terminate_action(g2o):
    """Statistics of the iterations, and where the terminate action stops."""
    optimizer = ring(g2o)
    action = g2o.SparseOptimizerTerminateAction()
    action.set_gain_threshold(1e-3)
    assert optimizer.add_post_iteration_action(action)
    optimizer.initialize_optimization()
    optimizer.set_compute_batch_statistics(True)
    count = optimizer.optimize(50)
    lines = optimizer.batch_statistics()
    keys = ("iteration", "chi2", "levenberg_iterations", "num_vertices", "num_edges", "hessian_dimension")
    return [count, len(lines), [[getattr(line, key) for key in keys] for line in lines[: count + 1]]]


@pytest.mark.parametrize("linear", ["Eigen", "Dense", "PCG"])
def test_statistics_have_times(linear):
    """Each part of an iteration is measured, with and without landmarks to eliminate."""
    for optimizer in (ring(ours, linear=linear), bundle(ours, linear)):
        optimizer.initialize_optimization()
        optimizer.set_compute_batch_statistics(True)
        assert optimizer.optimize(3) == 3
        has_landmarks = any(vertex.marginalized() for vertex in optimizer.vertices().values())
        for batch_statistic in optimizer.batch_statistics():
            assert (
                0.0
                < batch_statistic.time_linear_solver
                <= batch_statistic.time_linear_solution
                < batch_statistic.time_iteration
            )
            assert (
                0.0 < batch_statistic.time_quadratic_form < batch_statistic.time_iteration
                and batch_statistic.time_update > 0.0
            )
            assert 0.0 < batch_statistic.time_numeric_decomposition < batch_statistic.time_linear_solver
            assert (batch_statistic.time_schur_complement > 0.0) == has_landmarks
            assert (
                (batch_statistic.choleskyNNZ > 0)
                == (linear != "PCG")
                == (batch_statistic.iterations_linear_solver == 0)
            )
        assert optimizer.batch_statistics()[0].time_symbolic_decomposition > 0.0


def test_estimates_can_be_changed_between_runs():
    """A second run starts at the objects' estimates and measurements and keeps the analysis of the first."""
    optimizer = ring(ours)
    optimizer.initialize_optimization()
    optimizer.optimize(10)
    best, first = optimizer.active_chi2(), optimizer.block_solver()
    start = optimizer.vertex(3).estimate()
    optimizer.vertex(3).set_estimate(isometry(ours, [3.0, 0.0, 0.0]))
    optimizer.initialize_optimization()
    optimizer.optimize(10)
    assert optimizer.block_solver() is first
    assert optimizer.active_chi2() == pytest.approx(best, rel=1e-9)
    np.testing.assert_allclose(optimizer.vertex(3).estimate().matrix(), start.matrix(), atol=1e-5)
    edge = next(iter(optimizer.edges()))
    edge.set_information(4.0 * edge.information())
    optimizer.optimize(10)
    assert optimizer.active_chi2() > best


def test_user_lambda_and_trials():
    """The setters that programs for other bindings use."""
    optimizer = ring(ours)
    algorithm = optimizer.algorithm()
    algorithm.set_user_lambda_init(1e3)
    algorithm.set_max_trials_after_failure(5)
    optimizer.initialize_optimization()
    optimizer.optimize(1)
    assert algorithm.user_lambda_init() == 1e3 and algorithm.max_trials_after_failure() == 5
    assert algorithm.current_lambda() == pytest.approx(1e3 / 3.0)


def test_subclass_may_wrap_optimize():
    """A subclass calls `super().optimize()` and sees each iteration."""
    seen = []

    class Mine(ours.SparseOptimizer):
        def __init__(self):
            super().__init__()
            self.set_algorithm(
                ours.OptimizationAlgorithmLevenberg(ours.BlockSolverSE3(ours.LinearSolverEigenSE3()))
            )

        def optimize(self, iterations=5):
            super().initialize_optimization()
            return super().optimize(iterations)

        def post_iteration(self, iteration):
            if iteration >= 0:  # -1: by initialize_optimization
                seen.append(self.active_robust_chi2())

    optimizer = Mine()
    source = ring(ours)
    optimizer.add_graph(source)
    assert not source.vertices() and len(optimizer.vertices()) == 8
    assert optimizer.optimize(3) == 3
    assert len(seen) == 3 and seen == sorted(seen, reverse=True)


@pytest.mark.oracle
@pytest.mark.parametrize("when", ["pre", "post"])
@same_as_g2opy(rtol=1e-6)
def test_terminate_action_starts_anew_with_initialize(g2o, when):
    """`initialize_optimization` withdraws its request to stop, `optimize` does not.

    As an action before iterations it ends one iteration later.
    """
    optimizer = ring(g2o)
    action = g2o.SparseOptimizerTerminateAction()
    action.set_gain_threshold(1e-3)
    getattr(optimizer, f"add_{when}_iteration_action")(action)
    found = []
    for _ in range(3):
        found += [optimizer.initialize_optimization(), optimizer.optimize(20), optimizer.optimize(20)]
        optimizer.vertex(3).set_estimate(isometry(g2o, [0.0, 0.0, 1.0]))
    action.set_max_iterations(2)
    optimizer.initialize_optimization()
    return [*found, optimizer.optimize(10), optimizer.active_chi2()]


def test_actions_of_each_iteration():
    """-1 by `initialize_optimization`, then one of each kind per iteration."""
    calls = []

    class Note(ours.HyperGraphAction):
        def __init__(self, name):
            self.name = name

        def __call__(self, graph, parameters=None):
            calls.append((self.name, parameters["iteration"]))

    optimizer = ring(ours)
    optimizer.add_pre_iteration_action(Note("pre"))
    optimizer.add_post_iteration_action(Note("post"))
    optimizer.initialize_optimization()
    assert optimizer.optimize(2) == 2
    assert calls == [(name, number) for number in (-1, 0, 1) for name in ("pre", "post")]


def test_compute_initial_guess_on_a_tree():
    """Along a tree the guess is exact: chi2 becomes zero."""
    optimizer = ring(ours)
    optimizer.remove_edge(max(optimizer.edges(), key=lambda edge: edge.internal_id()))
    optimizer.initialize_optimization()
    optimizer.compute_initial_guess()
    optimizer.compute_active_errors()
    assert optimizer.active_chi2() < 1e-20


def frame(g2o: Any) -> Any:
    """One free pose between two fixed ones, with priors, robust kernels, and edges from both sides."""
    optimizer = ring(g2o)
    for i in (1, 2, 4, 5, 6, 7):
        optimizer.vertex(i).set_fixed(True)
    for edge in optimizer.edges():
        if edge.internal_id() == 2:
            edge.set_robust_kernel(g2o.RobustKernelHuber(0.5))
        if edge.internal_id() == 3:
            edge.set_information(np.eye(6) + 0.3)
    return optimizer


@pytest.mark.oracle
@pytest.mark.parametrize("algorithm", ["Levenberg", "GaussNewton", "Dogleg"])
def test_one_free_vertex(algorithm):
    """Pose-only optimization: answer, Hessian and b."""

    def script(g2o):
        optimizer = frame(g2o)
        solver = g2o.BlockSolverSE3(g2o.LinearSolverEigenSE3())
        optimizer.set_algorithm(getattr(g2o, f"OptimizationAlgorithm{algorithm}")(solver))
        optimizer.initialize_optimization()
        optimizer.optimize(1)
        blocks = [np.array(optimizer.vertex(3).hessian()), np.array(optimizer.vertex(3).b())]
        return [*blocks, result(optimizer, 4)]

    actual, expected = both(script)
    assert_same(actual, expected, rtol=1e-7, atol=1e-7)
