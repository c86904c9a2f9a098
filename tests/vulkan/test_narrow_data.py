"""Float32 copies of measurements are made where a kernel reads them, and follow the graph from then on."""

from __future__ import annotations

import numpy as np
import pytest
from vulkan_devices import shared_device
from vulkan_graphs import bundle_adjustment, pose_graph

from graphopt.linear.options import SolverOptions
from graphopt.problem.structure import Structure
from graphopt.solver.trial import Damping
from graphopt.vulkan.solver import create


def sizes(solver):
    """Device memory of each view."""
    return [view.nbytes for edges in solver.linearizer.edges for view in edges.views.values()]


def test_products_of_images_read_none():
    """The Jacobian of a pixel does not depend on where it was measured."""
    graph = bundle_adjustment()
    options = SolverOptions("vulkan", "pcg", "implicit", "mixed", "matrix-free")
    solver = create(graph, Structure(graph.select()), options, device=shared_device("address"))
    solver.linearize()
    before = sizes(solver)
    assert solver.trial(Damping(1e-3)).solved
    assert sizes(solver) == before


@pytest.mark.parametrize("access", ["address", "storage"])
def test_copies_follow_the_graph(access):
    """Products of relative poses read measured turns: after new measurements, those."""
    graph = pose_graph()
    graph.edge_sets[0].information[:] = np.diag([1.0, 9.0, 4.0])
    options = SolverOptions("vulkan", "pcg", "off", "mixed", "matrix-free")
    device = shared_device(access)
    solver = create(graph, Structure(graph.select()), options, device=device)
    x = np.random.default_rng(0).normal(size=solver.dim)
    solver.linearize()
    before = sizes(solver)
    first = solver.multiply(x).copy()
    assert all(now > then for now, then in zip(sizes(solver), before, strict=True))
    graph.edge_sets[0].measurement[:, 2] += 0.3
    solver.refresh()
    solver.linearize()
    found = solver.multiply(x)
    anew = create(graph, Structure(graph.select()), options, device=device)
    anew.linearize()
    np.testing.assert_allclose(found, anew.multiply(x), rtol=1e-6)
    assert np.abs(found - first).max() > 1e-3 * np.abs(first).max()
    assert device.messages == []
