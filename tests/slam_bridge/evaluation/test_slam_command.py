"""`graphopt slam`: what it writes, and where that goes on a full disk."""

import errno
import json
import re
import tempfile

import numpy as np
import pytest

from graphopt.cli.main import main
from graphopt.io import files
from slam_bridge import Map

pytest.importorskip("cv2")
pytest.importorskip("h5py")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Eight small stereo pairs in a room."""
    place = tmp_path_factory.mktemp("short") / "V1_02"
    arguments = ["--like", "V1_02", "--begin", "4", "--seconds", "0.4", "--image-scale", "0.3"]
    assert main(["generate", "vi-sequence", *arguments, "--supersample", "1", "-o", str(place)]) == 0
    return place


def slam(folder, capsys, *arguments):
    """Exit code, facts, and what was said on stderr."""
    capsys.readouterr()
    code = main(["slam", str(folder), "--mode", "stereo", "--single-thread", "--json", *arguments])
    printed = capsys.readouterr()
    return code, json.loads(printed.out), printed.err


def test_a_full_disk_loses_nothing(folder, tmp_path, capsys, monkeypatch):
    """The trajectory is refused by its disk, and found whole where the message says; the map is written."""
    full, whole, world = tmp_path / "full.txt", tmp_path / "whole.txt", tmp_path / "map.vib"
    full.write_text("of an earlier run")
    assert slam(folder, capsys, "-o", str(whole))[0] == 0
    replace = files.os.replace

    def refuse(source, target, **rest):
        if str(target) == str(full):
            raise OSError(errno.ENOSPC, "No space left on device")
        replace(source, target, **rest)

    monkeypatch.setattr(files.os, "replace", refuse)
    code, facts, said = slam(folder, capsys, "-o", str(full), "--save-map", str(world))
    assert code == 1 and len(facts["failed"]) == 1
    assert "No space left on device; the file that was there stays as it was" in said
    spare = re.search(r"What was found is in (\S+)\.\n", said).group(1)
    np.testing.assert_array_equal(np.loadtxt(spare), np.loadtxt(whole))
    assert full.read_text() == "of an earlier run"
    assert len(Map.load(world).keyframes) == facts["keyframes"]


def test_two_full_disks_are_said(folder, tmp_path, capsys, monkeypatch):
    """The folder for temporary files is on a full disk, too: nothing is left in it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def refuse(source, target, **rest):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.os, "replace", refuse)
    code, facts, said = slam(folder, capsys, "-o", str(tmp_path / "full.txt"))
    assert code == 1 and len(facts["failed"]) == 1
    assert f"and {tmp_path} took none either: No space left on device." in said
    assert not list(tmp_path.iterdir())
