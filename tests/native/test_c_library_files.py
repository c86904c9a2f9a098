"""The C library reads and writes the files that the Python package reads and writes, all types included."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from builtin_edges import EDGES, graph_of
from c_library import Handle

import graphopt
from graphopt import io
from graphopt.io.export_types import exported_tag


@pytest.mark.parametrize("kind", EDGES, ids=exported_tag)
def test_every_type_in_g2o_files(library, tmp_path, kind):
    """Python writes, the library reads and writes, Python reads: the same chi2, or none of both."""
    graph = graph_of(kind, np.random.default_rng(5))
    path, again = tmp_path / "in.g2o", tmp_path / "out.g2o"
    io.write(graph, path)
    expected = graphopt.read(path).chi2()
    handle = Handle(library)
    handle.done("graph_read", path)
    assert handle.chi2() == pytest.approx(expected, rel=1e-9, nan_ok=True)
    handle.done("graph_write", again)
    assert graphopt.read(again).chi2() == pytest.approx(expected, rel=1e-8, nan_ok=True)


@pytest.mark.parametrize("dialect", ["g2o", "g2opy"])
def test_dialects(library, tmp_path, dialect):
    """Poses that C++ g2o writes inverted: by the comment, asked for, and found out."""
    from graphopt.evaluate.datasets.bundle_adjustment import ba

    graph = ba(cameras=4, points=30, camera="expmap", seed=1)
    path = tmp_path / "in.g2o"
    io.write(graph, path, dialect=dialect)
    expected = graph.chi2()
    for text, asked in ((path.read_text(), None), (path.read_text().replace("# dialect:", "#"), dialect)):
        path.write_text(text)
        handle = Handle(library)
        handle.done("graph_read_as", path, asked, None)
        assert handle.chi2() == pytest.approx(expected, rel=1e-9)
    handle = Handle(library)
    handle.done("graph_read", path)
    assert handle.chi2() == pytest.approx(expected, rel=1e-9)


def test_kernels_and_fixed_vertices(library, tmp_path):
    """In comments and FIX lines, both ways."""
    graph = graph_of(EDGES[0], np.random.default_rng(1))
    edges = graph.edge_sets[0]
    edges.kernel[:2], edges.kernel_width[:2] = 1, (0.5, 0.25)
    graph.vertex_sets[0].fixed[0] = True
    path, again = tmp_path / "in.g2o", tmp_path / "out.g2o"
    io.write(graph, path)
    handle = Handle(library)
    handle.done("graph_read", path)
    assert handle.chi2() == pytest.approx(graph.chi2(), rel=1e-12)
    handle.done("graph_write", again)
    back = graphopt.read(again)
    assert back.chi2() == pytest.approx(graph.chi2(), rel=1e-12)
    assert back.vertex_sets[0].fixed.sum() == 1
    path.write_text(path.read_text().replace("# kernel: ", "# kernel: NO_"))
    assert Handle(library).call("graph_read", path) == 4


def chain(library, count: int) -> Handle:
    """A graph of so many vertices."""
    handle = Handle(library)
    handle.done("add_vertices", "VERTEX_SE2", np.arange(count), np.full((count, 3), count / 7.0), count)
    return handle


WRITER = """
import sys
from pathlib import Path
sys.path[:0] = [sys.argv[1], sys.argv[2]]
import c_library
from test_c_library_files import chain
handle = chain(c_library.load(Path(sys.argv[3])), int(sys.argv[5]))
while True:
    handle.done("graph_write", sys.argv[4])
"""


def test_two_processes_write_one_file(library, installed, tmp_path):
    """Who reads sees what one of them has written, whole; killed, they leave nothing that stays."""
    path, contents = tmp_path / "a.g2o", []
    for count in (400, 900):
        chain(library, count).done("graph_write", path)
        contents.append(path.read_bytes())
    here = Path(__file__).parent
    words = [sys.executable, "-c", WRITER, here.parent / "helpers", here, installed, path]
    writers = [subprocess.Popen([*words, str(count)]) for count in (400, 900)]
    try:
        seen = set()
        for _ in range(20000):
            seen.add(path.read_bytes())
            assert seen <= set(contents)
        assert [writer.poll() for writer in writers] == [None, None]
    finally:
        for writer in writers:
            writer.kill()
            writer.wait()
    (tmp_path / f".a.g2o.0123456789ab@{os.uname().nodename}.tmp").write_bytes(b"of a killed writer")
    (tmp_path / ".b.0123456789ab@elsewhere.tmp").write_bytes(b"of another host")
    path.chmod(0o640)
    link = tmp_path / "link.g2o"
    link.symlink_to(path)
    chain(library, 400).done("graph_write", link)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [
        ".b.0123456789ab@elsewhere.tmp", "a.g2o", "link.g2o"
    ]  # fmt: skip
    assert link.is_symlink() and path.read_bytes() == contents[0]
    assert path.stat().st_mode & 0o777 == 0o640


def test_what_cannot_be_written_is_said(library, tmp_path):
    handle = chain(library, 3)
    assert handle.call("graph_write", tmp_path) == 5
    assert f"{tmp_path}: the file cannot be written (Is a directory)" in handle.error()
    assert handle.call("graph_write", tmp_path / "none" / "a.g2o") == 5
    assert "a.g2o: the file cannot be written (No such file or directory)" in handle.error()
