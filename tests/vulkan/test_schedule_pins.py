"""Each edge set with a schedule of its own: products and whole runs against the CPU, and what is refused."""

from __future__ import annotations

import pytest
from resident_graphs import mixed_plane

from graphopt.errors import OptionError
from graphopt.linear.options import SolverOptions
from graphopt.optimizer import optimize


def test_wrong_pins_are_refused():
    """With what the graph has, and what is possible."""
    options = {"device": "vulkan", "linear_solver": "pcg"}
    with pytest.raises(
        OptionError, match=r"names edge type 'EDGE_SE3', .* This graph has EDGE_SE2, EDGE_SE2_XY"
    ):
        optimize(mixed_plane(), "lm", 1, schedule={"EDGE_SE3": "blocks"}, **options)
    with pytest.raises(OptionError, match="schedule of 'EDGE_SE2' is 'host', expected one of auto, blocks"):
        optimize(mixed_plane(), "lm", 1, schedule={"EDGE_SE2": "host"}, **options)
    with pytest.raises(OptionError, match="'EDGE_SE2=jacobians' needs products only"):
        optimize(
            mixed_plane(), "lm", 1, schedule={"EDGE_SE2": "jacobians"}, device="vulkan", schur="explicit"
        )
    mixed = {"EDGE_SE2": "jacobians", "EDGE_SE2_XY": "blocks"}
    with pytest.raises(OptionError, match="an edge names one vertex twice"):
        optimize(mixed_plane(loops=True), "lm", 1, schedule=mixed, **options)


def test_options_with_pins_can_be_compared():
    """A graph that is optimized again with the same pins gets its solver back."""
    options = SolverOptions(schedule={"EDGE_SE2": "blocks", "EDGE_SE2_XY": "auto"})
    assert options == SolverOptions(schedule={"EDGE_SE2_XY": "auto", "EDGE_SE2": "blocks"})
    assert hash(options) and options != SolverOptions(schedule={"EDGE_SE2": "jacobians"})
