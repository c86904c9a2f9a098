"""Files: whole or not there, packed and unpacked, with the system's own reasons when they cannot be."""

import bz2
import gzip
import lzma
import os
import stat

import pytest

from graphopt import io
from graphopt.errors import FormatError, OptionError
from graphopt.evaluate import datasets
from graphopt.graph import Graph
from graphopt.io import files


@pytest.fixture
def graph():
    """Return two points and an edge."""
    graph = Graph()
    graph.add_vertices("VERTEX_XY", [1, 2], [[0, 0], [1, 2]])
    graph.add_edges("EDGE_POINTXY", [[1, 2]], [[1, 1]])
    return graph


@pytest.mark.parametrize(("suffix", "module"), [(".gz", gzip), (".bz2", bz2), (".xz", lzma)])
def test_packed_files(graph, tmp_path, suffix, module):
    """A packed file is one of its module, reads back, and is found out by content, not by name."""
    path = tmp_path / f"a.g2o{suffix}"
    io.write(graph, path)
    assert module.decompress(path.read_bytes()).startswith(b"VERTEX_XY 1 0 0\n")
    renamed = tmp_path / "b.g2o"
    renamed.write_bytes(path.read_bytes())
    assert io.read(path).chi2() == io.read(renamed).chi2() == graph.chi2()


def test_same_graph_same_bytes(graph, tmp_path):
    """Packed files hold no time stamps."""
    for name in ("a.g2o.gz", "b.g2o.gz"):
        io.write(graph, tmp_path / name)
    assert (tmp_path / "a.g2o.gz").read_bytes() == (tmp_path / "b.g2o.gz").read_bytes()


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_damaged_archives(tmp_path, pack):
    """A cut or changed archive is a FormatError that says so."""
    path = tmp_path / "a.g2o"
    whole = pack(b"VERTEX_XY 1 0 0\n" * 100)
    for data in (whole[:-6], whole[: len(whole) // 2], whole[:20] + b"\x00\xff\x00" + whole[23:]):
        path.write_bytes(data)
        with pytest.raises(FormatError, match="damaged or truncated"):
            io.read(path)


def test_archive_bombs_are_refused():
    """An archive that expands without end is stopped early."""
    bomb = lzma.compress(bytes(70 << 20), preset=0)
    assert len(bomb) < 1 << 16
    with pytest.raises(FormatError, match="unpacks to more than"):
        files.unpack(bomb, "bomb.xz")


def test_failure_leaves_the_old_file(graph, tmp_path, monkeypatch):
    """If writing fails in the middle, the old file is untouched and nothing is left behind."""
    path = tmp_path / "a.g2o"
    path.write_text("old")

    def broken(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(OSError, match="No space left"):
        io.write(graph, path)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.g2o"]


def test_permissions_stay_and_links_are_followed(graph, tmp_path):
    """The mode of a replaced file stays, a new file has the usual one, a link still points to its target."""
    target, link = tmp_path / "target.g2o", tmp_path / "link.g2o"
    target.write_text("old")
    target.chmod(0o640)
    link.symlink_to(target)
    io.write(graph, link)
    assert link.is_symlink() and target.read_text().startswith("VERTEX_XY")
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    (tmp_path / "plain").write_text("")
    io.write(graph, tmp_path / "new.g2o")
    assert (tmp_path / "new.g2o").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_paths_that_cannot_be_read(tmp_path):
    """Missing files and folders have the system's error and the path."""
    with pytest.raises(FileNotFoundError, match="nowhere"):
        io.read(tmp_path / "nowhere.g2o")
    with pytest.raises(FormatError, match="COLMAP"):
        io.read(tmp_path)
    with pytest.raises(IsADirectoryError):
        files.read_bytes(tmp_path)


def test_check_writable(tmp_path, monkeypatch):
    """Paths that could not be written later are refused now, and the check leaves nothing behind."""
    io.check_writable(tmp_path / "new.g2o")
    io.check_writable(tmp_path / "new_folder", "colmap")
    assert os.listdir(tmp_path) == []
    with pytest.raises(FileNotFoundError, match="does not exist"):
        io.check_writable(tmp_path / "no" / "such" / "a.g2o")
    with pytest.raises(IsADirectoryError):
        io.check_writable(tmp_path, "g2o")
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError):
        io.check_writable(tmp_path / "file", "colmap")
    monkeypatch.setattr(os, "access", lambda *_: False)  # the super-user may write everything
    with pytest.raises(PermissionError, match="not writable"):
        io.check_writable(tmp_path / "file")


def test_a_pipe_is_written_directly(graph):
    """A path that is no regular file (here the null device) is not replaced."""
    io.write(graph, "/dev/null", "g2o")
    assert not stat.S_ISREG(os.stat("/dev/null").st_mode)


def test_unknown_formats(graph, tmp_path):
    """Names and suffixes that mean nothing are refused with what is known."""
    with pytest.raises(OptionError, match="Did you mean 'g2o'"):
        io.read(tmp_path, "g20")
    with pytest.raises(FormatError, match=r"the suffix names no format.*\.g2o"):
        io.write(graph, tmp_path / "a.xyz")
    with pytest.raises(FormatError, match="can be read but not written"):
        io.write(graph, tmp_path / "a.bin", "libmv")


@pytest.mark.parametrize("name", ["bal", "bal_fixed_k", "bundler", "colmap", "toro", "isam", "tum", "kitti"])
def test_graphs_that_a_format_cannot_hold(graph, tmp_path, name):
    """The error names what has no place, and no file appears."""
    with pytest.raises(FormatError):
        io.write(graph, tmp_path / "x", name)
    assert os.listdir(tmp_path) == []


def test_detection(tmp_path):
    """Content decides; the suffix settles tags that TORO and iSAM share."""
    cases = {
        "a.txt": ("VERTEX_SE2 1 0 0 0\n", "g2o"),
        "b.txt": ("VERTEX2 1 0 0 0\n", "toro"),
        "c.txt": ("ODOMETRY 0 1 1 0 0 1 0 0 1 0 1\n", "isam"),
        "d.graph": ("EDGE2 0 1 1 0 0 1 0 1 1 0 0\n", "toro"),
        "d.txt": ("EDGE2 0 1 1 0 0 1 0 0 1 0 1\n", "isam"),
        "e.txt": ("1 1 1\n0 0 1.5 2.5\n", "bal"),
        "f.txt": ("1 1 1\n500.5 500.5 1.5 2.5\n", "bal_fixed_k"),
        "g.txt": ("# t\n0 1 2 3 0 0 0 1\n", "tum"),
        "h.txt": ("1 0 0 0 0 1 0 0 0 0 1 0\n", "kitti"),
        "i.txt": ("# Bundle file v0.3\n0 0\n", "bundler"),
    }
    for name, (text, expected) in cases.items():
        (tmp_path / name).write_text(text)
        assert io.detect_format(tmp_path / name) == expected, name
    (tmp_path / "j.txt").write_text("1 2\n")
    with pytest.raises(FormatError, match="2 numbers"):
        io.detect_format(tmp_path / "j.txt")
    (tmp_path / "k.bin").write_bytes(bytes(range(256)))
    with pytest.raises(FormatError, match=r"no known format\. Known are \.npz .*libmv.*COLMAP.*texts"):
        io.read(tmp_path / "k.bin")
    with pytest.raises(FormatError, match=r"no cameras\.bin or cameras\.txt in this folder.*Pass the folder"):
        io.read(tmp_path)
    with pytest.raises(IsADirectoryError, match="Is a folder, expected a file: pass one of the files"):
        io.read(tmp_path, format="g2o")


@pytest.mark.parametrize(("name", "format"), [("a.json", "g2o_json"), ("a.bin", "g2o_cbor")])
def test_trees_of_g2o_are_read_as_other_files(name, format, tmp_path):
    """JSON and binary files are found by their content, and hold what the text holds."""
    graph = datasets.manhattan(nodes=30)
    io.write(graph, tmp_path / name, format)
    assert io.detect_format(tmp_path / name) == format
    again = io.read(tmp_path / name)
    assert again.chi2() == pytest.approx(graph.chi2(), rel=1e-12)
    assert [len(edges) for edges in again.edge_sets] == [len(edges) for edges in graph.edge_sets]
