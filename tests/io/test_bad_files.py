"""Every command answers a bad file with one sentence that says what, where and what to do; none crashes."""

import json
import os
import struct
import threading

import numpy as np
import pytest

import graphopt.g2o as g2o
from graphopt import io
from graphopt.cli.main import main
from graphopt.errors import FormatError
from graphopt.evaluate import datasets
from graphopt.g2o.files import IoFormat, read, write
from graphopt.io.g2o_tree import tree_of

SUFFIXES = [".g2o", ".graph", ".isam", ".bal", ".npz", ".out", ".tum", ".kitti", ".txt", ".g2o.gz", ".g2o.xz"]
GARBAGE = np.random.default_rng(0).integers(0, 256, 5000).astype(np.uint8).tobytes()
POSES = "VERTEX_SE2 0 0 0 0\nVERTEX_SE2 1 1 0 0\n"
EDGE = "EDGE_SE2 0 1 1 0 0 1 0 0 1 0 1\n"


@pytest.fixture(autouse=True)
def no_traceback_mode(monkeypatch):
    """Errors are sentences, also where the tests run with tracebacks."""
    monkeypatch.delenv("GRAPHOPT_DEBUG", raising=False)


def refused(words, capsys):
    """Run a command that must end with status 2 and one sentence; returns it."""
    assert main(words) == 2
    text = capsys.readouterr().err
    assert "Internal error" not in text and "Traceback" not in text
    return text


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("content", [b"", b"\n \n", GARBAGE, b"\0" * 300, b"\xff\xfe" * 50], ids=range(5))
def test_nothing_and_garbage(suffix, content, tmp_path, capsys):
    """Empty files, blanks and bytes of anything, under every suffix: the error names the file."""
    path = tmp_path / f"a{suffix}"
    path.write_bytes(content)
    assert str(path) in refused(["info", str(path)], capsys)


def test_large_ids_are_read(tmp_path):
    """Ids up to 63 bits stay; writing says that g2o has 32."""
    path = tmp_path / "a.g2o"
    path.write_text(f"VERTEX_SE2 {2**63 - 1} 0 0 0\nVERTEX_SE2 {-(2**63)} 1 0 0\n")
    graph = io.read(path)
    assert sorted(graph.vertex_set("VERTEX_SE2").ids.tolist()) == [-(2**63), 2**63 - 1]
    assert any("32 bits" in message for message in io.write(graph, tmp_path / "b.g2o"))


def test_lines_that_end_in_cr_alone(tmp_path):
    """They are lines: of tagged files and of tables, in the values and in the numbers of lines in errors."""
    for end in ("\n", "\r", "\r\n"):
        path = tmp_path / "a.g2o"
        path.write_bytes((POSES + EDGE).replace("\n", end).encode())
        graph = io.read(path)
        assert (graph.num_vertices, graph.num_edges) == (2, 1)
        path.write_bytes((POSES + "EDGE_SE2 0 7 1 0 0 1 0 0 1 0 1\n").replace("\n", end).encode())
        with pytest.raises(FormatError, match=r":3: .*vertex 7 does not exist"):
            io.read(path)
        path = tmp_path / "a.tum"
        path.write_bytes("0 1 2 3 0 0 0 1\n1 4 5 6 0 0 0 1\n".replace("\n", end).encode())
        assert io.read(path).num_vertices == 2


def test_every_cut_of_a_file_is_refused_or_read(tmp_path):
    """A file that was cut off anywhere gives a graph or a FormatError."""
    path = tmp_path / "a.g2o"
    io.write(datasets.ba(cameras=3, points=8, camera="expmap"), path)
    data = path.read_bytes()
    outcomes = set()
    for end in range(0, len(data), 37):
        path.write_bytes(data[:end])
        try:
            io.read(path)
            outcomes.add("read")
        except FormatError as error:
            assert str(path) in str(error)
            outcomes.add("refused")
    assert outcomes == {"read", "refused"}


# ---------------------------------------------------------------- .json and .bin


def saved(tmp_path, format):
    """A small file and its bytes."""
    path = tmp_path / f"a.{format.name.lower()}"
    write(datasets.manhattan(nodes=6), path, format)
    return path, path.read_bytes()


@pytest.mark.parametrize("format", [IoFormat.BINARY, IoFormat.JSON])
def test_damaged_trees_name_the_place(format, tmp_path, capsys):
    """Cut off, changed and extended files are refused with path and place; loading returns False."""
    path, data = saved(tmp_path, format)
    rng = np.random.default_rng(1)
    for number in range(300):
        damaged = bytearray(data)
        if number % 3 == 0:
            damaged = damaged[: rng.integers(0, len(data) - 1)]
        else:
            for _ in range(number % 4 + 1):
                damaged[rng.integers(0, len(data))] = rng.integers(0, 256)
        path.write_bytes(bytes(damaged))
        try:
            read(path, format)
        except FormatError as error:
            assert str(path) in str(error)
    path.write_bytes(data[: len(data) // 2])
    place = "byte" if format is IoFormat.BINARY else "line"
    with pytest.raises(FormatError, match=rf"{path.name}: .*{place} \d+"):
        read(path, format)
    optimizer = g2o.SparseOptimizer()
    assert optimizer.load(str(path), getattr(g2o.IoFormat, format.name)) is False
    assert str(path) in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda t: t["vertices"][2]["estimate"].pop(),
            r"vertex number 2 \(VERTEX_SE2 2\) has 2 numbers, exp.* 3",
        ),
        (lambda t: t["edges"][1]["information"].pop(), r"edge number 1 \(EDGE_SE2 \[1, 2\]\) has 8 numbers"),
        (lambda t: t["edges"][0].pop("ids"), "an entry has no 'ids'"),
        (lambda t: t["vertices"][0].update(tag="VERTEX_FOO"), "VERTEX_FOO"),
        (lambda t: t["vertices"][0].update(id=2**70), "a.json"),
        (lambda t: t["vertices"].append(t["vertices"][0]), "a.json"),
        (lambda t: t.update(vertices=5), "not the tree of a g2o file"),
    ],
)
def test_wrong_trees(change, message, tmp_path):
    """An entry that is not what its type needs is named."""
    tree = tree_of(datasets.manhattan(nodes=6))
    change(tree["graph"])
    path = tmp_path / "a.json"
    path.write_text(json.dumps(tree))
    with pytest.raises(FormatError, match=message):
        read(path, IoFormat.JSON)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x81" * 100000 + b"\x00", "CBOR"),
        (b"\x9b" + struct.pack(">Q", 2**60), "premature end"),
        (b"\x65ab", "premature end"),
        (b"\x62\xff\xfe", "text string"),
        (b"\xc0\x00", "CBOR"),
        (b"\x00\x00", "1 bytes follow the CBOR value"),
        (b"\xa1\x80\x00", "graph"),
        (b"", "premature end"),
    ],
)
def test_damaged_cbor(data, message, tmp_path):
    """Each kind of damage has its sentence, with the file."""
    path = tmp_path / "a.bin"
    path.write_bytes(data)
    with pytest.raises(FormatError, match=rf"a\.bin.*{message}"):
        read(path, IoFormat.BINARY)


def test_a_pipe_is_read(tmp_path):
    """What is no regular file (here a pipe) is read to its end."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_text, args=(POSES + EDGE,))
    writer.start()
    assert io.read(path, "g2o").num_edges == 1
    writer.join()
