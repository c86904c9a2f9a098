"""`graphopt convert` takes maps from any format to any other, and says what is lost."""

import json

import numpy as np
import pytest

import graphopt
import slam_bridge as sb
from graphopt.cli.main import main
from graphopt.errors import FormatError
from slam_bridge.exchange import VibProblem, read_map_file, write_map_file
from slam_bridge.generator.problem import ProblemOptions, generate_problem
from slam_bridge.map_file import FORMAT, VERSION, map_arrays

SMALL = ProblemOptions(keyframes=20, landmarks=150, observations=480)


@pytest.fixture(scope="module")
def problem() -> VibProblem:
    return generate_problem("MH01", SMALL)


@pytest.mark.parametrize("name", ["b.g2o", "b.json", "b.yaml", "folder"])
def test_there_and_back_by_the_command(problem, name, tmp_path, capsys):
    """Keyframes, landmarks and pixels survive two commands; the first names what is lost."""
    first, middle, last = (str(tmp_path / name) for name in ("a.vib", name, "c.vib"))
    write_map_file(problem, first)
    assert main(["convert", first, middle]) == 0
    said = capsys.readouterr()
    assert "20 keyframes, 150 landmarks, 480 observations" in said.out
    assert "19 IMU measurements" in said.err and "the truth" in said.err
    assert ("right columns" in said.err) == (name in ("b.yaml", "folder"))
    assert main(["convert", middle, last]) == 0
    found = read_map_file(last).map
    assert [len(found.tables[table]) for table in ("keyframes", "landmarks", "observations")] == [
        20,
        150,
        480,
    ]
    for world in (found, problem.map):
        seen = world.observations
        assert np.ptp(seen["pixel"], axis=0).min() > 100.0
    mine, theirs = (np.sort(map_.observations["pixel"][:, 0]) for map_ in (found, problem.map))
    np.testing.assert_allclose(mine, theirs, atol=1e-4)


def test_what_cannot_be_converted(problem, tmp_path, capsys):
    """Options of graphs, unknown endings and boost's archives end with a sentence."""
    path = str(tmp_path / "a.vib")
    write_map_file(problem, path)
    for arguments, text in (
        ([path, str(tmp_path / "b.g2o"), "--to", "toro"], "--to is for graphs"),
        ([path, str(tmp_path / "b.toro")], "no file of a map"),
        ([str(tmp_path / "atlas.osa"), path], "boost archive"),
    ):
        assert main(["convert", *arguments]) != 0
        assert text in capsys.readouterr().err


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """A small map as older versions wrote it."""
    folder = tmp_path_factory.mktemp("archive")
    sizes = ["--keyframes", "8", "--landmarks", "60", "--observations", "300"]
    assert main(["generate", "vi", "--like", "MH01", *sizes, "-o", str(folder / "a.vib")]) == 0
    arrays = map_arrays(sb.Map.load(folder / "a.vib"))
    np.savez(folder / "a.npz", format=FORMAT, version=VERSION, **arrays)
    return folder / "a.npz"


@pytest.mark.parametrize("target", ["b.vib", "b.g2o"])
def test_an_archive_of_a_map_is_converted(archive, target, tmp_path):
    """By its content: archives of graphs have the same ending."""
    assert main(["convert", str(archive), str(tmp_path / target)]) == 0
    assert (tmp_path / target).stat().st_size > 0


def test_an_archive_of_a_map_is_solved(archive, tmp_path, capsys):
    """As a .vib file is; `info` says what it holds; as a graph it is refused by name."""
    out = tmp_path / "out.vib"
    assert main(["optimize", str(archive), "-o", str(out), "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["final_chi2"] < summary["initial_chi2"]
    assert main(["info", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["counts"]["keyframes"] == 8
    with pytest.raises(FormatError, match="a map of slam_bridge, and no graph"):
        graphopt.read(archive)
