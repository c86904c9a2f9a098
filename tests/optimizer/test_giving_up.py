"""`auto` gives up a pose graph whose closures contradict each other, where it creeps at great cost."""

import math

import numpy as np
import pytest

import graphopt
from graphopt.errors import OptionError
from graphopt.evaluate.datasets import manhattan, sphere
from graphopt.optimizer import AutoOptions


def contradictory(closures=120):
    """A sphere with random closures beside the right ones."""
    graph = sphere(nodes_per_level=12, laps=12)
    rng = np.random.default_rng(7)
    ends = rng.integers(0, 144, (closures, 2))
    ends = ends[np.abs(ends[:, 0] - ends[:, 1]) > 3]
    turn = rng.normal(size=(len(ends), 4))
    turn /= np.linalg.norm(turn, axis=1, keepdims=True)
    motion = np.concatenate([rng.normal(0.0, 30.0, (len(ends), 3)), turn], axis=1)
    graph.add_edges("EDGE_SE3:QUAT", ends, motion, 1e3 * np.eye(6))
    return graph


def test_creeping_is_given_up():
    """With no patience after few iterations, with the reason; with all of it, it goes on to a lower chi2."""
    graph = contradictory()
    summary = graphopt.optimize(graph.copy(), options=AutoOptions(patience=1.0), device="cpu")
    assert summary.termination is graphopt.TerminationType.SLOW_PROGRESS
    assert "graduated" in summary.message and "per residual" in summary.message
    assert summary.is_usable
    chi2s = [iteration.chi2 for iteration in summary.iterations]
    assert chi2s[-1] > 0.9 * chi2s[-6]
    patient = graphopt.optimize(graph, options=AutoOptions(patience=math.inf), device="cpu")
    assert patient.termination is not graphopt.TerminationType.SLOW_PROGRESS
    assert patient.final_chi2 <= summary.final_chi2
    assert len(patient.iterations) > len(summary.iterations)


@pytest.mark.parametrize("graph", [manhattan(nodes=300), sphere(nodes_per_level=10, laps=10)])
def test_consistent_graphs_need_no_patience(graph):
    """Their end is the same."""
    usual = graphopt.optimize(graph.copy(), device="cpu")
    hasty = graphopt.optimize(graph.copy(), options=AutoOptions(patience=1.0), device="cpu")
    assert hasty.termination is usual.termination
    assert hasty.final_chi2 == usual.final_chi2 and len(hasty.iterations) == len(usual.iterations)


def test_small_contradictory_graphs_are_not_given_up():
    """Their factorizations cost too little to be counted."""
    summary = graphopt.optimize(contradictory(30), device="cpu")
    assert summary.termination is not graphopt.TerminationType.SLOW_PROGRESS


def test_patience_must_be_positive():
    """Zero is no number of operations."""
    with pytest.raises(OptionError, match="patience"):
        AutoOptions(patience=0.0)
