"""Each edge set with a schedule of its own: products and whole runs against the CPU, and what is refused."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from resident_graphs import mixed_plane, mixed_space
from vulkan_devices import shared_device
from vulkan_graphs import assert_same_path

from graphopt.errors import OptionError
from graphopt.linear.options import SolverOptions
from graphopt.optimizer import optimize
from graphopt.problem.structure import Structure
from graphopt.solver.cpu import CpuBlockSolver
from graphopt.solver.trial import Damping
from graphopt.vulkan.plan.configuration import Configuration
from graphopt.vulkan.solver import create

PLANE = "EDGE_SE2", "EDGE_SE2_XY", "EDGE_SE2_LOTSOFXY", "EDGE_TEST_MIDPOINT"
MIXED = [
    ("plane", dict(zip(PLANE, ("blocks", "matrix-free", "matrix-free", "jacobians"), strict=True))),
    ("plane", dict(zip(PLANE, ("jacobians", "blocks", "matrix-free", "blocks"), strict=True))),
    ("plane", dict(zip(PLANE, ("matrix-free", "jacobians", "blocks", "matrix-free"), strict=True))),
    *(
        ("space", {"EDGE_SE3:QUAT": poses, "EDGE_SE3_TRACKXYZ": points})
        for poses, points in product(("blocks", "matrix-free", "jacobians"), repeat=2)
        if poses != points
    ),
]
GRAPHS = {"plane": mixed_plane, "space": mixed_space}


@pytest.fixture(params=["address", "storage"])
def access(request):
    """Both access variants; afterwards the validation layer has said nothing."""
    yield request.param
    assert shared_device(request.param).messages == []


def solver_of(graph, schur, schedule, access="address"):
    """A resident solver whose conjugate gradients go on to the end."""
    options = SolverOptions("vulkan", "pcg", schur, "double", schedule)
    configuration = Configuration("pcg", schur, tolerance=1e-24)
    structure = Structure(graph.select())
    return create(graph, structure, options, device=shared_device(access), configuration=configuration)


@pytest.mark.parametrize("schur", ["off", "implicit"])
@pytest.mark.parametrize("name,schedule", MIXED)
def test_products_and_trials_equal_the_cpus(name, schedule, schur, access):
    """H x, b, the diagonal; then step, gain and chi2 of trials, one after another."""
    device = solver_of(GRAPHS[name](), schur, schedule, access)
    graph = GRAPHS[name]()
    host = CpuBlockSolver(graph, Structure(graph.select()), SolverOptions("cpu", "cholesky"))
    vector = np.random.default_rng(0).normal(size=host.dim)
    for damping in (Damping(0.3), Damping(1e-3, True, 1e-6, 1e32)):
        assert device.linearize() == pytest.approx(host.linearize(), rel=1e-11)
        expected = host.multiply(vector)
        np.testing.assert_allclose(
            device.multiply(vector), expected, rtol=0, atol=1e-11 * np.abs(expected).max()
        )
        np.testing.assert_allclose(device.diagonal, host.diagonal, rtol=1e-11)
        actual, wanted = device.trial(damping), host.trial(damping)
        assert actual.solved
        assert actual.chi2 == pytest.approx(wanted.chi2, rel=1e-8)
        assert actual.gain == pytest.approx(wanted.gain, rel=1e-8)
        for solver in (device, host):
            solver.discard_top()
    assert device.describe()["schedule"] == ", ".join(
        f"{tag}={schedule[tag]}"
        for tag in dict.fromkeys(g.edge_set.type.tag for g in device.structure.groups)
    )


@pytest.mark.parametrize("schur", ["off", "implicit"])
@pytest.mark.parametrize("name", GRAPHS)
def test_chi2_of_every_iteration_equals_the_cpus(name, schur):
    """Levenberg-Marquardt with pins for some, the others by the cost model."""
    tag = {"plane": "EDGE_SE2", "space": "EDGE_SE3:QUAT"}[name]
    options = {"linear_solver": "pcg", "schur": schur}
    expected = optimize(GRAPHS[name](), "lm", 4, device="cpu", **options)
    actual = optimize(GRAPHS[name](), "lm", 4, device="vulkan", schedule={tag: "jacobians"}, **options)
    assert_same_path(expected, actual)
    assert f"{tag}=jacobians" in actual.schedule or actual.schedule == "jacobians"


def test_two_runs_give_the_same_bits():
    """On one device: chi2 of every iteration and the estimates."""
    runs = []
    for _ in range(2):
        graph = mixed_plane()
        options = {"linear_solver": "pcg", "schur": "implicit", "schedule": MIXED[1][1]}
        summary = optimize(graph, "lm", 3, device="vulkan", **options)
        estimates = [vertex_set.estimate.tobytes() for vertex_set in graph.vertex_sets]
        runs.append(([iteration.chi2 for iteration in summary.iterations], estimates))
    assert runs[0] == runs[1]


def test_wrong_pins_are_refused():
    """With what the graph has, and what is possible."""
    options = {"device": "vulkan", "linear_solver": "pcg"}
    with pytest.raises(
        OptionError, match=r"names edge type 'EDGE_SE3', .* This graph has EDGE_SE2, EDGE_SE2_XY"
    ):
        optimize(mixed_plane(), "lm", 1, schedule={"EDGE_SE3": "blocks"}, **options)
    with pytest.raises(OptionError, match="schedule of 'EDGE_SE2' is 'host', expected one of auto, blocks"):
        optimize(mixed_plane(), "lm", 1, schedule={"EDGE_SE2": "host"}, **options)
    with pytest.raises(OptionError, match="'EDGE_SE2=jacobians' needs products only"):
        optimize(
            mixed_plane(), "lm", 1, schedule={"EDGE_SE2": "jacobians"}, device="vulkan", schur="explicit"
        )
    mixed = {"EDGE_SE2": "jacobians", "EDGE_SE2_XY": "blocks"}
    with pytest.raises(OptionError, match="an edge names one vertex twice"):
        optimize(mixed_plane(loops=True), "lm", 1, schedule=mixed, **options)


def test_options_with_pins_can_be_compared():
    """A graph that is optimized again with the same pins gets its solver back."""
    options = SolverOptions(schedule={"EDGE_SE2": "blocks", "EDGE_SE2_XY": "auto"})
    assert options == SolverOptions(schedule={"EDGE_SE2_XY": "auto", "EDGE_SE2": "blocks"})
    assert hash(options) and options != SolverOptions(schedule={"EDGE_SE2": "jacobians"})
