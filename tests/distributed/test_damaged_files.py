"""What is wrong in a file that ranks read in parts is told with its place, for any number of ranks."""

import numpy as np
import pytest
from archives import damage

import graphopt
from graphopt.distributed import reading, reading_bal
from graphopt.distributed.communicator import run_as_threads
from graphopt.errors import GraphOptError

ADJUSTMENT = graphopt.datasets.bundle_adjustment.ba(6, 40, camera="bal", seed=5)
LINES = """VERTEX_SE2 0 0 0 0
VERTEX_SE2 1 1 0 0
VERTEX_SE3:QUAT 9 0 0 0 0 0 0 1
VERTEX_SE2 2 2 0 0.1
EDGE_SE2 0 1 1 0 0 1 0 0 1 0 1
EDGE_SE2 1 2 1 0 0 1 0 0 1 0 1
"""
INFORMATION = "1 0 0 1 0 0 1 0 1"

BAL = [
    (lambda words: ["nan", *words[1:]], r"a\.bal:1: .*'nan'"),
    (lambda words: [*words[:300], "1_0.5", *words[301:]], r"a\.bal:76: .*'1_0\.5'"),
    (lambda words: ["6.5", *words[1:]], r"a\.bal:1: not a BAL text: it begins with \[6\.5"),
    (lambda words: ["-6", *words[1:]], r"a\.bal:1: not a BAL text: it begins with \[-6"),
    (lambda words: words[:200], r"ask for \d+ numbers, it has 200"),
    (lambda words: [*words[:300], "1.5D3", *words[301:]], r"a\.bal:76: .*'1\.5D3'"),
    (lambda words: ["0", "0", "0"], "there are no cameras"),
]

ARCHIVES = [
    ("camera_index", lambda array: array[:-3], r"camera_index has shape \(\d+,\), expected"),
    ("camera_index", lambda array: array[:, None], r"camera_index has shape \(\d+, 1\), expected \(n\)"),
    ("camera_index", lambda array: array + 0.5, "camera_index holds float64, expected numbers"),
    ("cameras", lambda array: array[:, :6], r"cameras has shape \(6, 6\), expected \(n, 9\)"),
    ("points", lambda array: np.float64(3.0), r"points has shape \(\), expected \(n, 3\)"),
    ("points", lambda array: np.array([None, None]), "points holds object, expected numbers"),
    ("points", None, r"a\.npz: no array points"),
]

GRAPHS = [
    ("EDGE_SE2 1 7 " + INFORMATION, r"a\.g2o:7: EDGE_SE2: vertex 7 does not exist"),
    ("EDGE_SE2 1 1 " + INFORMATION, r"a\.g2o:7: EDGE_SE2: the edge joins vertex 1 to itself"),
    ("EDGE_SE2 1 2 1 0", r"a\.g2o:7: EDGE_SE2: got 5 tokens"),
    ("EDGE_SE2 1 9 " + INFORMATION, r"a\.g2o: EDGE_SE2 of row .* vertex 9 in slot 1 is a VERTEX_SE3:QUAT"),
    ("VERTEX_SE2 1 5 5 5", r"a\.g2o: vertex id 1 is used twice. Give one of them another id"),
]


@pytest.fixture(params=[1, 2, 4])
def read(request, monkeypatch):
    """Read by some ranks."""
    monkeypatch.setattr(reading_bal, "SMALL", 16)
    return lambda path: run_as_threads(request.param, lambda comm: reading.read(path, comm))


@pytest.mark.parametrize(("change", "words"), BAL)
def test_bal_texts(read, tmp_path, change, words):
    """Four numbers in a line, so that lines have numbers."""
    path = tmp_path / "a.bal"
    graphopt.write(ADJUSTMENT, path)
    given = change(path.read_text().split())
    path.write_text("\n".join(" ".join(given[first : first + 4]) for first in range(0, len(given), 4)))
    with pytest.raises(GraphOptError, match=words):
        read(path)


def test_bal_texts_have_one_grammar(read, tmp_path):
    """Decimal commas are read in parts as they are in one; comments are refused by both."""
    path = tmp_path / "a.bal"
    graphopt.write(ADJUSTMENT, path)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], *(line.replace(".", ",") for line in lines[1:])]))
    assert graphopt.read(path).chi2() == pytest.approx(ADJUSTMENT.chi2(), rel=1e-6)
    measured = np.concatenate([part.share.graph.edge_sets[0].measurement for part in read(path)])
    expected = graphopt.read(path).edge_sets[0].measurement
    np.testing.assert_array_equal(np.sort(measured, axis=0), np.sort(expected, axis=0))
    path.write_text("\n".join([*lines[:20], "# a comment", *lines[20:]]))
    for reads in (graphopt.read, read):
        with pytest.raises(GraphOptError, match=r"a\.bal:21: .*'#' is not"):
            reads(path)


@pytest.mark.parametrize(("name", "change", "words"), ARCHIVES)
def test_archives(read, tmp_path, name, change, words):
    """Arrays of other shapes and kinds."""
    path = tmp_path / "a.npz"
    graphopt.write(ADJUSTMENT, path)
    damage(path, name, change)
    with pytest.raises(GraphOptError, match=words):
        read(path)


def test_archives_of_other_forms(read, tmp_path):
    """Columns first, packed, float32 and big-endian numbers: what one rank reads, all read."""
    path = tmp_path / "a.npz"
    graphopt.write(ADJUSTMENT, path)
    with np.load(path) as archive:
        arrays = dict(archive)
    arrays["points"] = np.asfortranarray(arrays["points"])
    arrays["cameras"] = np.asfortranarray(arrays["cameras"].astype(">f8"))
    arrays["observations"] = arrays["observations"].astype(np.float32)
    np.savez_compressed(path, **arrays)
    found = sum(part.share.graph.chi2() for part in read(path))
    assert found == pytest.approx(graphopt.read(path).chi2(), rel=1e-12)


@pytest.mark.parametrize(("line", "words"), GRAPHS)
def test_g2o_files(read, tmp_path, line, words):
    """The line is that of the file, not of a rank's piece of it."""
    path = tmp_path / "a.g2o"
    path.write_text(LINES + line + "\n")
    with pytest.raises(GraphOptError, match=words):
        read(path)
