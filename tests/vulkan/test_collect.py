"""Evaluation "collect": edges evaluated once, whose sums come from a table, are the CPU's H and b."""

from __future__ import annotations

import pytest
from device_solvers import assert_same_equations, on_cpu, resident
from resident_graphs import mixed_plane
from vulkan_graphs import pose_graph

from graphopt.errors import OptionError


def test_beside_others_and_after_other_estimates():
    """One type collects and the others gather; a refreshed solver reads the new measurements."""
    pins = {"EDGE_SE2_LOTSOFXY": "blocks+collect", "EDGE_SE2_XY": "blocks+scatter"}
    pins |= dict.fromkeys(("EDGE_SE2", "EDGE_TEST_MIDPOINT"), "blocks+gather")
    graph, other = mixed_plane(), mixed_plane()
    device, host = resident(graph, schedule=pins), on_cpu(other)
    assert_same_equations(device, host, "double", is_whole=True)
    for graph_ in (graph, other):
        for edges in graph_.edge_sets:
            edges.measurement = edges.measurement + 0.01
    device.refresh()
    host.refresh()
    assert_same_equations(device, host, "double", is_whole=True)


def test_blocks_that_are_not_stored_are_refused():
    """The message names what to ask for."""
    with pytest.raises(OptionError, match="Use 'blocks\\+collect', or 'gather'"):
        resident(pose_graph(), schedule="matrix-free+collect")
