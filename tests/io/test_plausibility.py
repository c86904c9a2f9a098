"""Files are taken for what they plausibly are; what is odd in them is reported."""

import numpy as np
import pytest

from graphopt import io
from graphopt.errors import FormatError
from graphopt.geometry import SE3
from graphopt.graph import Graph

STEREO = "".join(f"{i // 3}.5 {i % 5} {300 + i} {290 + i} 200 {i}.5 -1 {9 + i}\n" for i in range(30))


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
    path.write_text(STEREO.replace(".5 ", " "))
    with pytest.raises(FormatError, match="stereo factors need a file whose name contains 'camera_poses'"):
        io.read(path)
    assert io.read(save(tmp_path / "walk.txt", trajectory())).num_vertices == 20


def test_falling_time_stamps_are_no_trajectory(tmp_path):
    """A trajectory backwards is refused unless suffix or format say that it is one."""
    with pytest.raises(FormatError, match="0% of the time stamps rise"):
        io.read(save(tmp_path / "walk.txt", trajectory()[::-1]))
    assert io.read(save(tmp_path / "walk.tum", trajectory()[::-1])).num_vertices == 20


FILES = {
    "my_stereo_factors.txt": "1 3 320 300 240 0 0 5\n1 4 370 350 250 0.5 0.1 5\n2 3 310 290 240 -0.1 0 5\n",
    "my_camera_poses.txt": "1 1 0 0 0 0 1 0 0 0 0 1 0 0 0 0 1\n2 0 -1 0 0.5 1 0 0 0 0 0 1 0 0 0 0 1\n",
    "my_calibration.txt": "500 500 0 320 240 0.2\n",
}


def stereo_files(folder, **changes):
    """Write the three files; returns the path of the factors."""
    for name, text in FILES.items():
        (folder / name).write_text(changes.get(name.split("_", 1)[1].removesuffix(".txt"), text))
    return folder / "my_stereo_factors.txt"


def test_stereo_factors_with_their_companions(tmp_path):
    """Poses, calibration and factors make one problem; points start where they are first seen."""
    graph, report = io.read_with_report(stereo_files(tmp_path))
    assert report.format == "gtsam_stereo"
    np.testing.assert_allclose(graph.vertex(3 + 3).estimate, [0, 0, 5])
    np.testing.assert_allclose(SE3(graph.vertex(2).estimate).inverse().storage[:3], [0.5, 0, 0], atol=1e-15)
    assert graph.vertex_set("VERTEX_SE3:EXPMAP").fixed.tolist() == [True, False]
    # camera 1 sees both points as the file says; camera 2 is turned: (0, 0, 5) is (0, 0.5, 5) there
    expected = (310 - 320) ** 2 + (240 - (240 + 500 * 0.1)) ** 2 + (290 - (320 - 20)) ** 2
    assert graph.chi2() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"calibration": "500 500 1 320 240 0.2\n"},
            "my_calibration.txt:1: expected one line with a skew of 0",
        ),
        ({"calibration": "500 500 0 320\n"}, "my_calibration.txt:1: got 4 numbers, expected 6"),
        ({"camera_poses": "1 2 0 0 0 0 1 0 0 0 0 1 0 0 0 0 1\n"}, "my_camera_poses.txt:1: the 3 x 3 part"),
        ({"camera_poses": "1 1 0 0 0 0 1 0 0 0 0 1 0 0 0 0 1\n"}, "factors.txt:3: pose 2 is not in the"),
    ],
)
def test_wrong_companions_are_named(changes, message, tmp_path):
    """The error names file and line."""
    with pytest.raises(FormatError, match=message):
        io.read(stereo_files(tmp_path, **changes))


def test_real_stereo_factors_are_those_of_gtsam(shared_data):
    """GTSAM's file is not read as a trajectory; its error at the start is half our chi2."""
    path = shared_data / "landmark" / "VO_stereo_factors_large.txt.xz"
    if not path.is_file():
        pytest.skip("no such file")
    graph, report = io.read_with_report(path)
    assert report.format == "gtsam_stereo"
    gtsam = pytest.importorskip("gtsam")
    poses = graph.vertex_set("VERTEX_SE3:EXPMAP")
    world_T_cam = SE3(poses.estimate).inverse().to_matrix()
    values, factors = gtsam.Values(), gtsam.NonlinearFactorGraph()
    for id, matrix in zip(poses.ids.tolist(), np.asarray(world_T_cam), strict=True):
        values.insert(id, gtsam.Pose3(matrix))
    points = graph.vertex_set("VERTEX_TRACKXYZ")
    for id, point in zip(points.ids.tolist(), points.estimate, strict=True):
        values.insert(id, point)
    noise = gtsam.noiseModel.Isotropic.Sigma(3, 1.0)
    edges = graph.edge_set("EDGE_STEREO_SE3_PROJECT_XYZ:EXPMAP")
    fx, fy, cx, cy, bf = edges.measurement[0, 3:]
    calibration = gtsam.Cal3_S2Stereo(fx, fy, 0.0, cx, cy, bf / fx)
    for (point, pose), (u, v, right) in zip(
        edges.vertices.tolist(), edges.measurement[:, :3].tolist(), strict=True
    ):
        measured = gtsam.StereoPoint2(u, right, v)
        factors.add(gtsam.GenericStereoFactor3D(measured, noise, pose, point, calibration))
    assert graph.chi2() == pytest.approx(2.0 * factors.error(values), rel=1e-9)


def test_fix_lines_of_missing_and_unknown_vertices(tmp_path):
    """Both are reported; the line of an unknown type's vertex is kept for whoever knows the type."""
    path = tmp_path / "a.g2o"
    path.write_text("VERTEX_SE2 0 0 0 0\nVERTEX_FOO 1 5 6\nFIX 0 1\nFIX 9\n")
    graph, report = io.read_with_report(path)
    assert graph.vertex_set("VERTEX_SE2").fixed.tolist() == [True]
    assert [warning for warning in report.warnings if "FIX" in warning] == [
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
    graph = io.read_with_report(path)[0]
    io.write(graph, tmp_path / f"b.{suffix}")
    again = io.read_with_report(tmp_path / f"b.{suffix}")[0]
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
    assert any(
        "EDGE_SE3_PROJECT_XYZ:EXPMAP" in warning and "g2o ignores them" in warning for warning in warnings
    )
    assert io.read(tmp_path / "a.g2o").chi2() == graph.chi2() == 0.0
