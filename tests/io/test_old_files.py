"""Files of every release so far are read, and give what they gave."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import old_files
import pytest

import graphopt
from graphopt.io import FORMATS

ARCHIVE = Path(__file__).parent / "old"
FILES = [(folder.name, name) for folder in sorted(ARCHIVE.iterdir()) for name in old_files.names(folder)]


def test_this_release_is_in_the_archive():
    """`tools/write_old_files.py` writes it; each format that graphs are written in is there."""
    suffixes = {Path(name).suffix for release, name in FILES if release == graphopt.__version__}
    written = [FORMATS[name].suffixes for name in FORMATS.names() if FORMATS[name].write]
    assert all(suffixes.intersection(ways) for ways in written if ways)


@pytest.mark.parametrize(("release", "name"), FILES)
def test_an_old_file_is_read(release, name, tmp_path, monkeypatch):
    """Counts to the unit, numbers to 1e-9; nothing in the archive changes."""
    folder = tmp_path / release
    shutil.copytree(ARCHIVE / release, folder)
    monkeypatch.setenv("GRAPHOPT_CACHE_DIR", str(folder / "cache"))
    expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    found = old_files.contents(folder, name)
    assert found.keys() == expected[name].keys()
    for key, value in expected[name].items():
        assert found[key] == (pytest.approx(value, rel=1e-9) if isinstance(value, float) else value), key
