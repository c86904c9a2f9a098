"""Every way to solve on a device, on every kind of graph, in every arithmetic: the CPU's numbers.

A new linear solver, schedule or evaluation is a row of `WAYS`; a new kind of graph is one of `SCENES`.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from device_solvers import (
    DAMPINGS,
    ELIMINATED,
    assert_same_equations,
    close,
    merged,
    num_cut,
    on_cpu,
    resident,
)
from device_solvers import SCENES as SMALL_SCENES
from long_graphs import curve_fit
from reference import ReferenceSolver
from resident_graphs import mixed_plane
from vulkan_devices import shared_device
from vulkan_graphs import assert_same_path

from graphopt import io
from graphopt.optimizer import optimize
from graphopt.problem.structure import Structure
from graphopt.vulkan.data import views

SCENES = {**SMALL_SCENES, "curve": functools.partial(curve_fit, num_devices=4)}
BOTH, UNMARKED = ("plane", "bundle"), ("poses", "picture")
ALL = *ELIMINATED, *UNMARKED
SOME, WHOLE = ("plane", "space", "bundle", "photo"), ("plane", "space", "photo", *UNMARKED)
PLANE = "EDGE_SE2", "EDGE_SE2_XY", "EDGE_SE2_LOTSOFXY", "EDGE_TEST_MIDPOINT"


@dataclass(frozen=True)
class Way:
    """Options of a solver, and the scenes that it is tried on."""

    linear_solver: str
    schur: str
    schedule: Any
    scenes: tuple[str, ...]
    is_merged: bool = False
    """One launch sums a vertex set."""
    is_long: bool = False
    """Nearly every sum is cut into parts."""

    @property
    def is_whole(self) -> bool:
        """All of H is stored."""
        return isinstance(self.schedule, str) and self.schedule.startswith("blocks")

    def solver(self, graph, variant="address"):
        """On the shared device of a variant."""
        if self.is_merged:
            return merged(graph, variant, self.schur, self.schedule)
        return resident(graph, variant, self.linear_solver, self.schur, self.schedule, tolerance=1e-24)


def pins(*schedules: str) -> dict[str, str]:
    """One for each edge type of the scene in the plane."""
    return dict(zip(PLANE, schedules, strict=True))


PRODUCTS = "blocks", "matrix-free", "jacobians"
EVALUATED_ONCE = *(f"{product}+scatter" for product in PRODUCTS), "blocks+collect"
WAYS = {
    "cholesky": Way("cholesky", "auto", "blocks", ALL),
    "cholesky, collect": Way("cholesky", "auto", "blocks+collect", ("space", "plane")),
    "cholesky, whole": Way("cholesky", "off", "blocks", (*BOTH, *UNMARKED)),
    "dense": Way("dense", "auto", "blocks", (*BOTH, "poses")),
    "explicit": Way("pcg", "explicit", "blocks", SOME),
    **{f"whole, {name}": Way("pcg", "off", name, WHOLE) for name in (*PRODUCTS, "jp")},
    **{f"implicit, {name}": Way("pcg", "implicit", name, SOME) for name in (*PRODUCTS, "jp")},
    **{f"whole, {name}": Way("pcg", "off", name, (*BOTH, "space", "poses")) for name in EVALUATED_ONCE},
    **{f"implicit, {name}": Way("pcg", "implicit", name, BOTH) for name in EVALUATED_ONCE},
    "merged": Way("pcg", "off", "matrix-free", ("space", *UNMARKED), is_merged=True),
    **{
        f"merged, {name}": Way("pcg", "implicit", name, (*BOTH, "robust"), is_merged=True)
        for name in (*PRODUCTS, "jp")
    },
    **{
        f"long, {name}": Way("pcg", schur, name, BOTH, is_long=True)
        for name in (*PRODUCTS, "jp", *EVALUATED_ONCE[:3])
        for schur in ("implicit" if "b" not in name else "off",)
    },
    "pins, first": Way("pcg", "off", pins("blocks", "matrix-free", "matrix-free", "jacobians"), ("plane",)),
    "pins, second": Way("pcg", "implicit", pins("jacobians", "blocks", "jp", "blocks"), ("plane",)),
    "pins, third": Way("pcg", "implicit", pins("matrix-free", "jacobians", "blocks", "jp"), ("plane",)),
    **{
        f"pins, {poses} and {points}": Way(
            "pcg", schur, {"EDGE_SE3:QUAT": poses, "EDGE_SE3_TRACKXYZ": points}, ("space",)
        )
        for poses, points, schur in (
            ("blocks", "matrix-free", "off"),
            ("jp", "blocks", "off"),
            ("jacobians", "jp", "implicit"),
            ("matrix-free", "blocks+scatter", "implicit"),
        )
    },
    "pins, one": Way("pcg", "implicit", {"EDGE_SE2": "jacobians"}, ("plane",)),
    "pins, evaluations": Way(
        "pcg", "off", pins("blocks+gather", "blocks+scatter", "blocks+collect", "blocks+gather"), ("plane",)
    ),
    "pins, merged": Way(
        "pcg",
        "off",
        {"VERTEX_SE2": "merged", **pins("jacobians", "jacobians+scatter", "blocks", "matrix-free")},
        ("plane",),
    ),
}
VARIANTS = {
    # name: (access, precision), scenes
    "double": (("address", "double"), ALL),
    "storage": (("storage", "double"), ("plane",)),
    "mixed": (("storage", "mixed"), ("bundle",)),
}
# every kernel once: pins, and other eliminations, are made of the same
STORAGE = [name for name in WAYS if name.startswith(("cholesky", "dense", "explicit", "whole", "merged, j"))]
STORAGE += [
    "implicit, blocks",
    "implicit, jp",
    "long, blocks+scatter",
    "long, jacobians",
    "long, matrix-free",
]
CASES = [
    pytest.param(way, scene, variant, id=f"{name}-{scene}-{arithmetic}")
    for name, way in WAYS.items()
    for arithmetic, (variant, scenes) in VARIANTS.items()
    for scene in way.scenes
    if scene in scenes and not (arithmetic == "mixed" and way.linear_solver != "pcg")
    if arithmetic != "storage" or name in STORAGE
]
TOLERANCE = {
    # of chi2 after a trial, of its step
    "double": (1e-8, 1e-5),
    "mixed": (1e-4, 2e-3),
}
ITERATIONS = 4


def assert_pins(pinned, schedule):
    """A description has what was pinned of edge types."""
    found = dict(word.split("=") for word in schedule.split(", "))
    for tag, name in pinned.items():
        assert found.get(tag, name) == name.removesuffix("+gather")


@pytest.fixture
def way(request, monkeypatch) -> Way:
    """The limits beyond which a sum has parts, where it is to have them."""
    if request.param.is_long:
        for name, value in {
            "LONG": 6,
            "LONG_SHARE": 1 << 20,
            "PART": 4,
            "LONG_BLOCK": 1,
            "BLOCK_PART": 1,
        }.items():
            monkeypatch.setattr(views, name, value)
    return request.param


@pytest.mark.parametrize(("way", "scene", "variant"), CASES, indirect=["way"])
def test_equations_and_trials(way, scene, variant):
    """Before and after a step; a trial of each kind of damping, of which nothing is left once taken back."""
    device, host = way.solver(SCENES[scene](), variant), on_cpu(SCENES[scene]())
    precision = variant[1]
    value, step = TOLERANCE[precision]
    assert_same_equations(device, host, precision, is_whole=way.is_whole)
    if way.is_long and scene in BOTH:
        assert num_cut(device)[0] > 3
    if isinstance(way.schedule, dict):
        assert_pins(way.schedule, device.schedule)
    start = device.chi2()
    for damping in DAMPINGS:
        actual, expected = device.trial(damping), host.trial(damping)
        assert actual.solved
        assert actual.chi2 == pytest.approx(expected.chi2, rel=value)
        assert actual.gain == pytest.approx(expected.gain, rel=10 * value)
        assert actual.step_size == pytest.approx(expected.step_size, rel=step)
        close(device.dx, host.dx, step)
        device.pop()
        host.pop()
        assert device.chi2() == start
    if precision != "double":
        return  # a step is float32 there
    device.dx = host.dx = 0.01 * np.random.default_rng(0).normal(size=host.dim)
    np.testing.assert_array_equal(device.dx, host.dx)
    device.update()
    host.update()
    assert_same_equations(device, host, precision, is_whole=way.is_whole)
    device.finish()
    host.finish()
    sets = zip(device.structure.selection.vertex_sets, host.structure.selection.vertex_sets, strict=True)
    for set_, other in sets:
        np.testing.assert_allclose(set_.estimate, other.estimate, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "way",
    [
        pytest.param(way, id=name)
        for name, way in WAYS.items()
        if "plane" in way.scenes and not name.startswith(("dense", "pins", "implicit, blocks"))
    ],
    indirect=True,
)
def test_edges_that_name_a_vertex_twice(way):
    """The CPU refuses them; the equations are those of the plain reference."""
    graph = mixed_plane(loops=True)
    device, reference = way.solver(graph), ReferenceSolver(graph, Structure(graph.select()))
    assert device.linearize() == pytest.approx(reference.linearize(), rel=1e-12)
    vector = np.random.default_rng(0).normal(size=device.dim)
    for actual, expected in (
        (device.b, reference.b),
        (device.diagonal, reference.diagonal),
        (device.multiply(vector), reference.multiply(vector)),
    ):
        close(actual, expected, 1e-7)


# ---------------------------------------------------------------- whole runs

AUTO = {
    # every schedule chosen by the plan
    f"{linear_solver}, {schur}": Way(linear_solver, schur, "auto", scenes)
    for linear_solver, schur, scenes in (
        ("auto", "auto", ("bundle", "poses")),
        ("pcg", "explicit", ("bundle",)),
        ("pcg", "implicit", ("bundle",)),
        ("pcg", "off", ("bundle", "poses")),
        ("cholesky", "auto", ("bundle", "poses")),
        ("dense", "auto", ("bundle", "poses")),
    )
} | {f"{solver}, host": Way(solver, "auto", "host", ("bundle", "poses")) for solver in ("pcg", "cholesky")}
MASKED = {"double": "", "storage": "buffer_address"}
RUNS = [
    pytest.param(way, scene, arithmetic, id=f"{name}-{scene}-{arithmetic}")
    for name, way in {**WAYS, **AUTO}.items()
    for scene in [scene for scene in way.scenes if scene not in ("photo", "robust")][: 1 + (name in AUTO)]
    for arithmetic in (MASKED if name in AUTO else ("double",))
    if not way.is_long
]


def run(way, scene, iterations, **more):
    """A graph and the summary of its run on the device."""
    graph = SCENES[scene]()
    schedule = way.schedule
    if way.is_merged:
        schedule = {graph.vertex_sets[0].type.tag: "merged"}
        schedule |= {edges.type.tag: way.schedule for edges in graph.edge_sets}
        if scene == "bundle" or way.schur == "implicit":
            schedule = {tag: pin for tag, pin in schedule.items() if pin != "merged"}
    options = {"linear_solver": way.linear_solver, "schur": way.schur, "schedule": schedule, **more}
    return graph, optimize(graph, "lm", iterations, device="vulkan", **options)


@functools.cache
def run_on_cpu(linear_solver, schur, scene, iterations=ITERATIONS):
    """The CPU's summary, and where it ends."""
    graph = SCENES[scene]()
    summary = optimize(graph, "lm", iterations, device="cpu", linear_solver=linear_solver, schur=schur)
    return summary, [vertices.estimate.copy() for vertices in graph.vertex_sets]


@pytest.mark.parametrize(("way", "scene", "arithmetic"), RUNS, indirect=["way"])
def test_chi2_and_trials_of_every_iteration(way, scene, arithmetic, monkeypatch):
    """And the estimates at the end; a second run gives the same bits."""
    monkeypatch.setenv("GRAPHOPT_MASK_FEATURES", MASKED[arithmetic])
    monkeypatch.setenv("GRAPHOPT_VALIDATION", "1")
    expected, estimates = run_on_cpu(way.linear_solver, way.schur, scene)
    (graph, summary), (again, repeated) = (run(way, scene, ITERATIONS) for _ in range(2))
    assert_same_path(expected, summary)
    assert [each.chi2 for each in summary.iterations] == [each.chi2 for each in repeated.iterations]
    for vertices, others, estimate in zip(graph.vertex_sets, again.vertex_sets, estimates, strict=True):
        np.testing.assert_allclose(vertices.estimate, estimate, rtol=1e-6, atol=1e-6)
        assert vertices.estimate.tobytes() == others.estimate.tobytes()
    assert summary.device.startswith("vulkan:") and summary.device_name == shared_device("address").name
    assert summary.precision == "double" and summary.memory_bytes > 0
    assert summary.final_chi2 == pytest.approx(graph.chi2(), rel=1e-12)
    if isinstance(way.schedule, str) and way.schedule not in ("auto", "blocks"):
        assert summary.schedule == way.schedule  # "blocks" leaves open who evaluates the edges


@pytest.mark.parametrize("schedule", ["auto", "blocks"])
@pytest.mark.parametrize("method", ["auto", "gn", "dogleg"])
@pytest.mark.parametrize("scene", ["plane", "poses"])
def test_other_algorithms_take_the_cpus_path(scene, method, schedule):
    """Vectors are downloaded for those that compute with them. Later iterations gain less than rounding."""
    expected = optimize(SCENES[scene](), method, 4, device="cpu", linear_solver="cholesky")
    options = {"linear_solver": "cholesky", "schedule": schedule}
    assert_same_path(expected, optimize(SCENES[scene](), method, 4, device="vulkan", **options))


ROBUST = [f"implicit, {name}" for name in (*PRODUCTS, "jp", *EVALUATED_ONCE)]
NARROW = [
    # name, scene, masked features: drivers take long for two floats
    *((name, "robust", "") for name in (*ROBUST, "merged, jacobians", "pcg, host")),
    *((name, "robust", "float64") for name in (ROBUST[0], ROBUST[3], "merged, jacobians")),
    ("implicit, matrix-free", "robust", "float64,buffer_address"),
    *((f"implicit, {name}", "photo", "") for name in PRODUCTS[:2]),
    *(("merged", "poses", masked) for masked in ("", "float64")),
    *(
        (f"whole, {name}", "curve", masked)
        for name in ("matrix-free", "jp", "blocks+scatter", "jacobians+scatter")
        for masked in ("", *(["float64"] if name == "blocks+scatter" else []))
    ),
]


@pytest.mark.parametrize(("name", "scene", "masked"), NARROW)
def test_mixed_precision_reaches_the_minimum(name, scene, masked, monkeypatch):
    """float32 for H and products, float64 or two floats for residuals: the minimum to 1e-6 of chi2."""
    monkeypatch.setenv("GRAPHOPT_MASK_FEATURES", masked)
    way = {**WAYS, **AUTO}[name]
    iterations = 15 if scene == "curve" else 25
    expected, _ = run_on_cpu("pcg", way.schur, scene, iterations)
    _, actual = run(way, scene, iterations, precision="mixed")
    if scene == "robust" and not masked:
        _, repeated = run(way, scene, iterations, precision="mixed")
        assert [each.chi2 for each in actual.iterations] == [each.chi2 for each in repeated.iterations]
    assert actual.precision == "mixed"
    assert actual.initial_chi2 == pytest.approx(expected.initial_chi2, rel=1e-9)
    assert actual.final_chi2 == pytest.approx(expected.final_chi2, rel=1e-5 if scene == "photo" else 1e-6)


REAL = [
    # file, linear solver, largest difference to the CPU's chi2
    ("dubrovnik-3-7-pre.txt", "dense", 1e-8),
    ("Balbianello.out", "pcg", 1e-8),
    ("tinyGrid3D.g2o", "pcg", 1e-8),
    ("example_br.graph", "cholesky", 1e-8),
    ("intel.g2o", "cholesky", 1e-8),
    ("sphere400.isam.txt", "cholesky", 1e-8),
    ("MIT.g2o", "cholesky", 1e-8),
    ("world-2000-default.g2o", "cholesky", 1e-8),
    # H is ill-conditioned: conjugate gradients of the CPU are 3e-7 and 3e-4 away from its Cholesky
    ("w100.graph", "cholesky", 1e-10),
    ("data_bearing_only.g2o", "cholesky", 1e-10),
    ("data_bearing_only.g2o", "dense", 1e-10),
]


@pytest.mark.data
@pytest.mark.parametrize(("file", "linear_solver", "tolerance"), REAL)
def test_real_graphs_take_the_cpus_path(shared_data, file, linear_solver, tolerance):
    """chi2 of every iteration."""
    graph = io.read_with_report(next(shared_data.glob(f"**/{file}*")))[0]
    expected = optimize(graph.copy(), "lm", 4, device="cpu", linear_solver=linear_solver)
    actual = optimize(graph, "lm", 4, device="vulkan", linear_solver=linear_solver)
    assert_same_path(expected, actual, tolerance)
