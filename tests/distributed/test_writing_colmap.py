"""A COLMAP model read in parts is written byte by byte as of the whole; all of it, or the old one stays."""

import signal
import subprocess
import sys

import numpy as np
import pytest

import graphopt
from graphopt import io
from graphopt.distributed import reading, writing
from graphopt.distributed.communicator import RankError, run_as_threads
from graphopt.errors import FormatError
from graphopt.io.colmap import binary, mapped, text
from tests.io.test_colmap_rigs import rig_model


def old_model():
    """One without rigs and frames; a point without a track, a keypoint that claims a point without one."""
    model = rig_model()
    model.rigs, model.frames = [], None
    points = model.points
    last = points.track_start[-1]
    points.ids = np.append(points.ids, 999)
    points.xyz = np.append(points.xyz, [[1.0, 2.0, 9.0]], axis=0)
    points.rgb = np.append(points.rgb, [[1, 2, 3]], axis=0).astype(np.uint8)
    points.error, points.track_start = np.append(points.error, 0.5), np.append(points.track_start, last)
    return model


@pytest.fixture(params=[rig_model, old_model], ids=["rigs", "old"])
def folder(request, tmp_path):
    """A binary model."""
    io.write_colmap(request.param(), tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture(params=["images", "points3D", "both"])
def mixed_folder(request, tmp_path):
    """A model of which some parts are text."""
    model = old_model()
    io.write_colmap(model, tmp_path / "binary")
    io.write_colmap(model, tmp_path / "mixed", as_text=True)
    if request.param != "both":
        other = "points3D" if request.param == "images" else "images"
        (tmp_path / "mixed" / f"{other}.txt").unlink()
        (tmp_path / "mixed" / f"{other}.bin").write_bytes((tmp_path / "binary" / f"{other}.bin").read_bytes())
    return tmp_path / "mixed"


def move(graph):
    """Other numbers of all vertices that are not fixed, the same on every rank that has one."""
    for vertex_set in graph.vertex_sets:
        free = ~vertex_set.fixed
        shift = 1e-3 * np.sin(vertex_set.ids[free, None] + np.arange(3))
        vertex_set.estimate[free, :3] += shift


def contents(folder):
    """Of all files."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def write_moved(folder, target, num_ranks, **options):
    """By ranks that have read parts."""

    def work(comm):
        parted = reading.read(folder, comm)
        move(parted.share.graph)
        writing.write(parted, target, comm, **options)
        return parted.held

    return run_as_threads(num_ranks, work)[0]


def whole_of(folder, held):
    """What one process has of it."""
    graph = graphopt.read(folder)
    graph.set_fixed(held, True)
    move(graph)
    return graph


@pytest.mark.parametrize("form", [None, "colmap", "colmap_text"])
@pytest.mark.parametrize("num_ranks", [1, 3])
def test_it_is_the_file_of_the_whole(folder, tmp_path, form, num_ranks, monkeypatch):
    """Byte by byte; from pieces of a few entries, too."""
    monkeypatch.setattr(mapped, "PIECE", 50)
    held = write_moved(folder, tmp_path / "parts", num_ranks, format=form)
    graphopt.write(whole_of(folder, held), tmp_path / "whole", form)
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")


@pytest.mark.parametrize("form", ["colmap", "colmap_text"])
def test_text_too(mixed_folder, tmp_path, form, monkeypatch):
    """And models of both."""
    monkeypatch.setattr(mapped, "PIECE", 50)
    held = write_moved(mixed_folder, tmp_path / "parts", 3, format=form)
    graphopt.write(whole_of(mixed_folder, held), tmp_path / "whole", form)
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")


def test_no_rank_reads_the_whole(folder, tmp_path, monkeypatch):
    """Neither parser of whole files is called for points and images."""
    for name in ("parse_points", "parse_images"):
        monkeypatch.delattr(binary, name)
    write_moved(folder, tmp_path / "parts", 2)
    assert (tmp_path / "parts" / "points3D.bin").is_file()


def test_in_the_place_of_the_input(folder, tmp_path):
    """Over the files that tracks and keypoints come from."""
    graph = whole_of(folder, write_moved(folder, tmp_path / "elsewhere", 2))
    write_moved(folder, folder, 2)
    graphopt.write(graph, tmp_path / "whole")
    assert contents(folder) == contents(tmp_path / "whole")


@pytest.mark.parametrize("form", [binary, text])
def test_what_fails_in_the_middle_leaves_the_old_one(tmp_path, monkeypatch, form):
    """A full disk while points are written: all ranks say so."""
    io.write_colmap(rig_model(), tmp_path / "model")
    io.write_colmap(rig_model(), tmp_path / "out", as_text=form is text)
    before = contents(tmp_path / "out")
    monkeypatch.setattr(mapped, "PIECE", 50)
    entries, calls = form.point_entries, []

    def full(points):
        calls.append(points)
        if len(calls) == 3:
            raise OSError(28, "No space left on device")
        return entries(points)

    monkeypatch.setattr(form, "point_entries", full)
    with pytest.raises(RankError, match=r"Rank 0: .*No space left"):
        write_moved(tmp_path / "model", tmp_path / "out", 2, format="colmap_text" if form is text else None)
    assert len(calls) == 3
    assert contents(tmp_path / "out") == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "out"]


KILLED = """
import os, signal, sys
from graphopt.distributed import reading, writing
from graphopt.distributed.communicator import run_as_threads
from graphopt.io.colmap import binary, mapped
mapped.PIECE = 50
entries, calls = binary.point_entries, []
def killed(points):
    calls.append(points)
    if len(calls) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return entries(points)
binary.point_entries = killed
def work(comm):
    parted = reading.read(sys.argv[1], comm)
    for vertex_set in parted.share.graph.vertex_sets:
        vertex_set.estimate[~vertex_set.fixed, :3] += 1e-3
    writing.write(parted, sys.argv[1], comm)
run_as_threads(2, work)
"""


def test_whoever_is_killed_leaves_the_old_one(tmp_path):
    """In the middle of the points."""
    io.write_colmap(rig_model(), tmp_path / "model")
    before = contents(tmp_path / "model")
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "model")], check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert contents(tmp_path / "model") == before


def test_files_in_the_other_form_are_not_contradicted(folder, tmp_path):
    """Said by all ranks before anything is written."""
    io.write_colmap(rig_model(), tmp_path / "out", as_text=True)
    before = contents(tmp_path / "out")
    with pytest.raises((RankError, FormatError), match=r"holds cameras\.txt already"):
        write_moved(folder, tmp_path / "out", 2)
    assert contents(tmp_path / "out") == before


def test_an_input_that_is_another_one_now(folder, tmp_path):
    """Its tracks would be those of other points."""

    def work(comm):
        parted = reading.read(folder, comm)
        comm.share(None)
        if comm.rank == 0:
            io.write_colmap(rig_model(num_points=30), folder)
        comm.share(None)
        writing.write(parted, tmp_path / "out", comm)

    with pytest.raises((RankError, FormatError), match="it has 30 points, and had"):
        run_as_threads(2, work)
    assert not (tmp_path / "out").exists()
