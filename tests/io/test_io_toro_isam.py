"""TORO's and iSAM's text: number orders, angles, square roots, landmarks."""

import numpy as np
import pytest

from graphopt import io
from graphopt.errors import FormatError
from graphopt.geometry import SE3


def euler_matrix(roll, pitch, yaw):
    """Rz(yaw) Ry(pitch) Rx(roll), written out independently."""
    (cr, sr), (cp, sp), (cy, sy) = ((np.cos(a), np.sin(a)) for a in (roll, pitch, yaw))
    x = np.array([[1, 0, 0], [0, cr, -sr], [0, sr, cr]])
    y = np.array([[cp, 0, sp], [0, 1, 0], [-sp, 0, cp]])
    z = np.array([[cy, -sy, 0], [sy, cy, 0], [0, 0, 1]])
    return z @ y @ x


def test_toro_information_order(read_text):
    """EDGE2 has xx xy yy tt xt yt."""
    graph, _ = read_text("VERTEX2 0 0 0 0\nVERTEX2 1 1 0 0\nEDGE2 0 1 1 2 3 11 12 22 33 13 23\n", "a.graph")
    assert graph.edge_set("EDGE_SE2").information[0].tolist() == [[11, 12, 13], [12, 22, 23], [13, 23, 33]]


def test_toro_agrees_with_g2o_on_csail(shared_data):
    """CSAIL's edges in a TORO file and in a .g2o file are the same measurements."""
    toro = io.read_with_report(shared_data / "posegraph" / "CSAIL.graph")[0].edge_set("EDGE_SE2")
    g2o = io.read_with_report(shared_data / "posegraph" / "CSAIL.g2o")[0].edge_set("EDGE_SE2")
    assert np.array_equal(toro.vertices, g2o.vertices)
    np.testing.assert_allclose(toro.measurement, g2o.measurement, atol=1e-6)


def test_toro_round_trip(shared_data, tmp_path):
    """Real TORO files write back with the same chi2, EQUIV lines in place."""
    for folder, name in (
        ("posegraph", "CSAIL.graph"),
        ("posegraph", "w100.graph"),
        ("landmark", "example_br.graph"),
    ):
        graph, report = io.read_with_report(shared_data / folder / name)
        assert report.format == "toro"
        io.write(graph, tmp_path / "again.graph")
        again = io.read(tmp_path / "again.graph")
        assert again.chi2() == pytest.approx(graph.chi2(), rel=1e-12)
        assert [line.text for line in again.unparsed] == [line.text for line in graph.unparsed]


def test_equivalences_are_reported(read_text):
    """EQUIV lines are kept and named in the report."""
    graph, report = read_text("VERTEX2 0 0 0 0\nVERTEX2 1 1 0 0\nEQUIV 0 1\n", "a.graph")
    assert report.unknown_tags == {"EQUIV": 1}
    assert any("1 EQUIV lines" in warning for warning in report.warnings)
    assert graph.unparsed[0].text == "EQUIV 0 1"


def test_bearing_range(read_text):
    """A BR line creates its point where it is seen, with sigmas as the square roots of the covariance."""
    graph, _ = read_text("VERTEX2 0 1 2 1.5\nBR 0 9 0.25 4 0.1 0.5\nBR 0 9 0.3 4 0.1 0.5\n", "a.graph")
    expected = [1 + 4 * np.cos(1.75), 2 + 4 * np.sin(1.75)]
    np.testing.assert_allclose(graph.vertex(9).estimate, expected)
    assert np.allclose(graph.edge_sets[0].information[0], np.diag([100, 4]))
    assert graph.chi2() == pytest.approx(100 * 0.05**2)
    for line in ("BR 0 9 0.25 4 0 0.5", "BR 0 9 0.25 4 -1 0.5", "BR 0 9 0.25 4 1e-200 0.5"):
        with pytest.raises(FormatError, match=r"a.graph:2: BR: sigmas"):
            read_text(f"VERTEX2 0 1 2 1.5\n{line}\n", "a.graph")


@pytest.mark.parametrize("name", ["a.graph", "a.isam"])
def test_euler_angles(read_text, name):
    """EDGE3 is x y z roll pitch yaw with R = Rz Ry Rx, in both formats."""
    vertices = "VERTEX3 0 0 0 0 0 0 0\nVERTEX3 1 0 0 0 0 0 0\n" if name == "a.graph" else ""
    graph, _ = read_text(f"{vertices}EDGE3 0 1 1 2 3 0.3 -0.4 2.5\n", name)
    matrix = SE3(graph.edge_set("EDGE_SE3:QUAT").measurement[0]).to_matrix()
    np.testing.assert_allclose(matrix[:3, :3], euler_matrix(0.3, -0.4, 2.5), atol=1e-15)
    assert matrix[:3, 3].tolist() == [1, 2, 3]


def test_isam_square_roots(read_text):
    """The information is R' R; in EDGE3 iSAM's R is of yaw, pitch, roll with the entries reversed."""
    graph, _ = read_text("ODOMETRY 0 1 1 2 3 2 3 5 7 11 13\n", "a.isam")
    factor = np.array([[2, 3, 5], [0, 7, 11], [0, 0, 13]])
    assert np.allclose(graph.edge_set("EDGE_SE2").information[0], factor.T @ factor)
    numbers = np.arange(1.0, 22.0)
    graph, _ = read_text("EDGE3 0 1 0 0 0 0 0 0 " + " ".join(map(str, numbers)) + "\n", "a.isam")
    i = {(r + 1, c + 1): x for (r, c), x in zip(zip(*np.triu_indices(6), strict=True), numbers, strict=True)}
    factor = np.zeros((6, 6))
    factor[0] = [i[1, 1], i[1, 2], i[1, 3], i[1, 4], i[1, 5], i[1, 6]]
    factor[1, 1:] = [i[2, 2], i[2, 3], i[2, 4], i[2, 5], i[2, 6]]
    factor[2, 2:] = [i[3, 3], i[3, 4], i[3, 5], i[3, 6]]
    factor[3, 3:] = [i[6, 6], i[5, 6], i[4, 6]]
    factor[4, 4:] = [i[5, 5], i[4, 5]]
    factor[5, 5] = i[4, 4]
    error = np.array([0.1, 0.2, 0.3, 0.01, 0.02, 0.03])  # of x y z roll pitch yaw
    whitened = factor @ error[[0, 1, 2, 5, 4, 3]]
    half = error * [1, 1, 1, 0.5, 0.5, 0.5]  # g2o's error has the quaternion's vector part
    information = graph.edge_set("EDGE_SE3:QUAT").information[0]
    assert half @ information @ half == pytest.approx(whitened @ whitened)


def test_isam_odometry_meets_its_loop_closures(shared_data):
    """Poses composed from the odometry of the real files fit the other edges better than reversed angles."""
    for folder, name in (("posegraph", "sphere400.isam.txt"), ("landmark", "torus2000Points.isam.txt.xz")):
        graph, report = io.read_with_report(shared_data / folder / name)
        assert report.needs_initialization
        edges = graph.edge_set("EDGE_SE3:QUAT")
        as_read = closure_gap(edges.vertices, SE3(edges.measurement))
        x, y, z, w = edges.measurement[:, 3:].T
        roll = np.arctan2(2 * (w * x + y * z), 1 - 2 * (x * x + y * y))
        pitch = np.arcsin(2 * (w * y - z * x))
        yaw = np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))
        full = np.tile(np.eye(4), (len(edges), 1, 1))
        full[:, :3, :3] = [euler_matrix(*angles) for angles in zip(yaw, pitch, roll, strict=True)]
        full[:, :3, 3] = edges.measurement[:, :3]
        assert as_read < 0.6 * closure_gap(edges.vertices, SE3.from_matrix(full))


def closure_gap(vertices, measured):
    """Median rotation [rad] between a loop closure and the odometry between its ends."""
    storage = np.asarray(measured.storage)
    odometry = {int(a): k for k, (a, b) in enumerate(vertices) if b == a + 1}
    poses = [SE3.identity()]
    for k in range(len(odometry)):
        poses.append(poses[-1] * SE3(storage[odometry[k]]))
    world_T_pose = np.array([pose.storage for pose in poses])
    closes = np.abs(vertices[:, 1] - vertices[:, 0]) > 1
    first, second = (SE3(world_T_pose[ends]) for ends in vertices[closes].T)
    gap = (SE3(storage[closes]).inverse() * (first.inverse() * second)).log()
    return np.median(np.linalg.norm(gap[:, :3], axis=1))


def test_isam_landmarks_get_numbers_of_their_own(read_text):
    """Where poses and landmarks overlap, landmarks are moved behind the poses, and the report says how."""
    graph, report = read_text("ODOMETRY 0 1 1 0 0 2 0 0 2 0 2\nLANDMARK 0 1 1 1 2 0 2\n", "a.isam")
    assert graph.vertex_set("VERTEX_XY").ids.tolist() == [1 + 2]
    assert any("landmark l is vertex l + 2" in warning for warning in report.warnings)
    graph, report = read_text("ODOMETRY 0 1 1 0 0 2 0 0 2 0 2\nLANDMARK 0 7 1 1 2 0 2\n", "a.isam")
    assert graph.vertex_set("VERTEX_XY").ids.tolist() == [7]


def test_covariances_in_gtsam_files(shared_data, tmp_path):
    """GTSAM's Victoria Park has covariances: its informations are squares of the .g2o file's numbers."""
    graph, report = io.read_with_report(shared_data / "landmark" / "victoria_park_gtsam.txt.xz")
    assert any("covariances" in warning for warning in report.warnings)
    roots = io.read(shared_data / "landmark" / "victoriaPark-full.g2o.xz")
    for tag in ("EDGE_SE2", "EDGE_SE2_XY"):
        ours, other = graph.edge_set(tag).information, roots.edge_set(tag).information
        np.testing.assert_allclose(np.einsum("nii->ni", ours), np.einsum("nii->ni", other) ** 2, rtol=1e-4)
    path = tmp_path / "a.isam"
    path.write_text("ODOMETRY 0 1 1 0 0 0.1 0 0 0 0 0.1\n")
    with pytest.raises(FormatError, match=r"a.isam:1: ODOMETRY: the covariance is singular"):
        io.read(path, dialect="isam-covariance")


def test_isam_round_trip(shared_data, tmp_path):
    """Measurements and informations survive writing and reading; estimates have no place."""
    for folder, name in (("posegraph", "sphere400.isam.txt"), ("landmark", "torus2000Points.isam.txt.xz")):
        graph = io.read_with_report(shared_data / folder / name)[0]
        warnings = io.write(graph, tmp_path / "again.isam")
        assert any("estimates" in warning for warning in warnings)
        again = io.read_with_report(tmp_path / "again.isam")[0]
        for edge_set in graph.edge_sets:
            other = again.edge_set(edge_set.type)
            np.testing.assert_allclose(other.measurement, edge_set.measurement, atol=1e-14)
            np.testing.assert_allclose(other.information, edge_set.information, rtol=1e-12, atol=1e-9)


def test_isam_refuses_what_it_cannot_hold(read_text, tmp_path):
    """Edges of other types, singular informations and graphs without edges have no iSAM file."""
    graph, _ = read_text("VERTEX_SE2 0 0 0 0\nVERTEX_SE2 1 0 0 0\nEDGE_SE2 0 1 0 0 0 1 0 0 1 0 0\n", "a.g2o")
    with pytest.raises(FormatError, match="not positive definite"):
        io.write(graph, tmp_path / "b.isam")
