"""A graph archive that stays in its file is the graph that one process reads, for one and several ranks."""

import shutil
import zipfile

import numpy as np
import pytest
from archives import damage
from graph_columns import columns_of
from rank_programs import EXACTLY, request_all, sphere

import graphopt
from graphopt.distributed.call import optimize_rank
from graphopt.distributed.communicator import run_as_threads
from graphopt.errors import FormatError, OptionError
from graphopt.io.graph_npz import map_graph_npz, map_with_report
from graphopt.linear.options import SolverOptions
from graphopt.problem.structure import marginalize_points
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
    reconstruction = graphopt.colmap.read_colmap(source)
    reconstruction.images.xy += np.random.default_rng(1).normal(0.0, 0.5, reconstruction.images.xy.shape)
    graphopt.colmap.write_colmap(reconstruction, tmp_path / "model")
    graphopt.write(graphopt.read(tmp_path / "model"), tmp_path / "model.npz")
    return tmp_path / "model.npz"


def marked(graph):
    """With landmarks as the command line marks them."""
    marginalize_points(graph)
    return graph


def test_it_is_the_graph(path):
    """Every array, to the bit; measurements are pages of the file, and what is written stays in memory."""
    whole, mapped = graphopt.read(path), map_graph_npz(str(path))
    for ours, theirs in zip(
        (*mapped.vertex_sets, *mapped.edge_sets), (*whole.vertex_sets, *whole.edge_sets), strict=True
    ):
        assert ours.type == theirs.type
        for name, column in columns_of(theirs).items():
            np.testing.assert_array_equal(columns_of(ours)[name], column)
    base = mapped.edge_sets[0].measurement
    while not isinstance(base, np.memmap):
        base = base.base
    before = path.read_bytes()
    mapped.vertex_sets[0].estimate[...] += 1.0
    assert path.read_bytes() == before


def optimized_in_parts(path, out, num_ranks=3):
    """Summary of ranks that optimize what rank 0 has mapped and writes."""

    def work(comm):
        graph = marked(map_graph_npz(str(path))) if comm.rank == 0 else None
        options = {"max_iterations": 4, "solver": SolverOptions(**EXACTLY)}
        summary = optimize_rank(graph, comm, request_all("lm", **options))
        if graph is not None:
            graphopt.write(graph, out)
        return summary

    return run_as_threads(num_ranks, work)[0]


@pytest.mark.parametrize("num_ranks", [1, 3])
def test_it_is_optimized_like_the_whole(path, tmp_path, num_ranks):
    """Chi2 per iteration, the gauge, and what is written, over the file itself as well."""
    whole, out = marked(graphopt.read(path)), tmp_path / "out.npz"
    expected = graphopt.optimize(whole, "lm", 4, linear_solver="cholesky")
    summary = optimized_in_parts(path, out, num_ranks)
    found = [iteration.chi2 for iteration in summary.iterations]
    np.testing.assert_allclose(found, [iteration.chi2 for iteration in expected.iterations], rtol=1e-8)
    assert summary.fixed_by_gauge == expected.fixed_by_gauge
    given, written = graphopt.read(path), graphopt.read(out)
    assert written.chi2() == pytest.approx(whole.chi2(), rel=1e-8)
    for before, after in zip(given.edge_sets, written.edge_sets, strict=True):
        for name in ("vertices", "measurement", "information", "kernel", "kernel_width", "level"):
            np.testing.assert_array_equal(getattr(after, name), getattr(before, name))
    optimized_in_parts(path, path, num_ranks)
    assert graphopt.read(path).chi2() == written.chi2()
    assert sorted(each_path.name for each_path in tmp_path.iterdir()) == ["graph.npz", "out.npz"]


@pytest.mark.data
def test_a_real_model(model, tmp_path):
    """Observations of a COLMAP model."""
    expected = graphopt.optimize(marked(graphopt.read(model)), "lm", 4, linear_solver="cholesky")
    summary = optimized_in_parts(model, tmp_path / "out.npz")
    found = [iteration.chi2 for iteration in summary.iterations]
    np.testing.assert_allclose(found, [iteration.chi2 for iteration in expected.iterations], rtol=1e-7)


DAMAGED = [
    ("e0_vertices", lambda array: array[:-3], r"have shape \(\d+, 7\), expected \(\d+, 7\)"),
    ("e0_vertices", lambda array: array + 7000, r"7\d+"),
    ("e0_vertices", lambda array: array[:, :1], r"EDGE_SE3:QUAT vertices have shape"),
    ("v0_ids", lambda array: array // 2, r"\d+ is given twice"),
    ("v0_estimate", lambda array: array * np.nan, "not finite|NaN|nan"),
    ("v0_estimate", lambda array: array.astype(object), "holds Python objects"),
    ("e0_information", None, "has no array 'e0_information'"),
    ("e0_tag", lambda array: np.array("EDGE_OF_NOBODY"), "EDGE_OF_NOBODY"),
    ("graphopt", lambda array: np.array(99), "layout 99, expected 1 to 2: of a newer graphopt"),
]


@pytest.mark.parametrize(("name", "change", "words"), DAMAGED)
def test_damaged_archives(tmp_path, name, change, words):
    """What is wrong is told with its place."""
    target = tmp_path / "a.npz"
    graphopt.write(sphere(), target)
    damage(target, name, change)
    with pytest.raises(FormatError, match=f"a.npz: .*{words}"):
        map_graph_npz(str(target))


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
        with pytest.raises((FormatError, OptionError, OSError), match=words):
            map_with_report(str(target))


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
    assert graphopt.read(target).chi2() == map_graph_npz(str(target)).chi2() == graph.chi2()
    summary = optimized_in_parts(target, tmp_path / "out.npz")
    assert summary.is_usable
