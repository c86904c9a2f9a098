"""What was made of a type goes with it: a notebook may define its residual any number of times."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import graphopt
from graphopt.device.shared import shared_device
from graphopt.types import registry
from graphopt.types.cache import per_type_cache

_TYPES_KEPT = 8
"""Traces of so many types are kept for the next who asks, by number (`codegen.trace`)."""


def _optimized(number: int, device: str) -> tuple[weakref.ref, float]:
    """A new residual between new vertices, in a ring of four."""

    @graphopt.vertex_type(tag="VERTEX_DEFINED_AGAIN", tangent_dim=2)
    def place(x, d):
        return x + d

    @graphopt.edge_type(tag="EDGE_DEFINED_AGAIN", vertices=(place, place), measurement_dim=2)
    def step(a, b, z):
        return b - a - z + 1e-3 * number * np.sin(a)

    graph = graphopt.Graph()
    graph.add_vertices(place, range(4), np.arange(8.0).reshape(4, 2))
    graph.set_fixed([0])
    graph.add_edges(step, [[0, 1], [1, 2], [2, 3], [3, 0]], [1.0, 0.5])
    chi2 = graphopt.optimize(graph, "gn", 3, device=device).final_chi2
    registry.unregister(step)
    registry.unregister(place)
    return weakref.ref(step), chi2


@pytest.mark.parametrize("device", ["cpu", pytest.param("vulkan", marks=pytest.mark.slow)])
def test_types_that_are_gone_leave_no_programs_and_no_pipelines(device):
    """Live types and pipelines of a device stay the same in number after the first."""
    kept, alive, pipelines = [], [], []
    for number in range(8):
        reference, chi2 = _optimized(number, device)
        assert np.isfinite(chi2)
        kept.append(reference)
        gc.collect()
        alive.append(sum(each() is not None for each in kept))
        pipelines.append(0 if device == "cpu" else len(shared_device(None)._kernels))
    assert max(alive) <= _TYPES_KEPT
    assert alive[-1] == alive[-3] and pipelines[-1] == pipelines[-3], (alive, pipelines)


def test_results_are_kept_by_the_latest_type():
    """In tuples and dataclasses too; they may refer to their types."""
    calls = []

    @per_type_cache
    def described(kinds, more=0):
        calls.append(more)
        return [kinds, more]

    pose = registry.vertex_type("VERTEX_SE2")
    edge = graphopt.problem.subset_types.subset_vertex_type(pose, (0, 1))
    assert described((pose, edge)) is described((pose, edge))
    assert described(edge, more=3)[1] == 3 and calls == [0, 3]
    with pytest.raises(TypeError, match="No type"):
        described(5)
