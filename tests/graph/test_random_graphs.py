"""Graphs of any built-in types: files, copies and compiled edges agree with what is in memory."""

from __future__ import annotations

import copy
import pickle
import tempfile

import numpy as np
import pytest
from graph_columns import assert_same, columns_of, sets_of
from graph_strategies import graphs
from hypothesis import HealthCheck, given, settings

from graphopt import io
from graphopt.linear.options import SolverOptions
from graphopt.problem.structure import Structure
from graphopt.solver.create import create_block_solver

quickly = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@quickly
@given(graphs())
def test_copies_and_archives_keep_every_digit(graph):
    """Pickles, copies, .npz."""
    assert_same(pickle.loads(pickle.dumps(graph)), graph)
    assert_same(copy.deepcopy(graph), graph)
    with tempfile.TemporaryDirectory() as folder:
        assert io.write(graph, f"{folder}/a.npz") == []
        assert_same(io.read(f"{folder}/a.npz"), graph)


@quickly
@given(graphs())
def test_g2o_files_keep_numbers_and_chi2(graph):
    """To rounding, where poses are inverted or normalised; all edges are of level 0 then."""
    with tempfile.TemporaryDirectory() as folder:
        io.write(graph, f"{folder}/a.g2o")
        found = io.read(f"{folder}/a.g2o")
    read = {one.type: columns_of(one) for one in sets_of(found)}
    for one in sets_of(graph):
        for name, column in columns_of(one).items():
            if name not in ("marginalized", "level", "sequence"):
                np.testing.assert_allclose(read[one.type][name], column, 1e-9, 1e-12, err_msg=name)
        if one in graph.edge_sets:
            one.level[:] = 0
    assert found.chi2() == pytest.approx(graph.chi2(), rel=1e-9, nan_ok=True)


@quickly
@given(graphs())
def test_compiled_edges_are_those_of_numpy(graph):
    """Chi2 of the active edges; what can be optimized has a block solver."""
    selection = graph.select()
    if not selection.num_active_edges or not any(
        selection.free(number).any() for number in range(len(selection.vertex_sets))
    ):
        return
    solver = create_block_solver(graph, Structure(selection), SolverOptions(device="cpu"))
    with np.errstate(all="ignore"):
        assert solver.chi2() == pytest.approx(graph.chi2(), rel=1e-9, nan_ok=True)
