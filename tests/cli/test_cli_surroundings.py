"""Pipes, encodings, full disks and odd numbers: a command says what is wrong, or works; it never breaks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from graphopt import io
from graphopt.cli.main import main
from graphopt.evaluate import datasets


@pytest.fixture(scope="module")
def sphere(tmp_path_factory) -> Path:
    """A small sphere in a .g2o file."""
    path = tmp_path_factory.mktemp("sphere") / "sphere.g2o"
    io.write(datasets.sphere(nodes_per_level=6, laps=4), path)
    return path


def run(*words: object, shell: str = "", **settings: str) -> subprocess.CompletedProcess[bytes]:
    """A command in a process of its own; `shell`: what stands around it."""
    command = [sys.executable, "-m", "graphopt", *map(str, words)]
    if shell:
        command = ["sh", "-c", shell.replace("@", '"$@"'), "sh", *command]
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("LC_", "LANG"))}
    return subprocess.run(command, capture_output=True, timeout=120, check=False, env=clean | settings)


@pytest.mark.parametrize("words", [["optimize", "-", "-i", "2"], ["info", "-"], ["explain", "-"]])
def test_a_minus_is_standard_input(words, sphere):
    """As many programs have it, and as `graphopt g2o` does."""
    done = run(*words, shell=f"cat '{sphere}' | @")
    assert done.returncode == 0, done.stderr


def test_convert_between_standard_input_and_output(sphere):
    """Only the graph is written to a pipe; what is said goes to stderr."""
    done = run("convert", "-", "-", "--to", "g2o", shell=f"cat '{sphere}' | @")
    assert done.returncode == 0
    lines = done.stdout.decode().splitlines()
    assert {line.split()[0] for line in lines} == {"VERTEX_SE3:QUAT", "EDGE_SE3:QUAT", "FIX"}
    assert b"24 vertices" in done.stderr


@pytest.mark.parametrize("shell", ["@ >&-", "@ 2>&-", "@ >&- 2>&-"])
def test_closed_streams_do_no_harm(shell, sphere, tmp_path):
    """A service may run without stdout and stderr."""
    target = tmp_path / "out.g2o"
    done = run("optimize", sphere, "-i", "2", "-o", target, shell=shell)
    assert done.returncode == 0 and b"Internal" not in done.stderr
    assert io.read(target).num_vertices == 24


def test_names_and_tables_go_through_any_encoding(sphere, tmp_path):
    """A table on an ASCII terminal, a file whose name is no text, its page."""
    done = run("info", sphere, PYTHONIOENCODING="ascii")
    assert done.returncode == 0 and b"VERTEX_SE3:QUAT" in done.stdout and b"---" in done.stdout
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xe9.g2o"))
    odd.write_bytes(sphere.read_bytes())
    for words in (["info"], ["optimize", "-i", "1"], ["view", "-o", tmp_path / "page.html"]):
        done = run(words[0], odd, *words[1:], PYTHONIOENCODING="utf-8:strict")
        assert done.returncode == 0, done.stderr
    assert b"\xff\xe9.g2o" in run("info", odd, PYTHONIOENCODING="utf-8:strict").stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_is_named(sphere):
    """Which file could not be written."""
    done = run("optimize", sphere, "-i", "1", "--stats", "/dev/full")
    assert done.returncode == 2 and b"/dev/full: No space left" in done.stderr
    for words in (["info", sphere], ["info", sphere, "--json"], ["optimize", "missing.g2o", "--json"]):
        done = run(*words, shell="@ >/dev/full")
        assert done.returncode == 2 and done.stderr.count(b"graphopt: ") == 1, done.stderr
        assert len(done.stderr.splitlines()) == 1, done.stderr


def test_a_disk_that_fills_names_the_file(sphere, tmp_path, monkeypatch, capsys):
    """The old file stays, nothing else does."""
    target = tmp_path / "out.g2o"
    target.write_text("old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert main(["optimize", str(sphere), "-i", "1", "-o", str(target)]) == 2
    assert f"{target}: No space left on device" in capsys.readouterr().err
    assert target.read_text() == "old" and os.listdir(tmp_path) == ["out.g2o"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["generate", "sphere", "--seed", "-1", "-o", "x.g2o"], "'-1' must be 0 or above"),
        (["generate", "vi", "--like", "MH01", "--seed", "-1", "-o", "x.vib"], "'-1' must be 0 or above"),
        (["optimize", "-i", "x", "a.g2o"], "'x' is no whole number"),
        (["optimize", "-i", "1_0", "a.g2o"], "'1_0' is no whole number"),
        (["optimize", "--time-limit", "1_0.5", "a.g2o"], "'1_0.5' is no number"),
        (["optimize", "--time-limit", "1s", "a.g2o"], "'1s' is no number"),
        (["optimize", "--pcg-iterations", "1.5", "a.g2o"], "'1.5' is no whole number"),
    ],
)
def test_numbers_that_do_not_fit_are_told(words, says, capsys):
    """Without names of functions, and as bad usage."""
    assert main(words) == 2
    said = capsys.readouterr().err
    assert says in said and "invalid" not in said


@pytest.mark.parametrize("command", ["info", "optimize", "view", "explain"])
@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"\x89HDF\r\n\x1a\n" + bytes(100), "graphopt convert"),
        ("VERTEX_SE2 0 0 0 0\n".encode("utf-16"), "UTF-16"),
        (bytes(range(256)) * 20, "binary"),
    ],
)
def test_what_is_no_graph_is_named(command, content, says, tmp_path, capsys):
    """HDF5, UTF-16 and other binary data."""
    path = tmp_path / "graph.g2o"
    path.write_bytes(content)
    assert main([command, str(path)]) == 2
    assert says in capsys.readouterr().err


def test_every_cut_of_an_archive_is_refused(tmp_path, capsys):
    """A .npz with a graph, cut at ten places."""
    path = tmp_path / "graph.npz"
    io.write(datasets.sphere(nodes_per_level=6, laps=4), path, "graph_npz")
    whole = path.read_bytes()
    for size in np.linspace(60, len(whole) - 1, 10).astype(int):
        path.write_bytes(whole[:size])
        assert main(["info", str(path)]) == 2
        assert "npz archive" in capsys.readouterr().err


def test_a_missing_checkpoint_is_told(sphere, tmp_path, capsys):
    """As other missing files are."""
    missing = tmp_path / "none.npz"
    assert main(["optimize", str(sphere), "--distributed", "--resume", str(missing)]) == 2
    assert f"{missing}: No such file" in capsys.readouterr().err
