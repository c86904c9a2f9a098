"""Evaluation "collect": edges evaluated once, whose sums come from a table, are the CPU's H and b."""

from __future__ import annotations

import numpy as np
import pytest
from resident_graphs import mixed_plane, mixed_space
from test_long_sums import check_linearization, on_cpu, resident
from vulkan_devices import VARIANTS, shared_device
from vulkan_graphs import bundle_adjustment, pose_graph

from graphopt.errors import OptionError
from graphopt.optimizer import optimize
from graphopt.vulkan.operators.collect import RecordWriter

GRAPHS = {"plane": mixed_plane, "space": mixed_space, "bundle": bundle_adjustment, "poses": pose_graph}
TOLERANCE = {"double": 1e-11, "mixed": 2e-6}


@pytest.mark.parametrize("variant", [VARIANTS[0], VARIANTS[3]], ids="-".join)
@pytest.mark.parametrize("name", GRAPHS)
def test_every_kind_of_edge(name, variant):
    """Edges that name a vertex twice, fixed vertices, several slots of one vertex set, constants in H."""
    device, host = resident(GRAPHS[name](), variant, schedule="blocks+collect"), on_cpu(GRAPHS[name]())
    check_linearization(device, host, TOLERANCE[variant[1]], True)
    for edges in device._linearizer.edges:
        assert set(edges.views) == {edges.primary_slot} and not edges.pairs
    assert all(isinstance(writer, RecordWriter) for writer in device._linearizer._writers)
    assert shared_device(variant[0]).messages == []


def test_beside_others_and_after_other_estimates():
    """One type collects and the others gather; a refreshed solver reads the new measurements."""
    pins = {"EDGE_SE2_LOTSOFXY": "blocks+collect", "EDGE_SE2_XY": "blocks+scatter"}
    pins |= dict.fromkeys(("EDGE_SE2", "EDGE_TEST_MIDPOINT"), "blocks+gather")
    graph, other = mixed_plane(), mixed_plane()
    device, host = resident(graph, schedule=pins), on_cpu(other)
    check_linearization(device, host, TOLERANCE["double"], True)
    for graph_ in (graph, other):
        for edges in graph_.edge_sets:
            edges.measurement = edges.measurement + 0.01
    device.refresh()
    host.refresh()
    check_linearization(device, host, TOLERANCE["double"], True)


def test_the_twin_in_double_has_records_of_its_own():
    """A mixed solver's twin reads the same edges, its records and constants are float64."""
    mixed = resident(mixed_space(), ("address", "mixed"), schedule="blocks+collect")
    double, host = mixed.in_double(), on_cpu(mixed_space())
    check_linearization(double, host, TOLERANCE["double"], True)
    check_linearization(mixed, host, TOLERANCE["mixed"], True)


def test_a_factorization_takes_the_same_steps():
    """Schur complement and Cholesky on what was collected."""
    expected = optimize(mixed_space(), "lm", 3, device="cpu", linear_solver="cholesky")
    actual = optimize(
        mixed_space(), "lm", 3, device="vulkan", linear_solver="cholesky", schedule="blocks+collect"
    )
    np.testing.assert_allclose(
        [iteration.chi2 for iteration in actual.iterations],
        [iteration.chi2 for iteration in expected.iterations],
        rtol=1e-9,
    )


def test_blocks_that_are_not_stored_are_refused():
    """The message names what to ask for."""
    with pytest.raises(OptionError, match="Use 'blocks\\+collect', or 'gather'"):
        resident(pose_graph(), schedule="matrix-free+collect")
