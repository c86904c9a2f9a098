"""Trajectories in TUM and KITTI form, as arrays and as graphs."""

import numpy as np
import pytest

from graphopt import io
from graphopt.errors import FormatError
from graphopt.geometry import SE3
from graphopt.graph import Graph


@pytest.fixture
def poses():
    """Return ten random poses (10, 7)."""
    rng = np.random.default_rng(3)
    values = rng.normal(size=(10, 7))
    values[:, 3:] /= np.linalg.norm(values[:, 3:], axis=1, keepdims=True)
    return values


def test_tum_keeps_every_bit(poses, tmp_path):
    """Time stamps and poses survive to the last bit or the rounding of one normalisation."""
    times = 1.4e9 + np.arange(10) / 30
    io.write_tum(tmp_path / "a.tum", times, poses)
    again_times, again = io.read_tum(tmp_path / "a.tum")
    assert np.array_equal(again_times, times)
    np.testing.assert_allclose(again, poses, rtol=1e-15)


def test_kitti_keeps_the_matrices(poses, tmp_path):
    """Matrices survive; quaternions up to their sign."""
    io.write_kitti(tmp_path / "a.kitti", poses)
    again = io.read_kitti(tmp_path / "a.kitti")
    np.testing.assert_allclose(SE3(again).to_matrix(), SE3(poses).to_matrix(), atol=1e-14)


def test_commas_are_separators(tmp_path):
    """Files with commas between the fields are read."""
    (tmp_path / "a.txt").write_text("#timestamp, p, q\n1.5,1,2,3,0,0,0,2\n")
    times, poses = io.read_tum(tmp_path / "a.txt")
    assert times.tolist() == [1.5] and poses.tolist() == [[1, 2, 3, 0, 0, 0, 1]]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1 2 3 4 5 6 7", "a.tum:2: got 7 numbers, expected 8"),
        ("1 2 3 4 0 0 0 0", "a.tum:2: the quaternion has length 0"),
        ("1 2 3 4 0 0 0 nan", "a.tum:2: 'nan' is not finite"),
    ],
)
def test_wrong_tum_lines(tmp_path, line, message):
    """The line is named."""
    (tmp_path / "a.tum").write_text(f"0 0 0 0 0 0 0 1\n{line}\n")
    with pytest.raises(FormatError) as error:
        io.read_tum(tmp_path / "a.tum")
    assert message in str(error.value)


def test_wrong_kitti_matrices(tmp_path):
    """A matrix that is no rotation, also a reflection, is refused with its line."""
    for line in ("2 0 0 0 0 1 0 0 0 0 1 0", "1 0 0 0 0 1 0 0 0 0 -1 0", "1e200 0 0 0 0 1 0 0 0 0 1 0"):
        (tmp_path / "a.kitti").write_text(f"1 0 0 0 0 1 0 0 0 0 1 0\n{line}\n")
        with pytest.raises(FormatError, match=r"a.kitti:2: the 3 x 3 part is no rotation"):
            io.read_kitti(tmp_path / "a.kitti")


def test_graphs(poses, tmp_path):
    """A graph's poses come out by ascending id as world_T_body, whatever their type."""
    graph = Graph()
    graph.add_vertices("VERTEX_SE3:QUAT", [5, 3], poses[:2])
    graph.add_vertices("VERTEX_SE3:EXPMAP", [4], np.asarray(SE3(poses[2:3]).inverse().storage))
    graph.add_vertices("VERTEX_SE2", [9], [[1, 2, np.pi / 2]])
    graph.add_vertices("VERTEX_XY", [0], [[1, 2]])
    warnings = io.write(graph, tmp_path / "a.tum")
    assert any("1 other vertices" in w for w in warnings) and any("ids stand" in w for w in warnings)
    times, again = io.read_tum(tmp_path / "a.tum")
    assert times.tolist() == [3, 4, 5, 9]
    flat = [1, 2, 0, 0, 0, np.sqrt(0.5), np.sqrt(0.5)]
    np.testing.assert_allclose(
        SE3(again).to_matrix(), SE3(np.array([poses[1], poses[2], poses[0], flat])).to_matrix(), atol=1e-14
    )
    with pytest.raises(FormatError, match="has no poses"):
        io.write(Graph(), tmp_path / "b.tum")


def test_time_stamps_survive_a_graph(shared_data, tmp_path):
    """A TUM file read as a graph writes back with its time stamps."""
    path = shared_data / "vio" / "evo" / "V102.txt"
    graph = io.read(path)
    assert io.write(graph, tmp_path / "again.tum") == []
    times, poses = io.read_tum(path)
    again_times, again = io.read_tum(tmp_path / "again.tum")
    assert np.array_equal(times, again_times)
    np.testing.assert_allclose(again, poses, rtol=1e-14, atol=1e-15)
