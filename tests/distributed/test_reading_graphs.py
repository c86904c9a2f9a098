""".g2o files and COLMAP models read in parts by several ranks are the graphs that one process reads."""

import lzma

import numpy as np
import pytest
from rank_programs import sphere

import graphopt
from graphopt.distributed import reading, writing
from graphopt.distributed.communicator import RankError, run_as_threads
from graphopt.distributed.optimize import Wanted, optimize_rank
from graphopt.errors import FormatError, OptionError
from graphopt.solver.registry import SolverOptions


def landmarks():
    """Poses on a plane that see landmarks, with the first pose fixed."""
    graph = graphopt.datasets.pose_graphs.manhattan(40, seed=3)
    poses = graph.vertex_sets[0]
    rng = np.random.default_rng(0)
    ids = 1000 + np.arange(120)
    graph.add_vertices("VERTEX_XY", ids, rng.uniform(-5.0, 5.0, (120, 2)))
    pairs = [(pose, id_) for id_ in ids.tolist() for pose in rng.choice(poses.ids, 3, replace=False).tolist()]
    graph.add_edges("EDGE_SE2_XY", pairs, rng.normal(0.0, 1.0, (len(pairs), 2)))
    graph.set_fixed([int(poses.ids[0])], True)
    return graph


MADE = {"sphere.g2o": sphere, "landmarks.g2o": landmarks}


@pytest.fixture(params=[*MADE, "colmap", "colmap text"])
def path(request, tmp_path, shared_data):
    """A file, or the folder of a model."""
    if request.param in MADE:
        graphopt.write(MADE[request.param](), tmp_path / request.param)
        return tmp_path / request.param
    return model_in(shared_data, tmp_path, "text" in request.param)


def model_in(shared_data, tmp_path, as_text):
    """A model, made of the first one in the data folder; with noise: chi2 of some is rounding only."""
    source = next(each_path.parent for each_path in sorted((shared_data / "colmap").rglob("cameras.*")))
    model = graphopt.io.colmap.read_colmap(source)
    model.images.xy += np.random.default_rng(1).normal(0.0, 0.5, model.images.xy.shape)
    graphopt.io.colmap.write_colmap(model, tmp_path / "model", as_text=as_text)
    return tmp_path / "model"


def marked(path):
    """What one process optimizes of it."""
    graph = graphopt.read(path)
    points = [vertex_set for vertex_set in graph.vertex_sets if vertex_set.type.role == "point"]
    if 2 * sum(map(len, points)) > graph.num_vertices:
        for point in points:
            point.marginalized[:] = True
    return graph


def rows_of(graphs, kind):
    """Edges of one type of some graphs, in an order of their own."""
    sets = [edge_set for graph in graphs for edge_set in graph.edge_sets if edge_set.type.tag == kind]
    rows = np.concatenate([np.concatenate([set_.vertices, set_.measurement], axis=1) for set_ in sets])
    return rows[np.lexsort(rows.T)]


@pytest.mark.parametrize("num_ranks", [1, 2, 4])
def test_parts_are_the_whole(path, num_ranks):
    """Every edge on one rank, every point on one, other vertices where their edges are."""
    whole = marked(path)
    graphs = [
        run_as_thread.share.graph
        for run_as_thread in run_as_threads(num_ranks, lambda comm: reading.read(path, comm))
    ]
    for edge_set in whole.edge_sets:
        np.testing.assert_array_equal(rows_of(graphs, edge_set.type.tag), rows_of([whole], edge_set.type.tag))
    gone = [vertex_set.ids[vertex_set.marginalized] for graph in graphs for vertex_set in graph.vertex_sets]
    expected = [vertex_set.ids[vertex_set.marginalized] for vertex_set in whole.vertex_sets]
    np.testing.assert_array_equal(np.sort(np.concatenate(gone)), np.sort(np.concatenate(expected)))
    for graph in graphs:
        for part in graph.vertex_sets:
            numbers, rows = whole.find_vertices(part.ids)
            np.testing.assert_array_equal(part.estimate, whole.vertex_sets[numbers[0]].estimate[rows])
    edges = [each_graph.num_edges for each_graph in graphs]
    assert max(edges) * num_ranks < 1.3 * sum(edges)


def test_it_is_optimized_like_the_whole(path):
    """Chi2 per iteration, the gauge, and what is written."""
    whole = marked(path)
    options = {"method": "lm", "max_iterations": 4}
    expected = graphopt.optimize(whole, **options)

    def work(comm):
        parted = reading.read(path, comm)
        summary = optimize_rank(parted, comm, Wanted(**options, solver=SolverOptions()))
        writing.write(parted, out, comm)
        return summary

    out = path.parent / f"out{path.suffix}"
    summary = run_as_threads(3, work)[0]
    found = [iteration.chi2 for iteration in summary.iterations]
    np.testing.assert_allclose(found, [iteration.chi2 for iteration in expected.iterations], rtol=1e-9)
    assert summary.fixed_by_gauge == expected.fixed_by_gauge
    assert graphopt.read(out).chi2() == pytest.approx(summary.final_chi2, rel=1e-6)


def test_what_is_no_vertex_stays(tmp_path):
    """Comments, unknown lines and vertices without edges are in the written file as they were."""
    path, out = tmp_path / "a.g2o", tmp_path / "b.g2o"
    graphopt.write(sphere(), path)
    text = "# by hand\n" + path.read_text() + "VERTEX_SE3:QUAT 9999 1 2 3 0 0 0 1\nROBOT tea 1\n"
    path.write_text(text)

    def work(comm):
        parted = reading.read(path, comm)
        optimize_rank(parted, comm, Wanted("lm", 2))
        writing.write(parted, out, comm)

    run_as_threads(3, work)
    given, found = text.splitlines(), out.read_text().splitlines()
    assert len(given) == len(found)
    changed = [one.split()[:2] for one, two in zip(given, found, strict=True) if one != two]
    assert changed and {tag for tag, _ in changed} == {"VERTEX_SE3:QUAT"}
    assert "9999" not in {identifier for _, identifier in changed}


def test_what_cannot_be_read_in_parts(tmp_path):
    """A sentence, on all ranks."""
    path = tmp_path / "a.g2o"
    for text, words in (
        ("VERTEX_SE2 0 0 0 0\nEDGE_SE2 0 7 1 0 0 1 0 0 1 0 1\n", "vertex 7 does not exist"),
        ("VERTEX_SE2 0 0 0 0\nVERTEX_SE2 0 0 0 0\nEDGE_SE2 0 0 1 0 0 1 0 0 1 0 1\n", "used twice"),
        ("VERTEX_SE2 0 0 0 0\n", "no line is an edge"),
        ("VERTEX_SE2 0 0 zero 0\n" * 3, r"a\.g2o:1"),
        ("# kernel: EDGE_SE2 Huber 1\nVERTEX_SE2 0 0 0 0\n", "let rank 0 read"),
    ):
        path.write_text(text)
        with pytest.raises((FormatError, OptionError, RankError), match=words):
            run_as_threads(2, lambda comm: reading.read(path, comm))
    packed = tmp_path / "a.bal.xz"
    packed.write_bytes(lzma.compress(b"1 1 1"))
    with pytest.raises(OptionError, match="unpack it first"):
        run_as_threads(2, lambda comm: reading.read(packed, comm))
