"""Damaged files are refused with a sentence or read as something else; the C library survives all of them."""

from __future__ import annotations

import random
from ctypes import byref

import numpy as np
import pytest
from c_library import EXAMPLES, Handle

import graphopt
from graphopt import io
from graphopt.cli.main import main
from graphopt.evaluate.datasets.bundle_adjustment import ba
from graphopt.io.export import export_graph

WORDS = [
    "0",
    "-1",
    "1",
    "65535",
    "65536",
    "99999999999999999999",
    "nan",
    "inf",
    "1e400",
    "x",
    "\n",
    "||",
    "0x10",
]
ROUNDS = 120


def damaged(text: str, rng: random.Random) -> str:
    """Words exchanged, left out, doubled, cut, with other characters."""
    words = text.split(" ")
    for _ in range(rng.choice((1, 1, 2, 5))):
        k, other = rng.randrange(len(words)), rng.randrange(len(words))
        kind = rng.randrange(6)
        if kind == 0:
            words[k] = rng.choice(WORDS)
        elif kind == 1 and len(words) > 1:
            del words[k]
        elif kind == 2:
            words.insert(k, words[other])
        elif kind == 3:
            words[k], words[other] = words[other], words[k]
        elif kind == 4:
            words = words[: k + 1]
        else:
            letters = list(words[k]) or ["0"]
            letters[rng.randrange(len(letters))] = rng.choice("0123456789.-abcdef\n#|\0")
            words[k] = "".join(letters)
    return " ".join(words)


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, tuple[str, str]]:
    """Kind of file -> text, text of types or nothing."""
    folder = tmp_path_factory.mktemp("files")
    assert main(["export", str(EXAMPLES / "circle.py"), "-o", str(folder)]) == 0
    circle = (folder / "graph.txt").read_text(), (folder / "types.txt").read_text()
    graph = graphopt.Graph()
    graph.add_vertices("VERTEX_SE2", [0, 1, 2], np.zeros((3, 3)))
    graph.add_edges("EDGE_SE2", [[0, 1], [1, 2]], [[1, 0, 0.1]] * 2, kernel="Huber", kernel_width=2.0)
    io.write(graph, folder / "chain.g2o")
    export_graph(graph, folder)
    io.write(ba(cameras=3, points=10, camera="bal", seed=4), folder / "bal.txt", format="bal")
    return {
        "circle": circle,
        "chain": ((folder / "graph.txt").read_text(), (folder / "types.txt").read_text()),
        "g2o": ((folder / "chain.g2o").read_text(), ""),
        "bal": ((folder / "bal.txt").read_text(), ""),
    }


@pytest.mark.parametrize(
    ("kind", "what"),
    [("circle", "types"), ("circle", "graph"), ("chain", "types"), ("g2o", "graph"), ("bal", "graph")],
)
def test_damaged_files(library, files, tmp_path, kind, what):
    """Each ends with a status and a sentence, or can be optimized and written."""
    rng = random.Random(f"{kind} {what}")
    graph, types = files[kind]
    path, types_path = tmp_path / "graph.txt", tmp_path / "types.txt"
    refused = 0
    for _ in range(ROUNDS):
        path.write_text(damaged(graph, rng) if what == "graph" else graph)
        types_path.write_text(damaged(types, rng) if what == "types" else types)
        handle = Handle(library, types_path if types else None)
        status = handle.status or handle.call("graph_read", path)
        refused += status != 0
        if status:
            assert status in (1, 2, 3, 4) and handle.error()
            continue
        options = handle.options(method=rng.randrange(3), max_num_iterations=2)
        assert handle.call("optimize", byref(options), None) in (0, 1)
        handle.done("graph_write", tmp_path / "out.txt")
    assert 0 < refused < ROUNDS or what == "types"
