"""Whoever is killed while writing leaves the old file or the new one, never half of one."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest
from processes import completed

import graphopt
from graphopt import colmap
from graphopt.io.files import write_bytes
from graphopt.temporary_files import temporary_file, temporary_folder


def _python_path(root: Path) -> str:
    """The package that is tested first, then the tests."""
    return os.pathsep.join([str(Path(graphopt.__file__).resolve().parents[1]), str(root)])


pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

SCRIPT = """
import json, os, random, resource, signal, sys, time
from os import _exit
from pathlib import Path
from graphopt import io
from graphopt.evaluate import datasets
from graphopt.cli.g2o import output as g2o_output
from graphopt.g2o import files
from graphopt.g2o.files import IoFormat
from graphopt.io.files import write_bytes, append
from graphopt.evaluate.report.figure import new_figure, save

folder = Path(sys.argv[1])
graphs = [datasets.manhattan(nodes=n) for n in (400, 500)]
bundles = [datasets.ba(cameras=4, points=n, camera="bal") for n in (200, 260)]

def picture(which, path):
    figure = new_figure(4, 3)
    figure.add_subplot().plot(range(10 + which))
    save(figure, path)

WRITERS = {
    "a.g2o": lambda which, path: io.write(graphs[which], path),
    "a.g2o.gz": lambda which, path: io.write(graphs[which], path),
    "a.json": lambda which, path: files.write(graphs[which], path, IoFormat.JSON),
    "a.bin": lambda which, path: files.write(graphs[which], path, IoFormat.BINARY),
    "a.npz": lambda which, path: io.write(bundles[which], path),
    "a.bal": lambda which, path: io.write(bundles[which], path),
    "a.png": picture,
    "stats.json": lambda which, path: write_bytes(path, bytes([which]) * 50000),
}

def forked(work):
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            _exit(0)
    return child

def died(child):
    return os.WTERMSIG(status) if os.WIFSIGNALED(status := os.waitpid(child, 0)[1]) else 0

def limited(write, path, limit):
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    write(1, path)

def for_ever(write, path):
    while True:
        write(1, path)
        write(0, path)

def command(*words):
    from graphopt.cli.main import main
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(1, 2)
    main([*words])

report, commands = {}, {}
io.write(graphs[0], folder / "in.g2o")
source = str(folder / "in.g2o")
for name, words in {
    "--stats": ["optimize", source, "-i", "1", "--device", "cpu", "--stats"],
    "--plot": ["optimize", source, "-i", "1", "--device", "cpu", "--plot"],
    "-stats": ["g2o", source, "-i", "1", "-stats"],
    "-summary": ["g2o", source, "-i", "1", "-summary"],
}.items():
    path = folder / f"x{name}.png"
    path.write_bytes(b"old")
    child = forked(lambda: limited(lambda _, target: command(*words, str(target)), path, 20))
    commands[name] = [died(child), path.read_bytes() == b"old"]
random.seed(1)
for name, write in WRITERS.items():
    path = folder / name
    write(1, path)
    new = path.read_bytes()
    write(0, path)
    old = path.read_bytes()
    # png and archives are not the same bytes each time in principle: here they are, or this says so
    write(0, path)
    assert path.read_bytes() == old and old != new, name
    signals = [died(forked(lambda: limited(write, path, len(new) * part // 4))) for part in (1, 2, 3)]
    intact = path.read_bytes() == old
    broken = 0
    for _ in range(6):
        child = forked(lambda: for_ever(write, path))
        time.sleep(random.uniform(0.005, 0.06))
        os.kill(child, signal.SIGKILL)
        died(child)
        broken += path.read_bytes() not in (old, new)
    write(0, path)
    left = [entry.name for entry in folder.iterdir() if entry.name.startswith(".")]
    report[name] = {"signals": signals, "intact": intact, "broken": broken, "left": left}
print(json.dumps([report, commands]))
"""


def test_killed_in_the_middle(tmp_path):
    """Each writer is ended by the kernel at a quarter, half and three quarters of its file, and at random."""
    root = Path(__file__).resolve().parents[2]
    done = completed(
        [sys.executable, "-c", SCRIPT, str(tmp_path)],
        timeout=120,
        env={
            **os.environ,
            "PYTHONPATH": _python_path(root),
            "PYTHONWARNINGS": "ignore",
            "GRAPHOPT_CACHE": "off",
        },
    )
    assert done.returncode == 0, done.stderr
    report, commands = json.loads(done.stdout)
    assert commands == {key: [signal.SIGXFSZ, True] for key in ("--stats", "--plot", "-stats", "-summary")}
    assert len(report) == 8
    for name, found in report.items():
        assert found == {"signals": [signal.SIGXFSZ] * 3, "intact": True, "broken": 0, "left": []}, name


FOLDER = """
import os, resource, signal, sys
from pathlib import Path
sys.path.append(sys.argv[2])
from graphopt import colmap
from tests.colmap.test_rigs import rig_model

folder = Path(sys.argv[1])
colmap.write_colmap(rig_model(num_points=40), folder)
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
size = (folder / "points3D.bin").stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
if sys.argv[3] == "new":
    folder = folder.with_name("other")
colmap.write_colmap(rig_model(num_points=90), folder)
"""


@pytest.mark.parametrize("where", ["old", "new"])
def test_a_folder_keeps_its_five_files(where, tmp_path):
    """A process that ends in the third file of a COLMAP model leaves the old five, or no new folder."""
    root = Path(__file__).resolve().parents[2]
    done = completed(
        [sys.executable, "-c", FOLDER, str(tmp_path / "model"), str(root), where],
        timeout=120,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": _python_path(root)},
    )
    assert done.returncode == -signal.SIGXFSZ, done.stderr
    assert len(colmap.read_colmap(tmp_path / "model").points.ids) == 40
    assert not (tmp_path / "other").exists()
    colmap.write_colmap(colmap.read_colmap(tmp_path / "model"), tmp_path / "third")
    assert not [entry for entry in tmp_path.iterdir() if entry.name.startswith(".")]


def test_only_what_nobody_writes_is_removed(tmp_path):
    """Temporary files of the living, of another host today, of other programs, and under a link stay."""
    host, day = os.uname().nodename, 86400
    stays = ["a.0123456789ab@elsewhere", "a.0123456789@" + host, "a.tmp.0123456789ab"]
    goes = ["a.0123456789ab@" + host, "b.ba9876543210@elsewhere"]
    for name in [*stays, *goes]:
        (tmp_path / f".{name}.tmp").write_bytes(b"part")
    old = (tmp_path / goes[1]).with_name(f".{goes[1]}.tmp")
    os.utime(old, (old.stat().st_mtime - 2 * day,) * 2)
    with temporary_file(tmp_path / "living") as (_, living), temporary_folder(tmp_path / "f") as folder:
        (folder / "content").write_bytes(b"part")
        write_bytes(tmp_path / "new", b"content")
        assert os.path.exists(living) and (folder / "content").exists()
        os.replace(living, tmp_path / "living")
    names = sorted(entry.name for entry in tmp_path.iterdir())
    assert names == sorted([*(f".{name}.tmp" for name in stays), "living", "new"])


def test_a_name_of_many_bytes_is_written(tmp_path):
    """The temporary name keeps within the 255 bytes of a file system, in characters of four bytes, too."""
    path = tmp_path / ("\U00020000" * 60)
    write_bytes(path, b"content")
    assert path.read_bytes() == b"content"
