"""A later call looks only at those arrays of the edges that somebody may have written since the last one."""

from __future__ import annotations

import numpy as np
import pytest
from vulkan_graphs import bundle_adjustment, pose_graph

from graphopt.graph.columns import Columns
from graphopt.optimizer import optimize
from graphopt.problem import unseen

EDGE_ARRAYS = ("vertices", "measurement", "information", "kernel", "kernel_width", "level", "parameters")


@pytest.fixture
def passes(monkeypatch):
    """Names of the columns that `known` looks at."""
    names = []
    known = Columns.known

    def noted(self, name, what, find):
        def found(column):
            names.append(name)
            return find(column)

        return known(self, name, what, found)

    monkeypatch.setattr(Columns, "known", noted)
    return names


@pytest.mark.parametrize("make", [bundle_adjustment, pose_graph])
@pytest.mark.parametrize("device", ["vulkan", "cpu"])
@pytest.mark.parametrize("few", [1, 10**6])
def test_a_later_call_with_other_estimates_looks_at_no_array_of_the_edges(
    passes, monkeypatch, make, device, few
):
    monkeypatch.setattr(unseen, "FEW", few)
    graph = make()
    starts = [vertices.estimate.copy() for vertices in graph.vertex_sets]
    for _ in range(3):
        passes.clear()
        for vertices, start in zip(graph.vertex_sets, starts, strict=True):
            vertices.estimate[...] = start
        optimize(graph, device=device, max_iterations=3)
    assert not set(passes) & set(EDGE_ARRAYS)


@pytest.mark.parametrize("name", ["measurement", "information", "level"])
def test_a_kept_view_is_seen_whenever_it_is_written(name):
    def story(graph):
        kept = getattr(graph.edge_sets[0], name)[2:6]
        found = []
        for _ in range(3):
            found.append(optimize(graph, device="vulkan", precision="double", max_iterations=2).final_chi2)
            kept[...] = 1 if name == "level" else 1.5 * kept
        return found

    def fresh():
        graph, found = bundle_adjustment(), []
        for _ in range(3):
            graph = graph.copy()  # has no solver, and nothing is known of it
            found.append(optimize(graph, device="vulkan", precision="double", max_iterations=2).final_chi2)
            kept = getattr(graph.edge_sets[0], name)[2:6]
            kept[...] = 1 if name == "level" else 1.5 * kept
        return found

    expected = fresh()
    assert len(set(expected)) == 3 or name == "level"
    np.testing.assert_array_equal(story(bundle_adjustment()), expected)
