"""The .g2o reader and writer: what is kept, what is refused and with which words."""

import numpy as np
import pytest

from graphopt import io
from graphopt.errors import FormatError
from graphopt.graph import Graph

SQUARE = """\
VERTEX_SE2 1 0 0 0
VERTEX_SE2 2 1 0 0.5
EDGE_SE2 1 2 1 0 0.5 10 0 0 20 0 30
"""


@pytest.fixture
def written(tmp_path):
    """Return the lines that a graph becomes."""

    def write(graph, name="out.g2o"):
        io.write(graph, tmp_path / name)
        return (tmp_path / name).read_text().splitlines()

    return write


def test_a_small_graph(read_text):
    """Numbers land where g2o puts them."""
    graph, report = read_text(SQUARE)
    edges = graph.edge_set("EDGE_SE2")
    assert graph.vertex_set("VERTEX_SE2").estimate.tolist() == [[0, 0, 0], [1, 0, 0.5]]
    assert edges.vertices.tolist() == [[1, 2]]
    assert edges.measurement.tolist() == [[1, 0, 0.5]]
    assert np.diag(edges.information[0]).tolist() == [10, 20, 30]
    assert (report.format, report.num_lines, report.warnings) == ("g2o", 3, [])
    assert report.vertices == {"VERTEX_SE2": 2} and report.edges == {"EDGE_SE2": 1}
    assert "2 VERTEX_SE2" in str(report)


def test_file_order_and_unknown_lines_survive(read_text, written):
    """Interleaved tags and lines of unknown tags come back in their places."""
    lines = [
        *("VERTEX_XY 5 0.5 1", "VERTEX_SE2 1 0 0 0", "ROBOTLASER1 0 -1.57  3.14 \t x", "VERTEX_XY 6 2 1"),
        *(
            "VERTEX_SE2 2 1 0 0.5",
            "DATA_USER 7",
            "EDGE_SE2_XY 1 5 1 2 3 0 3",
            "EDGE_SE2 1 2 1 0 0.5 1 0 0 1 0 1",
        ),
        *("EDGE_SE2_XY 2 6 1 2 3 0 3", "LAST one"),
    ]
    graph, report = read_text("# comment\n" + "\n".join(lines) + "\n")
    assert report.unknown_tags == {"ROBOTLASER1": 1, "DATA_USER": 1, "LAST": 1}
    assert written(graph) == lines


def test_edges_before_their_vertices(read_text, written):
    """Such a file is read; written, vertices stand first, because g2o needs them there."""
    graph, _ = read_text("\n".join(reversed(SQUARE.splitlines())))
    assert graph.num_edges == 1
    assert [line.split()[0] for line in written(graph)] == ["VERTEX_SE2", "VERTEX_SE2", "EDGE_SE2"]


def test_data_lines_follow_their_vertex_when_order_changes(read_text, written):
    """A line of robot data stays behind the vertex it belongs to even when edges move to the end."""
    graph, _ = read_text(
        "EDGE_SE2 1 2 1 0 0.5 1 0 0 1 0 1\nVERTEX_SE2 1 0 0 0\nDATA a\nVERTEX_SE2 2 0 0 0\nDATA b\n"
    )
    assert [line.split()[0] for line in written(graph)] == [
        "VERTEX_SE2",
        "DATA",
        "VERTEX_SE2",
        "DATA",
        "EDGE_SE2",
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("VERTEX_SE2 1 0 0 9", "a.g2o:4: VERTEX_SE2: vertex id 1 is used twice, first in line 1"),
        ("VERTEX_XY 1 0 0", "a.g2o:4: VERTEX_XY: vertex id 1 is used twice, first in line 1"),
        ("EDGE_SE2 1 7 0 0 0 1 0 0 1 0 1", "a.g2o:4: EDGE_SE2: vertex 7 does not exist"),
        ("EDGE_SE2 1 1 0 0 0 1 0 0 1 0 1", "a.g2o:4: EDGE_SE2: the edge joins vertex 1 to itself"),
        ("EDGE_SE2_XY 1 2 0 0 1 0 1", "a.g2o:4: EDGE_SE2_XY: vertex 2 is a VERTEX_SE2, expected a VERTEX_XY"),
        ("FIX", "a.g2o:4: FIX: got no vertex id"),
        (
            "VERTEX_SE3:QUAT 9 0 0 0 0 0 0 0",
            "a.g2o:4: VERTEX_SE3:QUAT: the quaternion [0.0, 0.0, 0.0, 0.0] has no",
        ),
        ("EDGE_SE2 1 2 0 0 0 1 0 0 1 0", "a.g2o:4: EDGE_SE2: got 11 tokens, expected 12"),
        ("EDGE_SE2 1 2 0 0 0 1 0 nan 1 0 1", "a.g2o:4: EDGE_SE2: 'nan' is not finite"),
        ("EDGE_SE3_TRACKXYZ 1 2 0 0 0 0 1 0 0 1 0 1", "a.g2o:4: EDGE_SE3_TRACKXYZ: vertex 1 is a VERTEX_SE2"),
        ("EDGE_SE2_LOTSOFXY 3 1 2 3 1 1", "a.g2o:4: EDGE_SE2_LOTSOFXY: got 2 numbers for 3 vertices"),
        ("EDGE_SE2_LOTSOFXY 1 1 1 1", "a.g2o:4: EDGE_SE2_LOTSOFXY: 1 vertices, expected at least 2"),
    ],
)
def test_refused_lines(read_text, line, message):
    """Each error starts with path and line and says what is wrong."""
    with pytest.raises(FormatError) as error:
        read_text(SQUARE + line + "\n")
    assert message in str(error.value)


def test_a_missing_parameter_is_named(read_text):
    """An edge whose parameter is not in the file is refused."""
    with pytest.raises(
        FormatError, match=r"a.g2o:3: EDGE_SE2_OFFSET: parameter 4 does not exist.*PARAMS_SE2OFFSET 4"
    ):
        read_text("VERTEX_SE2 1 0 0 0\nVERTEX_SE2 2 0 0 0\nEDGE_SE2_OFFSET 1 2 4 4 0 0 0 1 0 0 1 0 1\n")


def test_repeated_identical_vertices_are_reported(read_text):
    """A vertex line that repeats another exactly is left out and said so."""
    graph, report = read_text(SQUARE + "VERTEX_SE2 1 0 0 0\n")
    assert graph.num_vertices == 2 and report.vertices == {"VERTEX_SE2": 2}
    assert any("line 4 repeats vertex 1 of line 1" in warning for warning in report.warnings)


def test_a_file_of_edges_only(read_text, written):
    """Vertices are created with identity estimates, and the report says that they need initializing."""
    graph, report = read_text("EDGE_SE2 3 1 1 0 0.5 1 0 0 1 0 1\nEDGE_SE2 1 9 1 0 0.5 1 0 0 1 0 1\n")
    assert graph.vertex_set("VERTEX_SE2").ids.tolist() == [1, 3, 9]
    assert not graph.vertex_set("VERTEX_SE2").estimate.any()
    assert report.needs_initialization and "identity" in str(report)
    with pytest.warns(UserWarning, match=r"holds no estimates: all 3 vertices.*graphopt.initialize"):
        io.read(report.path)
    assert len(written(graph)) == 5


def test_edges_only_with_contradicting_types(read_text):
    """An id that two edges want to be of different types is refused with both lines."""
    with pytest.raises(
        FormatError, match=r"a.g2o:2: vertex 2 is a VERTEX_XY here but a VERTEX_SE2 in line 1"
    ):
        read_text("EDGE_SE2 1 2 1 0 0.5 1 0 0 1 0 1\nEDGE_SE2_XY 1 2 0 0 1 0 1\n")


def test_suspicious_information_is_reported(read_text):
    """Singular and indefinite information matrices are kept and counted with their first line."""
    text = SQUARE + "EDGE_SE2 2 1 0 0 0 1 0 0 1 0 0\nEDGE_SE2 2 1 0 0 0 1 2 0 1 0 1\nEDGE_SE2 1 2 0 0 0\n"
    graph, report = read_text(text)
    assert graph.num_edges == 4
    assert any("indefinite in 1 of 4 edges, first in line 5" in warning for warning in report.warnings)
    assert any("singular in 1 of 4 edges, first in line 4" in warning for warning in report.warnings)
    assert any("no information matrix" in warning and "line 6" in warning for warning in report.warnings)


def test_surplus_numbers_are_reported(read_text):
    """Numbers behind those that are used are ignored as g2o does, but not silently."""
    graph, report = read_text(SQUARE + "EDGE_SE2 1 2 1 0 0.5 10 0 0 20 0 30 7 7\n")
    assert graph.num_edges == 2
    assert any("2 numbers more" in warning and "line 4" in warning for warning in report.warnings)


def test_fixed_vertices(read_text, written):
    """FIX lines with one or more ids are read; one is written per vertex, at the end."""
    graph, _ = read_text("FIX 2 1\n" + SQUARE)
    assert graph.vertex_set("VERTEX_SE2").fixed.all()
    assert written(graph)[-2:] == ["FIX 1", "FIX 2"]


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment\n"])
def test_empty_files(read_text, text):
    """A file without content is refused."""
    with pytest.raises(FormatError, match=r"empty|only comments"):
        read_text(text)


def test_foreign_text_is_refused(read_text):
    """A text of which no line has a known tag is not a graph."""
    with pytest.raises(FormatError, match=r"a.g2o:1: no line has a known tag, the first is 'Lorem'"):
        read_text("Lorem ipsum\ndolor\n")


def test_estimates_that_are_not_finite_are_not_written(tmp_path, read_text):
    """The old file stays when the graph has become useless."""
    graph, _ = read_text(SQUARE)
    io.write(graph, tmp_path / "b.g2o")
    before = (tmp_path / "b.g2o").read_bytes()
    graph.vertex_set("VERTEX_SE2").estimate[1, 0] = np.nan
    with pytest.raises(FormatError, match="vertex 2"):
        io.write(graph, tmp_path / "b.g2o")
    assert (tmp_path / "b.g2o").read_bytes() == before


def test_losses_are_named(tmp_path):
    """What a .g2o file does not hold, or g2o does not read, is said."""
    graph = Graph()
    graph.add_vertices("VERTEX_XY", [2**40, -3], marginalized=True)
    graph.add_edges("EDGE_POINTXY", [[2**40, -3]], [[0, 0]], kernel="Huber", level=1)
    found = " ".join(io.write(graph, tmp_path / "c.g2o"))
    for words in (
        "robust kernels of 1 edges",
        "levels of 1",
        "marginalized flags of 2",
        "32 bits",
        "negative",
    ):
        assert words in found
    again = io.read(tmp_path / "c.g2o")
    assert sorted(again.vertex_set("VERTEX_XY").ids.tolist()) == [-3, 2**40]


def test_real_files_survive_a_round_trip(shared_data, tmp_path):
    """Every real .g2o file writes back with the same chi2, sizes and unknown lines."""
    paths = [*(shared_data / "posegraph").glob("*.g2o*"), *(shared_data / "landmark").glob("*.g2o*")]
    assert len(paths) >= 14
    for path in paths:
        graph, report = io.read_with_report(path)
        io.write(graph, tmp_path / "again.g2o")
        again, second = io.read_with_report(tmp_path / "again.g2o")
        assert again.chi2() == pytest.approx(graph.chi2(), rel=1e-12), path.name
        assert second.unknown_tags == report.unknown_tags
        assert (again.num_vertices, again.num_edges) == (graph.num_vertices, graph.num_edges)


def test_reference_chi2(shared_data, reference_runs):
    """The chi2 at the start of every recorded g2o run is ours to 1e-6."""
    for name, runs in reference_runs.items():
        path = next(
            (p for folder in ("posegraph", "landmark") for p in (shared_data / folder).glob(name + "*")), None
        )
        assert path is not None, name
        graph = io.read(path)
        run = runs["lm"]
        assert (graph.num_vertices, graph.num_edges) == (run["vertices"], run["edges"]), name
        assert graph.chi2() == pytest.approx(run["initial_chi2"], rel=1e-6), name


@pytest.mark.parametrize("words", ["1_0.5", "nan", "0x10", "-1", "2 1_0", "2 0-", "2 +0", "2 x", "", "2 1-0"])
def test_kernel_comments_have_the_grammar_of_all_lines(words, tmp_path):
    """What no other line may hold is no width and no number of an edge."""
    path = tmp_path / "a.g2o"
    lines = (
        "VERTEX_SE2 0 0 0 0\nVERTEX_SE2 1 0 0 0\nEDGE_SE2 0 1 1 0 0 1 0 0 1 0 1\n# kernel: EDGE_SE2 Huber "
    )
    path.write_text(f"{lines}2,5 0\n")
    assert io.read(path).edge_sets[0].kernel_width.tolist() == [2.5]
    path.write_text(f"{lines}{words}\n")
    with pytest.raises(FormatError, match=r"a\.g2o:4: .*expected '# kernel: TAG NAME WIDTH'"):
        io.read(path)
