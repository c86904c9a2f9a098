"""The device-resident solver with merged sums: the same answers, in fewer launches, and who decides."""

from __future__ import annotations

import functools
import json
from dataclasses import replace

import numpy as np
import pytest
from reference import ReferenceSolver
from resident_graphs import mixed_plane
from test_cost_model import H200
from test_resident import DAMPINGS, GRAPHS, close, on_cpu
from vulkan_devices import shared_device
from vulkan_graphs import assert_same_path, bundle_adjustment

import graphopt
from graphopt import io
from graphopt.cli.main import main
from graphopt.errors import OptionError
from graphopt.graph import Graph
from graphopt.linear.options import SolverOptions
from graphopt.optimizer import optimize
from graphopt.problem.structure import Structure
from graphopt.vulkan.kernels.merging import UnitWriter
from graphopt.vulkan.plan.choice import choose_plan, configuration_of
from graphopt.vulkan.plan.configuration import Configuration
from graphopt.vulkan.plan.problem import problem_size
from graphopt.vulkan.plan.search import predict
from graphopt.vulkan.solver import ResidentBlockSolver

PRODUCTS = ("blocks", "matrix-free", "jacobians")


def robust_bundle() -> Graph:
    """Bundle adjustment with two robust kernels: two edge sets on the same cameras and points."""
    graph = bundle_adjustment()
    edges = graph.edge_sets[0]
    edges.kernel[::3] = 1
    edges.kernel_width[:] = 2.0
    return graph


@functools.cache
def picture_types():
    """Pixels, and two types of edges on them."""
    pixel = graphopt.group_type("MergedPixel", 1)

    @graphopt.edge_type(tag="EDGE_MERGED_FIT", vertices=(pixel,), measurement_dim=1)
    def EdgeMergedFit(value, measured):
        """Difference to what was measured."""
        return value - measured

    @graphopt.edge_type(tag="EDGE_MERGED_STEP", vertices=(pixel, pixel), measurement_dim=1)
    def EdgeMergedStep(first, second, wanted):
        """Not linear, so that Jacobians matter."""
        return np.sin(first) - second - wanted

    return pixel, EdgeMergedFit, EdgeMergedStep


def picture(rows=9, columns=14) -> Graph:
    """An image with three stencils on its pixels; two of them are edges of one type."""
    pixel, fit, step = picture_types()
    graph = Graph()
    rng = np.random.default_rng(4)
    values = rng.normal(size=(rows, columns, 1))
    grid = graph.add_grid(pixel, (rows, columns), estimates=values)
    graph.add_stencil(fit, grid, [(0, 0)], values + 0.1)
    for offset in ((0, 1), (1, 0)):
        graph.add_stencil(step, grid, [(0, 0), offset], 0.1 * rng.normal(size=values.shape))
    return graph


ALL = {**GRAPHS, "robust bundle": robust_bundle, "picture": picture}


def solver_of(graph, merged, access="address", schur="off", products="matrix-free", precision="double"):
    """A resident solver; merged: all vertex sets, or none."""
    structure = Structure(graph.select())
    tolerance = 1e-24 if precision == "double" else 1e-9
    configuration = Configuration("pcg", schur, tolerance=tolerance)
    sets = frozenset(range(len(structure.selection.vertex_sets)) if merged else ())
    chosen = (products,) * len(structure.groups)
    return ResidentBlockSolver(
        graph.parameter_sets, structure, shared_device(access), configuration, precision, chosen, sets
    )


@pytest.fixture(autouse=True)
def silent():
    """The validation layer has nothing to say."""
    yield
    assert all(shared_device(access).messages == [] for access in ("address", "storage"))


def launches_of(solver):
    """Launches of the linearisation by step, and whether H is cleared before."""
    solver.linearize()
    own, linearizer = solver.system.equations, solver._linearizer
    steps = list(linearizer.linearize_steps(linearizer.estimates.current, own.values, own.b))
    return [len(step) for step in steps], linearizer.clears


def views_together(solver):
    """Numbers of views that one launch of the linearisation sums."""
    return [
        len(writer.views.members) for writer in solver._linearizer._writers if isinstance(writer, UnitWriter)
    ]


@pytest.mark.parametrize(
    "access,products",
    [*(("address", product) for product in (*PRODUCTS, "jp")), ("storage", "jacobians")],
)
@pytest.mark.parametrize("name", ALL)
def test_everything_equals_the_cpus(name, access, products):
    """H, b, chi2, products, a trial of each kind of damping; two solvers leave the same bits."""
    schur = "implicit" if name in ("plane", "bundle", "robust bundle") else "off"
    one, other = (solver_of(ALL[name](), True, access, schur, products) for _ in range(2))
    host = on_cpu(ALL[name]())
    vector = np.random.default_rng(0).normal(size=host.dim)
    assert one.linearize() == pytest.approx(host.linearize(), rel=1e-12)
    assert other.linearize() == one.linearize()
    close(one.b, host.b)
    close(one.diagonal, host.diagonal)
    close(one.multiply(vector), host.multiply(vector))
    np.testing.assert_array_equal(one.b, other.b)
    np.testing.assert_array_equal(one.multiply(vector), other.multiply(vector))
    for damping in DAMPINGS:
        actual, again, expected = one.trial(damping), other.trial(damping), host.trial(damping)
        assert actual.chi2 == pytest.approx(expected.chi2, rel=1e-8) and actual.chi2 == again.chi2
        close(one.dx, host.dx, 1e-5)
        np.testing.assert_array_equal(one.dx, other.dx)
        for solver in (one, other, host):
            solver.pop()


@pytest.mark.parametrize("masked", ["", "float64"])
@pytest.mark.parametrize("name,schedule", [("robust bundle", "jacobians"), ("poses", "matrix-free")])
def test_mixed_precision(name, schedule, masked, monkeypatch):
    """float32, with float64 or two floats where chi2 needs it: the minimum to 1e-6 of chi2."""
    monkeypatch.setenv("GRAPHOPT_MASK_FEATURES", masked)
    graph = ALL[name]()
    pins = dict.fromkeys((edge_set.type.tag for edge_set in graph.edge_sets), schedule)
    pins |= dict.fromkeys((vertex_set.type.tag for vertex_set in graph.vertex_sets), "merged")
    expected = optimize(ALL[name](), "lm", 30, device="cpu", linear_solver="pcg")
    actual = optimize(graph, "lm", 30, device="vulkan", linear_solver="pcg", precision="mixed", schedule=pins)
    assert actual.precision == "mixed"
    assert actual.final_chi2 == pytest.approx(expected.final_chi2, rel=1e-6)


@pytest.mark.parametrize("schedule", PRODUCTS)
@pytest.mark.parametrize("name", ["space", "picture"])
def test_chi2_of_every_iteration_equals_the_cpus(name, schedule):
    """Pinned by the user, edge sets and vertices; in one run after the other the same numbers."""
    graph = ALL[name]()
    pins = dict.fromkeys((edge_set.type.tag for edge_set in graph.edge_sets), schedule)
    pins[graph.vertex_sets[0].type.tag] = "merged"
    expected = optimize(ALL[name](), "lm", 4, device="cpu", linear_solver="pcg", schur="off")
    runs = [
        optimize(ALL[name](), "lm", 4, device="vulkan", linear_solver="pcg", schur="off", schedule=pins)
        for _ in range(2)
    ]
    assert_same_path(expected, runs[0])
    assert [i.chi2 for i in runs[0].iterations] == [i.chi2 for i in runs[1].iterations]


def test_fewer_launches_and_barriers():
    """One launch per vertex set, none waits for another, and nothing is cleared."""
    assert launches_of(solver_of(picture(), True)) == ([1], False)
    assert launches_of(solver_of(picture(), False)) == ([1, 1, 1], False)
    steps, clears = launches_of(solver_of(GRAPHS["plane"](), True, schur="implicit"))
    assert (steps, clears) == ([2], False)
    steps, _ = launches_of(solver_of(GRAPHS["plane"](), False, schur="implicit"))
    assert len(steps) > 4 and sum(steps) > 10
    for is_merged in (True, False):
        solver = solver_of(robust_bundle(), is_merged, schur="implicit")
        solver.linearize()
        assert solver.solve(0.1)
        assert solver.system.reduction._products.can_solve is is_merged


def test_views_with_many_edges_stay_alone():
    """Cameras that see hundreds of points: their sums are not merged, those of points are."""
    graph = bundle_adjustment(4, 300)
    graph.edge_sets[0].kernel[::2] = 1
    solver = solver_of(graph, True, schur="implicit")
    host = on_cpu(graph)
    assert solver.linearize() == pytest.approx(host.linearize(), rel=1e-12)
    assert views_together(solver) == [2]
    close(solver.b, host.b)
    with pytest.raises(OptionError, match="0 slots of edge types can be summed together"):
        plan_of(graph, {"VERTEX_CAM_BAL": "merged"}, "implicit")


def test_kernels_take_what_the_device_lets_them(monkeypatch):
    """With few storage buffers there are more kernels; the answers are the same."""
    device = shared_device("storage")
    monkeypatch.setitem(device.info, "max_storage_buffers", 20)
    solver, host = solver_of(GRAPHS["plane"](), True, "storage"), on_cpu(GRAPHS["plane"]())
    assert solver.linearize() == pytest.approx(host.linearize(), rel=1e-12)
    assert 2 <= max(views_together(solver)) <= 3
    close(solver.b, host.b)
    close(solver.diagonal, host.diagonal)


# ---------------------------------------------------------------- decisions


def plan_of(graph, schedule, schur="off", linear_solver="pcg"):
    """What is decided for a graph."""
    structure = Structure(graph.select())
    configuration = configuration_of(SolverOptions("vulkan", linear_solver, schur), "double")
    return choose_plan(schedule, shared_device("address"), structure, configuration, "double")


def test_the_cost_model_weighs_dispatches_against_operations():
    """Where dispatches are long sums are merged; where they cost nothing, divergence decides."""
    size = problem_size(Structure(picture().select()), "double")
    slow, free = (replace(H200, dispatch_seconds=seconds) for seconds in (1e-3, 0.0))
    for prediction in predict(size, slow, "double"):
        assert [c.name for c in prediction.merging] == ["merged"] and prediction.merged == {0}
        assert prediction.merging[0].num_views == 3 and prediction.summation == "VERTEX_MERGED_PIXEL merged"
    software = replace(slow, runs_all_branches=True)
    assert all(prediction.merged == frozenset() for prediction in predict(size, software, "double"))
    # without dispatches, memory or gathers there is only arithmetic, and a tile of three views has more of it
    no_memory = replace(free, bytes_per_second=1e30, gathers_per_second=1e30)
    (prediction,) = (p for p in predict(size, no_memory, "double") if p.schedule == "matrix-free")
    assert prediction.merged == frozenset()
    ratio = prediction.merging[0].merged_seconds / prediction.merging[0].separate_seconds
    assert 1.25 < ratio < 1.5  # of two views in products, of three in the linearisation


def test_registers_of_one_view_slow_the_others_down():
    """A view with many values alive is not summed with light ones."""
    size = problem_size(Structure(picture().select()), "double")
    groups = [replace(g, num_edges=10**5, num_destinations=(10**4,) * g.arity) for g in size.groups]
    for values, expected in ((10, {0}), (1000, frozenset())):
        own = replace(size, groups=(replace(groups[0], linearize_values=values), *groups[1:]))
        (prediction,) = predict(own, H200, "double", {g.tag: "blocks" for g in groups})
        assert prediction.merged == expected


def test_pins_are_kept_and_bad_ones_refused():
    """Merged or separate, with conjugate gradients and factorizations."""
    for pin in ("merged", "separate"):
        expected = {0} if pin == "merged" else set()
        for linear_solver in ("pcg", "cholesky"):
            assert (
                plan_of(picture(), {"VERTEX_MERGED_PIXEL": pin}, linear_solver=linear_solver).merged
                == expected
            )
        plan = plan_of(picture(), {"VERTEX_MERGED_PIXEL": pin, "EDGE_MERGED_STEP": "jacobians"})
        assert (plan.merged, plan.products[-1]) == (expected, "jacobians")
    assert plan_of(picture(), "auto", linear_solver="cholesky").merged == frozenset()
    with pytest.raises(
        OptionError, match="vertex type 'VERTEX_MERGED_PIXEL' is 'blocks', expected one of auto, merged"
    ):
        plan_of(picture(), {"VERTEX_MERGED_PIXEL": "blocks"})
    with pytest.raises(
        OptionError, match="edge type 'EDGE_MERGED_FIT' is 'merged', expected one of auto, blocks"
    ):
        plan_of(picture(), {"EDGE_MERGED_FIT": "merged"})
    with pytest.raises(OptionError, match="0 slots of edge types can be summed together"):
        plan_of(bundle_adjustment(), {"VERTEX_TRACKXYZ": "merged"})
    with pytest.raises(
        OptionError, match="for an edge type, one of auto, merged, separate for a vertex type"
    ):
        SolverOptions("vulkan", schedule={"VERTEX_SE2": "together"})


def test_explain_and_the_command_line(tmp_path, capsys):
    """Both ways with their times; what is pinned is taken."""
    path = tmp_path / "space.g2o"
    io.write(GRAPHS["space"](), path)
    words = ["explain", str(path), "--device", "vulkan", "--linear-solver", "pcg", "--schur", "off"]
    words += ["--schedule", "EDGE_SE3:QUAT=jacobians,EDGE_SE3_TRACKXYZ=jacobians"]
    for pin in ("merged", "separate"):
        own = [*words, "--schedule", f"VERTEX_SE3:QUAT={pin}"]
        assert main([*own, "--measure", "--json"]) == 0
        (sums,) = json.loads(capsys.readouterr().out)["sums"]
        assert (sums["vertices"], sums["views"], sums["chosen"]) == ("VERTEX_SE3:QUAT", 3, pin)
        for kind in ("predicted_seconds", "measured_seconds"):
            assert sums[kind].keys() == {"merged", "separate"} and all(t > 0.0 for t in sums[kind].values())
    assert main([*words, "--schedule", "VERTEX_SE3:QUAT=merged"]) == 0
    text = capsys.readouterr().out
    assert "3 sums of edges, merged; predicted merged" in text
    assert main([*words, "--schedule", "VERTEX_SE3:QUAT=both"]) == 2
    assert "unknown schedule 'both' of 'VERTEX_SE3:QUAT'" in capsys.readouterr().err


@pytest.mark.parametrize("products", PRODUCTS)
def test_edges_that_name_a_vertex_twice(products):
    """Their cross terms are added to merged diagonal blocks; products equal those of the plain reference."""
    graph = mixed_plane(loops=True)
    solver = solver_of(graph, True, schur="implicit", products=products)
    reference = ReferenceSolver(graph, Structure(graph.select()))
    assert solver.linearize() == pytest.approx(reference.linearize(), rel=1e-12)
    close(solver.b, reference.b, 1e-7)
    close(solver.diagonal, reference.diagonal, 1e-7)
    vector = np.random.default_rng(0).normal(size=solver.dim)
    close(solver.multiply(vector), reference.multiply(vector), 1e-7)
    assert max(views_together(solver)) > 1


def test_a_second_optimization_takes_new_measurements():
    """Merged kernels read the views' own arrays, which are written anew."""
    graph, other = picture(), picture()
    device, host = solver_of(graph, True), on_cpu(other)
    device.linearize()
    for graph_ in (graph, other):
        graph_.edge_sets[1].measurement[:] += 0.3
    device.refresh()
    host.refresh()
    assert device.linearize() == pytest.approx(host.linearize(), rel=1e-12)
    close(device.b, host.b)
