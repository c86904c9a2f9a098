"""Kernels that a software driver would compile for minutes are left out, and the summary says so."""

from __future__ import annotations

import numpy as np

from graphopt import Graph, edge_type, optimize
from graphopt.geometry import SE3
from graphopt.problem.structure import Structure
from graphopt.vulkan.plan.compile_cost import MOST_SECONDS, compile_seconds


@edge_type(vertices=["VERTEX_SE3:QUAT"] * 4, measurement_dim=7, residual_dim=6, wrap_measurement=SE3)
def EdgeCubicSpline(a, b, c, d, measured):
    """A pose in the middle of a cumulative cubic B-spline's segment."""
    pose = a
    for before, after, weight in ((a, b, 47 / 48), (b, c, 1 / 2), (c, d, 1 / 48)):
        pose = pose * SE3.exp(weight * (before.inverse() * after).log())
    return (measured.inverse() * pose).log()


def poses(count):
    """Turned and moved a little."""
    rng = np.random.default_rng(5)
    turned = 0.1 * rng.normal(size=(count, 4)) + [0, 0, 0, 1]
    turned /= np.linalg.norm(turned, axis=1, keepdims=True)
    return np.hstack([rng.normal(size=(count, 3)), turned])


def spline(edge="EdgeCubicSpline"):
    """Twelve control poses; or the same with edges between two of them."""
    graph = Graph()
    graph.add_vertices("VERTEX_SE3:QUAT", np.arange(12), poses(12))
    ends = np.arange(9)[:, None] + np.arange(4)
    if edge == "EdgeCubicSpline":
        graph.add_edges(EdgeCubicSpline, ends, poses(9))
    else:
        graph.add_edges(edge, ends[:, :2], poses(9))
    return graph


def test_edges_of_usual_size_are_worth_their_kernels():
    """Two poses are below the bound by far, four along a spline above it."""
    assert compile_seconds(Structure(spline("EDGE_SE3:QUAT").select())) < 0.3 * MOST_SECONDS
    assert compile_seconds(Structure(spline().select())) > MOST_SECONDS


def test_the_cpu_linearises_edges_whose_kernels_take_minutes():
    """The device solves, the numbers are the CPU's, and the summary has the reason and the way out."""
    cpu = optimize(spline(), "auto", 5, device="cpu")
    device = optimize(spline(), "auto", 5, device="vulkan")
    assert device.schedule == "host"
    assert "EdgeCubicSpline" in device.schedule_note and "schedule='blocks'" in device.schedule_note
    assert device.schedule_note in device.full_report()
    np.testing.assert_allclose(device.final_chi2, cpu.final_chi2, atol=1e-5 * cpu.initial_chi2)
    assert cpu.schedule_note == ""
