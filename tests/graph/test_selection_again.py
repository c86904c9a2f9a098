"""A graph that is optimized again is not analysed again; whatever that depends on is seen."""

import gc
import weakref

import numpy as np
import pytest

import graphopt
from graphopt.evaluate.datasets import ba
from graphopt.problem.gauge import choose_gauge, known_gauge
from graphopt.solver import reuse


def fix(graph):
    graph.vertex_sets[0].fixed[1] = True


def marginalize(graph):
    graph.vertex_sets[1].marginalized[2] ^= True


def lift(graph):
    graph.edge_sets[0].level[3] = 1


def rewire(graph):
    graph.edge_sets[0].vertices[[0, 1]] = graph.edge_sets[0].vertices[[1, 0]]


def remove(graph):
    graph.remove_edges(graph.edge_sets[0], [5])


@pytest.mark.parametrize("change", [fix, marginalize, lift, rewire, remove])
def test_selections_by_level_are_kept_until_something_changes(change):
    """The same object before; afterwards another one, equal to that of a graph that was never looked at."""
    graph = ba(4, 30, seed=1)
    before = graph.select()
    graph.vertex_sets[0].estimate += 1e-3
    graph.edge_sets[0].measurement += 1e-3
    assert graph.select() is before
    assert graph.select(-1) is not before
    change(graph)
    after, expected = graph.select(), graph.copy().select()
    assert after is not before
    for name in ("active", "fixed"):
        for array, other in zip(getattr(after, name), getattr(expected, name), strict=True):
            np.testing.assert_array_equal(array, other)
    for edge, other in zip(after.edges, expected.edges, strict=True):
        np.testing.assert_array_equal(edge.rows, other.rows)
        np.testing.assert_array_equal(edge.vertex_rows, other.vertex_rows)


def test_held_selections_are_kept():
    """The same places, the same object; others, another one. No places: the selection itself."""
    selection = ba(4, 30, seed=1).select()
    held = selection.with_fixed([(0, 0)])
    assert held.fixed[0].tolist() == [True, False, False, False]
    assert selection.with_fixed([(0, 0)]) is held
    assert selection.with_fixed([(0, 1)]).fixed[0].tolist() == [False, True, False, False]
    assert selection.with_fixed([]) is selection


def test_the_gauge_is_looked_for_again_where_components_may_be_held():
    """As `choose_gauge`, before and after a component is held."""
    graph = graphopt.datasets.manhattan(nodes=20, seed=0)
    graph.vertex_sets[0].fixed[:] = False
    selection = graph.select()
    assert known_gauge(graph, selection) == choose_gauge(graph, selection) != []
    assert known_gauge(graph, selection) == choose_gauge(graph, selection)
    ids = graph.vertex_sets[0].ids
    graph.hold(ids[[3, 5]].tolist(), [0])
    assert known_gauge(graph, selection) == choose_gauge(graph, selection) == []


def test_block_solvers_are_used_again_and_notice_marginalized_flags(monkeypatch):
    """One for two calls with other values, another one where the flags differ."""
    made = []
    original = reuse.create_block_solver
    monkeypatch.setattr(reuse, "create_block_solver", lambda *a: made.append(1) or original(*a))
    graph = ba(4, 30, seed=1)
    graphopt.optimize(graph, "lm", 2)
    graph.vertex_sets[1].estimate += 1e-2
    graphopt.optimize(graph, "lm", 2)
    assert len(made) == 1
    graph.vertex_sets[1].marginalized[0] = not graph.vertex_sets[1].marginalized[0]
    graphopt.optimize(graph, "lm", 2)
    assert len(made) == 2


def test_what_is_kept_does_not_keep_the_graph():
    """It goes with it."""
    graph = ba(4, 30, seed=1)
    graph.select()
    graphopt.optimize(graph, "lm", 1)
    seen = weakref.ref(graph)
    del graph
    gc.collect()
    assert seen() is None
