"""A file means what the program that wrote it meant: the dialects of g2o and iSAM, asked for or found."""

import numpy as np
import pytest

from graphopt import io
from graphopt.cli.main import main
from graphopt.errors import OptionError
from graphopt.evaluate.datasets import ba
from graphopt.geometry import SE3, Sim3
from graphopt.graph import Graph


def poses(rng, count):
    """(count, 7) random unit poses, qw > 0."""
    values = rng.normal(size=(count, 7))
    values[:, 3:] /= np.linalg.norm(values[:, 3:], axis=1, keepdims=True)
    values[:, 3:] *= np.sign(values[:, 6:])
    return values


def pose_graph(noise=0.01, count=12):
    """A chain of EXPMAP poses with two loops, near its minimum."""
    rng = np.random.default_rng(3)
    truth = poses(rng, count)
    graph = Graph()
    graph.add_vertices("VERTEX_SE3:EXPMAP", np.arange(count), truth)
    pairs = np.array([(i, i + 1) for i in range(count - 1)] + [(0, 7), (3, 11)])
    first, second = SE3(truth[pairs[:, 0]]), SE3(truth[pairs[:, 1]])
    step = SE3.exp(noise * rng.normal(size=(len(pairs), 6)))
    graph.add_edges("EDGE_SE3:EXPMAP", pairs, (second * step * first.inverse()).storage)
    return graph


def cpp_text(graph):
    """The lines that C++ g2o writes for a graph of EXPMAP poses and points: SE3Quat(est).inverse()."""
    lines = []
    for vertex_set in graph.vertex_sets:
        values = (
            SE3(vertex_set.estimate).inverse().storage
            if vertex_set.type.storage_dim == 7
            else vertex_set.estimate
        )
        for id, numbers in zip(vertex_set.ids, np.asarray(values), strict=True):
            lines.append(f"{vertex_set.type.tag} {id} " + " ".join(map(repr, numbers.tolist())))
    for edge_set in graph.edge_sets:
        is_pose = edge_set.type.tag == "EDGE_SE3:EXPMAP"
        measured = (
            np.asarray(SE3(edge_set.measurement).inverse().storage) if is_pose else edge_set.measurement
        )
        upper = np.triu_indices(edge_set.type.residual_dim)
        triangle = edge_set.information[:, upper[0], upper[1]]
        for row, ids in enumerate(edge_set.vertices.tolist()):
            numbers = [*measured[row].tolist(), *triangle[row].tolist()]
            if (
                edge_set.type.tag == "EDGE_SE3_PROJECT_XYZ:EXPMAP"
            ):  # intrinsics behind, where g2o ignores them
                numbers = [*measured[row, :2].tolist(), *triangle[row].tolist(), *measured[row, 2:].tolist()]
            lines.append(
                f"{edge_set.type.tag} " + " ".join(map(str, ids)) + " " + " ".join(map(repr, numbers))
            )
    return "\n".join(lines) + "\n"


def bundle():
    """A small bundle adjustment with EXPMAP cameras, near its minimum; edges with intrinsics of their own."""
    graph = ba(cameras=6, points=60, camera="expmap", start="truth")
    edges = graph.edge_set("EDGE_PROJECT_XYZ2UV:EXPMAP")
    f, cx, cy, _ = graph.parameter_sets[0].values[0]
    measured = np.concatenate([edges.measurement, np.tile([f, f, cx, cy], (len(edges), 1))], axis=1)
    again = Graph()
    for vertex_set in graph.vertex_sets:
        again.add_vertices(vertex_set.type, vertex_set.ids, vertex_set.estimate)
    again.add_edges("EDGE_SE3_PROJECT_XYZ:EXPMAP", edges.vertices, measured, edges.information)
    return again


@pytest.mark.parametrize("make", [pose_graph, bundle])
def test_files_of_cpp_g2o_are_recognised(make, tmp_path):
    """A file in C++ g2o's layout has the chi2 that it was written with, and the report says why."""
    graph = make()
    path = tmp_path / "cpp.g2o"
    path.write_text(cpp_text(graph))
    again, report = io.read_with_report(path)
    assert again.chi2() == pytest.approx(graph.chi2(), rel=1e-6)
    assert report.dialect == "g2o"
    assert "chi2" in report.dialect_reason and "g2opy" in report.dialect_reason
    assert report.warnings == []
    assert "dialect: g2o" in str(report)


@pytest.mark.parametrize("make", [pose_graph, bundle])
def test_files_of_g2opy_are_recognised(make, tmp_path):
    """The same of g2opy's layout, with and without the comment that our writer puts first."""
    graph = make()
    path = tmp_path / "python.g2o"
    io.write(graph, path, dialect="g2opy")
    text = path.read_text()
    assert text.startswith("# dialect: g2opy\n")
    for content, reason in ((text, "comment"), (text.partition("\n")[2], "chi2")):
        path.write_text(content)
        again, report = io.read_with_report(path)
        assert again.chi2() == pytest.approx(graph.chi2(), rel=1e-9)
        assert report.dialect == "g2opy" and reason in report.dialect_reason and report.warnings == []


def test_an_explicit_dialect_is_obeyed_and_doubted(tmp_path):
    """`dialect=` decides; where the edges say otherwise a warning names the other one."""
    graph = pose_graph()
    path = tmp_path / "cpp.g2o"
    path.write_text(cpp_text(graph))
    right, report = io.read_with_report(path, dialect="g2o")
    assert right.chi2() == pytest.approx(graph.chi2(), rel=1e-6) and report.warnings == []
    wrong, report = io.read_with_report(path, dialect="g2opy")
    assert wrong.chi2() > 100.0 * graph.chi2()
    assert any("looks like g2o" in warning for warning in report.warnings)


def test_points_in_front_of_their_cameras_decide_without_intrinsics(tmp_path):
    """Files of g2o hold no intrinsics, so chi2 means nothing: the points' depths tell the reading."""
    graph = bundle()
    lines = cpp_text(graph).splitlines()
    cut = [line.rsplit(" ", 4)[0] if line.startswith("EDGE") else line for line in lines]
    path = tmp_path / "bare.g2o"
    path.write_text("\n".join(cut) + "\n")
    again, report = io.read_with_report(path)
    assert report.dialect == "g2o"
    expected = graph.vertex_set("VERTEX_SE3:EXPMAP").estimate
    np.testing.assert_allclose(again.vertex_set("VERTEX_SE3:EXPMAP").estimate, expected, atol=1e-9)


def test_both_plausible_warns(tmp_path):
    """Random estimates explain nothing, vertices alone tell nothing: a warning says what was taken."""
    rng = np.random.default_rng(0)
    graph = pose_graph(count=40)
    graph.vertex_set("VERTEX_SE3:EXPMAP").estimate[:] = poses(rng, 40)
    path = tmp_path / "random.g2o"
    path.write_text(cpp_text(graph))
    _, report = io.read_with_report(path)
    assert any("plausible too" in warning for warning in report.warnings)
    path.write_text("VERTEX_SE3:EXPMAP 0 1 2 3 0 0 0 1\n")
    _, report = io.read_with_report(path)
    assert report.dialect == "g2o" and any("plausible too" in warning for warning in report.warnings)


def test_no_word_where_it_makes_no_difference(tmp_path):
    """Identity poses, and graphs without such poses, have no dialect to report."""
    path = tmp_path / "a.g2o"
    path.write_text("VERTEX_SE3:EXPMAP 0 0 0 0 0 0 0 1\n")
    assert io.read_with_report(path)[1].dialect is None
    path.write_text("VERTEX_SE2 0 1 2 3\n")
    _, report = io.read_with_report(path)
    assert report.dialect is None and report.warnings == []


def sim3_graph():
    """Similarities with cameras of their own, and an edge."""
    rng = np.random.default_rng(5)
    values = np.array(Sim3.exp(0.5 * rng.normal(size=(2, 7))).storage)
    graph = Graph()
    cameras = np.array([[500.0, 501.0, 320.0, 240.0, 510.0, 511.0, 321.0, 241.0, 1.0]] * 2)
    graph.add_vertices("VERTEX_SIM3:EXPMAP", [0, 1], np.concatenate([values, cameras], axis=1))
    graph.add_edges("EDGE_SIM3:EXPMAP", [[0, 1]], values[:1])
    return graph


def lots_graph():
    """A pose that sees two points in one edge."""
    graph = Graph()
    graph.add_vertices("VERTEX_SE2", [0], [[1.0, 2.0, 0.3]])
    graph.add_vertices("VERTEX_XY", [1, 2], [[1.0, 2.0], [3.0, 2.0]])
    from graphopt.types import registry

    graph.add_edges(registry.edge_type("EDGE_SE2_LOTSOFXY").instantiate(3), [[0, 1, 2]], [[1.0, 2, 3, 4]])
    return graph


def cam_graph():
    """Cameras with intrinsics, one point and its pixels."""
    rng = np.random.default_rng(7)
    graph = Graph()
    storage = np.concatenate([poses(rng, 2), [[500.0, 510.0, 320.0, 240.0, 0.2]] * 2], axis=1)
    graph.add_vertices("VERTEX_CAM", [0, 1], storage)
    graph.add_vertices("VERTEX_TRACKXYZ", [2], [[0.5, 0.2, 4.0]])
    graph.add_edges("EDGE_PROJECT_P2MC", [[2, 0], [2, 1]], [[100.0, 200.0], [120.0, 210.0]])
    return graph


@pytest.mark.parametrize("dialect", ["g2o", "g2opy"])
@pytest.mark.parametrize(
    "make", [pose_graph, lambda: ba(6, 60, camera="expmap"), bundle, sim3_graph, lots_graph, cam_graph]
)
def test_round_trip_in_each_dialect(make, dialect, tmp_path):
    """What is written in a dialect reads back, asked for or found, and stays in that dialect."""
    graph = make()
    path = tmp_path / "a.g2o"
    io.write(graph, path, dialect=dialect)
    for asked in (dialect, None):
        again, report = io.read_with_report(path, dialect=asked)
        assert report.dialect in (dialect, None)
        for vertex_set in graph.vertex_sets:
            np.testing.assert_allclose(
                again.vertex_set(vertex_set.type).estimate, vertex_set.estimate, atol=1e-7
            )
        assert again.chi2() == pytest.approx(graph.chi2(), rel=1e-6)
    io.write(io.read(path), tmp_path / "again.g2o")
    lines = (path.read_text(), (tmp_path / "again.g2o").read_text())
    assert [line.split()[0] for line in lines[0].splitlines()] == [
        line.split()[0] for line in lines[1].splitlines()
    ]
    assert [len(line.split()) for line in lines[0].splitlines()] == [
        len(line.split()) for line in lines[1].splitlines()
    ]


def test_layouts_of_cpp_g2o(tmp_path):
    """Logarithm of the inverse with the first camera, ids before bars, cameras with intrinsics."""
    path = tmp_path / "a.g2o"
    io.write(lots_graph(), path)
    assert "EDGE_SE2_LOTSOFXY 0 1 2 || 2 1 2 3 4 1 0" in path.read_text()
    graph = sim3_graph()
    graph.vertex_set("VERTEX_SIM3:EXPMAP").estimate[:, 12:] = [1, 1, 0, 0, 0]
    io.write(graph, path)
    tokens = np.array(path.read_text().splitlines()[1].split()[2:], float)
    assert len(tokens) == 11
    similarity = Sim3(graph.vertex(0).estimate[:8])
    np.testing.assert_allclose(tokens[:7], similarity.inverse().log(), atol=1e-12)
    io.write(cam_graph(), path)
    assert len(path.read_text().splitlines()[1].split()) == 2 + 12


def test_cpp_defaults_of_a_bare_camera(tmp_path):
    """C++ g2o takes 300 300 320 320 0.1 for a VERTEX_CAM line that ends after the pose."""
    path = tmp_path / "a.g2o"
    path.write_text("VERTEX_CAM 0 1 2 3 0 0 0 1\n")
    assert io.read(path, dialect="g2o").vertex(0).estimate[7:].tolist() == [300, 300, 320, 320, 0.1]
    assert io.read(path, dialect="g2opy").vertex(0).estimate[7:].tolist() == [1, 1, 0.5, 0.5, 0]


def test_cpp_normalises_measurements_and_not_estimates(tmp_path):
    """Of few digits: C++ g2o scales the quaternion of an edge, not that of a vertex; g2opy neither."""
    rng = np.random.default_rng(9)
    values = np.round(poses(rng, 3), 4)
    path = tmp_path / "a.g2o"
    triangle = " ".join(map(str, np.eye(6)[np.triu_indices(6)]))
    rows = [" ".join(map(repr, row.tolist())) for row in values]
    path.write_text(
        f"VERTEX_SE3:QUAT 0 {rows[0]}\nVERTEX_SE3:QUAT 1 {rows[1]}\nEDGE_SE3:QUAT 0 1 {rows[2]} {triangle}\n"
    )
    unit = values[2].copy()
    unit[3:] /= np.linalg.norm(unit[3:])
    for dialect, measured in (("g2o", unit), ("g2opy", values[2])):
        graph = io.read(path, dialect=dialect)
        np.testing.assert_allclose(graph.edge_set("EDGE_SE3:QUAT").measurement[0], measured, rtol=1e-15)
        np.testing.assert_array_equal(graph.vertex_set("VERTEX_SE3:QUAT").estimate, values[:2])


def test_unknown_and_unfit_dialects(tmp_path):
    """The error lists the dialects there are, and those of the format."""
    path = tmp_path / "a.g2o"
    graph = pose_graph()
    io.write(graph, path)
    with pytest.raises(OptionError, match=r"'g2opi' is unknown. Did you mean 'g2opy'\? .*isam-covariance"):
        io.read(path, dialect="g2opi")
    with pytest.raises(OptionError, match=r"isam, not of g2o. Dialects of g2o: g2o"):
        io.read(path, dialect="isam")
    with pytest.raises(OptionError, match="tum has no dialects"):
        io.write(graph, tmp_path / "a.tum", dialect="g2o")
    assert not (tmp_path / "a.tum").exists()


ISAM = "ODOMETRY 0 1 1 0 0 {0} 0 0 {0} 0 {0}\nODOMETRY 1 2 1 0 0 {0} 0 0 {0} 0 {0}\n"


@pytest.mark.parametrize(
    "entry, dialect, information, warning",
    [
        (10.0, None, 100.0, None),
        (0.5, None, 0.25, "could be covariances"),
        (0.5, "isam", 0.25, None),
        (0.5, "isam-covariance", 2.0, None),
        (1e-4, None, 1e4, "taken for covariances"),
        (1e-4, "isam", 1e-8, None),
    ],
)
def test_isam_holds_roots_or_covariances(entry, dialect, information, warning, tmp_path):
    """R unless asked otherwise, or unless R would mean angles known worse than half a turn."""
    path = tmp_path / "a.isam"
    path.write_text(ISAM.format(entry))
    graph, report = io.read_with_report(path, dialect=dialect)
    np.testing.assert_allclose(graph.edge_set("EDGE_SE2").information[0], information * np.eye(3), rtol=1e-12)
    found = [each_warning for each_warning in report.warnings if "covariances" in each_warning]
    assert [warning in message for message in found] == ([True] if warning else [])
    assert report.dialect == (dialect or ("isam-covariance" if information == 1e4 else "isam"))


@pytest.mark.parametrize("dialect", ["isam", "isam-covariance"])
def test_isam_round_trip_in_each_dialect(dialect, tmp_path):
    """2-D and 3-D informations survive both."""
    rng = np.random.default_rng(2)
    for tag, edge, dim in (("VERTEX_SE2", "EDGE_SE2", 3), ("VERTEX_SE3:QUAT", "EDGE_SE3:QUAT", 6)):
        graph = Graph()
        graph.add_vertices(tag, [0, 1])
        root = rng.normal(size=(1, dim, dim))
        measured = poses(rng, 1) if dim == 6 else rng.normal(size=(1, 3))
        graph.add_edges(edge, [[0, 1]], measured, root @ np.swapaxes(root, 1, 2) + np.eye(dim))
        path = tmp_path / f"{dim}.isam"
        io.write(graph, path, dialect=dialect)
        again = io.read_with_report(path, "isam", dialect)[0].edge_set(edge)
        np.testing.assert_allclose(again.information, graph.edge_set(edge).information, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(again.measurement, graph.edge_set(edge).measurement, atol=1e-12)


def test_commands_take_a_dialect(tmp_path, capsys):
    """info says it, convert changes it, optimize reads and keeps it; a typo names the right one."""
    graph = pose_graph()
    source = tmp_path / "cpp.g2o"
    source.write_text(cpp_text(graph))
    assert main(["info", str(source)]) == 0
    assert "chi2" in (text := capsys.readouterr().out) and "dialect     g2o" in text
    target = tmp_path / "python.g2o"
    assert main(["convert", str(source), str(target), "--to-dialect", "g2opy"]) == 0
    assert io.read(target, dialect="g2opy").chi2() == pytest.approx(graph.chi2(), rel=1e-6)
    out = tmp_path / "out.g2o"
    assert main(["optimize", str(source), "--dialect", "g2o", "-o", str(out)]) == 0
    assert io.read_with_report(out)[1].dialect == "g2o"
    assert io.read(out).chi2() < graph.chi2()
    capsys.readouterr()
    assert main(["info", str(source), "--dialect", "g2opp"]) == 2
    assert "Known dialects: g2o (C++ g2o), g2opy" in capsys.readouterr().err


def test_info_document_has_the_dialect(tmp_path, capsys):
    """`info --json` names dialect and reason."""
    import json

    path = tmp_path / "a.g2o"
    io.write(pose_graph(), path)
    assert main(["info", str(path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["dialect"] == "g2o" and "comment" in document["dialect_reason"]


@pytest.mark.parametrize("distortion", [0, 4])
def test_orb_slam3_similarities(distortion, tmp_path):
    """Its own vertex: logarithm of the inverse, then all parameters of two pinhole or two fisheye cameras."""
    from graphopt.types.g2o_maps import sim3_log

    graph = sim3_graph()
    storage = graph.vertex_set("VERTEX_SIM3:EXPMAP").estimate
    path, lines = tmp_path / "a.g2o", []
    for number, row in enumerate(storage):
        logarithm = sim3_log(Sim3(row[:8]).inverse())
        lens = [0.1, -0.02, 0.003, -0.0004][:distortion]
        tokens = [*logarithm, *row[8:12], *lens, *row[12:16], *lens]
        lines.append(" ".join(["VERTEX_SIM3:EXPMAP", str(number), *map(repr, map(float, tokens))]))
    path.write_text("\n".join(lines) + "\n")
    for dialect in (None, "g2o", "g2opy"):
        read, report = io.read_with_report(path, dialect=dialect)
        np.testing.assert_allclose(
            read.vertex_set("VERTEX_SIM3:EXPMAP").estimate[:, :16], storage[:, :16], atol=1e-9
        )
        assert any("distortion" in warning for warning in report.warnings) == (distortion > 0)
        assert not any("numbers more than" in warning for warning in report.warnings)


def test_explain_takes_a_dialect(tmp_path, capsys):
    """The same word as for optimize; a wrong one is refused."""
    path = tmp_path / "a.g2o"
    io.write(sim3_graph(), path, dialect="g2o")
    assert main(["explain", str(path), "--dialect", "g2o", "--device", "cpu"]) == 0
    assert main(["explain", str(path), "--dialect", "toro", "--device", "cpu"]) == 2
    assert "dialect" in capsys.readouterr().err
