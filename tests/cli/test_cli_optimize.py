"""`graphopt optimize`: answers, files, summaries, interruption and failure, called as a user calls it."""

import json
import signal
import sys

import numpy as np
import pytest

import graphopt
from graphopt import io
from graphopt.cli import output
from graphopt.cli.main import main
from graphopt.evaluate import datasets

SUMMARY_KEYS = {
    "vertices",
    "edges",
    "initial_chi2",
    "final_chi2",
    "iterations",
    "termination",
    "method",
    "linear_solver",
    "schur",
    "device",
    "device_name",
    "precision",
    "schedule",
    "seconds",
    "memory_bytes",
}
SECONDS_KEYS = {"read", "analyze", "prepare", "linearize", "solve", "update", "total"}


@pytest.fixture
def source(tmp_path):
    """A small Manhattan world in a .g2o file."""
    path = tmp_path / "city.g2o"
    io.write(datasets.manhattan(nodes=300, seed=2), path)
    return path


def run_json(capsys, *words):
    """Run the command with `--json`; return its status and the object on stdout."""
    status = main(["optimize", *map(str, words), "--json"])
    return status, json.loads(capsys.readouterr().out)


def test_the_result_is_the_one_of_the_library(source, tmp_path, capsys):
    """The written file has the chi2 that the summary and `graphopt.optimize` give."""
    out = tmp_path / "out.g2o"
    assert main(["optimize", str(source), "-o", str(out)]) == 0
    assert str(out) in capsys.readouterr().out
    graph = io.read(source)
    summary = graphopt.optimize(graph)
    assert summary.final_chi2 < 0.1 * summary.initial_chi2
    assert io.read(out).chi2() == pytest.approx(summary.final_chi2, rel=1e-9)


def test_the_phases_add_up_to_the_time(capsys):
    """What ran beside them, and what is part of one of them, is said apart."""
    times = {"read": 0.5, "solve": 1.0, "other": 0.25, "total": 1.75}
    assert output.phases(times) == "1.75 s: read 500.0 ms, solve 1.00 s, other 250.0 ms"
    times |= {"prepare_beside": 0.3, "prepare_wait": 0.1}
    beside = "; set-up beside linearize 300.0 ms; of solve, waiting for set-up 100.0 ms"
    assert output.phases(times) == f"1.75 s: read 500.0 ms, solve 1.00 s, other 250.0 ms{beside}"


def test_the_json_summary_has_its_keys(source, tmp_path, capsys):
    """`--json` prints all promised keys, and `--stats` writes the same object."""
    stats = tmp_path / "stats.json"
    status, document = run_json(capsys, source, "--stats", stats)
    assert status == 0
    assert document.keys() >= SUMMARY_KEYS
    assert document["seconds"].keys() >= SECONDS_KEYS
    assert document["vertices"] == 300
    assert {"iteration", "chi2", "lambda", "trials", "seconds"} <= document["iterations"][0].keys()
    assert document["iterations"][-1]["chi2"] == pytest.approx(document["final_chi2"])
    assert json.loads(stats.read_text()) == document


@pytest.mark.parametrize("method", ["auto", "lm", "gn", "dogleg"])
def test_methods_and_iterations_reach_the_optimizer(source, method, capsys):
    """`--method` and `-i` are those of the summary."""
    status, document = run_json(capsys, source, "--method", method, "-i", "2")
    assert status == 0
    assert document["method"] == method
    assert len(document["iterations"]) == 2


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("linear_solver", name) for name in ("cholesky", "dense", "pcg")),
        *(("schur", name) for name in ("explicit", "implicit", "off")),
    ],
)
def test_solvers_reach_the_optimizer(option, value, tmp_path, capsys):
    """`--linear-solver` and `--schur` are those of the summary; the answer is the same."""
    path = tmp_path / "scene.g2o"
    io.write(datasets.ba(cameras=8, points=120, camera="expmap"), path)
    status, document = run_json(capsys, path, f"--{option.replace('_', '-')}", value)
    assert status == 0
    assert document[option].startswith(value)
    _, reference = run_json(capsys, path)
    assert document["final_chi2"] == pytest.approx(reference["final_chi2"], rel=1e-3)


def test_a_robust_kernel_is_applied_to_every_edge(source, capsys):
    """With `--robust-kernel` the initial chi2 is the robustified one of the graph."""
    _, document = run_json(capsys, source, "--robust-kernel", "huber:0.5", "-i", "1")
    graph = io.read(source)
    graph.set_robust_kernel("Huber", 0.5)
    assert document["initial_chi2"] == pytest.approx(graph.chi2(), rel=1e-9)


def test_fixed_vertices_stay(source, tmp_path, capsys):
    """`--fix` holds the vertices that it lists."""
    out = tmp_path / "out.g2o"
    assert main(["optimize", str(source), "--fix", "5,250", "-o", str(out)]) == 0
    before, after = io.read(source), io.read(out)
    for identifier in (5, 250):
        np.testing.assert_allclose(
            after.vertex(identifier).estimate, before.vertex(identifier).estimate, rtol=1e-12
        )
    assert not np.allclose(after.vertex(100).estimate, before.vertex(100).estimate)


def test_verbose_prints_a_line_per_iteration(source, capsys):
    """`-v` prints one line per iteration to stdout; together with `--json`, to stderr."""
    assert main(["optimize", str(source), "--method", "gn", "-i", "3", "-v"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:4]] == ["iter", "0", "1", "2"]
    assert main(["optimize", str(source), "--method", "gn", "-i", "3", "-v", "--json"]) == 0
    captured = capsys.readouterr()
    assert len(json.loads(captured.out)["iterations"]) == 3
    assert len([line for line in captured.err.splitlines() if line.endswith(" ms")]) == 3


def test_the_run_is_drawn(source, tmp_path, capsys):
    """`--plot` writes a picture."""
    picture = tmp_path / "run.png"
    assert main(["optimize", str(source), "--plot", str(picture)]) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_plot_says_what_to_install(source, tmp_path, capsys, monkeypatch):
    """Where matplotlib is missing, `--plot` ends with status 2 before any work and names the extra."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["optimize", str(source), "--plot", str(tmp_path / "a.png")]) == 2
    assert "graphopt[plot]" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["-o", "{tmp}/no/such/a.g2o"],
        ["-o", "{tmp}/a.unknown"],
        ["--stats", "{tmp}/no/such/a.json"],
        ["--plot", "{tmp}/a.txt"],
        ["--fix", "123456"],
    ],
)
def test_what_cannot_work_is_refused_before_the_work(words, source, tmp_path, capsys, monkeypatch):
    """Outputs and ids are checked first: status 2 and not one iteration."""
    monkeypatch.setattr(output.Progress, "update", lambda self, done: pytest.fail("an iteration was run"))
    assert main(["optimize", str(source), *(word.format(tmp=tmp_path) for word in words)]) == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.fixture
def interrupt_at_two(monkeypatch):
    """Ctrl-C at the end of the second iteration, also where the tests themselves run with it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    show = output.Progress.update

    def update(self, done):
        show(self, done)
        if done.iteration == 1:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(output.Progress, "update", update)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_keeps_the_best_estimate(source, tmp_path, capsys, interrupt_at_two):
    """An interrupted run writes the estimate of its last iteration, says so, and ends with status 1."""
    out = tmp_path / "out.g2o"
    status, document = run_json(capsys, source, "--method", "gn", "-i", "8", "-o", out)
    assert status == 1
    assert len(document["iterations"]) == 2
    assert document["termination"] == "user_stop"
    assert io.read(out).chi2() == pytest.approx(document["iterations"][1]["chi2"], rel=1e-9)


def test_ctrl_c_without_an_output_says_that_nothing_was_written(source, capsys, interrupt_at_two):
    """Without `-o` and without a terminal to ask on, the message says what became of the estimate."""
    assert main(["optimize", str(source), "--method", "gn", "-i", "8"]) == 1
    assert "nothing was written" in capsys.readouterr().err


def test_handlers_are_restored_after_an_interrupt(source, capsys, interrupt_at_two):
    """After the command Ctrl-C means again what it meant before."""
    before = signal.getsignal(signal.SIGINT)
    main(["optimize", str(source), "--method", "gn", "-i", "8"])
    assert signal.getsignal(signal.SIGINT) is before


def test_a_graph_that_cannot_be_solved_is_status_1(tmp_path, capsys):
    """Where the optimizer gives up, the status is 1 and a sentence says why; `--json` stays one object."""
    path = tmp_path / "bad.g2o"
    path.write_text(
        "VERTEX_SE2 0 0 0 0\nVERTEX_SE2 1 1 0 0\nVERTEX_SE2 2 2 0 0\nFIX 0\n"
        "EDGE_SE2 0 1 1e200 0 0 1 0 0 1 0 1\nEDGE_SE2 1 2 1 0 0 1 0 0 1 0 1\n"
    )
    assert main(["optimize", str(path), "--json"]) == 1
    captured = capsys.readouterr()
    assert json.loads(captured.out)["termination"] == "non_finite"
    assert "the optimizer failed" in captured.err


@pytest.mark.parametrize(
    "text",
    ["", "VERTEX_SE2 0 0 0 0\nVERTEX_SE2 1 1 0 0\n", "EDGE_SE2 0 1 1 0 nan 1 0 0 1 0 1\n", "nonsense\n"],
)
def test_input_that_is_no_graph_is_status_2(text, tmp_path, capsys):
    """Empty files, graphs without edges, NaN and nonsense are bad input, named with the file."""
    path = tmp_path / "bad.g2o"
    path.write_text(text)
    status, document = run_json(capsys, path)
    assert status == 2
    assert document["exit_status"] == 2


def test_files_without_estimates_start_from_their_edges(source, tmp_path, capsys):
    """A file of edges is initialized by itself, with a sentence; `--initialize none` starts at the origin."""
    path = tmp_path / "edges.g2o"
    path.write_text("".join(line for line in source.read_text().splitlines(True) if line.startswith("EDGE")))
    status, document = run_json(capsys, path)
    assert status == 0
    _, reference = run_json(capsys, source)
    assert document["final_chi2"] == pytest.approx(reference["final_chi2"], rel=1e-3)
    _, raw = run_json(capsys, path, "--initialize", "none", "-i", "1")
    assert raw["initial_chi2"] > document["initial_chi2"]


@pytest.mark.parametrize("method", ["odometry", "spanning-tree", "chordal"])
def test_start_values_are_computed_where_asked(source, method, capsys):
    """`--initialize` replaces the file's estimates before the first iteration."""
    graph = io.read(source)
    graphopt.initialize(graph, method)
    _, document = run_json(capsys, source, "--initialize", method, "-i", "1")
    assert document["initial_chi2"] == pytest.approx(graph.chi2(), rel=1e-9)


def test_unknown_tags_are_kept_and_counted(source, tmp_path, capsys):
    """Lines of unknown tags are in the output as they were, and the summary counts them."""
    with source.open("a") as file:
        file.write("MY_TAG 1 2 three\n")
    out = tmp_path / "out.g2o"
    _, document = run_json(capsys, source, "-o", out, "-i", "1")
    assert document["unknown_tags"] == {"MY_TAG": 1}
    assert "MY_TAG 1 2 three\n" in out.read_text()


def test_a_graph_that_the_output_cannot_hold_is_refused_before_the_work(tmp_path, capsys, monkeypatch):
    """Nothing is optimized and nothing written; the error says what the format holds."""
    path, out = tmp_path / "scene.g2o", tmp_path / "out.graph"
    io.write(datasets.ba(cameras=4, points=40, camera="expmap"), path)
    monkeypatch.setattr(graphopt, "optimize", lambda *words, **named: pytest.fail("optimized"))
    assert main(["optimize", str(path), "-i", "2", "-o", str(out)]) == 2
    assert "TORO's format has no line for" in capsys.readouterr().err
    assert [each_path.name for each_path in tmp_path.iterdir()] == ["scene.g2o"]
    with_roots = tmp_path / "singular.g2o"
    lines = "VERTEX_SE2 0 0 0 0\nVERTEX_SE2 1 1 0 0\nEDGE_SE2 0 1 1 0 0 1 0 0 1 0 0\n"
    with_roots.write_text(lines)
    assert main(["optimize", str(with_roots), "-o", str(tmp_path / "out.isam")]) == 2
    assert "not positive definite" in capsys.readouterr().err


@pytest.mark.parametrize("method", ["auto", "lm", "gn", "dogleg"])
def test_zero_iterations_only_evaluate(method, tmp_path, capsys):
    """`-i 0` gives chi2 and leaves every estimate as it is."""
    path, out = tmp_path / "in.g2o", tmp_path / "out.g2o"
    io.write(datasets.sphere(nodes_per_level=8, laps=4), path)
    assert main(["optimize", str(path), "-i", "0", "--method", method, "-o", str(out), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["iterations"] == [] and document["final_chi2"] == document["initial_chi2"]
    assert document["initial_chi2"] == pytest.approx(io.read(path).chi2(), rel=1e-9)
    assert [line for line in out.read_text().splitlines() if not line.startswith("FIX")] == [
        line for line in path.read_text().splitlines() if not line.startswith("FIX")
    ]
