"""The device-resident solver with merged sums: the same answers, in fewer launches, and who decides."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from device_solvers import SCENES, close, merged, on_cpu, picture, robust_bundle
from test_cost_model import H200
from vulkan_devices import shared_device
from vulkan_graphs import bundle_adjustment

from graphopt import io
from graphopt.cli.main import main
from graphopt.errors import OptionError
from graphopt.linear.options import SolverOptions
from graphopt.problem.structure import Structure
from graphopt.vulkan.kernels.merging import UnitWriter
from graphopt.vulkan.plan.choice import choose_plan, configuration_of
from graphopt.vulkan.plan.problem import problem_size
from graphopt.vulkan.plan.search import predict

PRODUCTS = ("blocks", "matrix-free", "jacobians")


def launches_of(solver):
    """Launches of the linearisation by step, and whether H is cleared before."""
    solver.linearize()
    own, linearizer = solver.system.equations, solver.linearizer
    steps = list(linearizer.linearize_steps(linearizer.estimates.current, own.values, own.b))
    return [len(step) for step in steps], linearizer.clears


def views_together(solver):
    """Numbers of views that one launch of the linearisation sums."""
    return [
        len(writer.views.members) for writer in solver.linearizer.writers if isinstance(writer, UnitWriter)
    ]


def test_fewer_launches_and_barriers():
    """One launch per vertex set, none waits for another, and nothing is cleared."""
    assert launches_of(merged(picture())) == ([1], False)
    assert launches_of(merged(picture(), is_merged=False)) == ([1, 1, 1], False)
    steps, clears = launches_of(merged(SCENES["plane"](), schur="implicit"))
    assert (steps, clears) == ([2], False)
    steps, _ = launches_of(merged(SCENES["plane"](), schur="implicit", is_merged=False))
    assert len(steps) > 4 and sum(steps) > 10
    for is_merged in (True, False):
        solver = merged(robust_bundle(), schur="implicit", is_merged=is_merged)
        solver.linearize()
        assert solver.solve(0.1)
        assert solver.system.reduction.products.can_solve is is_merged


def test_views_with_many_edges_stay_alone():
    """Cameras that see hundreds of points: their sums are not merged, those of points are."""
    graph = bundle_adjustment(4, 300)
    graph.edge_sets[0].kernel[::2] = 1
    solver = merged(graph, schur="implicit")
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
    solver, host = merged(SCENES["plane"](), "storage"), on_cpu(SCENES["plane"]())
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
    io.write(SCENES["space"](), path)
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


def test_a_second_optimization_takes_new_measurements():
    """Merged kernels read the views' own arrays, which are written anew."""
    graph, other = picture(), picture()
    device, host = merged(graph), on_cpu(other)
    device.linearize()
    for graph_ in (graph, other):
        graph_.edge_sets[1].measurement[:] += 0.3
    device.refresh()
    host.refresh()
    assert device.linearize() == pytest.approx(host.linearize(), rel=1e-12)
    close(device.b, host.b)
