"""Commands other than `optimize`: what they print, write and refuse, called as a user calls them."""

import json
import os

import numpy as np
import pytest

from graphopt import io
from graphopt.cli.main import main
from graphopt.evaluate import datasets


@pytest.fixture
def sphere_file(tmp_path):
    """A small sphere in a .g2o file."""
    path = tmp_path / "sphere.g2o"
    io.write(datasets.sphere(nodes_per_level=10, laps=5), path)
    return path


@pytest.mark.parametrize(
    ("kind", "options", "name"),
    [
        ("sphere", ["--nodes-per-level", "8", "--laps", "4"], "a.g2o"),
        ("torus", ["--nodes-per-ring", "8", "--rings", "5"], "a.g2o.gz"),
        ("manhattan", ["--nodes", "60", "--block", "4"], "a.g2o"),
        ("grid", ["--size", "3"], "a.g2o.xz"),
        ("ba", ["--cameras", "5", "--points", "50"], "a.txt"),
        ("ba", ["--cameras", "5", "--points", "50", "--camera", "expmap"], "a.g2o"),
    ],
)
def test_generated_files_hold_the_generated_graph(kind, options, name, tmp_path, capsys):
    """What `generate` writes is read back with the chi2 of the function it calls."""
    path = tmp_path / name
    assert main(["generate", kind, *options, "--seed", "7", "-o", str(path)]) == 0
    assert str(path) in capsys.readouterr().out
    words = dict(zip(options[::2], options[1::2], strict=True))
    arguments = {
        flag.strip("-").replace("-", "_"): value if flag == "--camera" else int(value)
        for flag, value in words.items()
    }
    expected = getattr(datasets, kind)(**arguments, seed=7)
    graph = io.read(path)
    assert graph.num_edges == expected.num_edges
    assert graph.chi2() == pytest.approx(expected.chi2(), rel=1e-9)


def test_every_option_of_generate_is_an_argument_of_its_function(tmp_path):
    """Parsers and functions agree: every kind runs with its defaults, so no option is lost or unknown."""
    import inspect

    from graphopt.cli import parsers

    for kind in ("sphere", "torus", "manhattan", "grid", "ba"):
        args = vars(parsers.parse(["generate", kind, "-o", "x"], "0"))
        options = {name: value for name, value in args.items() if name not in ("command", "kind", "output")}
        function = inspect.signature(getattr(datasets, kind)).parameters
        assert options == {name: option.default for name, option in function.items()}


def test_info_counts(sphere_file, capsys):
    """`info --json` counts what was generated and gives its chi2."""
    assert main(["info", str(sphere_file), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    graph = datasets.sphere(nodes_per_level=10, laps=5)
    assert document["vertices"] == {"VERTEX_SE3:QUAT": 50}
    assert document["edges"] == {"EDGE_SE3:QUAT": graph.num_edges}
    assert document["fixed"] == 1
    assert document["components"] == 1
    assert document["chi2"] == pytest.approx(graph.chi2(), rel=1e-9)


def test_info_reports_what_is_odd(tmp_path, capsys):
    """Unknown tags, components and a missing gauge are named for people too."""
    path = tmp_path / "odd.g2o"
    path.write_text(
        "VERTEX_SE2 0 0 0 0\nVERTEX_SE2 1 1 0 0\nVERTEX_SE2 2 5 0 0\nVERTEX_SE2 3 6 0 0\nMY_TAG 1 2 3\n"
        "EDGE_SE2 0 1 1 0 0 1 0 0 1 0 1\nEDGE_SE2 2 3 1 0 0 1 0 0 1 0 1\n"
    )
    assert main(["info", str(path)]) == 0
    text = capsys.readouterr().out
    assert "MY_TAG" in text
    assert "components  2" in text
    assert "fixed" in text


def test_convert_keeps_the_graph(tmp_path):
    """A graph converted to TORO and back has the chi2 it had."""
    source, there, back = tmp_path / "a.g2o", tmp_path / "a.graph.bz2", tmp_path / "b.g2o"
    graph = datasets.manhattan(nodes=200)
    io.write(graph, source)
    assert main(["convert", str(source), str(there)]) == 0
    assert main(["convert", str(there), str(back), "--from", "toro", "--to", "g2o"]) == 0
    assert io.read(back).chi2() == pytest.approx(graph.chi2(), rel=1e-9)


def test_convert_says_what_is_lost(sphere_file, tmp_path, capsys):
    """A trajectory keeps no edges; the command says so on stderr and succeeds."""
    assert main(["convert", str(sphere_file), str(tmp_path / "a.txt"), "--to", "tum"]) == 0
    assert "edges" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["info", "{tmp}/missing.g2o"], "No such file"),
        (["info", "{tmp}"], "{tmp}"),
        (["optimize", "{tmp}/missing.g2o"], "No such file"),
        (["explain", "{tmp}"], "{tmp}"),
        (["convert", "{file}", "{tmp}/no/such/folder/a.g2o"], "folder"),
        (["convert", "{file}", "{tmp}/a.g2o", "--to", "torro"], "Did you mean 'toro'?"),
        (["convert", "{file}", "{tmp}/a.g2o", "--from", "g20"], "Did you mean 'g2o'?"),
        (["generate", "sphere", "-o", "{tmp}/no/a.g2o"], "folder"),
        (["generate", "torus", "--tube", "200", "-o", "{tmp}/a.g2o"], "tube"),
    ],
)
def test_bad_input_is_status_2_and_one_sentence(words, part, sphere_file, tmp_path, capsys):
    """What cannot be read or written ends with status 2, a sentence on stderr and no new file."""
    names = {"tmp": str(tmp_path), "file": str(sphere_file)}
    before = sorted(os.listdir(tmp_path))
    assert main([word.format(**names) for word in words]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert part.format(**names) in captured.err
    assert captured.err.count("\n") == 1
    assert sorted(os.listdir(tmp_path)) == before


def test_bad_files_name_the_line(tmp_path, capsys):
    """A truncated line is an error with file and line, as JSON too."""
    path = tmp_path / "bad.g2o"
    path.write_text("VERTEX_SE2 0 0 0 0\nVERTEX_SE2 1 0\n")
    assert main(["info", str(path), "--json"]) == 2
    document = json.loads(capsys.readouterr().out)
    assert document["error_type"] == "FormatError"
    assert f"{path}:2" in document["error"]


def test_debugging_shows_the_traceback(tmp_path, monkeypatch):
    """With GRAPHOPT_DEBUG=1 the exception itself comes out."""
    monkeypatch.setenv("GRAPHOPT_DEBUG", "1")
    with pytest.raises(FileNotFoundError):
        main(["info", str(tmp_path / "missing.g2o")])


def test_a_bug_is_called_one(monkeypatch, sphere_file, capsys):
    """An unexpected exception becomes a sentence that says how to report it, and status 1."""

    def broken(path, format=None, dialect=None):
        raise ZeroDivisionError("boom")

    monkeypatch.setattr(io, "read_with_report", broken)
    assert main(["info", str(sphere_file)]) == 1
    assert "ZeroDivisionError: boom" in capsys.readouterr().err


def test_devices_lists_the_processor(capsys):
    """The CPU is listed with the cores and the instruction set that are used."""
    from graphopt import cpu_kernels

    assert main(["devices", "--json"]) == 0
    cpu = json.loads(capsys.readouterr().out)["devices"][0]
    assert cpu["device"] == "cpu"
    assert cpu["instruction_set"] == cpu_kernels.isa
    assert cpu["threads"] == cpu_kernels.kernels.num_threads()
    assert main(["devices"]) == 0
    assert cpu["name"] in capsys.readouterr().out


def test_json_has_no_nan():
    """NaN and infinity, which JSON lacks, become null at any depth."""
    from graphopt.cli.output import to_json

    document = json.loads(
        to_json({"a": [1.0, float("nan")], "b": {"c": float("-inf"), "d": np.float64(2.5)}})
    )
    assert document == {"a": [1.0, None], "b": {"c": None, "d": 2.5}}
