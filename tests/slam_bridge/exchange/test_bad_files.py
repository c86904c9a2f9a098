"""Files of maps that are wrong: a FormatError with the file's name, the place and a way out, and no map."""

from __future__ import annotations

import json
import os

import fuzz_maps
import h5py
import numpy as np
import pytest
from archives import write_old_map

from graphopt.errors import FormatError
from slam_bridge import read_calibration
from slam_bridge.exchange import (
    read_colmap_map,
    read_osmap,
    read_pyslam_map,
    read_vib,
    write_colmap_map,
    write_osmap,
    write_pyslam_map,
    write_vib,
)
from slam_bridge.exchange.osmap import _field, _messages, _number
from slam_bridge.generator.problem import generate_problem
from slam_bridge.map_file import read_map
from slam_bridge.tables import Table


@pytest.fixture(scope="module")
def problem():
    return generate_problem("MH01", keyframes=5, landmarks=20, observations=60, seed=3)


@pytest.fixture
def files(problem, tmp_path):
    """One map in all formats."""
    write_vib(problem, tmp_path / "a.vib")
    write_old_map(problem.map, tmp_path / "a.npz")
    write_pyslam_map(problem.map, tmp_path / "map.json")
    write_osmap(problem.map, tmp_path / "orb.yaml")
    write_colmap_map(problem.map, tmp_path / "model", as_text=True)
    (tmp_path / "imu.yaml").write_text("imu0: {gyroscope_noise_density: 0.1}")
    return tmp_path


READERS = {
    "a.vib": read_vib,
    "a.npz": read_map,
    "map.json": read_pyslam_map,
    "orb.yaml": read_osmap,
    "imu.yaml": read_calibration,
}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("content", [b"", b"\x00\xff\xfe\x80" * 40, b"[" * 100_000, b"{}"])
def test_nothing_and_nonsense(files, name, content):
    """Empty, bytes that are no text, brackets without end, an empty object."""
    (files / name).write_bytes(content)
    with pytest.raises(FormatError, match=name.replace(".", r"\.")):
        READERS[name](files / name)


@pytest.mark.parametrize("name", ["a.vib", "a.npz", "orb.yaml"])
def test_folders_are_none(files, name):
    """A folder where a file is expected, and one of pySLAM's or of a model without its files."""
    folder = files / "empty" / name
    folder.mkdir(parents=True)
    with pytest.raises(FormatError, match=r"is a folder, expected"):
        READERS[name](folder)
    with pytest.raises(FormatError, match="empty"):
        read_calibration(folder)
    (files / "map.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"map\.json"):
        read_pyslam_map(files)


@pytest.mark.parametrize("name", ["nothing", "n" * 300, "\u00e9" * 200])
def test_names_that_no_file_has(files, name):
    """Osmap's index names a file that is not there, also one whose name is too long for any."""
    text = (files / "orb.yaml").read_text()
    (files / "orb.yaml").write_text(text.replace("orb.mappoints", name))
    with pytest.raises(FormatError, match=r"orb\.yaml: names '.{7,80}' as its mappointsFile.*not beside it"):
        read_osmap(files / "orb.yaml")


def keyframe(name, value):
    """Change this of the keyframe that sees most."""
    return lambda content: fullest(content).__setitem__(name, value)


def fullest(content):
    return max(content["keyframes"], key=lambda keyframe: len(keyframe["points"]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (keyframe("timestamp", float("nan")), "timestamp number . is nan"),
        (keyframe("timestamp", 1e12), "timestamp number . is 1000000000000"),
        (keyframe("pose", [[float("nan")] * 4] * 4), "not finite|nan"),
        (keyframe("pose", [1, 2]), "reshape"),
        (keyframe("id", float("inf")), "infinity"),
        (keyframe("kpsu", [[1.0, 2.0]]), "out of bounds"),
        (keyframe("points", 7), "int"),
        (lambda content: fullest(content).pop("kpsu"), "'kpsu' is missing"),
        (lambda content: fullest(content).pop("camera"), "'camera' is missing"),
        (lambda content: content.__setitem__("keyframes", []), "no keyframes"),
        (lambda content: content["points"][2].__setitem__("pt", [1.0, None, 2.0]), "not finite"),
    ],
)
def test_pyslam_values(files, change, message):
    """A value of another kind, one that is no number, one that is missing."""
    content = json.loads((files / "map.json").read_text())
    change(content["map"])
    (files / "map.json").write_text(json.dumps(content))
    with pytest.raises(FormatError, match=rf"map\.json: .*({message})"):
        read_pyslam_map(files / "map.json")


def rewritten(files, part, change):
    """Messages of a part of Osmap, changed, in place."""
    path = files / f"orb.{part}"
    messages = change(list(_messages(path.read_bytes())))
    path.write_bytes(b"".join(_field(1, message) for message in messages))


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        ("keyframes", lambda given: [*given, given[0]], "two keyframes have id 0"),
        ("mappoints", lambda given: [*given, given[0]], "two map points have id"),
        ("keyframes", lambda given: [_number(1, 2**62) + given[0][2:], *given[1:]], "has id"),
        ("keyframes", lambda given: [_number(1, 0) + _field(2, _number(1, 5)), *given[1:]], "packed floats"),
        ("keyframes", lambda given: [given[0] + _number(3, 7), *given[1:]], "index"),
        ("keyframes", lambda given: [], "header says 5 keyframes, their file holds 0"),
    ],
)
def test_osmap_messages(files, part, change, message):
    """Ids that are there twice or too large, a number in place of floats, a camera that is not there."""
    rewritten(files, part, change)
    with pytest.raises(FormatError, match=rf"orb\.yaml: .*{message}"):
        read_osmap(files / "orb.yaml")


def test_osmap_parts_that_are_not_there(files):
    """The part and its name are said."""
    (files / "orb.features").unlink()
    with pytest.raises(FormatError, match=r"orb\.yaml: names 'orb\.features' as its featuresFile.*Copy"):
        read_osmap(files / "orb.yaml")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("provenance", 3.0, "a.vib"),
        ("provenance", "[1]", "provenance"),
        ("gravity", np.full(3, np.nan), "gravity"),
        ("gravity", np.ones(5), "gravity"),
    ],
)
def test_vib_attributes(files, name, value, message):
    """Of another type or size."""
    with h5py.File(files / "a.vib", "r+") as file:
        file.attrs[name] = value
    with pytest.raises(FormatError, match=message):
        read_vib(files / "a.vib")


def test_ids_far_apart_take_no_memory():
    """A table of two rows with ids 0 and 2^61 is searched, not spread out; unknown ids are not found."""
    table = Table("thing", {"x": ((), np.float64)})
    table.fill({"id": np.array([0, 2**61]), "x": np.zeros(2), "next_id": np.array(2**61 + 1)})
    np.testing.assert_array_equal(table.find([2**61, 5, 0, -3, 2**62]), [1, -1, 0, -1, -1])


@pytest.mark.parametrize("part", ["cameras.txt", "images.txt", "points3D.txt"])
@pytest.mark.parametrize("kept", [0.3, 0.8])
def test_models_cut_off(files, part, kept):
    """Part of a file: what is missing is named by what refers to it."""
    path = files / "model" / part
    data = path.read_bytes()
    path.write_bytes(data[: int(kept * len(data))])
    with pytest.raises(FormatError, match="model"):
        read_colmap_map(files / "model")


def test_mutated_files():
    """400 mutated inputs: a sound map or a FormatError that names the file."""
    outcomes, failures = fuzz_maps.map_campaign(400, seed=2)
    assert failures == []
    assert outcomes["read"] > 40 and outcomes["refused"] > 150


@pytest.mark.parametrize("part", ["keyframes", "mappoints"])
def test_an_osmap_cut_between_two_messages(files, part):
    """It looks whole; the header's count says that it is not. Headers without counts are read as before."""
    file = files / f"orb.{part}"
    whole = [_field(1, message) for message in _messages(file.read_bytes())]
    file.write_bytes(b"".join(whole[:-2]))
    with pytest.raises(FormatError, match=rf"the header says {len(whole)} {part}, .* cut off"):
        read_osmap(files / "orb.yaml")
    header = (files / "orb.yaml").read_text().splitlines(keepends=True)
    (files / "orb.yaml").write_text("".join(line for line in header if not line.startswith("n")))
    assert len(read_osmap(files / "orb.yaml").keyframes) >= 3


def test_pyslam_keyframes_that_are_none(files):
    """Two with one id; a pose that is no rigid motion, as of a matrix that was scaled."""
    path = files / "map.json"
    content = json.loads(path.read_text())
    frames = content["map"]["keyframes"]
    path.write_text(json.dumps({"map": {**content["map"], "keyframes": [*frames, frames[0]]}}))
    with pytest.raises(FormatError, match=f"two keyframes have id {frames[0]['id']}"):
        read_pyslam_map(path)
    given = frames[1]["pose"]
    pose = np.array(json.loads(given) if isinstance(given, str) else given)
    pose[:3, :3] *= 1.5
    frames[1]["pose"] = json.dumps(pose.tolist()) if isinstance(given, str) else pose.tolist()
    path.write_text(json.dumps(content))
    with pytest.raises(FormatError, match=f"pose of keyframe {frames[1]['id']} has"):
        read_pyslam_map(path)


def test_written_files_have_the_permissions_of_others(problem, files):
    """New ones as the umask says, those that replace a file its own; nothing temporary stays."""
    mask = os.umask(0o027)
    try:
        write_vib(problem, files / "new.vib")
    finally:
        os.umask(mask)
    assert (files / "new.vib").stat().st_mode & 0o777 == 0o640
    names = sorted(path.name for path in files.iterdir())
    for name, write in {"a.vib": write_vib, "map.json": write_pyslam_map, "orb.yaml": write_osmap}.items():
        (files / name).chmod(0o604)
        write(problem if name == "a.vib" else problem.map, files / name)
        assert (files / name).stat().st_mode & 0o777 == 0o604
    assert sorted(path.name for path in files.iterdir()) == names
