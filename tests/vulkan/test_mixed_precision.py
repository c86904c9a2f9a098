"""Runs in mixed precision end where double would have ended, or say that and why they went on in double."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from vulkan_devices import shared_device
from vulkan_graphs import bundle_adjustment, pose_graph

from graphopt import io
from graphopt.cli.main import main
from graphopt.device.errors import DeviceMemoryError
from graphopt.graph import Graph
from graphopt.linear.options import SolverOptions
from graphopt.optimizer import optimize
from graphopt.optimizer.options import AutoOptions
from graphopt.optimizer.summary import TerminationType
from graphopt.problem.structure import Structure
from graphopt.solver.cpu import CpuBlockSolver
from graphopt.vulkan.solver import FACTORIZED_IN_DOUBLE, ResidentBlockSolver, create

LARGEST_DIFFERENCE = 1e-6
REAL = [
    ("bal/dubrovnik-3-7-pre.txt", {}),
    ("bal/Balbianello.out", {}),
    ("bal/gtsfm_crane_mast_8.bal.txt.xz", {}),
    ("bal/dubrovnik-3-7-pre.txt", {"linear_solver": "pcg", "schur": "implicit"}),
    ("posegraph/tinyGrid3D.g2o", {"linear_solver": "pcg", "schedule": "blocks"}),
    ("posegraph/tinyGrid3D.g2o", {"linear_solver": "pcg", "schedule": "host"}),
    ("posegraph/CSAIL.g2o", {}),
    ("posegraph/MIT.g2o", {}),
    ("landmark/example_br.graph", {}),
]


def stiff_chain(num=24, stiff=1e8, weak=1e-2) -> Graph:
    """Poses held together 1e10 times more strongly than the whole is held in place, which float32 loses."""
    graph = Graph()
    start = np.stack([np.arange(num) + 3.0, np.full(num, -2.0), np.zeros(num)], axis=1)
    graph.add_vertices("VERTEX_SE2", np.arange(num), start)
    graph.add_vertices("VERTEX_SE2", [1000, 1001], [[-1.0, 0.0, 0.0], [num, 0.0, 0.0]], fixed=True)
    pairs = np.stack([np.arange(num - 1), np.arange(1, num)], axis=1)
    information = np.broadcast_to(stiff * np.eye(3), (num - 1, 3, 3))
    graph.add_edges("EDGE_SE2", pairs, np.tile([1.0, 0.0, 0.0], (num - 1, 1)), information)
    ends, offsets = [[1000, 0], [num - 1, 1001]], [[1.0, 0.3, 0.0], [1.0, -0.3, 0.0]]
    graph.add_edges("EDGE_SE2", ends, offsets, np.broadcast_to(weak * np.eye(3), (2, 3, 3)))
    return graph


def run(graph, method="auto", iterations=None, **options):
    """A run on the device."""
    return optimize(graph, method, iterations, **{"device": "vulkan", "precision": "mixed", **options})


@pytest.mark.parametrize("weight", [1e38, 1e45])
def test_a_damping_that_float32_cannot_hold_is_found_anew(weight):
    """The first lambda is a share of H's diagonal, which may be beyond its range."""

    def graph():
        return stiff_chain(stiff=weight, weak=1e-3 * weight)

    options = {"linear_solver": "pcg", "schedule": "blocks"}
    summary = run(graph(), "lm", 20, **options)
    expected = run(graph(), "lm", 20, **options, precision="double")
    rounding = 1e-12 * expected.initial_chi2
    assert summary.final_chi2 == pytest.approx(expected.final_chi2, rel=1e-5, abs=rounding)
    assert expected.final_chi2 < 0.9 * expected.initial_chi2


@pytest.mark.parametrize(
    "name,options", REAL, ids=[f"{Path(n).stem}-{'-'.join(o.values())}" for n, o in REAL]
)
def test_real_graphs_end_where_double_does(name, options, shared_data):
    """Within 1e-6 of chi2; what is higher, or computed in double, is said."""
    start = io.read_with_report(shared_data / name)[0]
    expected = run(start.copy(), precision="double", **options)
    actual = run(start.copy(), **options)
    tolerance = LARGEST_DIFFERENCE * expected.final_chi2 + 1e-15 * expected.initial_chi2
    assert actual.final_chi2 <= expected.final_chi2 + tolerance
    if actual.precision == "mixed":
        assert abs(actual.final_chi2 - expected.final_chi2) <= tolerance
        assert actual.precision_note == ""
    elif actual.switched_at is None:
        assert actual.precision_note == FACTORIZED_IN_DOUBLE
        assert actual.final_chi2 == expected.final_chi2
    else:
        assert actual.precision_note.startswith(f"Went on in double at iteration {actual.switched_at}: ")


@pytest.mark.parametrize("schedule", ["blocks", "matrix-free", "host"])
@pytest.mark.parametrize("method", ["auto", "gn", "dogleg"])
def test_what_float32_cannot_hold_goes_on_in_double(method, schedule):
    """chi2 falls to rounding of double, far below where float32 stays."""
    graph, most = stiff_chain(), {"auto": None, "gn": 20, "dogleg": 60}  # dogleg walks on in float32
    summary = run(graph, method, most[method], linear_solver="pcg", schedule=schedule)
    assert summary.switched_at is not None
    assert summary.precision == "double"
    assert "Went on in double" in summary.precision_note
    assert summary.final_chi2 < 1e-9 * summary.initial_chi2
    assert graph.chi2() == pytest.approx(summary.final_chi2, rel=1e-3, abs=1e-12)
    found = json.loads(json.dumps(summary.to_dict()))
    assert found["switched_at"] == summary.switched_at
    assert found["precision_note"] in summary.full_report()


def test_without_float64_it_says_that_it_could_not(monkeypatch):
    """float32 has no better answer, and the summary names what is left and the gradient."""
    monkeypatch.setenv("GRAPHOPT_MASK_FEATURES", "float64")
    summary = run(stiff_chain(), "gn", 20, linear_solver="pcg", schedule="blocks", precision="auto")
    assert summary.precision == "mixed"
    assert summary.switched_at is None
    assert "no float64" in summary.precision_note
    assert "largest entry of b is" in summary.precision_note


def test_without_memory_for_double_it_says_so(monkeypatch):
    """The result of float32 stays; the sentence has the device's."""

    def in_double(self):
        raise DeviceMemoryError("8 GiB were asked for.")

    monkeypatch.setattr(ResidentBlockSolver, "in_double", in_double)
    summary = run(stiff_chain(), "gn", 5, linear_solver="pcg", schedule="blocks")
    assert "8 GiB were asked for." in summary.precision_note
    assert summary.termination is TerminationType.LINEAR_SOLVER_FAILURE


@pytest.mark.parametrize("schedule", ["blocks", "matrix-free", "jacobians"])
def test_an_ordinary_run_pays_one_linearization_and_one_trial_in_double(schedule, monkeypatch):
    """And its iterations are in mixed precision to the end."""
    calls = []
    for name in ("linearize", "trial"):
        original = getattr(ResidentBlockSolver, name)

        def counted(self, *more, name=name, original=original):
            calls.append((name, self.precision))
            return original(self, *more)

        monkeypatch.setattr(ResidentBlockSolver, name, counted)
    graph = bundle_adjustment()
    rules = AutoOptions(function_tolerance=5e-4, reseat_gain=np.inf)
    options = {"linear_solver": "pcg", "schur": "implicit", "schedule": schedule}
    summary = run(graph, options=rules, **options)
    assert summary.precision == "mixed"
    assert summary.precision_note == ""
    assert [call for call in calls if call[1] == "double"] == [("linearize", "double"), ("trial", "double")]
    assert len(calls) > 4
    assert graph.chi2() == pytest.approx(summary.final_chi2, rel=1e-12)


def test_iterations_that_run_out_before_a_minimum_are_reported(monkeypatch):
    """Two iterations of Levenberg-Marquardt end high above; the summary says so. Nothing runs in double."""

    def in_double(self):
        raise AssertionError("a probe takes longer than the iterations, and nothing can follow it")

    monkeypatch.setattr(ResidentBlockSolver, "in_double", in_double)
    summary = run(stiff_chain(), "lm", 2, linear_solver="pcg", schedule="blocks")
    gained = 1.0 - summary.iterations[1].chi2 / summary.iterations[0].chi2
    assert f"took off {gained:.1e} of chi2" in summary.precision_note
    assert summary.termination is TerminationType.NO_CONVERGENCE
    assert summary.precision == "mixed"
    assert summary.precision_note.startswith("max_iterations ended the run in float32 before a minimum")


def test_a_factorization_of_all_of_h_is_computed_in_double():
    """Step by step the numbers of precision="double"."""
    expected = run(pose_graph(), "lm", 4, precision="double")
    actual = run(pose_graph(), "lm", 4)
    assert actual.precision == "double"
    assert actual.precision_note == FACTORIZED_IN_DOUBLE
    assert [iteration.chi2 for iteration in actual.iterations] == [
        iteration.chi2 for iteration in expected.iterations
    ]


@pytest.mark.parametrize("access", ["address", "storage"])
@pytest.mark.parametrize(
    "schedule", ["blocks", "matrix-free", "jacobians", "matrix-free+scatter", "blocks+collect"]
)
def test_the_double_solver_shares_edges_and_estimates(schedule, access):
    """Its H, b and chi2 are the CPU's, also after it has moved; the first one then continues from there.

    Records of edges that are evaluated once are each solver's own, in its precision.
    """
    graph = bundle_adjustment()
    structure = Structure(graph.select())
    options = SolverOptions("vulkan", "pcg", "implicit", "mixed", schedule)
    mixed = create(graph, structure, options, device=shared_device(access))
    mixed.linearize()
    double = mixed.in_double()
    assert double is mixed.in_double()
    assert double.linearizer.edges[0].primary is mixed.linearizer.edges[0].primary
    host = CpuBlockSolver(graph, structure, SolverOptions())
    vector, step = np.random.default_rng(0).normal(size=(2, host.dim))
    for _ in range(2):
        assert double.linearize() == pytest.approx(host.linearize(), rel=1e-12)
        np.testing.assert_allclose(double.b, host.b, rtol=0, atol=1e-11 * np.abs(host.b).max())
        product = host.multiply(vector)
        np.testing.assert_allclose(
            double.multiply(vector), product, rtol=0, atol=1e-11 * np.abs(product).max()
        )
        double.dx = host.dx = 0.01 * step
        double.move()
        double.discard_top()
        host.update()
    double.finish()
    mixed.refresh()
    assert mixed.linearize() == pytest.approx(host.linearize(), rel=1e-12)
    product = host.multiply(vector)
    np.testing.assert_allclose(mixed.multiply(vector), product, rtol=0, atol=3e-4 * np.abs(product).max())


def test_a_second_run_starts_where_double_ended():
    """The solver that is kept takes the estimates, its float32 copies included."""
    graph = stiff_chain()
    first = run(graph, linear_solver="pcg", schedule="matrix-free")
    second = run(graph, linear_solver="pcg", schedule="matrix-free")
    assert second.initial_chi2 == pytest.approx(first.final_chi2, rel=1e-6, abs=1e-20)


def test_the_command_line_says_it(tmp_path, capsys):
    """A line of the report, and both fields in the JSON."""
    path = tmp_path / "loop.g2o"
    io.write(pose_graph(), path)
    options = ["optimize", str(path), "--device", "vulkan", "--precision", "mixed"]
    assert main(options) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.split()[:1] == ["precision"] and FACTORIZED_IN_DOUBLE in line for line in lines)
    assert main([*options, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["precision_note"] == FACTORIZED_IN_DOUBLE
    assert found["switched_at"] is None
