"""BAL problems read in parts by several ranks are the problem that one process reads."""

import numpy as np
import pytest

import graphopt
from graphopt.distributed import reading, reading_bal, writing
from graphopt.distributed.communicator import RankError, run_as_threads
from graphopt.distributed.optimize import Wanted, optimize_rank
from graphopt.errors import FormatError, OptionError


@pytest.fixture(scope="module")
def problem():
    """A graph with BAL cameras."""
    return graphopt.datasets.bundle_adjustment.ba(12, 150, seed=2)


@pytest.fixture(params=[".bal", ".npz"])
def path(problem, tmp_path, request, monkeypatch):
    """The same as a file, of which every rank reads a piece."""
    monkeypatch.setattr(reading_bal, "SMALL", 64)
    target = tmp_path / f"problem{request.param}"
    graphopt.write(problem, target)
    return target


def rows_of(graphs):
    """Edges of graphs, in an order of their own."""
    sets = [graph.edge_sets[0] for graph in graphs if graph.num_edges]
    rows = np.concatenate([np.concatenate([set_.vertices, set_.measurement], axis=1) for set_ in sets])
    return rows[np.lexsort(rows.T)]


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 5])
def test_parts_are_the_whole(path, num_ranks):
    """Every edge on one rank, every point on one, cameras where their edges are; balanced."""
    whole = graphopt.read(path)
    found = run_as_threads(num_ranks, lambda comm: reading.read(path, comm))
    graphs = [part.share.graph for part in found]
    np.testing.assert_array_equal(rows_of(graphs), rows_of([whole]))
    points = np.concatenate(
        [graph.vertex_set("VERTEX_TRACKXYZ").ids for graph in graphs if graph.num_vertices]
    )
    assert len(points) == len(set(points.tolist()))
    for graph in graphs:
        for part in graph.vertex_sets:
            numbers, rows = whole.find_vertices(part.ids)
            np.testing.assert_array_equal(part.estimate, whole.vertex_sets[numbers[0]].estimate[rows])
    edges = [graph.num_edges for graph in graphs]
    assert max(edges) * num_ranks < 1.1 * sum(edges)
    assert {part.num_edges for part in found} == {whole.num_edges}


def test_it_is_optimized_like_the_whole(path):
    """Chi2 per iteration; no rank has all."""
    whole = graphopt.read(path)
    expected = graphopt.optimize(whole, "lm", 5)

    def work(comm):
        parted = reading.read(path, comm)
        return parted, optimize_rank(parted, comm, Wanted("lm", 5))

    for parted, summary in run_as_threads(3, work):
        np.testing.assert_allclose(
            [iteration.chi2 for iteration in summary.iterations],
            [iteration.chi2 for iteration in expected.iterations],
            rtol=1e-9,
        )
        assert parted.share.graph.num_edges < 0.5 * whole.num_edges
        assert (summary.vertices, summary.edges) == (expected.vertices, expected.edges)
        for part in parted.share.graph.vertex_sets:
            numbers, rows = whole.find_vertices(part.ids)
            values = whole.vertex_sets[numbers[0]].estimate[rows]
            np.testing.assert_allclose(part.estimate, values, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("num_ranks", [1, 3])
def test_the_result_is_written_in_pieces(path, tmp_path, num_ranks):
    """As one process would write it; observations to the last digit."""
    out = tmp_path / f"out{path.suffix}"

    def work(comm):
        parted = reading.read(path, comm)
        summary = optimize_rank(parted, comm, Wanted("lm", 5))
        writing.write(parted, out, comm)
        return summary

    summary = run_as_threads(num_ranks, work)[0]
    given, found = graphopt.read(path), graphopt.read(out)
    assert found.chi2() == pytest.approx(summary.final_chi2, rel=1e-8)
    np.testing.assert_array_equal(found.edge_sets[0].measurement, given.edge_sets[0].measurement)
    np.testing.assert_array_equal(found.edge_sets[0].vertices, given.edge_sets[0].vertices)
    assert sorted(each_path.name for each_path in tmp_path.iterdir()) == sorted([path.name, out.name])


def test_damaged_files(tmp_path, path):
    """All ranks say the same."""
    data = path.read_bytes()
    damaged = tmp_path / f"damaged{path.suffix}"
    damaged.write_bytes(data[: len(data) // 2])
    with pytest.raises((FormatError, RankError), match="damaged"):
        run_as_threads(3, lambda comm: reading.read(damaged, comm))
    text = tmp_path / "words.bal"
    text.write_text("1 1 1\n0 0 one two\n" + "1\n" * 12)
    with pytest.raises((FormatError, RankError), match=r"words\.bal"):
        run_as_threads(2, lambda comm: reading.read(text, comm))


def test_what_needs_the_whole_graph_says_so(path):
    """Instead of doing something else."""

    def work(comm):
        return optimize_rank(reading.read(path, comm), comm, Wanted(fix=[0]))

    with pytest.raises(OptionError, match="fix needs the whole graph on rank 0"):
        run_as_threads(2, work)
