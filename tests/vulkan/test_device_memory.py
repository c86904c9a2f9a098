"""What matrix-free bundle adjustment keeps on the device, counted; and it suffices for the CPU's answers."""

from __future__ import annotations

import numpy as np
import pytest
from vulkan_devices import shared_device
from vulkan_graphs import bundle_adjustment, pose_graph

from graphopt.linear.options import SolverOptions
from graphopt.problem.structure import Structure
from graphopt.solver.cpu import CpuBlockSolver
from graphopt.solver.trial import Damping
from graphopt.vulkan.data.array import DeviceArray
from graphopt.vulkan.program import Places
from graphopt.vulkan.solver import ResidentBlockSolver, create

PER_OBSERVATION = 8 + 16 + 8 + 4
"""Rows of both ends and measurement by points; rows and where the measurement is by cameras."""
NUMBERS_PER_POINT = {"double": 9 + 6 + 3 * 3 + 6, "mixed": 9 + 6 + 3 * 3 + 8 + 2 * 4}
"""H, its inverse, b, D and dx, a packed record; in mixed precision float32 estimates in two versions, too."""
PER_POINT = 2 * 32 + 2 * 4
"""Estimates in two versions; first edge, place of scalars: other places are regular."""
THE_REST = 156_000
"""Cameras, tiles, and sums of workgroups take less: a vector of all points would be 36,000 or 72,000 more."""


def solver_of(graph, precision, access="address", schedule="matrix-free") -> ResidentBlockSolver:
    """On the shared device."""
    options = SolverOptions("vulkan", "pcg", "implicit", precision, schedule)
    solver = create(graph, Structure(graph.select()), options, device=shared_device(access))
    assert isinstance(solver, ResidentBlockSolver)
    return solver


@pytest.mark.parametrize("precision", ["double", "mixed"])
def test_bytes_per_observation_and_point(precision):
    """A trial and a look at landmarks add nothing of their size."""
    graph = bundle_adjustment(num_cameras=12, num_points=3000)
    num_edges, num_points = graph.num_edges, 3000
    before = shared_device("address").memory_statistics()["used"]
    solver = solver_of(graph, precision)
    for _ in range(2):
        solver.linearize()
        assert solver.trial(Damping(1e-3, True)).solved
        solver.chi2_by_vertex(solver.structure.groups[0], 1)
    found = shared_device("address").memory_statistics()["used"] - before
    real = 8 if precision == "double" else 4
    expected = PER_OBSERVATION * num_edges + (PER_POINT + real * NUMBERS_PER_POINT[precision]) * num_points
    assert expected <= found <= expected + THE_REST


@pytest.mark.parametrize("access", ["address", "storage"])
@pytest.mark.parametrize("schedule", ["blocks", "matrix-free", "jacobians"])
def test_measurements_of_cameras_are_those_of_points(access, schedule):
    """H, b and chi2 of cameras with many edges equal the CPU's, also after new measurements."""
    graph = bundle_adjustment(num_cameras=5, num_points=200)
    solver = solver_of(graph, "double", access, schedule)
    host = CpuBlockSolver(graph, solver.structure, SolverOptions("cpu", "cholesky"))
    for _ in range(2):
        assert solver.linearize() == pytest.approx(host.linearize(), rel=1e-12)
        np.testing.assert_allclose(solver.b, host.b, rtol=1e-9, atol=1e-9 * np.abs(host.b).max())
        np.testing.assert_allclose(solver.diagonal, host.diagonal, rtol=1e-12)
        graph.edge_sets[0].measurement += np.linspace(0.0, 3.0, graph.num_edges)[:, None]
        solver.refresh()
        host.refresh()
    views = solver.linearizer.edges[0].views
    assert ["data" in views[slot].buffers for slot in (0, 1)] == [False, True]


def test_who_has_measurements_of_their_own():
    """Views with few edges per vertex, and those whose products read the residual or the information."""
    few = solver_of(bundle_adjustment(num_cameras=6, num_points=20), "double")
    robust = bundle_adjustment(num_cameras=5, num_points=200)
    robust.set_robust_kernel("Huber", width=1.0)
    graph = pose_graph()
    options = SolverOptions("vulkan", "pcg", "off", "double", "matrix-free")
    poses = create(graph, Structure(graph.select()), options, device=shared_device("address"))
    for solver in (few, solver_of(robust, "double"), poses):
        solver.linearize()
        for edges in solver.linearizer.edges:
            assert all("data" in view.buffers for view in edges.views.values())


@pytest.mark.parametrize("precision", ["double", "mixed"])
@pytest.mark.parametrize("num_fixed", [0, 40])
def test_regular_places_are_two_numbers(monkeypatch, precision, num_fixed):
    """Same bits as from a table, which is what points have of which some stay: every other row."""
    graph = bundle_adjustment(num_cameras=5, num_points=200)
    graph.vertex_sets[1].fixed[: 2 * num_fixed : 2] = True
    found, shared = [], DeviceArray.shared
    for in_table in (False, True):
        if in_table:
            monkeypatch.setattr(DeviceArray, "places", lambda *taken: Places(shared(*taken), False))
        solver = solver_of(graph, precision)
        solver.linearize()
        trial = solver.trial(Damping(1e-3, True))
        found.append((trial.chi2, solver.b.tobytes(), solver.diagonal.tobytes()))
        places = solver.linearizer.edges[0].views[1].buffers["dest_block"]
        assert places.are_regular is not in_table
        assert solver.structure.num_kept < solver.structure.num_blocks <= 203 - num_fixed
    assert found[0] == found[1]
