"""Long parts of the set-up ask whether to stop; what was begun is thrown away, and the next run is whole."""

import sys

import numpy as np
import pytest

import graphopt
from graphopt.cpu_kernels import kernels
from graphopt.errors import Stopped
from graphopt.evaluate.datasets import ba, manhattan
from graphopt.linear import SchurComplement
from graphopt.linear.systems import elimination_flops
from graphopt.optimizer import StopFlag
from graphopt.problem.structure import Structure
from graphopt.problem.working import WorkingEstimates
from graphopt.solver.cpu import make_linearizer
from graphopt.strategies.relaxation import Relaxation


def structure_of(graph):
    """With one pose held."""
    return Structure(graph.select())


def linearizer(structure):
    """The native set-up of a structure."""
    selection = structure.selection
    return make_linearizer(
        selection.parameter_sets,
        structure,
        [WorkingEstimates(vertex_set) for vertex_set in selection.vertex_sets],
    )


PARTS = {
    "pattern": lambda s: s.pattern,
    "linearizer": linearizer,
    "schur": lambda s: SchurComplement(s.pattern, s.num_kept, mode="explicit"),
    "count of operations": elimination_flops,
}


@pytest.mark.parametrize("part", PARTS)
def test_parts_of_the_set_up_ask(part):
    """Each raises `Stopped` where the watch says so, and works again without it."""
    graph = ba(cameras=5, points=60, start="truth")
    structure = structure_of(graph)
    if part != "pattern":
        assert structure.values_size and structure.groups[0].block_offset.size
    watch = kernels.Watch(lambda: True, 0.0)
    watch.begin()
    try:
        with pytest.raises(Stopped):
            PARTS[part](structure)
    finally:
        watch.end()
    assert PARTS[part](structure) is not None


def test_relaxation_asks():
    """Also the assembly of its systems, which is Python's."""
    structure = structure_of(manhattan(nodes=60))
    watch = kernels.Watch(lambda: True, 0.0)
    watch.begin()
    try:
        with pytest.raises(Stopped):
            Relaxation(structure).step()
    finally:
        watch.end()


@pytest.mark.parametrize("seconds", [1e3, -1.0])
def test_chi2_after_a_stop_in_the_set_up(seconds, monkeypatch):
    """It is computed where that takes no time; else it is not a number, and the summary says so."""
    module = sys.modules["graphopt.optimizer.ending"]
    monkeypatch.setattr(module, "_LAST_SECONDS", seconds)
    monkeypatch.setattr(module, "_ROWS_AT_ONCE", 7)
    graph = manhattan(nodes=50)
    expected = graph.chi2()
    summary = graphopt.optimize(graph, stop=StopFlag(True))
    assert summary.termination.name == "USER_STOP" and not summary.iterations
    if seconds > 0.0:
        assert summary.final_chi2 == pytest.approx(expected, rel=1e-12)
    else:
        assert np.isnan(summary.final_chi2) and "chi2 was not computed" in summary.message
        assert '"final_chi2": null' in summary.to_json()
    assert graphopt.optimize(graph).final_chi2 < expected
