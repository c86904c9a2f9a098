"""Vertices in very many edges: their sums are cut into parts, and nothing else changes."""

from __future__ import annotations

import json

import numpy as np
import pytest
from device_solvers import close, num_cut, on_cpu, resident
from long_graphs import curve_fit, shared_calibration
from vulkan_devices import VARIANTS
from vulkan_graphs import pose_graph

from graphopt import io
from graphopt.cli.main import main
from graphopt.errors import OptionError
from graphopt.linear.options import SolverOptions
from graphopt.optimizer import optimize
from graphopt.problem.structure import Structure
from graphopt.solver.trial import Damping
from graphopt.vulkan.data import views as long_sums
from graphopt.vulkan.data.views import edge_view

PRODUCTS = ["blocks", "matrix-free", "jacobians"]
ALL_PRODUCTS = [*PRODUCTS, "jp"]
SCHEDULES = [
    *(f"{all_product}+gather" for all_product in ALL_PRODUCTS),
    *(f"{product}+scatter" for product in PRODUCTS),
]
TOLERANCE = {"double": 1e-11, "mixed": 2e-6}


@pytest.fixture(params=[VARIANTS[0], VARIANTS[3]], ids="-".join)
def variant(request):
    """Both kinds of buffers and both precisions."""
    return request.param


def curve_by_numpy(graph):
    """chi2, H and b of `curve_fit` with one device: coefficients, then the offset."""
    (amplitude, decay, frequency), (offset,) = (vertex_set.estimate[0] for vertex_set in graph.vertex_sets)
    chi2, h, b = 0.0, np.zeros((4, 4)), np.zeros(4)
    for edges, information, with_offset in zip(graph.edge_sets, (4.0, 25.0), (False, True), strict=True):
        x, y = edges.measurement.T
        envelope, phase = np.exp(-decay * x), frequency * x
        value = amplitude * envelope * np.cos(phase)
        residual = value + with_offset * offset**2 - y
        jacobian = np.stack(
            [
                envelope * np.cos(phase),
                -x * value,
                -amplitude * envelope * x * np.sin(phase),
                with_offset * np.full_like(x, 2 * offset),
            ],
            axis=1,
        )
        size = information * residual**2
        is_outlier = with_offset & (size > 1.0)
        chi2 += np.where(is_outlier, 2 * np.sqrt(size) - 1, size).sum()
        weight = information * np.where(is_outlier, 1 / np.sqrt(size), 1.0)
        h += (jacobian * weight[:, None]).T @ jacobian
        b -= jacobian.T @ (weight * residual)
    return chi2, h, b


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("variant", VARIANTS, ids="-".join, indirect=True)
def test_a_curve_in_20000_edges(schedule, variant):
    """Against normal equations by numpy; two long vertices share a block of 10,000 edges."""
    graph = curve_fit()
    chi2, h, b = curve_by_numpy(graph)
    device = resident(graph, variant, schedule=schedule)
    tolerance = TOLERANCE[variant[1]]
    assert device.linearize() == pytest.approx(chi2, rel=1e-11)
    close(device.b, b, tolerance)
    close(device.diagonal, np.diag(h), tolerance)
    for vector in np.eye(4):
        close(device.multiply(vector), h @ vector, tolerance)
    destinations, blocks = num_cut(device)
    assert destinations == 3
    assert blocks == schedule.startswith("blocks")


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("num_devices,cut", [(1, 1), (3, 3), (200, 0)])
def test_long_landmarks(num_devices, cut, schedule):
    """Eliminated vertices with very many edges, in steps through the implicit Schur complement."""
    graphs = [curve_fit(num_devices=num_devices, marginalized=True) for _ in range(2)]
    device, host = (
        resident(graphs[0], schur="implicit", schedule=schedule, tolerance=1e-24),
        on_cpu(graphs[1]),
    )
    assert device.linearize() == pytest.approx(host.linearize(), rel=1e-12)
    close(device.b, host.b, 1e-11)
    actual, expected = device.trial(Damping(1e-3)), host.trial(Damping(1e-3))
    assert actual.chi2 == pytest.approx(expected.chi2, rel=1e-9)
    close(device.dx, host.dx, 1e-6)
    assert num_cut(device)[0] == 2 + cut


@pytest.mark.parametrize(
    ("schur", "schedule"),
    [
        *(("off", schedule) for schedule in SCHEDULES),
        *(("implicit", schedule) for schedule in SCHEDULES[::3]),
    ],
)
def test_a_shared_calibration(schur, schedule):
    """Bundle adjustment with an edge on pose, point and the calibration of all cameras: the CPU's path."""
    options = {"linear_solver": "pcg", "schur": schur, "pcg_tolerance": 1e-20}
    expected = optimize(shared_calibration(), "lm", 3, device="cpu", linear_solver="cholesky")
    graph = shared_calibration()
    actual = optimize(graph, "lm", 3, device="vulkan", schedule=schedule, precision="double", **options)
    np.testing.assert_allclose(
        [iteration.chi2 for iteration in actual.iterations],
        [iteration.chi2 for iteration in expected.iterations],
        rtol=1e-7,
    )


def test_parts_cover_all_edges_of_long_destinations():
    """Every edge of a long destination is in one part, of at most PART edges, in the order of its view."""
    structure = Structure(curve_fit(num_devices=4, marginalized=np.arange(4) % 2 == 0).select())
    group = structure.groups[1]
    view = edge_view(structure, group, 1, is_primary=True, num_kept=structure.num_kept)
    long = view.long
    assert long is not None
    begin, end = (int(view.tiles[tile]) for tile in long.tiles)
    assert end - begin == len(long.part) - 1 == 4 == np.count_nonzero(np.diff(view.first) > long_sums.LONG)
    np.testing.assert_array_equal(long.first[long.part], view.first[begin : end + 1])
    assert np.diff(long.first.astype(int)).max() <= long_sums.PART
    assert np.diff(long.first.astype(int)).min() > 0
    rows = group.vertex_rows[view.order, 1]
    blocks = structure.vertex_blocks[group.vertex_sets[1]]
    for d in range(view.num_destinations):
        assert set(blocks[rows[view.first[d] : view.first[d + 1]]]) == {view.blocks[d]}
    kept = view.blocks < structure.num_kept
    assert (np.diff(kept.astype(int)) <= 0).all()
    everything = (0, view.num_tiles)
    short = sum(map(view.edges_of, view.short_tiles(everything)))
    assert short + int(long.first[-1] - long.first[0]) == view.num_edges


def test_hundreds_of_equal_vertices_are_not_cut():
    """They keep a GPU busy as they are, and a cut would cost a dispatch."""
    assert not long_sums.are_long(np.full(400, 5000)).any()
    assert long_sums.are_long(np.array([5000, *[5000] * 10])).all()
    assert not long_sums.are_long(np.full(3, long_sums.LONG)).any()


@pytest.mark.parametrize("schedule", ["scatter+blocks", "host+scatter", "blocks+blocks"])
def test_wrong_pins_are_refused(schedule):
    with pytest.raises(
        OptionError, match=r"expected one of auto, blocks, .*scatter, collect, blocks\+gather"
    ):
        SolverOptions("vulkan", schedule=schedule)
    with pytest.raises(OptionError, match="expected one of auto, blocks"):
        SolverOptions("vulkan", schedule={"EDGE_SE2": schedule})


def test_explain_lists_both_evaluations(tmp_path, capsys):
    """With predicted and measured times; a pin leaves those that keep it."""
    path = tmp_path / "poses.g2o"
    io.write(pose_graph(), path)
    words = ["explain", str(path), "--device", "vulkan", "--linear-solver", "pcg", "--json"]
    assert main([*words, "--measure"]) == 0
    document = json.loads(capsys.readouterr().out)
    names = {schedule["schedule"] for schedule in document["schedules"]}
    assert names >= {f"off, {product}{more}" for product in PRODUCTS for more in ("", "+scatter")}
    assert {f"{name}+scatter" for name in names if "+" not in name} == {name for name in names if "+" in name}
    assert all(schedule["measured_seconds"]["linearize"] > 0.0 for schedule in document["schedules"])
    assert main([*words, "--schedule", "EDGE_SE2=scatter"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {schedule["schedule"] for schedule in document["schedules"]} == {
        name for name in names if "+" in name
    }
    assert document["edge_sets"]["EDGE_SE2"].endswith("+scatter")
    assert main([*words, "--schedule", "scater"]) == 2
    assert "scatter" in capsys.readouterr().err
