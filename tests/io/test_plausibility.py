"""Files are taken for what they plausibly are; what is odd in them is reported."""

import numpy as np
import pytest

from graphopt import io
from graphopt.errors import FormatError
from graphopt.geometry import SE3
from graphopt.graph import Graph

STEREO = "".join(f"{i // 3} {i % 5} {300 + i} {290 + i} 200 {i}.5 -1 {9 + i}\n" for i in range(30))


def trajectory(count=20):
    """TUM lines of a walk."""
    rng = np.random.default_rng(0)
    q = rng.normal(size=(count, 4))
    q /= np.linalg.norm(q, axis=1, keepdims=True)
    table = np.column_stack([1e9 + 0.1 * np.arange(count), rng.normal(size=(count, 3)), q])
    return table


def save(path, table):
    """Write lines of numbers."""
    path.write_text("\n".join(" ".join(f"{x:.6f}" for x in row) for row in table) + "\n")
    return path


def test_stereo_factors_are_no_trajectory(tmp_path):
    """Eight numbers on a line are a TUM trajectory if quaternions and time stamps look like one."""
    path = tmp_path / "factors.txt"
    path.write_text(STEREO)
    with pytest.raises(FormatError, match=r"no TUM trajectory.*0% of the quaternions.*format='tum'"):
        io.read(path)
    assert io.read(path, format="tum").num_vertices == 30
    assert io.read(save(tmp_path / "walk.txt", trajectory())).num_vertices == 20


def test_falling_time_stamps_are_no_trajectory(tmp_path):
    """A trajectory backwards is refused unless suffix or format say that it is one."""
    with pytest.raises(FormatError, match="0% of the time stamps rise"):
        io.read(save(tmp_path / "walk.txt", trajectory()[::-1]))
    assert io.read(save(tmp_path / "walk.tum", trajectory()[::-1])).num_vertices == 20


def test_real_stereo_factors_are_refused(shared_data):
    """GTSAM's file is not read as 52,544 poses."""
    with pytest.raises(FormatError, match="no TUM trajectory"):
        io.read(shared_data / "landmark" / "VO_stereo_factors_large.txt.xz")


def test_fix_lines_of_missing_and_unknown_vertices(tmp_path):
    """Both are reported; the line of an unknown type's vertex is kept for whoever knows the type."""
    path = tmp_path / "a.g2o"
    path.write_text("VERTEX_SE2 0 0 0 0\nVERTEX_FOO 1 5 6\nFIX 0 1\nFIX 9\n")
    graph, report = io.read_with_report(path)
    assert graph.vertex_set("VERTEX_SE2").fixed.tolist() == [True]
    assert [one for one in report.warnings if "FIX" in one] == [
        "line 3: FIX: vertex 1 has an unknown type; the line is kept",
        "line 4: FIX: vertex 9 does not exist; left out",
    ]
    io.write(graph, tmp_path / "b.g2o")
    assert sorted((tmp_path / "b.g2o").read_text().splitlines()) == [
        "FIX 0",
        "FIX 1",
        "VERTEX_FOO 1 5 6",
        "VERTEX_SE2 0 0 0 0",
    ]


@pytest.mark.parametrize("suffix", ["graph", "isam"])
def test_angles_of_quaternions_that_are_not_quite_unit(suffix, tmp_path):
    """A quaternion rounded to three digits is normalised before its angles are written."""
    rng = np.random.default_rng(1)
    q = rng.normal(size=(5, 4))
    q = np.round(q / np.linalg.norm(q, axis=1, keepdims=True), 3)
    values = np.concatenate([rng.normal(size=(5, 3)), q], axis=1)
    path = tmp_path / "a.g2o"
    lines = [f"VERTEX_SE3:QUAT {i} " + " ".join(map(repr, row.tolist())) for i, row in enumerate(values)]
    triangle = " ".join(repr(x) for x in np.eye(6)[np.triu_indices(6)].tolist())
    lines += [
        f"EDGE_SE3:QUAT {i} {i + 1} " + " ".join(map(repr, values[i].tolist())) + f" {triangle}"
        for i in range(4)
    ]
    path.write_text("\n".join(lines) + "\n")
    graph = io.read(path)
    io.write(graph, tmp_path / f"b.{suffix}")
    again = io.read(tmp_path / f"b.{suffix}")
    for found, given in [
        (again.edge_set("EDGE_SE3:QUAT").measurement, values[:4]),
        *([(again.vertex_set("VERTEX_SE3:QUAT").estimate, values)] if suffix == "graph" else []),
    ]:
        expected = SE3(given).normalize()
        difference = expected.inverse() * SE3(found)
        assert np.abs(np.asarray(difference.log())).max() < 1e-12


def test_intrinsics_in_a_g2o_file_are_said_to_be_ignored(tmp_path):
    """g2o has no place for them in its files; the lines end with them all the same, and writing says so."""
    graph = Graph()
    graph.add_vertices("VERTEX_SE3:EXPMAP", [0], [[0, 0, 0, 0, 0, 0, 1.0]])
    graph.add_vertices("VERTEX_TRACKXYZ", [1], [[0, 0, 4.0]])
    graph.add_edges("EDGE_SE3_PROJECT_XYZ:EXPMAP", [[1, 0]], [[320, 240, 500, 500, 320, 240.0]])
    warnings = io.write(graph, tmp_path / "a.g2o")
    assert any("EDGE_SE3_PROJECT_XYZ:EXPMAP" in one and "g2o ignores them" in one for one in warnings)
    assert io.read(tmp_path / "a.g2o").chi2() == graph.chi2() == 0.0
