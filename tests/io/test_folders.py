"""A COLMAP folder has five files of one model, whenever its writer is killed; files of other names stay."""

import json
import os
import sys
from pathlib import Path

import pytest
from processes import completed

import graphopt
from graphopt import colmap
from graphopt.io import folders
from tests.colmap.test_rigs import rig_model

FIVE = ("cameras.bin", "images.bin", "points3D.bin", "rigs.bin", "frames.bin")
ROOT = Path(__file__).resolve().parents[2]


def contents(folder):
    """The five files, as they lie there."""
    return {name: (folder / name).read_bytes() for name in FIVE}


@pytest.fixture
def models(tmp_path):
    """Two models, and their files."""
    found = {}
    for number, points in enumerate((40, 90)):
        colmap.write_colmap(rig_model(num_points=points), tmp_path / f"model{number}")
        found[points] = contents(tmp_path / f"model{number}")
    return found


KILLED = """
import json, os, random, signal, sys, time
from pathlib import Path
sys.path.append(sys.argv[2])
from graphopt import colmap
from tests.io.test_folders import contents
from tests.colmap.test_rigs import rig_model

folder = Path(sys.argv[1])
models = [rig_model(num_points=n) for n in (40, 90)]
colmap.write_colmap(models[0], folder)
(folder / "project.ini").write_text("mine")
os.symlink("project.ini", folder / "link")
known = []
for one in models:
    colmap.write_colmap(one, folder)
    known.append(contents(folder))
random.seed(3)
broken = lost = changes = 0
for number in range(25):
    child = os.fork()
    if child == 0:
        while True:
            colmap.write_colmap(models[0], folder)
            colmap.write_colmap(models[1], folder)
    time.sleep(random.uniform(0.002, 0.03))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    broken += contents(folder) not in known
    lost += (folder / "link").read_text() != "mine"
    changes += contents(folder) == known[0]
print(json.dumps([broken, lost, changes]))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="folders change places on Linux")
def test_killed_at_random(tmp_path):
    """Read as COLMAP would, file by file, without this library's help."""
    done = completed(
        [sys.executable, "-c", KILLED, str(tmp_path / "model"), str(ROOT)],
        timeout=120,
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(
                map(str, [Path(graphopt.__file__).resolve().parents[1], ROOT, ROOT / "tests" / "helpers"])
            ),
        },
    )
    assert done.returncode == 0, done.stderr
    broken, lost, _ = json.loads(done.stdout)
    assert (broken, lost) == (0, 0)


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("at", range(12))
def test_file_by_file(at, tmp_path, models, monkeypatch):
    """A folder with folders inside, ended at any renaming: readers find one model, the next write goes on."""
    folder = tmp_path / "used"
    colmap.write_colmap(rig_model(num_points=40), folder)
    (folder / "images").mkdir()
    (folder / "images" / "a.jpg").write_bytes(b"picture")
    count, rename = [0], os.replace

    def ending(*names):
        if count[0] == at:
            raise Killed
        count[0] += 1
        rename(*names)

    monkeypatch.setattr(os, "replace", ending)
    monkeypatch.setattr(folders.shutil, "rmtree", lambda *_, **__: None)  # nobody tidies up
    try:
        colmap.write_colmap(rig_model(num_points=90), folder)
        ended = False
    except Killed:
        ended = True
    monkeypatch.undo()
    assert ended == (at < 11), count
    assert len(colmap.read_colmap(folder).points.ids) == (90 if at >= 6 else 40)
    assert colmap.read_colmap(folder).warnings == []
    colmap.write_colmap(rig_model(num_points=40), folder)
    assert contents(folder) == models[40]
    assert not (folder / folders.PENDING).exists()
    assert (folder / "images" / "a.jpg").read_bytes() == b"picture"


def test_another_program_writes_after_a_writer_was_killed(tmp_path, models):
    """What is pending is older than what COLMAP has written since, and is not taken."""
    folder = tmp_path / "used"
    pending = folder / folders.PENDING
    pending.mkdir(parents=True)
    for name, data in models[40].items():
        (pending / name).write_bytes(data)
    assert len(colmap.read_colmap(folder).points.ids) == 40
    for name, data in models[90].items():
        (folder / name).write_bytes(data)
        os.utime(folder / name, ns=(pending.stat().st_mtime_ns + 10**9,) * 2)
    assert len(colmap.read_colmap(folder).points.ids) == 90
    colmap.write_colmap(rig_model(num_points=90), folder)
    assert contents(folder) == models[90] and not pending.exists()


@pytest.mark.parametrize("where", ["cwd", "no exchange", "link", "other"])
def test_folders_of_all_kinds(where, tmp_path, models, monkeypatch):
    """The working folder keeps its place; a link is followed; permissions and other files stay."""
    folder = tmp_path / "used"
    colmap.write_colmap(rig_model(num_points=40), folder)
    (folder / "project.ini").write_text("mine")
    folder.chmod(0o750)
    (folder / "images.bin").chmod(0o640)
    before = folder.stat().st_ino
    target = folder
    if where == "cwd":
        monkeypatch.chdir(folder)
        target = Path()
    elif where == "no exchange":
        monkeypatch.setattr(folders, "_rename_exchange", lambda *_: False)
    elif where == "link":
        target = tmp_path / "link"
        target.symlink_to(folder)
    colmap.write_colmap(rig_model(num_points=90), target)
    assert contents(folder) == models[90]
    assert (folder / "project.ini").read_text() == "mine"
    assert folder.stat().st_mode & 0o777 == 0o750
    assert (folder / "images.bin").stat().st_mode & 0o777 == 0o640
    if where in ("cwd", "no exchange"):
        assert folder.stat().st_ino == before
    if where == "link":
        assert target.is_symlink()
    assert sorted(path.name for path in folder.iterdir()) == sorted([*FIVE, "project.ini"])
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []
