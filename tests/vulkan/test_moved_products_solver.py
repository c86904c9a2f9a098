"""Schedule "jp" on the device, as a part of whole solvers, against the CPU."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from image_edges import photo_graph
from reference import ReferenceSolver
from resident_graphs import mixed_plane, mixed_space
from test_resident import close, on_cpu, resident
from vulkan_graphs import assert_same_path, bundle_adjustment, pose_graph

from graphopt.device.figures import DeviceFigures
from graphopt.optimizer import optimize
from graphopt.problem.structure import Structure
from graphopt.solver.trial import Damping
from graphopt.vulkan.operators.jp import Jp
from graphopt.vulkan.plan.passes import EdgeCosts
from graphopt.vulkan.plan.problem import problem_size
from graphopt.vulkan.plan.search import predict

LARGE_GPU = DeviceFigures("large", 4.0e12, 4.8e13, 3.0e13, 2.5e11, 2e-6, 3e-5)


def robust_bundle():
    """Observations with a robust kernel."""
    graph = bundle_adjustment()
    (edges,) = graph.edge_sets
    edges.kernel[:] = 1
    edges.kernel_width[:] = 5.0
    return graph


GRAPHS = {"plane": mixed_plane, "space": mixed_space, "bundle": robust_bundle, "photo": photo_graph}
SCHEDULES = ["jp"]


@pytest.mark.parametrize("schur", ["off", "implicit"])
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    "name,access", [*((name, "address") for name in GRAPHS), ("space", "storage"), ("bundle", "storage")]
)
def test_products_and_trials_equal_the_cpus(name, schedule, schur, access):
    """H x, b, the diagonal; then steps and chi2 of trials, also after a step."""
    device = resident(GRAPHS[name](), access, "pcg", schur, schedule, tolerance=1e-24)
    assert schedule in device.describe()["schedule"]
    host = on_cpu(GRAPHS[name]())
    vector = np.random.default_rng(0).normal(size=host.dim)
    for damping in (Damping(0.3), Damping(1e-3, True, 1e-6, 1e32)):
        assert device.linearize() == pytest.approx(host.linearize(), rel=1e-11)
        close(device.multiply(vector), host.multiply(vector))
        close(device.diagonal, host.diagonal)
        actual, expected = device.trial(damping), host.trial(damping)
        assert actual.solved
        assert actual.chi2 == pytest.approx(expected.chi2, rel=1e-8)
        assert actual.gain == pytest.approx(expected.gain, rel=1e-8)
        for solver in (device, host):
            solver.discard_top()


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", ["plane", "bundle"])
def test_chi2_of_every_iteration_equals_that_of_other_schedules(name, schedule):
    """Levenberg-Marquardt with everything computed anew, and so."""
    options = {"device": "vulkan", "linear_solver": "pcg", "schur": "implicit"}
    expected = optimize(GRAPHS[name](), "lm", 4, schedule="matrix-free", **options)
    actual = optimize(GRAPHS[name](), "lm", 4, schedule=schedule, **options)
    assert_same_path(expected, actual)
    assert schedule in actual.schedule


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("masked", ["", "float64"])
def test_mixed_precision_reaches_the_minimum(schedule, masked, monkeypatch):
    """Also without float64 on the device."""
    monkeypatch.setenv("GRAPHOPT_MASK_FEATURES", masked)
    options = {"linear_solver": "pcg", "schur": "implicit"}
    expected = optimize(robust_bundle(), "lm", 30, device="cpu", **options)
    actual = optimize(
        robust_bundle(), "lm", 30, device="vulkan", schedule=schedule, precision="mixed", **options
    )
    assert actual.precision == "mixed" and actual.schedule == schedule
    assert actual.final_chi2 == pytest.approx(expected.final_chi2, rel=1e-6)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_two_runs_give_the_same_bits(schedule):
    """On one device: chi2 of every iteration and the estimates."""
    runs = []
    for _ in range(2):
        graph = mixed_plane()
        options = {"linear_solver": "pcg", "schur": "implicit", "schedule": schedule}
        summary = optimize(graph, "lm", 3, device="vulkan", **options)
        estimates = [vertex_set.estimate.tobytes() for vertex_set in graph.vertex_sets]
        runs.append(([iteration.chi2 for iteration in summary.iterations], estimates))
    assert runs[0] == runs[1]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("schur", ["off", "implicit"])
def test_edges_that_name_a_vertex_twice(schur, schedule):
    """The CPU refuses them; products equal those of the plain reference."""
    graph = mixed_plane(loops=True)
    reference = ReferenceSolver(graph, Structure(graph.select()))
    device = resident(graph, "address", "pcg", schur, schedule)
    assert device.linearize() == pytest.approx(reference.linearize(), rel=1e-12)
    vector = np.random.default_rng(0).normal(size=device.dim)
    close(device.diagonal, reference.diagonal, 1e-7)
    close(device.multiply(vector), reference.multiply(vector), 1e-7)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_beside_other_schedules(schedule):
    """Each edge set with its own."""
    for pins in (
        {"EDGE_SE3:QUAT": "jacobians", "EDGE_SE3_TRACKXYZ": schedule},
        {"EDGE_SE3:QUAT": schedule, "EDGE_SE3_TRACKXYZ": "matrix-free"},
        {"EDGE_SE3:QUAT": "blocks", "EDGE_SE3_TRACKXYZ": schedule},
    ):
        device = resident(mixed_space(), "address", "pcg", "implicit", pins, tolerance=1e-24)
        host = on_cpu(mixed_space())
        device.linearize()
        host.linearize()
        vector = np.random.default_rng(0).normal(size=host.dim)
        close(device.multiply(vector), host.multiply(vector))
        actual, expected = device.trial(Damping(0.3)), host.trial(Damping(0.3))
        assert actual.chi2 == pytest.approx(expected.chi2, rel=1e-8)
        assert schedule in device.describe()["schedule"]


# -------------------------------------------------------------------- jp


def moved_vectors(solver):
    """Sources of each t that a solver has computed."""
    halves = [edges.schedule for edges in solver._linearizer.edges if isinstance(edges.schedule, Jp)]
    return sorted(tuple(sorted(sources)) for half in halves for sources in half._moved)


def test_slots_share_the_first_half_where_they_can():
    """A pose graph computes J x once; with a stored block beside it, once per slot; landmarks need both."""
    for graph, schur, schedule, expected in [
        (pose_graph, "off", "jp", [(0, 1)]),
        (bundle_adjustment, "implicit", "jp", [(0,), (1,)]),
        (mixed_space, "off", {"EDGE_SE3:QUAT": "jp", "EDGE_SE3_TRACKXYZ": "blocks"}, [(0,), (1,)]),
        (mixed_space, "off", "jp", [(0, 1), (0, 1)]),
    ]:
        solver = resident(graph(), "address", "pcg", schur, schedule)
        solver.linearize()
        assert solver.trial(Damping(0.3)).solved
        assert moved_vectors(solver) == expected
        size = problem_size(solver.structure, "double")
        costs, products = EdgeCosts(size, LARGE_GPU, "double"), solver._linearizer.storage.products
        number = sum(
            Jp.num_moved(costs, g, products, schur)
            for g, product in zip(size.groups, products, strict=True)
            if product == "jp"
        )
        assert number == len(expected)


def test_edges_of_many_vertices_cost_less_in_halves():
    """n + 1 halves instead of n whole products: less for four vertices, more for two."""
    few, many = problem_size(Structure(pose_graph().select()), "double"), None
    (group,) = few.groups
    more = {"record_words": (2,) * 4, "tangent_dims": (3,) * 4, "is_eliminated": (False,) * 4}
    more |= {"num_destinations": (40,) * 4, "vertex_sets": (0,) * 4, "may_merge": (False,) * 4}
    many = replace(few, groups=(replace(group, num_edges=10**7, **more),))
    pins = {"EDGE_SE2": "matrix-free"}, {"EDGE_SE2": "jp"}
    slow = replace(LARGE_GPU, float64_flops=1e11)
    anew, halves = (predict(many, slow, "double", pin)[0] for pin in pins)
    assert halves.seconds["solve"] < 0.7 * anew.seconds["solve"]
    two = replace(few, groups=(replace(group, num_edges=10**7),))
    anew, halves = (predict(two, LARGE_GPU, "mixed", pin)[0] for pin in pins)
    assert halves.seconds["solve"] > anew.seconds["solve"]
