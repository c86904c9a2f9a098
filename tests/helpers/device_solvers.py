"""Block solvers of a device and of the CPU on the same graphs, and every kind of graph to try them on."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from image_edges import photo_graph
from resident_graphs import mixed_plane, mixed_space
from vulkan_devices import shared_device
from vulkan_graphs import bundle_adjustment, pose_graph

import graphopt
from graphopt.graph import Graph
from graphopt.linear.options import SolverOptions
from graphopt.problem.structure import Structure
from graphopt.solver.cpu import CpuBlockSolver
from graphopt.solver.trial import Damping
from graphopt.vulkan.plan.choice import Plan
from graphopt.vulkan.plan.configuration import Configuration
from graphopt.vulkan.solver import ResidentBlockSolver, create

DAMPINGS = [Damping(0.3), Damping(1e-3, True, 1e-6, 1e32), Damping(0.5, True, 2.0, 40.0)]


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


SCENES = {
    "plane": mixed_plane,
    "space": mixed_space,
    "bundle": bundle_adjustment,
    "robust": robust_bundle,
    "poses": pose_graph,
    "photo": photo_graph,
    "picture": picture,
}
ELIMINATED = "plane", "space", "bundle", "robust", "photo"
"""Scenes with marginalized vertices."""


def resident(
    graph, variant="address", linear_solver="pcg", schur="off", schedule="blocks", tolerance=1e-12
) -> ResidentBlockSolver:
    """A resident solver on the shared device of an access variant, or of one and a precision."""
    access, precision = (variant, "double") if isinstance(variant, str) else variant
    options = SolverOptions("vulkan", linear_solver, schur, precision, schedule)
    configuration = Configuration(linear_solver, schur, tolerance=tolerance)
    structure = Structure(graph.select())
    solver = create(graph, structure, options, device=shared_device(access), configuration=configuration)
    assert isinstance(solver, ResidentBlockSolver)
    return solver


def merged(graph, variant="address", schur="off", products="matrix-free", *, is_merged=True):
    """A resident solver in which one launch sums a vertex set, whatever that costs; or none does."""
    access, precision = (variant, "double") if isinstance(variant, str) else variant
    structure = Structure(graph.select())
    configuration = Configuration("pcg", schur, tolerance=1e-24)
    sets = frozenset(range(len(structure.selection.vertex_sets)) if is_merged else ())
    plan = Plan(configuration, products, (products,) * len(structure.groups), merged=sets)
    return ResidentBlockSolver(graph.parameter_sets, structure, shared_device(access), plan, precision)


def on_cpu(graph, linear_solver="cholesky"):
    """The CPU's solver of a graph."""
    return CpuBlockSolver(graph, Structure(graph.select()), SolverOptions("cpu", linear_solver))


def num_cut(solver) -> tuple[int, int]:
    """Destinations of all views whose sums have parts, and such blocks."""
    edges = solver.linearizer.edges
    views = [view.view.long for group in edges for view in group.views.values()]
    destinations = sum(len(view.part) - 1 for view in views if view is not None)
    return destinations, sum(
        pair.pairs.num_blocks - pair.num_short for group in edges for pair in group.pairs
    )


def assert_same_equations(device, host, precision="double", *, is_whole=False):
    """chi2, b, H's diagonal, H where it is stored, a product, and the largest entries."""
    narrow, product = {"double": (1e-11, 1e-10), "mixed": (2e-6, 2e-5)}[precision]
    assert device.linearize() == pytest.approx(host.linearize(), rel=min(narrow, 1e-9))
    close(device.b, host.b, narrow)
    close(device.diagonal, host.diagonal, narrow)
    if is_whole:
        close(device.values, host.values, narrow)
    vector = np.random.default_rng(0).normal(size=host.dim)
    close(device.multiply(vector), host.multiply(vector), product)
    assert device.largest_diagonal() == pytest.approx(host.largest_diagonal(), rel=max(narrow, 1e-9))
    assert device.largest_gradient() == pytest.approx(host.largest_gradient(), rel=max(narrow, 1e-9))


def close(actual, expected, tolerance=1e-11):
    """Equal to `tolerance` of the largest entry."""
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * np.abs(expected).max())
