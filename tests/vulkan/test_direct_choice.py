"""`auto` factors the reduced system where that is faster: long chains yes, compact sets no.

The choice rests on the level structure of the kept vertices, which is a bound on the pattern of S.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.sparse.csgraph import shortest_path
from vulkan_devices import shared_device

import graphopt
from graphopt.device.figures import DeviceFigures
from graphopt.graph import Graph
from graphopt.linear.options import SolverOptions
from graphopt.problem.structure import Structure
from graphopt.solver.trial import Damping
from graphopt.vulkan.kernels import iterations
from graphopt.vulkan.plan import choice
from graphopt.vulkan.plan.choice import choose_plan, configuration_of
from graphopt.vulkan.plan.direct import factor_seconds, iterations_of
from graphopt.vulkan.plan.reduced import ReducedShape, reduced_shape
from graphopt.vulkan.solver import create

LARGE_GPU = DeviceFigures("a large GPU", 4.0e12, 5.6e13, 2.8e13, 1.4e11, 2e-6, 4e-5)


def landmarks_along(num_poses: int, reach: int, seed: int = 0, odometry: bool = True) -> Graph:
    """Poses in the plane along a line, and per pose a landmark that the next `reach` poses see."""
    rng, poses = np.random.default_rng(seed), np.zeros((num_poses, 3))
    poses[:, 0] = np.arange(num_poses)
    seen = [(i, j) for j in range(num_poses) for i in range(j, min(j + reach, num_poses))]
    i, j = np.array(seen).T
    points = poses[:, :2] + rng.uniform(-2.0, 2.0, (num_poses, 2))
    graph = Graph()
    start = poses + rng.normal(0.0, 0.02, poses.shape)
    graph.add_vertices("VERTEX_SE2", np.arange(num_poses), start, fixed=np.arange(num_poses) == 0)
    start = points + rng.normal(0.0, 0.02, points.shape)
    graph.add_vertices("VERTEX_XY", num_poses + np.arange(num_poses), start, marginalized=True)
    measured = points[j] - poses[i, :2] + rng.normal(0.0, 0.01, (len(i), 2))
    graph.add_edges("EDGE_SE2_XY", np.stack([i, num_poses + j], axis=1), measured, 1e4 * np.eye(2))
    if odometry:
        pairs = np.stack([np.arange(num_poses - 1), np.arange(1, num_poses)], axis=1)
        moved = np.array([1.0, 0.0, 0.0]) + rng.normal(0.0, 0.01, (num_poses - 1, 3))
        graph.add_edges("EDGE_SE2", pairs, moved, 1e4 * np.eye(3))
    return graph


def level_of_rows(shape: ReducedShape) -> int:
    """Scalar rows of all levels together."""
    return round(sum(float(component.sum()) for component in shape.components))


@pytest.mark.parametrize("odometry", [True, False])
@pytest.mark.parametrize("reach", [2, 5])
def test_levels_are_a_block_tridiagonal_form(reach, odometry):
    """Every row has a level, and kept vertices that share a landmark or an edge are at most one apart."""
    structure = Structure(landmarks_along(40, reach, odometry=odometry).select())
    shape = reduced_shape(structure)
    assert level_of_rows(shape) == shape.rows == structure.kept_dim
    near = (
        np.abs(np.subtract.outer(*2 * [np.arange(structure.num_kept)])) < reach
    )  # share a landmark or an edge
    steps = shortest_path(near).astype(int)
    (component,) = shape.components
    assert any(np.array_equal(component, 3 * np.bincount(levels)) for levels in steps)
    assert shape.diameter == -(-(structure.num_kept - 1) // (reach - 1)) + 1


def test_a_shared_calibration_is_no_short_cut():
    """With a vertex that every observation has, the levels stay; its rows border them."""
    chain = landmarks_along(40, 3, odometry=False)
    edge_set = chain.edge_sets[0]
    shared = graphopt.Graph()
    for vertex_set in chain.vertex_sets:
        shared.add_vertices(
            vertex_set.type.tag, vertex_set.ids, vertex_set.estimate, fixed=vertex_set.fixed,
            marginalized=vertex_set.marginalized,
        )  # fmt: skip
    shared.add_vertices("VERTEX_SE2", [999], [[0.1, 0.0, 0.0]])
    slots = np.column_stack([edge_set.vertices, np.full(len(edge_set), 999)])
    shared.add_edges("EDGE_SE2_XY_CALIB", slots, edge_set.measurement, edge_set.information)
    own, with_shared = (reduced_shape(Structure(graph.select())) for graph in (chain, shared))
    assert with_shared.diameter == own.diameter and with_shared.border == 3.0
    assert level_of_rows(with_shared) + 3 == with_shared.rows == own.rows + 3
    assert own.flops < with_shared.flops < 2.0 * own.flops


def test_parts_that_never_meet_are_counted_apart():
    """Two chains without a common landmark: as deep as one, twice the operations."""
    one, two = landmarks_along(30, 3), landmarks_along(30, 3)
    for vertex_set in landmarks_along(30, 3, seed=1).vertex_sets:
        two.add_vertices(
            vertex_set.type.tag, 1000 + vertex_set.ids, vertex_set.estimate, fixed=vertex_set.fixed,
            marginalized=vertex_set.marginalized,
        )  # fmt: skip
    for edge_set in landmarks_along(30, 3, seed=1).edge_sets:
        two.add_edges(edge_set.type.tag, 1000 + edge_set.vertices, edge_set.measurement, edge_set.information)
    single, double = (reduced_shape(Structure(graph.select())) for graph in (one, two))
    assert len(double.components) == 2 and double.diameter == single.diameter
    assert double.flops == pytest.approx(2.0 * single.flops)


def test_operations_of_a_chain():
    """w^3 / 3 + 2 w^3 per level, but w^3 / 3 for the last one."""
    shape = ReducedShape(120, (np.full(4, 30.0),))
    assert shape.flops == pytest.approx(30.0**3 * (4 / 3 + 6))
    assert shape.stored == 4 * 450 + 3 * 900


def test_a_long_chain_is_cheap_to_factor():
    """Of equal size, the longer one takes fewer operations and more iterations."""
    chain = ReducedShape(9000, (np.full(75, 120.0),))
    compact = ReducedShape(9000, (np.array([4500.0, 4500.0]),))
    seconds = [factor_seconds(shape, LARGE_GPU, software=False) for shape in (chain, compact)]
    assert seconds[0] < 0.3 * seconds[1]
    assert iterations_of(chain, "double") > 5 * iterations_of(compact, "double")
    assert iterations_of(chain, "mixed") > iterations_of(chain, "double")


@pytest.fixture
def large_gpu(monkeypatch):
    """The test device, taken for a large GPU by the plan."""
    device = shared_device("address")
    monkeypatch.setattr(choice, "device_figures", lambda device: LARGE_GPU)
    monkeypatch.setitem(device.info, "kind", "discrete")
    return device


def plan_of(device, graph, schedule="auto", **options: Any):
    """The plan for a graph."""
    configuration = configuration_of(SolverOptions("vulkan", **options), "double")
    return choose_plan(schedule, device, Structure(graph.select()), configuration, "double")


def test_chains_are_factored_and_compact_sets_are_not(large_gpu):
    """S is stored and may be factored, only where nobody asked for something else."""
    chain, compact = landmarks_along(1200, 3), landmarks_along(300, 250)
    plan = plan_of(large_gpu, chain)
    assert plan.configuration.schur == "explicit" and plan.configuration.may_factor
    assert set(plan.products) == {"blocks"}
    assert plan_of(large_gpu, compact).configuration.schur == "implicit"
    asked: tuple[dict[str, Any], ...] = (
        {"linear_solver": "pcg"}, {"schur": "implicit"}, {"pcg_iterations": 20},
    )  # fmt: skip
    for options in asked:
        configuration = plan_of(large_gpu, chain, **options).configuration
        assert not (configuration.schur == "explicit" and configuration.may_factor)
    assert plan_of(large_gpu, chain, "matrix-free").configuration.schur == "implicit"


def test_what_does_not_fit_is_not_factored(large_gpu, monkeypatch):
    """S and its queue need memory that conjugate gradients do not."""
    monkeypatch.setattr(choice, "device_memory", lambda device: 1e6)
    assert plan_of(large_gpu, landmarks_along(1200, 3)).configuration.schur == "implicit"


def test_the_answer_is_that_of_the_cpu():
    """A chain by `auto` on a device, S factored."""
    graph = landmarks_along(260, 3)
    expected = graphopt.optimize(graph.copy(), device="cpu")
    found = graphopt.optimize(graph.copy(), device="vulkan")
    assert found.linear_solver == "cholesky" and found.schur == "explicit"
    assert found.final_chi2 == pytest.approx(expected.final_chi2, rel=1e-9)
    assert len(found.iterations) == len(expected.iterations)


@pytest.mark.parametrize("is_software", [True, False])
def test_iterations_that_creep_end_in_a_factorization(monkeypatch, is_software):
    """An explicit S that was planned for conjugate gradients; each run starts with them, with equal bits."""
    device, solves = shared_device("address"), []
    monkeypatch.setitem(device.info, "kind", "cpu" if is_software else "discrete")
    monkeypatch.setattr("graphopt.vulkan.plan.configuration.DIRECT_MAX_DIM", 0)
    monkeypatch.setattr(choice, "is_factored", lambda *arguments, **options: False)
    monkeypatch.setattr(iterations, "LEAST_FACTORED", 1e-9)
    monkeypatch.setattr(iterations, "expected_seconds", lambda device, layout: 1e-9)
    finish = iterations.Iterations.finish
    monkeypatch.setattr(
        iterations.Iterations, "finish", lambda *given: (solves.append("pcg"), finish(*given))[1]
    )
    graph = landmarks_along(40, 3)
    expected = graphopt.optimize(graph.copy(), device="cpu")
    options, chi2 = SolverOptions("vulkan", schur="explicit"), []
    start = [each_vertex_set.estimate.copy() for each_vertex_set in graph.vertex_sets]
    solver = create(graph, Structure(graph.select()), options, device=device)
    for _ in range(2):
        for vertex_set, estimate in zip(graph.vertex_sets, start, strict=True):
            vertex_set.estimate[:] = estimate
        solver.refresh()
        for _ in range(5):
            solver.linearize()
            assert solver.trial(Damping(1e-6)).solved
            solver.discard_top()
        chi2.append(solver.chi2())
        solver.finish()
        described = solver.describe()
        assert described["linear_solver"] == "cholesky" and described["schur"] == "explicit"
        assert described["factorized_on"] == ("cpu" if is_software else described["factorized_on"]) != ""
    assert solves == ["pcg", "pcg"]
    assert chi2[0] == chi2[1] == pytest.approx(expected.final_chi2, rel=1e-9)


def test_a_solve_that_takes_too_long_is_given_up(monkeypatch):
    """The step is then a factorization's, and the rest of its iterations does not run."""
    monkeypatch.setattr("graphopt.vulkan.plan.configuration.DIRECT_MAX_DIM", 0)
    monkeypatch.setattr(choice, "is_factored", lambda *arguments, **options: False)
    monkeypatch.setattr(iterations, "LEAST_FACTORED", 1e-9)
    monkeypatch.setattr(iterations, "expected_seconds", lambda device, layout: 1e-9)
    graph, steps, counts = landmarks_along(80, 3), {}, {}
    for name in ("auto", "pcg", "cholesky"):
        options = SolverOptions("vulkan", linear_solver=name, schur="explicit")
        solver: Any = create(graph, Structure(graph.select()), options, device=shared_device("address"))
        solver.linearize()
        assert solver.trial(Damping(1e-6)).solved
        steps[name] = solver.dx.copy()
        counts[name] = solver.system.outcome.iterations if name == "pcg" else None
        assert name != "auto" or solver.describe()["linear_solver"] == "cholesky"
    assert counts["pcg"] > 3 * iterations.FEWEST_ITERATIONS
    largest = np.abs(steps["cholesky"]).max()
    np.testing.assert_allclose(steps["auto"], steps["cholesky"], atol=1e-9 * largest)


def test_patience_follows_the_solve_before():
    """As on the CPU: a quarter of its iterations, 10 to 30, and 30 in the first solve of an optimization."""
    graph = landmarks_along(80, 3)
    options = SolverOptions("vulkan", linear_solver="pcg", schur="explicit")
    solver: Any = create(graph, Structure(graph.select()), options, device=shared_device("address"))
    counts = []
    for share, worth in ((1e-6, 1e9), (1e-6, 1e9), (1e-6, 0.0), (1e-6, 1e9)):
        solver.linearize()
        assert solver.trial(Damping(1e-6, accuracy=share, worth=worth)).solved
        solver.pop()
        counts.append(solver.system.outcome.iterations)
    assert counts[:2] == [30, 10] and counts[2] > 30 and counts[3] == min(max(counts[2] // 4, 10), 30)
    solver.system.reset()
    assert solver.trial(Damping(1e-6, accuracy=1e-6, worth=1e9)).solved
    assert solver.system.outcome.iterations == 30


def test_who_asks_for_iterations_gets_them(monkeypatch):
    """However long they take."""
    monkeypatch.setattr(iterations, "LEAST_FACTORED", 1e-9)
    monkeypatch.setattr(iterations, "expected_seconds", lambda device, layout: 1e-9)
    summary = graphopt.optimize(
        landmarks_along(60, 3), device="vulkan", linear_solver="pcg", schur="explicit"
    )
    assert summary.linear_solver == "pcg" and summary.factorized_on == ""
