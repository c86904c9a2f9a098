"""The C library builds without Python, solves what Python solves, takes exported types, names errors."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_int64

import numpy as np
import pytest
from c_library import EXAMPLES, ROOT, Handle, run

import graphopt
from graphopt import io
from graphopt.cli.main import main
from graphopt.errors import GraphError
from graphopt.evaluate.datasets.bundle_adjustment import ba
from graphopt.io.export import export_graph
from graphopt.io.export_types import builtin_types_text


def test_the_carried_types_are_those_of_the_sources():
    """Anew: python -c "from graphopt.io import export_types as e; print(e.builtin_types_text(), end='')"."""
    assert (ROOT / "native/embed/builtin_types.txt").read_text() == builtin_types_text()


def test_a_g2o_file_ends_where_python_ends(installed, tmp_path):
    """Poses in the plane and in space with noise: the minimum that graphopt's own LM finds."""
    for kind, size in (
        ("manhattan", ("--nodes", "200")),
        ("sphere", ("--nodes-per-level", "10", "--laps", "8")),
    ):
        path, out = tmp_path / f"{kind}.g2o", tmp_path / f"{kind}.txt"
        assert main(["generate", kind, *size, "-o", str(path)]) == 0
        said = run(installed / "examples" / "solve_file", path, out)
        graph = graphopt.read(path)
        initial = graph.chi2()
        summary = graphopt.optimize(graph, "lm", max_iterations=100)
        numbers = said.split()
        assert float(numbers[1]) == pytest.approx(initial, rel=1e-9)
        assert float(numbers[3]) == pytest.approx(summary.final_chi2, rel=1e-5)
        assert out.read_text().startswith("graphopt graph 2\nvertices ")


def test_a_residual_from_python_runs_in_cpp(installed, tmp_path):
    """circle.py -> graphopt export -> fit_circle, with a robust kernel against wrong points."""
    assert main(["export", str(EXAMPLES / "circle.py"), "-o", str(tmp_path)]) == 0
    said = run(installed / "examples" / "fit_circle", tmp_path / "types.txt").split()
    assert [float(x.strip(",")) for x in (said[1], said[2], said[4])] == pytest.approx([3, -1, 2], abs=1e-3)
    types, data, out = (tmp_path / name for name in ("types.txt", "graph.txt", "out.txt"))
    said = run(installed / "examples" / "solve_file", data, out, types)
    assert float(said.split()[3]) < 1e-12


def test_a_bundle_adjustment_in_cpp(installed, tmp_path):
    """A BAL file in, a .g2o file out, which Python reads."""
    graph = ba(cameras=5, points=60, camera="bal", seed=4)
    path, out = tmp_path / "in.txt", tmp_path / "out.g2o"
    io.write(graph, path, format="bal")
    said = run(installed / "examples" / "solve_file", path, out).split()
    assert float(said[3]) < 0.1 * float(said[1])
    assert graphopt.read(out).chi2() == pytest.approx(float(said[3]), rel=1e-9)


def test_exported_graphs_have_the_same_chi2(library, tmp_path):
    """Bundle adjustment with robust kernels, parameters and fixed cameras, written and read again."""
    graph = ba(cameras=4, points=30, camera="expmap", seed=1)
    for edges in graph.edge_sets:
        edges.kernel[::2] = 3
        edges.kernel_width[:] = 1.5
    types, data = export_graph(graph, tmp_path)
    handle = Handle(library, types)
    assert handle.call("graph_read", str(data)) == 0, handle.error()
    assert handle.chi2() == pytest.approx(graph.chi2(), rel=1e-9)
    again = tmp_path / "again.txt"
    assert handle.call("graph_write", str(again)) == 0
    second = Handle(library, types)
    assert second.call("graph_read", str(again)) == 0, second.error()
    assert second.chi2() == handle.chi2()
    assert handle.call("optimize", None, None) == 0, handle.error()
    graphopt.optimize(graph, "lm", max_iterations=100)
    assert handle.chi2() == pytest.approx(graph.chi2(), rel=1e-4)


def test_graphs_are_made_in_memory(library):
    """Vertices, edges with information, fixed and free, estimates set and read."""
    handle = Handle(library)
    ids = np.arange(3, dtype=np.int64)
    assert handle.call("add_vertices", "VERTEX_SE2", ids, None, c_int64(3)) == 0
    assert handle.call("set_fixed", ids, c_int64(1), 1) == 0
    ends = np.array([[0, 1], [1, 2]], np.int64)
    steps = np.array([[1.0, 0.0, 0.5], [1.0, 0.0, 0.5]])
    information = np.tile(np.diag([1.0, 2.0, 3.0]), (2, 1, 1))
    none = ctypes.c_double(0.0)
    handle.done("add_edges", "EDGE_SE2", ends, None, steps, information, None, none, 0, c_int64(2))
    same = graphopt.Graph()
    same.add_vertices("VERTEX_SE2", ids)
    same.add_edges("EDGE_SE2", ends, steps, information)
    assert handle.chi2() == pytest.approx(same.chi2(), rel=1e-12)
    assert handle.call("optimize", None, None) == 0
    found = np.zeros((3, 3))
    assert handle.call("get_estimates", "VERTEX_SE2", None, found, c_int64(3)) == 0
    np.testing.assert_allclose(found[1], [1, 0, 0.5], atol=1e-6)
    np.testing.assert_allclose(found[2], [1 + np.cos(0.5), np.sin(0.5), 1.0], atol=1e-6)
    assert handle.chi2() < 1e-12
    assert handle.call("set_estimate", c_int64(1), np.zeros(3), 3) == 0
    assert handle.chi2() > 1
    handle.done("set_estimates", "VERTEX_SE2", found, c_int64(3))
    assert handle.chi2() < 1e-12
    assert handle.call("set_estimates", "VERTEX_SE2", found, c_int64(2)) == 1
    count = c_int64()
    assert handle.call("count_edges", "EDGE_SE2", byref(count)) == 0 and count.value == 2
    assert library.graphopt_version().decode() == graphopt.__version__


def test_symmetry_is_judged_relative_to_the_matrix(library):
    """As Python judges: rotated isotropic information has rounding errors off its diagonal."""
    random = np.random.default_rng(3)
    axes = np.linalg.qr(random.normal(size=(1000, 3, 3)))[0]
    information = axes @ (100.0 * np.eye(3)) @ axes.transpose(0, 2, 1)
    handle = Handle(library)
    handle.done("add_vertices", "VERTEX_SE2", np.arange(2), None, c_int64(2))
    arguments = np.tile([0, 1], (1000, 1)), None, np.zeros((1000, 3))
    handle.done("add_edges", "EDGE_SE2", *arguments, information, None, 1.0, 0, c_int64(1000))
    same = graphopt.Graph()
    same.add_vertices("VERTEX_SE2", [0, 1], np.zeros((2, 3)))
    same.add_edges("EDGE_SE2", arguments[0], arguments[2], information)
    matrix = np.diag([1.0, 1e-3, 1e-3])
    matrix[1, 2] = 0.9e-9
    handle.done(*edge(1, matrix))
    same.add_edges("EDGE_SE2", [[0, 1]], np.zeros((1, 3)), matrix)
    matrix[1, 2] = 1.1e-9
    assert handle.call(*edge(1, matrix)) == 1
    assert "edge 0 is not symmetric (largest difference 1.1e-09)" in handle.error()
    with pytest.raises(GraphError, match="not symmetric"):
        same.add_edges("EDGE_SE2", [[0, 1]], np.zeros((1, 3)), matrix)


def vertex(tag: str, name: int, estimate: np.ndarray | None = None) -> tuple:
    """Arguments for one vertex."""
    return "add_vertices", tag, np.full(1, name, np.int64), estimate, c_int64(1)


def edge(
    other: int, information: np.ndarray | None = None, kernel: str | None = None, width: float = 1.0
) -> tuple:
    """Arguments for one edge from vertex 0."""
    return (
        "add_edges",
        "EDGE_SE2",
        np.array([0, other]),
        None,
        np.zeros(3),
        information,
        kernel,
        width,
        0,
        c_int64(1),
    )


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (vertex("VERTEX_FOO", 1), 2, "no vertex type 'VERTEX_FOO'. Known: VERTEX_SE2"),
        (vertex("VERTEX_SE2", 0), 3, "VERTEX_SE2 0 is there already"),
        (vertex("VERTEX_SE2", 1, np.full(3, np.nan)), 1, "number 0 is not finite"),
        (("add_vertices", "VERTEX_SE2", None, None, c_int64(1)), 1, "an array is NULL"),
        (edge(9), 3, "There is no vertex 9"),
        (edge(5), 3, "vertex 1 is VERTEX_XY 5, expected a VERTEX_SE2"),
        (edge(0), 1, "has vertex 0 twice"),
        (edge(1, np.arange(9.0)), 1, "not symmetric"),
        (edge(1, None, "Huberr"), 2, "no robust kernel 'Huberr'. Known: None, Huber"),
        (edge(1, None, "Huber", -1.0), 1, "expected > 0"),
        (("graph_read", "/no/such/file.g2o"), 5, "/no/such/file.g2o: the file cannot be read"),
        (("graph_read", "/usr"), 5, "/usr: the file cannot be read (Is a directory)"),
        (("get_estimates", "VERTEX_SE2", None, np.zeros(3), c_int64(7)), 1, "count is 7, the graph has 1"),
        (("optimize", None, None), 1, "nothing to optimize"),
    ],
)  # fmt: skip
def test_errors_are_a_status_and_a_sentence(library, arguments, status, message):
    """And nothing has changed after one."""
    handle = Handle(library)
    assert handle.call("add_vertices", "VERTEX_SE2", np.zeros(1, np.int64), None, c_int64(1)) == 0
    assert handle.call("add_vertices", "VERTEX_XY", np.full(1, 5, np.int64), None, c_int64(1)) == 0
    assert handle.call(*arguments) == status, handle.error()
    assert message in handle.error()
    count = c_int64()
    assert handle.call("count_vertices", "VERTEX_SE2", byref(count)) == 0 and count.value == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("VERTEX_SE2 0 1 2\n", ":1: "),
        ("VERTEX_SE2 0 1 2 3\nEDGE_FOO 0 1\n", ":2: 'EDGE_FOO' is no tag that this library knows"),
        ("EDGE_SE2 0 1 1 0 0\n", ":1: the file has edges and no vertices. Python's graphopt.read and"),
        ("VERTEX_SE2 0 0 0 0\nEDGE_SE2 0 1 1 0 0 1 0\n", ":2: EDGE_SE2: got 5 numbers, expected 9 or 3"),
        ("graphopt graph 2\nvertices VERTEX_SE2 2\n0 0 0 1 2 3\n", "expected an id, got the end of the file"),
        ("graphopt graph 2\nvertices VERTEX_SE2 1\n0 0 0 1 x 3\n", ":3: expected a number, got 'x'"),
        ("graphopt graph 1\n", "expected '2', got '1'"),
    ],
)
def test_bad_files_are_named_with_their_line(library, tmp_path, text, message):
    """path:line, and the graph is as it was."""
    path = tmp_path / "bad.g2o"
    path.write_text(text)
    handle = Handle(library)
    assert handle.call("graph_read", str(path)) == 4, handle.error()
    assert handle.error().startswith(str(path)) and message in handle.error()
    count = c_int64()
    assert handle.call("count_vertices", "VERTEX_SE2", byref(count)) == 0 and count.value == 0


def test_bad_types_are_refused(library, tmp_path):
    """Cut anywhere, a file of types is no file of types; nothing crashes."""
    text = (ROOT / "native/embed/builtin_types.txt").read_text()
    path = tmp_path / "types.txt"
    words = text.split(" ")
    for end in (0, 1, 2, 5, 50, 500, len(words) // 2, len(words) - 2):
        path.write_text(" ".join(words[:end]))
        handle = Handle(library, path)
        assert handle.status == 4, end
        assert handle.error().startswith(str(path))


def test_what_cannot_be_exported_is_said(tmp_path):
    """Numbers that are not finite; a program without a graph."""
    graph = graphopt.Graph()
    graph.add_vertices("VERTEX_SE2", [0])
    graph.vertex_sets[0].estimate[0, 0] = np.nan
    with pytest.raises(GraphError, match="not finite"):
        export_graph(graph, tmp_path)
    program = tmp_path / "no_graph.py"
    program.write_text("x = 1\n")
    assert main(["export", str(program), "-o", str(tmp_path)]) == 2
