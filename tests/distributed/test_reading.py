"""Graph archives read in parts by several ranks are the graphs that one process reads."""

import shutil
import zipfile

import numpy as np
import pytest
from archives import damage
from rank_programs import request_all, sphere

import graphopt
from graphopt.distributed import reading, writing
from graphopt.distributed.communicator import RankError, run_as_threads
from graphopt.distributed.optimize import optimize_rank
from graphopt.errors import FormatError, OptionError
from graphopt.linear.options import SolverOptions
from graphopt.types.robust_kernels import robust_kernel


def landmarks():
    """Poses on a plane that see landmarks, with the first pose fixed, kernels, and edges of another level."""
    graph = graphopt.evaluate.datasets.pose_graphs.manhattan(40, seed=3)
    poses = graph.vertex_sets[0]
    rng = np.random.default_rng(0)
    ids = 1000 + np.arange(120)
    graph.add_vertices("VERTEX_XY", ids, rng.uniform(-5.0, 5.0, (120, 2)))
    pairs = [(pose, id_) for id_ in ids.tolist() for pose in rng.choice(poses.ids, 3, replace=False).tolist()]
    rows = graph.add_edges("EDGE_SE2_XY", pairs, rng.normal(0.0, 1.0, (len(pairs), 2)))
    sightings = graph.edge_set("EDGE_SE2_XY")
    sightings.kernel[rows][::3] = robust_kernel("Huber").number
    sightings.kernel_width[:] = rng.uniform(0.5, 2.0, len(sightings))
    sightings.level[rows][::7] = 1
    graph.set_fixed([int(poses.ids[0])], True)
    return graph


def adjustment():
    """Cameras and points; points are marked as marginalized."""
    return graphopt.evaluate.datasets.bundle_adjustment.ba(12, 150, seed=2)


PROBLEMS = {"sphere": sphere, "landmarks": landmarks, "adjustment": adjustment}


@pytest.fixture(params=PROBLEMS)
def path(request, tmp_path):
    """An archive."""
    target = tmp_path / "graph.npz"
    graphopt.write(PROBLEMS[request.param](), target)
    return target


@pytest.fixture
def model(tmp_path, shared_data):
    """A real COLMAP model with noise (chi2 of the model itself is rounding only), converted to an archive."""
    source = next(each_path.parent for each_path in sorted((shared_data / "colmap").rglob("cameras.*")))
    reconstruction = graphopt.io.read_colmap(source)
    reconstruction.images.xy += np.random.default_rng(1).normal(0.0, 0.5, reconstruction.images.xy.shape)
    graphopt.io.write_colmap(reconstruction, tmp_path / "model")
    graphopt.write(graphopt.read(tmp_path / "model"), tmp_path / "model.npz")
    return tmp_path / "model.npz"


def marked(path):
    """What one process optimizes of it."""
    graph = graphopt.read(path)
    points = [vertex_set for vertex_set in graph.vertex_sets if vertex_set.type.role == "point"]
    if 2 * sum(map(len, points)) > graph.num_vertices:
        for point in points:
            point.marginalized[:] = True
    return graph


def rows_of(graphs, kind):
    """Edges of level 0 of one type, with kernels, in an order of their own."""
    columns = ("vertices", "measurement", "information", "kernel", "kernel_width")
    sets = [edge_set for graph in graphs for edge_set in graph.edge_sets if edge_set.type.tag == kind]
    rows = np.concatenate(
        [
            np.column_stack([getattr(set_, name).reshape(len(set_), -1) for name in columns])[set_.level == 0]
            for set_ in sets
        ]
    )
    return rows[np.lexsort(rows.T)]


@pytest.mark.parametrize("num_ranks", [1, 2, 4])
def test_parts_are_the_whole(path, num_ranks):
    """Every edge on one rank, every point on one, other vertices where their edges are; balanced."""
    whole = marked(path)
    parts = run_as_threads(num_ranks, lambda comm: reading.read(path, comm))
    graphs = [part.share.graph for part in parts]
    for edge_set in whole.edge_sets:
        np.testing.assert_array_equal(rows_of(graphs, edge_set.type.tag), rows_of([whole], edge_set.type.tag))
    eliminated = [set_.ids[set_.marginalized] for graph in graphs for set_ in graph.vertex_sets]
    expected = [set_.ids[set_.marginalized] for set_ in whole.vertex_sets]
    np.testing.assert_array_equal(np.sort(np.concatenate(eliminated)), np.sort(np.concatenate(expected)))
    for graph in graphs:
        for part in graph.vertex_sets:
            numbers, rows = whole.find_vertices(part.ids)
            np.testing.assert_array_equal(part.estimate, whole.vertex_sets[numbers[0]].estimate[rows])
    edges = [graph.num_edges for graph in graphs]
    assert {part.num_edges for part in parts} == {sum(edges)}
    assert max(edges) * num_ranks < 1.3 * sum(edges)


def optimized_in_parts(path, out, num_ranks=3, method="lm"):
    """Summary of ranks that read, optimize and write."""

    def work(comm):
        parted = reading.read(path, comm)
        summary = optimize_rank(parted, comm, request_all(method, 4, solver=SolverOptions()))
        writing.write(parted, out, comm)
        return summary

    return run_as_threads(num_ranks, work)[0]


@pytest.mark.parametrize("num_ranks", [1, 3])
def test_it_is_optimized_like_the_whole(path, tmp_path, num_ranks):
    """Chi2 per iteration, the gauge, and what is written."""
    whole, out = marked(path), tmp_path / "out.npz"
    expected = graphopt.optimize(whole, "lm", 4)
    summary = optimized_in_parts(path, out, num_ranks)
    found = [iteration.chi2 for iteration in summary.iterations]
    np.testing.assert_allclose(found, [iteration.chi2 for iteration in expected.iterations], rtol=1e-9)
    assert summary.fixed_by_gauge == expected.fixed_by_gauge
    given, written = graphopt.read(path), graphopt.read(out)
    assert written.select(0).num_active_edges == given.select(0).num_active_edges
    assert written.chi2() == pytest.approx(whole.chi2(), rel=1e-8)
    for before, after in zip(given.edge_sets, written.edge_sets, strict=True):
        for name in ("vertices", "measurement", "information", "kernel", "kernel_width", "level"):
            np.testing.assert_array_equal(getattr(after, name), getattr(before, name))
    assert sorted(each_path.name for each_path in tmp_path.iterdir()) == ["graph.npz", "out.npz"]


@pytest.mark.data
def test_a_real_model(model, tmp_path):
    """Cameras along the longest axis of their centres."""
    expected = graphopt.optimize(marked(model), "lm", 4)
    summary = optimized_in_parts(model, tmp_path / "out.npz")
    found = [iteration.chi2 for iteration in summary.iterations]
    np.testing.assert_allclose(found, [iteration.chi2 for iteration in expected.iterations], rtol=1e-9)


DAMAGED = [
    ("e0_vertices", lambda array: array[:-3], r"e0_\w+ has \d+ rows, expected"),
    ("e0_vertices", lambda array: array + 7000, r"EDGE_SE3:QUAT \d+: vertex 7\d+ does not exist"),
    ("e0_vertices", lambda array: array[:, :1], r"EDGE_SE3:QUAT vertices have shape"),
    ("v0_ids", lambda array: array // 2, r"vertex id \d+ is used twice. Give one of them another id"),
    ("v0_estimate", lambda array: array * np.nan, "not finite|NaN|nan"),
    ("v0_estimate", lambda array: array.astype(object), "holds Python objects"),
    ("e0_information", None, "has no array 'e0_information'"),
    ("e0_level", lambda array: np.ones(1, np.int32), "has no edges of level 0"),
    ("e0_tag", lambda array: np.array("EDGE_OF_NOBODY"), "EDGE_OF_NOBODY"),
    ("graphopt", lambda array: np.array(99), "layout 99, expected 1 to 2: of a newer graphopt"),
]


@pytest.mark.parametrize("num_ranks", [1, 2, 4])
@pytest.mark.parametrize(("name", "change", "words"), DAMAGED)
def test_damaged_archives(tmp_path, num_ranks, name, change, words):
    """What is wrong is told with its place, on all ranks."""
    target = tmp_path / "a.npz"
    graphopt.write(sphere(), target)
    damage(target, name, change)
    with pytest.raises(graphopt.GraphOptError, match=words):
        run_as_threads(num_ranks, lambda comm: reading.read(target, comm))


def test_what_cannot_be_read_in_parts(tmp_path, path):
    """Packed, cut off, missing, or of another format."""
    packed = tmp_path / "packed.npz"
    with zipfile.ZipFile(path) as given, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as made:
        for member in given.infolist():
            made.writestr(member.filename, given.read(member))
    cut = tmp_path / "cut.npz"
    shutil.copy(path, cut)
    with open(cut, "r+b") as file:
        file.truncate(cut.stat().st_size // 2)
    for target, words in (
        (packed, "is packed, so that its rows cannot be read by themselves"),
        (cut, "damaged or truncated"),
        (tmp_path / "none.npz", "none.npz"),
        (tmp_path / "a.g2o", "Make one with `graphopt convert .*a.g2o graph.npz`"),
    ):
        with pytest.raises((FormatError, OptionError, RankError, OSError), match=words):
            run_as_threads(2, lambda comm, target=target: reading.read(target, comm))


def test_what_needs_the_whole_graph_says_so(path):
    """Instead of doing something else."""

    def work(comm):
        return optimize_rank(reading.read(path, comm), comm, request_all(fix=[0]))

    with pytest.raises(OptionError, match="fix needs the whole graph on rank 0"):
        run_as_threads(2, work)
    with pytest.raises(OptionError, match="written as a graph archive"):
        run_as_threads(2, lambda comm: writing.write(reading.read(path, comm), "out.g2o", comm))


def test_archives_of_the_first_layout(tmp_path):
    """Every column has a row per edge."""
    graph, target = landmarks(), tmp_path / "a.npz"
    graphopt.write(graph, target)
    with np.load(target) as archive:
        arrays = dict(archive)
    for number, edge_set in enumerate(graph.edge_sets):
        for name in ("information", "kernel", "kernel_width", "level"):
            values = arrays[f"e{number}_{name}"]
            arrays[f"e{number}_{name}"] = np.broadcast_to(values, (len(edge_set), *values.shape[1:]))
    np.savez(target, **{**arrays, "graphopt": np.array(1)})
    assert graphopt.read(target).chi2() == graph.chi2()
    summary = optimized_in_parts(target, tmp_path / "out.npz")
    assert summary.is_usable
