"""Few edges of many vertices are summed by a table, whose set-up is the shorter one; others by lists."""

from __future__ import annotations

import numpy as np
import pytest
from vulkan_graphs import bundle_adjustment

from graphopt import Graph, types
from graphopt.optimizer import optimize
from graphopt.problem.structure import Structure
from graphopt.solver import reuse
from graphopt.types import marginal
from graphopt.vulkan.operators import collect
from graphopt.vulkan.plan.few_edges import is_collected


def chain(num_edges, kind):
    """A line of states, each edge on the next ones, with a first one that is fixed."""
    rng = np.random.default_rng(0)
    count = num_edges + len(kind.vertices)
    graph = Graph()
    vertex = kind.vertices[0]
    start = np.cumsum(np.full((count, vertex.storage_dim), 0.1), axis=0)
    graph.add_vertices(vertex, np.arange(count), start, fixed=np.arange(count) == 0)
    ends = np.arange(num_edges)[:, None] + np.arange(len(kind.vertices))
    measured = 0.1 * rng.normal(size=(num_edges, kind.measurement_dim))
    graph.add_edges(kind, ends, measured)
    return graph


def kind_of_edge(arity):
    """A prior on so many velocities."""
    return marginal.prior_edge(*arity * (types.inertial.VertexVelocity,))


def group_of(graph):
    """The only one."""
    [group] = Structure(graph.select()).groups
    return group


def test_the_more_vertices_the_more_edges_are_collected():
    """Lists grow with the square of the vertices, the table with the edges."""
    few = {arity: group_of(chain(20, kind_of_edge(arity))) for arity in (2, 3, 5)}
    assert [is_collected(few[arity]) for arity in (2, 3, 5)] == [False, True, True]
    assert not is_collected(group_of(chain(5000, kind_of_edge(5))))


def test_kernels_with_very_many_outputs_are_left_alone():
    """Drivers refuse them."""
    assert is_collected(group_of(chain(2, kind_of_edge(8))))
    assert not is_collected(group_of(chain(2, kind_of_edge(20))))


def test_auto_takes_the_table_and_finds_what_lists_find():
    """Beside edges of two vertices; a factorization stores all of H."""
    kind = kind_of_edge(4)
    found = {}
    for schedule in ("auto", "gather"):
        graph = chain(12, kind)
        summary = optimize(graph, "lm", 4, device="vulkan", linear_solver="cholesky", schedule=schedule)
        found[schedule] = summary.schedule, [iteration.chi2 for iteration in summary.iterations]
        reuse.forget(graph)
    assert found["auto"][0] == "blocks+collect"
    assert found["gather"][0] == "blocks"
    np.testing.assert_allclose(found["auto"][1], found["gather"][1], rtol=1e-10)


def test_a_user_who_names_an_evaluation_gets_it():
    """Of edges of two vertices, too."""
    graph = bundle_adjustment()
    summary = optimize(graph, "lm", 1, device="vulkan", linear_solver="cholesky")
    assert summary.schedule == "blocks"


@pytest.mark.parametrize("at", [3, 9])
def test_a_kept_table_is_that_of_its_structure(at, monkeypatch):
    """One edge less, an equal graph again, other vertices: bit for bit what is found without kept tables."""
    kind = kind_of_edge(4)

    def steps(graph):
        summary = optimize(graph, "lm", 3, device="vulkan", linear_solver="cholesky")
        reuse.forget(graph)
        assert summary.schedule == "blocks+collect"
        return [iteration.chi2 for iteration in summary.iterations], graph.vertex_sets[0].estimate.copy()

    def story():
        graph = chain(12, kind)
        yield graph
        less = chain(12, kind)
        less.remove_edges(less.edge_sets[0], [at])
        yield less
        yield chain(12, kind)
        held = chain(12, kind)
        held.vertex_sets[0].fixed[at] = True
        yield held

    kept = [steps(graph) for graph in story()]
    monkeypatch.setattr(collect, "MOST_KEPT", 0)
    collect.kept_tables.clear()
    for (chi2, estimate), graph in zip(kept, story(), strict=True):
        expected, there = steps(graph)
        assert chi2 == expected
        np.testing.assert_array_equal(estimate, there)
    assert not collect.kept_tables
