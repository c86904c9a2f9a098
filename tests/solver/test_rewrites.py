"""Rewritten graphs serve later calls: what is kept gives the numbers of a graph that is rewritten anew."""

import numpy as np
import pytest
from value_graphs import own_types_of_module, types, with_values

import graphopt
from graphopt.errors import GraphError
from graphopt.evaluate import datasets
from graphopt.problem import inline
from graphopt.problem.fixed_components import FIXED_COMPONENTS
from graphopt.problem.inline import INLINED_VALUES
from graphopt.problem.rewrite import Rewrite
from graphopt.problem.small_blocks import SMALL_BLOCKS

__all__ = ["own_types_of_module", "types"]  # fixtures of this module


def with_fixed_components(types):
    """Poses of which two have a fixed axis."""
    graph = datasets.sphere(4, 3, seed=1)
    graph.hold(graph.vertex_ids()[[3, 5]], [2])
    return graph


def with_large_vertices(types):
    """Twenty numbers per vertex."""
    kind = graphopt.group_type("RwMany", numbers=20)

    @graphopt.edge_type(vertices=(kind, kind), measurement_dim=20)
    def RwTie(first, second, data):
        """Between two of them."""
        return second.numbers - first.numbers * np.exp(0.1 * first.numbers) - data

    graph = graphopt.Graph()
    rng = np.random.default_rng(0)
    vertices = graph.add_array(kind, rng.normal(size=(4, 20)))
    graph.add_edges(RwTie, graphopt.pairwise(vertices), rng.normal(size=(3, 20)))
    return graph


WAYS = {
    "fixed components": (with_fixed_components, FIXED_COMPONENTS),
    "small blocks": (with_large_vertices, SMALL_BLOCKS),
    "inlined values": (with_values, INLINED_VALUES),
}


def measure_anew(graph):
    graph.edge_sets[0].measurement[...] += 0.01


def weigh_anew(graph):
    graph.edge_sets[0].information[...] *= 1.5


def weigh_down(graph):
    graph.set_robust_kernel("Huber", 0.3)


def move(graph):
    graph.vertex_sets[0].estimate[...] *= 1.01


CHANGES = {"measurement": measure_anew, "information": weigh_anew, "kernel": weigh_down, "estimate": move}


def rewritten(graph, rewriter):
    if graph.has_computed():
        graph.compute()
    return Rewrite(graph, graph.select()).apply(rewriter)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("way", WAYS)
def test_kept_is_as_made_anew(types, way, change):
    """After a change of numbers the same graph is there again, with H, b and chi2 as of a copy's."""
    make, rewriter = WAYS[way]
    graph = make(types)
    first = rewritten(graph, rewriter)
    assert first.is_other_graph
    CHANGES[change](graph)
    again, anew = rewritten(graph, rewriter), rewritten(graph.copy(), rewriter)
    assert again.graph is first.graph and again.selection is first.selection
    found, expected = (graphopt.linearize(problem.graph) for problem in (again, anew))
    assert found.chi2 == expected.chi2
    np.testing.assert_array_equal(found.b, expected.b)
    np.testing.assert_array_equal(found.H.toarray(), expected.H.toarray())


def fix_one(graph):
    graph.vertex_sets[0].fixed[1] = True


def add_a_vertex(graph):
    kind = graph.vertex_sets[0].type
    graph.add_vertices(kind, [graph.max_vertex_id() + 1], graph.vertex_sets[0].estimate[:1])


def marginalize(graph):
    graph.vertex_sets[0].marginalized[2] = True


@pytest.mark.parametrize("change", [fix_one, add_a_vertex, marginalize])
@pytest.mark.parametrize("way", WAYS)
def test_another_structure_is_another_graph(types, way, change):
    """Whatever the block solver's structure depends on."""
    make, rewriter = WAYS[way]
    graph = make(types)
    first = rewritten(graph, rewriter)
    change(graph)
    again, anew = rewritten(graph, rewriter), rewritten(graph.copy(), rewriter)
    assert again.graph is not first.graph
    found, expected = (graphopt.linearize(problem.graph) for problem in (again, anew))
    np.testing.assert_array_equal(found.b, expected.b)
    np.testing.assert_array_equal(found.vertex_ids, expected.vertex_ids)


def test_other_components_are_another_graph():
    """Which components are fixed may change between calls."""
    graph = with_fixed_components(None)
    first = rewritten(graph, FIXED_COMPONENTS)
    graph.hold(graph.vertex_ids()[[4]], [1])
    assert rewritten(graph, FIXED_COMPONENTS).graph is not first.graph
    graph.hold(graph.vertex_ids(), range(6), held=False)
    assert not rewritten(graph, FIXED_COMPONENTS).is_other_graph


@pytest.mark.parametrize("chosen", ["level", "edges"])
def test_later_calls_have_the_same_answer(chosen):
    """Bit for bit, with the edges chosen by level or one by one, and fixed components stay."""
    graph = with_fixed_components(None)
    edges = None if chosen == "level" else {graph.edge_sets[0]: np.arange(5, len(graph.edge_sets[0]))}
    start = graph.vertex_sets[0].estimate.copy()
    found = []
    for _ in range(3):
        graph.vertex_sets[0].estimate[...] = start
        graphopt.optimize(graph, "lm", 5, edges=edges)
        found.append(graph.vertex_sets[0].estimate.copy())
    assert np.array_equal(found[0], found[1]) and np.array_equal(found[0], found[2])
    assert not np.array_equal(found[0], start)


def test_an_own_jacobian_is_divided_with_its_vertices(own_types):
    """Between a vertex in pieces and a small one: H of the pieces is that of the whole, in another order."""
    many = graphopt.group_type("RwDivided", numbers=20)

    def slopes(large, small, data):
        shape = (*np.shape(large.numbers)[:-1], 20, 20)
        by_large = np.broadcast_to(2.0 * np.eye(20), shape)
        return by_large, np.broadcast_to(-np.ones((20, 1)), (*shape[:-1], 1))

    one = graphopt.group_type("RwWhole", numbers=1)

    @graphopt.edge_type(vertices=(many, one), measurement_dim=20, jacobian=slopes)
    def RwMixedTie(large, small, data):
        """Linear in both."""
        return 2.0 * large.numbers - small.numbers - data

    graph = graphopt.Graph()
    rng = np.random.default_rng(0)
    graph.add_vertices(many, [0, 1], rng.normal(size=(2, 20)))
    graph.add_vertices(one, [2], [[0.5]])
    graph.add_edges(RwMixedTie, [[0, 2], [1, 2]], rng.normal(size=(2, 20)))
    pieces = rewritten(graph, SMALL_BLOCKS)
    assert pieces.is_other_graph
    found, expected = graphopt.linearize(pieces.graph), graphopt.linearize(graph)
    eigenvalues = [np.linalg.eigvalsh(each.H.toarray()) for each in (found, expected)]
    np.testing.assert_allclose(*eigenvalues, atol=1e-12)
    np.testing.assert_allclose(np.sort(found.b), np.sort(expected.b), atol=1e-12)


def test_bounds_of_divided_vertices_are_reported_where_they_are():
    """On a device whose blocks are small, by vertex and component of the user's graph."""
    graph = with_large_vertices(None)
    graph.set_fixed([int(graph.vertex_ids()[0])])
    graphopt.optimize(graph, "lm", 100, device="cpu")
    upper = np.full(20, np.inf)
    upper[17] = graph.vertex_sets[0].estimate[2, 17] - 0.5
    graph.set_bounds(int(graph.vertex_ids()[2]), upper=upper)
    expected = graphopt.optimize(graph.copy(), "lm", 100, device="cpu")
    found = graphopt.optimize(graph, "lm", 100, device="vulkan")
    assert found.final_chi2 == pytest.approx(expected.final_chi2, rel=1e-6)
    assert [each[:3] for each in found.kkt.bounds] == [each[:3] for each in expected.kkt.bounds]
    assert len(found.kkt.bounds) == 1


def test_too_many_vertices_of_an_edge_are_refused(types, monkeypatch):
    """Where values are put in, with the way out."""
    monkeypatch.setattr(inline, "MOST_SLOTS", 4)
    with pytest.raises(GraphError, match=r"at most 4 are taken. Use computed='materialize'"):
        graphopt.optimize(with_values(types), computed="inline")


def test_other_edges_are_another_graph():
    """Fewer of them, or the same ones chosen otherwise: answers as of a graph of its own."""
    graph = with_fixed_components(None)
    start, edges = graph.vertex_sets[0].estimate.copy(), graph.edge_sets[0]
    for chosen in (None, np.arange(len(edges)), np.arange(5, len(edges)), None):
        found = []
        for each in (graph, graph.copy()):
            each.vertex_sets[0].estimate[...] = start
            rows = None if chosen is None else {each.edge_sets[0]: chosen}
            found.append(graphopt.optimize(each, "lm", 5, edges=rows).final_chi2)
        assert found[0] == found[1]
