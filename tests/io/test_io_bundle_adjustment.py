"""BAL, its variant with known intrinsics, Bundler and libmv: counts, costs and round trips."""

from io import BytesIO

import numpy as np
import pytest

from graphopt import io
from graphopt.errors import FormatError
from graphopt.io.bal_problem import BalProblem, format_bal, parse_bal, parse_bal_npz

HALF_COST = {  # 0.5 * sum of squared residuals [px^2] of the original files, computed by others
    "bal/problem-49-7776-pre.txt.xz": 850912.5,
    "bal/problem-21-11315-pre.txt.xz": 4413239,
    "bal/dubrovnik-3-7-pre.txt": 2764.22,
    "bal/gtsfm_crane_mast_8.bal.txt.xz": 5841.335,
    "bal/gtsfm_lund_door_12.bal.txt.xz": 10929.82,
    "bal_tumrgbd/fr2robot2.txt": 4242225,
}


@pytest.fixture
def problem():
    """Return two cameras that see three points."""
    rng = np.random.default_rng(0)
    cameras = rng.normal(size=(2, 9))
    cameras[:, 6] = 500
    index = np.array([[0, 0], [0, 1], [1, 1], [1, 2], [0, 2]])
    return BalProblem(index[:, 0], index[:, 1], rng.normal(size=(5, 2)), cameras, rng.normal(size=(3, 3)))


@pytest.mark.parametrize("name", HALF_COST)
def test_cost_of_real_problems(shared_data, name):
    """The chi2 of the graph is twice the published cost."""
    graph = io.read(shared_data / name)
    assert 0.5 * graph.chi2() == pytest.approx(HALF_COST[name], rel=1e-6)


@pytest.mark.parametrize(
    "name", ["bal/problem-49-7776-pre.txt.xz", "bal_tumrgbd/fr2robot2.txt", "bal/Balbianello.out"]
)
def test_round_trips(shared_data, tmp_path, name):
    """Real problems write back with the same chi2."""
    graph, report = io.read_with_report(shared_data / name)
    assert io.write(graph, tmp_path / "again", report.format) == []
    again = io.read(tmp_path / "again", report.format)
    assert again.chi2() == pytest.approx(graph.chi2(), rel=1e-9)


def test_numbers_survive(problem, tmp_path):
    """Text and numpy archive give the same problem to the last bit; points are marginalized."""
    archive = BytesIO()
    np.savez(archive, **{name: value for name, value in vars(problem).items() if value is not None})
    for name, data, parse in (
        ("a.bal", format_bal(problem), parse_bal),
        ("a.npz", archive.getvalue(), parse_bal_npz),
    ):
        (tmp_path / name).write_bytes(data)
        back = parse(data, name)
        for field in ("camera_index", "point_index", "observations", "cameras", "points"):
            assert np.array_equal(getattr(back, field), getattr(problem, field))
        graph = io.read(tmp_path / name)
        assert graph.vertex_set("VERTEX_TRACKXYZ").marginalized.all()
        assert not graph.vertex_set("VERTEX_CAM_BAL").marginalized.any()
        io.write(graph, tmp_path / f"again_{name}")
        assert io.read(tmp_path / f"again_{name}").chi2() == graph.chi2()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 1 1000000000000\n0 0 1 2\n", "cannot stand in the remaining"),
        ("1000000000000 1 1\n0 0 1 2\n1 2 3", "cannot stand in the remaining"),
        ("1 1 -1\n", "negative count"),
        ("9223372036854775807 9223372036854775807 9223372036854775807\n", "not a possible count"),
        ("1 1 1\n0 5 1 2\n" + "0 " * 12, "observation 0 names point 5, expected 0 to 0"),
        ("1 1 1\n-1 0 1 2\n" + "0 " * 12, "observation 0 names camera -1"),
        ("1 1 1\n0 0 1 nan\n" + "0 " * 12, "a.bal:2: observations: 'nan' is not finite"),
        ("1 1 1\n0 0 1 2\n" + "0 " * 11, "a.bal:3: points: the file ends early"),
        ("1 1 1\n0 0 1 2\n" + "0 " * 12 + "7", "expected the end of the file, got '7'"),
    ],
)
def test_wrong_problems(text, message):
    """Wrong counts, indices and numbers are refused with their place, impossible sizes at once."""
    with pytest.raises(FormatError) as error:
        parse_bal(text.encode(), "a.bal")
    assert message in str(error.value)


def test_archives_without_arrays(tmp_path):
    """A numpy archive that lacks an array, or holds objects, is refused."""
    np.savez(tmp_path / "a.npz", cameras=np.zeros((1, 9)))
    with pytest.raises(FormatError, match="no array camera_index"):
        io.read(tmp_path / "a.npz")
    np.savez(
        tmp_path / "b.npz",
        **dict.fromkeys(("camera_index", "point_index", "observations", "cameras", "points"), "x"),
    )
    with pytest.raises(FormatError, match="expected numbers"):
        io.read(tmp_path / "b.npz")


def test_what_bal_does_not_hold_is_said(problem, tmp_path):
    """Information, kernels, fixed vertices and other ids are named as lost."""
    (tmp_path / "a.bal").write_bytes(format_bal(problem))
    graph = io.read(tmp_path / "a.bal")
    graph.edge_sets[0].information[0] *= 2
    graph.edge_sets[0].kernel[0] = 1
    graph.set_fixed([0])
    graph.remove_vertices([1])
    found = " ".join(io.write(graph, tmp_path / "b.bal"))
    for words in ("information", "kernels", "fixed", "ids"):
        assert words in found
    assert io.read(tmp_path / "b.bal").num_edges == graph.num_edges


def test_bundler_keeps_what_is_not_in_the_graph(tmp_path):
    """Colours, feature numbers and cameras that were not reconstructed come back."""
    text = (
        "# Bundle file v0.3\n2 2\n500 0.1 0\n1 0 0\n0 1 0\n0 0 1\n0 0 0\n0 0 0\n0 0 0\n0 0 0\n0 0 0\n0 0 0\n"
        "0 0 -9\n255 0 7\n1 0 17 3.5 -2.5\n1 0 -9\n1 2 3\n1 0 4 1 1\n"
    )
    (tmp_path / "bundle.out").write_text(text)
    graph, report = io.read_with_report(tmp_path / "bundle.out")
    assert any("1 cameras were not reconstructed" in warning for warning in report.warnings)
    assert graph.vertex(1).fixed and not graph.vertex(0).fixed
    assert io.write(graph, tmp_path / "again.out") == []
    assert (tmp_path / "again.out").read_text() == text
    with pytest.raises(FormatError, match=r"bundle.out:18: 9 views of a point, but"):
        (tmp_path / "bundle.out").write_text(text.replace("1 0 4 1 1", "9 0 4 1 1"))
        io.read(tmp_path / "bundle.out")


def test_bundler_and_bal_have_one_camera(problem, tmp_path):
    """A BAL graph written as Bundler file keeps its chi2."""
    (tmp_path / "a.bal").write_bytes(format_bal(problem))
    graph = io.read(tmp_path / "a.bal")
    warnings = io.write(graph, tmp_path / "a.out")
    assert any("colours" in warning for warning in warnings)
    assert io.read(tmp_path / "a.out").chi2() == pytest.approx(graph.chi2(), rel=1e-9)


def test_libmv(shared_data):
    """Both real problems project to within a pixel or so, which a wrong rotation order would not."""
    for name, sizes in (
        ("libmv_problem_01.bin", (333, 26, 5421)),
        ("libmv_problem_02.bin.xz", (440, 71, 16718)),
    ):
        graph, report = io.read_with_report(shared_data / "bal" / name)
        assert (
            report.vertices["VERTEX_SE3:EXPMAP"],
            report.vertices["VERTEX_TRACKXYZ"],
            graph.num_edges,
        ) == sizes
        assert np.sqrt(graph.chi2() / graph.num_edges) < 1.5


def test_libmv_is_checked(shared_data):
    """Cut, grown and lying files are refused."""
    from graphopt.io.formats import FORMATS, read_content
    from graphopt.io.read_report import ReadReport

    data = (shared_data / "bal" / "libmv_problem_01.bin").read_bytes()
    huge = data[:34] + (2**31 - 1).to_bytes(4, "little") + data[38:]
    for wrong in (data[:-3], data + b"x", data[:20], huge, b"xP" + data[2:]):
        with pytest.raises(FormatError):
            read_content(FORMATS["libmv"], wrong, ReadReport("a.bin", "libmv"))
