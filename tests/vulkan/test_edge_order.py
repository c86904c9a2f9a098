"""The order of the edges of one destination: as in the graph, or by other ends where that saves moves."""

from __future__ import annotations

import json

import numpy as np
import pytest
from vulkan_graphs import assert_same_path, bundle_adjustment

from graphopt import io
from graphopt.cli.main import main
from graphopt.codegen.gpu import TILE
from graphopt.graph import Graph
from graphopt.optimizer import optimize
from graphopt.problem.structure import Structure
from graphopt.solver.marginals import compute_covariances
from graphopt.vulkan.data import order
from graphopt.vulkan.data.order import WORTH, edge_order, ordered


@pytest.fixture(autouse=True)
def no_cache(monkeypatch):
    """The graphs here are small."""
    monkeypatch.setattr(order, "CACHED_BYTES", 0)


def bundle(shuffled: bool) -> Graph:
    """Cameras that see hundreds of points; shuffled: edges come in any order."""
    graph = bundle_adjustment(5, 700)
    if not shuffled:
        return graph
    edges = graph.edge_sets[0]
    rows = np.random.default_rng(3).permutation(len(edges.vertices))
    vertices, measurements = edges.vertices[rows], edges.measurement[rows]
    again = Graph()
    for vertex_set in graph.vertex_sets:
        own = {"fixed": vertex_set.fixed, "marginalized": vertex_set.marginalized}
        again.add_vertices(vertex_set.type, vertex_set.ids, vertex_set.estimate, **own)
    again.add_edges(edges.type, vertices, measurements)
    return again


def structure_of(graph):
    """Structure of all of a graph."""
    return Structure(graph.select())


def test_edges_of_large_destinations_are_sorted_where_that_saves_moves():
    """By point; those of points, of which no one has many edges, stay."""
    structure = structure_of(bundle(True))
    (group,) = structure.groups
    chosen = edge_order(structure, group, 0)
    assert chosen is not None and chosen.other == 1 and chosen.sorted_moves <= WORTH * chosen.moves
    assert edge_order(structure, group, 1) is None
    assert ordered(structure, group, 1) is structure.sorted_edges(group, 1)
    before, after = structure.sorted_edges(group, 0), ordered(structure, group, 0)
    np.testing.assert_array_equal(before.first, after.first)
    assert np.diff(after.first.astype(int)).min() > TILE
    for begin, end in zip(after.first[:-1], after.first[1:], strict=True):
        own = after.order[begin:end]
        np.testing.assert_array_equal(np.sort(own), np.sort(before.order[begin:end]))
        assert (np.diff(group.vertex_rows[own, 1].astype(int)) > 0).all()
    held = (orders.order[orders.first[-1] :] for orders in (after, before))
    np.testing.assert_array_equal(*map(np.sort, held))


def test_nothing_is_sorted_for_a_matrix_that_is_formed_once(monkeypatch):
    """As that of covariances, which are the same but for rounding."""
    graph = bundle(True)
    structure = structure_of(graph)
    (group,) = structure.groups
    structure.is_evaluated_once = True
    assert edge_order(structure, group, 0) is None
    assert ordered(structure, group, 0) is structure.sorted_edges(group, 0)
    asked = []
    monkeypatch.setattr(order, "_by_ends", lambda *given: asked.append(given))
    graph.set_fixed([int(each) for each in graph.vertex_sets[0].ids[:2]])
    ids = graph.vertex_sets[0].ids[2:].tolist()
    there, here = (
        compute_covariances(graph, ids, singular="damp", device=each) for each in ("vulkan", "cpu")
    )
    assert not asked
    for each in ids:
        np.testing.assert_allclose(there[each], here[each], atol=1e-6 * np.abs(here[each]).max())


def test_moves_are_those_of_a_plain_count():
    """Distinct runs of 64 bytes that each 32 consecutive edges touch; records of points have 32 bytes."""
    structure = structure_of(bundle(True))
    (group,) = structure.groups
    chosen, found = edge_order(structure, group, 0), structure.sorted_edges(group, 0)
    edges = found.order[: found.first[-1]]
    by_end = ordered(structure, group, 0).order[: found.first[-1]]
    for own, moves in ((edges, chosen.moves), (by_end, chosen.sorted_moves)):
        rows = group.vertex_rows[own[: len(own) // 32 * 32], 1]
        parts = [rows[begin : begin + 32] // 2 for begin in range(0, len(rows), 32)]
        assert moves == pytest.approx(sum(len(set(part.tolist())) for part in parts) / len(rows))


def test_records_that_a_cache_holds_are_read_in_any_order(monkeypatch):
    structure = structure_of(bundle(True))
    (group,) = structure.groups
    nbytes = 32 * len(structure.selection.vertex_sets[group.vertex_sets[1]])
    for cached, is_looked_at in ((nbytes - 1, True), (nbytes, False)):
        monkeypatch.setattr(order, "CACHED_BYTES", cached)
        assert (edge_order(structure, group, 0) is not None) == is_looked_at


def test_a_graph_in_order_stays_as_it_is():
    structure = structure_of(bundle(False))
    (group,) = structure.groups
    chosen = edge_order(structure, group, 0)
    assert chosen is not None and chosen.other is None and chosen.moves == chosen.sorted_moves
    assert ordered(structure, group, 0) is structure.sorted_edges(group, 0)


@pytest.mark.parametrize("schedule", ["blocks", "matrix-free", "jacobians"])
def test_the_answers_are_the_cpus(schedule):
    """And the same bits in two runs."""
    options = {"linear_solver": "pcg", "schur": "implicit"}
    expected = optimize(bundle(True), "lm", 3, device="cpu", **options)
    runs = [optimize(bundle(True), "lm", 3, device="vulkan", schedule=schedule, **options) for _ in range(2)]
    assert_same_path(expected, runs[0])
    assert [i.chi2 for i in runs[0].iterations] == [i.chi2 for i in runs[1].iterations]


def test_explain_shows_the_order(tmp_path, capsys):
    path = tmp_path / "shuffled.txt"
    io.write(bundle(True), path)
    words = ["explain", str(path), "--device", "vulkan", "--linear-solver", "pcg"]
    assert main([*words, "--json"]) == 0
    (chosen,) = json.loads(capsys.readouterr().out)["orders"]
    assert chosen["edge"] == "EDGE_OBSERVATION_BAL" and chosen["order"].startswith("by ")
    assert chosen["moves_per_edge"]["sorted"] < chosen["moves_per_edge"]["graph"]
    assert main(words) == 0
    assert "moves of 64 bytes per edge as in the graph" in capsys.readouterr().out
