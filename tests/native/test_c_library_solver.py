"""The C library's iterations are those of the Python package's CPU solver, on real graphs."""

from __future__ import annotations

import lzma
from ctypes import byref, c_int64
from pathlib import Path

import numpy as np
import pytest
from c_library import Callback, Handle

import graphopt
from graphopt.evaluate.datasets.bundle_adjustment import ba
from graphopt.io.export import export_graph
from graphopt.optimizer import DoglegOptions, LevenbergMarquardtOptions

ITERATIONS = 8
OFF, EXPLICIT, IMPLICIT = 1, 2, 3
GRAPHS = [
    "posegraph/intel.g2o",
    "posegraph/MIT.g2o",
    "posegraph/ring.g2o",
    "posegraph/smallGrid3D.g2o",
    "posegraph/parking-garage.g2o.xz",
    "posegraph/M3500.g2o.xz",
    "landmark/world-2000-full.g2o.xz",
    "landmark/victoriaPark-full.g2o.xz",
    "bal/problem-49-7776-pre.txt.xz",
    "bal/dubrovnik-3-7-pre.txt",
]
WELL_CONDITIONED = GRAPHS[0], GRAPHS[2], GRAPHS[3], GRAPHS[6]


def unpacked(path: Path, folder: Path) -> Path:
    """The file, which the library reads as it is."""
    if path.suffix != ".xz":
        return path
    target = folder / path.stem
    target.write_bytes(lzma.decompress(path.read_bytes()))
    return target


def same_steps(chi2: list[float], expected: graphopt.Summary, rtol: float) -> None:
    """At the minimum rounding decides which step is the last; before it all are the same."""
    count = min(len(chi2), len(expected.iterations))
    assert count > 3
    reached = [iteration.chi2 for iteration in expected.iterations[:count]]
    np.testing.assert_allclose(chi2[:count], reached, rtol=rtol, atol=1e-12)


def compare(library, path: Path, method: str, rtol: float) -> None:
    """chi2 after each iteration, the vertex that is held, the estimates."""
    graph, handle = graphopt.read(path), Handle(library)
    handle.done("graph_read", path)
    expected = graphopt.optimize(graph, method, ITERATIONS, device="cpu")
    summary, chi2 = handle.optimize(method, max_num_iterations=ITERATIONS)
    assert summary.initial_chi2 == pytest.approx(expected.initial_chi2, rel=1e-12)
    same_steps(chi2, expected, rtol)
    held = expected.fixed_by_gauge
    assert (summary.num_held_vertices, summary.held_vertex) == (len(held), held[0] if held else -1)


@pytest.mark.data
@pytest.mark.parametrize("name", GRAPHS)
def test_levenberg_marquardt_iteration_by_iteration(library, shared_data, tmp_path, name):
    """To 1e-9, with and without elimination."""
    compare(library, unpacked(shared_data / name, tmp_path), "lm", 1e-9)


@pytest.mark.data
@pytest.mark.parametrize("method", ["gn", "dogleg"])
@pytest.mark.parametrize("name", WELL_CONDITIONED)
def test_undamped_steps_iteration_by_iteration(library, shared_data, tmp_path, name, method):
    """To 1e-9 where H's condition does not make rounding larger than that."""
    compare(library, unpacked(shared_data / name, tmp_path), method, 1e-9)


@pytest.mark.data
@pytest.mark.parametrize(("name", "tolerance"), [("MIT", 0.2), ("ring", 1e-2), ("smallGrid3D", 1e-4)])
@pytest.mark.parametrize(
    ("method", "options"), [("lm", LevenbergMarquardtOptions), ("dogleg", DoglegOptions)]
)
def test_ends_by_tolerances_are_the_same(library, shared_data, name, tolerance, method, options):
    """Doubted as in Python: a method goes on where damping made the decrease small."""
    path = shared_data / f"posegraph/{name}.g2o"
    graph, handle = graphopt.read(path), Handle(library)
    handle.done("graph_read", path)
    rules = options(max_iterations=60, function_tolerance=tolerance)
    expected = graphopt.optimize(graph, method, options=rules, device="cpu")
    summary, chi2 = handle.optimize(method, max_num_iterations=60, function_tolerance=tolerance)
    assert len(chi2) == len(expected.iterations)
    assert summary.termination == 0 and expected.termination.name == "CONVERGENCE"
    np.testing.assert_allclose(chi2, [iteration.chi2 for iteration in expected.iterations], rtol=1e-5)


@pytest.mark.parametrize(("name", "schur"), [("off", OFF), ("explicit", EXPLICIT), ("implicit", IMPLICIT)])
def test_elimination_changes_the_way_not_the_steps(library, tmp_path, name, schur):
    """All ways to solve one system, with robust kernels."""
    graph = ba(cameras=6, points=80, camera="expmap", seed=2)
    for edges in graph.edge_sets:
        edges.kernel[::2] = 1
        edges.kernel_width[:] = 1.5
    types, data = export_graph(graph, tmp_path)
    handle = Handle(library, types)
    handle.done("graph_read", data)
    expected = graphopt.optimize(graph, "lm", ITERATIONS, device="cpu", schur=name)
    summary, chi2 = handle.optimize(max_num_iterations=ITERATIONS, schur=schur)
    assert summary.schur == schur
    same_steps(chi2, expected, 1e-6 if schur == IMPLICIT else 1e-9)


def test_covariances_are_those_of_python(library, tmp_path):
    """Blocks of inv(H); a graph that nothing holds has none."""
    graph = ba(cameras=4, points=40, camera="expmap", seed=3)
    graph.vertex_set("VERTEX_SE3:EXPMAP").fixed[:2] = True
    types, data = export_graph(graph, tmp_path)
    handle = Handle(library, types)
    handle.done("graph_read", data)
    wanted = [
        int(graph.vertex_set("VERTEX_SE3:EXPMAP").ids[3]),
        int(graph.vertex_set("VERTEX_TRACKXYZ").ids[5]),
    ]
    expected = graphopt.compute_marginals(graph, wanted)
    found = np.zeros(36 + 9)
    handle.done("covariances", 0, np.array(wanted), c_int64(2), found, c_int64(45))
    for block, rows in zip((found[:36].reshape(6, 6), found[36:].reshape(3, 3)), wanted, strict=True):
        np.testing.assert_allclose(block, expected[rows, rows], rtol=1e-6)
    assert handle.call("covariances", 0, np.array(wanted), c_int64(2), found, c_int64(44)) == 1
    assert "size is 44, these vertices need 45" in handle.error()
    ids = np.array(graph.vertex_set("VERTEX_SE3:EXPMAP").ids)
    handle.done("set_fixed", ids, c_int64(len(ids)), 0)
    assert handle.call("covariances", 0, np.array(wanted), c_int64(2), found, c_int64(45)) == 8
    assert "can move without changing an error" in handle.error()


def test_levels_and_callbacks(library):
    """Edges of another level take no part; a callback ends the run."""
    handle = Handle(library)
    ids = np.arange(3, dtype=np.int64)
    handle.done("add_vertices", "VERTEX_SE2", ids, None, c_int64(3))
    for level, x in ((0, 1.0), (4, 2.0)):
        ends, step = np.array([[0, 1], [1, 2]]), np.tile([x, 0.0, 0.1], (2, 1))
        handle.done("add_edges", "EDGE_SE2", ends, None, step, None, None, 0.0, level, c_int64(2))
    summary, _ = handle.optimize(max_num_iterations=20, level=4)
    assert summary.num_held_vertices == 1
    assert handle.chi2(4) < 1e-9 < handle.chi2(0)
    told = []
    stopping = Callback(lambda done, data: told.append(done[0].number) or int(len(told) == 2))
    summary, _ = handle.optimize(max_num_iterations=20, callback=stopping)
    assert told == [0, 1] and summary.termination == 6 and summary.num_iterations == 2
    summary, _ = handle.optimize(max_num_iterations=20, time_limit=1e-9)
    assert summary.termination == 5 and summary.num_iterations == 0


def test_marginalized_neighbours_are_not_both_eliminated(library):
    """Of a chain whose vertices are all marginalized an independent set is eliminated, as in Python."""
    count = 30
    handle, graph = Handle(library), graphopt.Graph()
    ids = np.arange(count, dtype=np.int64)
    ends = np.stack([ids[:-1], ids[1:]], axis=1)
    steps = np.tile([1.0, 0.1, 0.2], (count - 1, 1))
    handle.done("add_vertices", "VERTEX_SE2", ids, None, c_int64(count))
    handle.done("add_edges", "EDGE_SE2", ends, None, steps, None, None, 0.0, 0, c_int64(count - 1))
    handle.done("set_marginalized", ids, c_int64(count), 1)
    graph.add_vertices("VERTEX_SE2", ids, marginalized=True)
    graph.add_edges("EDGE_SE2", ends, steps)
    expected = graphopt.optimize(graph, "lm", ITERATIONS, device="cpu", schur="explicit")
    summary, chi2 = handle.optimize(max_num_iterations=ITERATIONS, schur=EXPLICIT)
    assert summary.schur == EXPLICIT
    same_steps(chi2, expected, 1e-9)
    status = handle.call("tangent_dim", "VERTEX_SE2", byref(dim := c_int64(0)))
    assert status == 0 and dim.value == 3


def test_each_part_is_held_where_python_holds_it(library, tmp_path):
    """Five parts of poses and points with ids in any order; one has a fixed vertex."""
    ids = np.random.default_rng(4).permutation(60)
    graph = graphopt.Graph()
    graph.add_vertices("VERTEX_SE2", ids[:40], np.zeros((40, 3)))
    graph.add_vertices("VERTEX_XY", ids[40:], np.zeros((20, 2)))
    graph.add_edges("EDGE_SE2", ids[np.arange(39)[:, None] + [0, 1]][np.arange(39) % 8 != 7], [1.0, 0.1, 0.2])
    graph.add_edges("EDGE_SE2_XY", np.stack([ids[:40:2], ids[40:]], axis=1), [1.0, 0.5])
    graph.vertex(int(ids[19])).fixed = True
    path = tmp_path / "parts.g2o"
    graphopt.write(graph, path)
    handle = Handle(library)
    handle.done("graph_read", path)
    held = graphopt.optimize(graph, "gn", 1, device="cpu").fixed_by_gauge
    summary, _ = handle.optimize("gn", max_num_iterations=1)
    assert len(held) == 4
    assert (summary.num_held_vertices, summary.held_vertex) == (4, held[0])
