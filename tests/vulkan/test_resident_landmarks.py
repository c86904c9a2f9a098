"""Landmarks in wrong places on a device: sums of chi2 by vertex, single estimates taken, the same moves."""

from __future__ import annotations

import numpy as np
import pytest
from vulkan_devices import VARIANTS, shared_device
from vulkan_graphs import bundle_adjustment

import graphopt
from graphopt.linear.options import SolverOptions
from graphopt.problem.structure import Structure
from graphopt.solver.trial import Damping
from graphopt.strategies.landmark_problem import chi2_by_vertex
from graphopt.strategies.retriangulation import retriangulate_landmarks
from graphopt.vulkan.data import views
from graphopt.vulkan.solver import create

POINTS = 1  # number of the landmarks' vertex set, and their slot


def solver_of(graph, variant=("address", "double")):
    """A solver on a device, by conjugate gradients with products from the edges."""
    access, precision = variant
    options = SolverOptions("vulkan", "pcg", "implicit", precision, "matrix-free")
    return create(graph, Structure(graph.select()), options, device=shared_device(access))


def thrown(graph):
    """The same graph with three landmarks behind their cameras."""
    graph.vertex_set("VERTEX_TRACKXYZ").estimate[[3, 4, 20]] *= [1.0, 1.0, -1.0]
    return graph


@pytest.mark.parametrize("is_long", [False, True])
@pytest.mark.parametrize("kernel", [0, 1])
@pytest.mark.parametrize("variant", VARIANTS)
def test_sums_equal_the_hosts(variant, kernel, is_long, monkeypatch):
    """By either slot, robust or not, with landmarks that other kernels cut, in the order of the structure."""
    if is_long:
        monkeypatch.setattr(views, "LONG", 3)
        monkeypatch.setattr(views, "LONG_SHARE", 1 << 30)
    graph = thrown(bundle_adjustment())
    graph.edge_sets[0].kernel[:] = kernel
    graph.edge_sets[0].kernel_width[:] = 2.0
    solver = solver_of(graph, variant)
    (group,) = solver.structure.groups
    for slot in (0, 1):
        expected = chi2_by_vertex(solver.structure, group, slot)
        tolerance = 1e-12 if variant[1] == "double" else 1e-6
        found = solver.chi2_by_vertex(group, slot)
        assert found is not None
        np.testing.assert_allclose(found, expected, rtol=tolerance)


@pytest.mark.parametrize("variant", VARIANTS)
def test_single_estimates_are_taken(variant):
    """At the version that is linearised, which stays what it is, and in a step of its own."""
    graph = bundle_adjustment()
    solver = solver_of(graph, variant)
    before = solver.linearize()
    solver.push()
    points = graph.vertex_set("VERTEX_TRACKXYZ").estimate
    points[[3, 20]] += 0.1
    solver.take(POINTS, np.array([3, 20]))
    assert solver.chi2() == pytest.approx(graph.chi2(), rel=1e-12)
    assert solver.chi2() != pytest.approx(before)
    assert solver.trial(Damping(1e-3)).solved
    solver.pop()
    assert solver.chi2() == pytest.approx(graph.chi2(), rel=1e-12)
    solver.pop()
    assert solver.chi2() == before


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_device_finds_the_landmarks_that_the_host_finds(variant):
    """And they move to the same places; the host's estimates are the device's before."""
    graph = thrown(bundle_adjustment())
    expected = graph.copy()
    found = retriangulate_landmarks(Structure(expected.select()))
    solver = solver_of(graph, variant)
    result = retriangulate_landmarks(solver.structure, 0.0, solver)
    assert result.num_landmarks == found.num_landmarks >= 3
    assert result.gain == pytest.approx(found.gain, rel=1e-12)
    for (number, rows), (own_number, own_rows) in zip(found.moved, result.moved, strict=True):
        assert number == own_number == POINTS
        np.testing.assert_array_equal(own_rows, rows)
    points = [graph.vertex_set("VERTEX_TRACKXYZ").estimate for graph in (graph, expected)]
    np.testing.assert_array_equal(*points)


def test_nothing_moves_that_gains_less_than_asked_for():
    """The estimates stay, though candidates were better."""
    graph = thrown(bundle_adjustment())
    before = graph.vertex_set("VERTEX_TRACKXYZ").estimate.copy()
    gain = retriangulate_landmarks(Structure(graph.copy().select())).gain
    assert retriangulate_landmarks(Structure(graph.select()), 1.001 * gain).num_landmarks == 0
    np.testing.assert_array_equal(graph.vertex_set("VERTEX_TRACKXYZ").estimate, before)


def test_whole_runs_move_what_the_cpus_move():
    """`auto` on the device from landmarks behind their cameras: the CPU's minimum, and its sentence."""
    cpu, device = thrown(bundle_adjustment()), thrown(bundle_adjustment())
    expected = graphopt.optimize(cpu, device="cpu")
    summary = graphopt.optimize(device, device="vulkan", precision="double")
    assert "landmarks to other places" in summary.message
    assert summary.message == expected.message
    assert device.chi2() == pytest.approx(cpu.chi2(), rel=1e-9)
