"""Schedules "expressions" and "jp" on the device, as a part of whole solvers, against the CPU."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from image_edges import photo_graph
from reference import ReferenceSolver
from resident_graphs import mixed_plane, mixed_space
from test_resident import close, on_cpu, resident
from vulkan_devices import shared_device
from vulkan_graphs import assert_same_path, bundle_adjustment, pose_graph

from graphopt import io
from graphopt.cli.main import main
from graphopt.device.figures import DeviceFigures
from graphopt.optimizer import optimize
from graphopt.problem.structure import Structure
from graphopt.solver.trial import Damping
from graphopt.vulkan.plan import search as cost
from graphopt.vulkan.plan.passes import EdgeCosts
from graphopt.vulkan.plan.problem import problem_size
from graphopt.vulkan.plan.search import predict
from graphopt.vulkan.schedules.expressions import Expressions, balance_of
from graphopt.vulkan.schedules.jp import Jp

LARGE_GPU = DeviceFigures("large", 4.0e12, 4.8e13, 3.0e13, 2.5e11, 2e-6, 3e-5)
SLOW_DOUBLE = DeviceFigures("slow in double", 4.0e12, 4.8e13, 6.0e12, 2.5e11, 2e-6, 3e-5)
SLOW_MEMORY = DeviceFigures("slow memory", 4.0e11, 4.8e13, 3.0e13, 2.5e11, 2e-6, 3e-5)


def robust_bundle():
    """Observations with a robust kernel."""
    graph = bundle_adjustment()
    (edges,) = graph.edge_sets
    edges.kernel[:] = 1
    edges.kernel_width[:] = 5.0
    return graph


GRAPHS = {"plane": mixed_plane, "space": mixed_space, "bundle": robust_bundle, "photo": photo_graph}
SCHEDULES = ["expressions", "jp"]


@pytest.fixture(autouse=True)
def figures(monkeypatch):
    """What a test says the device can do: cuts depend on it. Afterwards the validation layer is silent."""
    chosen = [LARGE_GPU]
    for module in ("schedules.expressions", "plan.choice"):
        monkeypatch.setattr(f"graphopt.vulkan.{module}.device_figures", lambda device: chosen[0])
    monkeypatch.setattr("graphopt.device.figures.device_figures", lambda device: chosen[0])
    yield lambda value: chosen.__setitem__(0, value)
    for access in ("address", "storage"):
        assert shared_device(access).messages == []


def stored_numbers(solver):
    """Numbers per edge of all views."""
    solver._prepared.result()
    stored = [getattr(edges.schedule, "stored", {}) for edges in solver._linearizer.edges]
    return [view.count for views in stored for view in views.values()]


@pytest.mark.parametrize("schur", ["off", "implicit"])
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    "name,access", [*((name, "address") for name in GRAPHS), ("space", "storage"), ("bundle", "storage")]
)
def test_products_and_trials_equal_the_cpus(name, schedule, schur, access, figures):
    """H x, b, the diagonal; then steps and chi2 of trials, also after a step."""
    figures(SLOW_MEMORY if name == "photo" else LARGE_GPU)
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


# -------------------------------------------------------------------- expressions


def test_cuts_are_those_of_the_device(figures):
    """Of robust observations the weight is stored, and where float64 is slow the camera's rotation, too."""
    few = resident(robust_bundle(), "address", "pcg", "implicit", "matrix-free")
    assert stored_numbers(few) == []
    counts = []
    for gpu in (LARGE_GPU, SLOW_DOUBLE):
        figures(gpu)
        solver = resident(robust_bundle(), "address", "pcg", "implicit", "expressions")
        solver.linearize()
        assert solver.describe()["schedule"] == "expressions"
        size = problem_size(solver.structure, "double")
        costs = EdgeCosts(size, gpu, "double")
        expected = [Expressions.stored_numbers(costs, size.groups[0], slot) for slot in (0, 1)]
        counts.append(sorted(stored_numbers(solver)))
        assert counts[-1] == sorted(expected)
    assert counts[0] != counts[1] and min(counts[0]) >= 1


def test_figures_that_differ_a_little_make_the_same_cuts():
    """The balance is of powers of two."""
    near = DeviceFigures("near", 4.1e12, 4.7e13, 2.9e13, 2.6e11, 2e-6, 3e-5)
    for precision in ("double", "mixed"):
        assert balance_of(near, precision) == balance_of(LARGE_GPU, precision)
    without = DeviceFigures("no float64", 1e11, 1e12, 0.0, 1e10, 2e-6, 3e-5)
    assert balance_of(without, "mixed").wide == 16.0


def test_a_cut_at_an_end_is_that_schedule(figures, monkeypatch):
    """Pinned or not; nothing is called "expressions" that is not."""
    monkeypatch.setattr(cost, "CUT_SECONDS", 0.0)
    plain = bundle_adjustment()
    size = problem_size(Structure(plain.select()), "mixed")
    names = {prediction.schedule for prediction in predict(size, LARGE_GPU, "mixed")}
    known = {"blocks", "matrix-free", "jacobians", "jp"}
    assert names == known | {f"{name}+scatter" for name in known}
    summary = optimize(
        plain,
        "lm",
        1,
        device="vulkan",
        linear_solver="pcg",
        schur="implicit",
        schedule="expressions",
        precision="mixed",
    )
    assert summary.schedule == "matrix-free"
    robust = problem_size(Structure(robust_bundle().select()), "mixed")
    assert "expressions" in {prediction.schedule for prediction in predict(robust, LARGE_GPU, "mixed")}


def test_explain_shows_what_is_stored(tmp_path, capsys):
    """Names, formulas, numbers and operations; or which schedule it is instead."""
    path = tmp_path / "space.g2o"
    io.write(mixed_space(), path)
    words = ["explain", str(path), "--device", "vulkan", "--linear-solver", "pcg", "--schur", "implicit"]
    assert main([*words, "--json"]) == 0
    groups = json.loads(capsys.readouterr().out)["expressions"]
    assert {group["edge"] for group in groups} == {"EDGE_SE3:QUAT", "EDGE_SE3_TRACKXYZ"}
    views = [view for group in groups for view in group["views"]]
    assert {view["vertex"] for view in views} == {"first", "second", "pose", "point"}
    for view in views:
        if view["cut"] == "between":
            assert len(view["stored"]) == view["numbers"] > 0
            assert view["operations"] < view["operations_computed_anew"]
        if view["cut"] == "inputs":
            assert view["operations"] == view["operations_computed_anew"] and not view["stored"]
    assert any(view["cut"] == "between" for view in views)
    assert main(words) == 0
    text = capsys.readouterr().out
    assert "expressions stores" in text and " = " in text and "J_0" in text
    assert main([*words, "--precision", "mixed", "--schedule", "EDGE_SE3_TRACKXYZ=expresions"]) == 2
    assert "Did you mean 'expressions'?" in capsys.readouterr().err


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
    many = replace(few, groups=(replace(group, num_edges=10**7, is_shared=(False,) * 4, **more),))
    pins = {"EDGE_SE2": "matrix-free"}, {"EDGE_SE2": "jp"}
    slow = replace(LARGE_GPU, float64_flops=1e11)
    anew, halves = (predict(many, slow, "double", pin)[0] for pin in pins)
    assert halves.seconds["solve"] < 0.7 * anew.seconds["solve"]
    two = replace(few, groups=(replace(group, num_edges=10**7),))
    anew, halves = (predict(two, LARGE_GPU, "mixed", pin)[0] for pin in pins)
    assert halves.seconds["solve"] > anew.seconds["solve"]
