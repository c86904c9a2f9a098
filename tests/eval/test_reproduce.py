"""`graphopt reproduce`: rows on small data, what is compared, and what goes wrong."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import graphopt
from graphopt.cli.main import main
from graphopt.evaluate import datasets
from graphopt.evaluate.runner import Unit, in_a_process
from graphopt.reproduce import compare, measure, stated
from graphopt.reproduce.calls import calls
from graphopt.reproduce.graphs import facts, graph_of, with_other_ids

PEER = {"solver": "other", "seconds": 2.0, "chi2": None, "source": "same run"}
ROW = {"name": "a", "problem": "a", "size": "", "seconds": {"fresh": 1.0}, "chi2": 100.0, "peers": [PEER]}
TABLE = {"name": "t", "title": "T", "device": "cpu", "function": "pose_graphs", "date": "2026-01-01"}
TABLE |= {"commit": "abc", "machine": "One core; slow", "note": "Times.", "rows": [ROW]}


def entry(seconds=1.0, peer=2.0, **more):
    """What was measured: both times of one run."""
    found = {"seconds": {"fresh": seconds}, "chi2": 100.0, "peers": [{**PEER, "seconds": peer}]}
    return {**found, "is_stated_device": True, **more}


@pytest.mark.parametrize(
    ("found", "failing"),
    [
        (entry(), []),
        (entry(chi2=100.0 * (1.0 + 0.9e-6)), []),
        (entry(chi2=100.0 * (1.0 + 1.1e-6)), ["chi2"]),
        (entry(chi2=100.0 * (1.0 - 1.1e-6)), ["chi2"]),
        (entry(chi2=float("nan")), ["chi2"]),
        (entry(seconds=10.0, peer=20.0), []),  # another machine
        (entry(seconds=1.09), []),
        (entry(seconds=1.11), ["time / other"]),
        (entry(seconds=0.1), []),  # faster is no failure
        (entry(peer=None), []),  # not installed
        (entry(initial_chi2=7.0), ["initial chi2"]),
        (entry(edges=3), ["edges"]),
        ({"error": "FormatError: damaged"}, ["run"]),
        ({"skipped": "no network"}, []),
    ],
)
def test_what_is_compared(found, failing):
    """chi2 to 1e-6 both ways, ratios of one run to 10 % in the bad direction; other data is not compared."""
    row = {**ROW, "initial_chi2": 8.0, "edges": 4}
    checks = compare.checks({**TABLE, "rows": [row]}, {"a": found})
    assert [check.quantity for check in checks if not check.holds] == failing
    assert ("skipped" in found) == (not checks)


@pytest.mark.parametrize(("here", "is_stated", "failing"), [(0.5, True, 0), (0.6, True, 1), (0.6, False, 0)])
def test_rows_are_compared_with_rows_of_the_same_run(here, is_stated, failing):
    """Two devices took 0.5 of the time of one as stated; on other devices the ratio says nothing."""
    rows = [{**ROW, "peers": []}, {**ROW, "name": "b", "relative_to": "a", "seconds": {"fresh": 0.5}}]
    found = {"a": entry(), "b": entry(seconds=here, is_stated_device=is_stated, peers=[])}
    checks = compare.checks({**TABLE, "rows": rows}, found)
    assert sum(not check.holds for check in checks) == failing


@pytest.fixture
def small(monkeypatch, tmp_path):
    """One table with a small row of each kind of data, stated as it is on this machine."""
    graph = datasets.manhattan(60)
    graphopt.write(graph, tmp_path / "intel.g2o")
    monkeypatch.setenv("GRAPHOPT_DATA", str(tmp_path))
    monkeypatch.setenv("GRAPHOPT_CACHE_DIR", str(tmp_path / "cache"))
    solved = graph.copy()
    graphopt.optimize(solved, device="cpu")
    numbers = {"chi2": solved.chi2(), **facts(graphopt.read(tmp_path / "intel.g2o"))}
    run = {"best_chi2": solved.chi2(), "repeats": 1}
    rows = [
        {**ROW, **numbers, "run": {**run, "graph": {"make": "manhattan", "nodes": 60}}},
        {**ROW, **numbers, "name": "b", "run": {**run, "graph": {"dataset": "openslam-intel"}}},
    ]
    for row, module in zip(rows, ("no_such_module", "numpy"), strict=True):
        peer = {**PEER, "module": module, "install": "other==1", "run": {"solver": "unknown"}}
        row["peers"] = [peer] if module == "no_such_module" else []
    path = tmp_path / "stated.json"
    path.write_text(json.dumps({"sources": {"same run": "here"}, "tables": [{**TABLE, "rows": rows}]}))
    monkeypatch.setattr(stated, "FILE", path)
    monkeypatch.setattr(stated.load, "__defaults__", (path,))
    # in this process: a new one takes a second
    monkeypatch.setattr(measure, "in_a_process", lambda unit, limit: unit.run())
    return path


def test_a_table_that_holds(small, tmp_path, capsys):
    """Both kinds of data, a solver that is not installed, and all numbers in a file to compare with later."""
    output = tmp_path / "out.json"
    assert main(["reproduce", "t", "-o", str(output)]) == 0
    text = capsys.readouterr().out
    assert "2 numbers compared, 2 hold." in text and "pip install 'other==1'" in text
    document = json.loads(output.read_text())
    assert [row["name"] for row in document["tables"][0]["rows"]] == ["a", "b"]
    assert main(["reproduce", "--against", str(output), "--rows", "a", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["compared"]) == 1


def test_a_number_that_does_not_hold(small, capsys):
    """The exit status, and which row."""
    document = json.loads(small.read_text())
    document["tables"][0]["rows"][1]["chi2"] *= 1.01
    small.write_text(json.dumps(document))
    assert main(["reproduce"]) == 1
    assert "Not reproduced: t b (chi2)." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"VERTEX_SE2 0 0 0", "FormatError"),
        (None, "graphopt datasets fetch openslam-intel"),
        (b"VERTEX_SE2 0 0 0 0\nVERTEX_SE2 1 1 0 0\nEDGE_SE2 0 1 1 0 0 1 0 0 1 0 1\n", "other data than"),
    ],
)
def test_data_that_is_damaged_missing_or_another(small, tmp_path, monkeypatch, capsys, content, words):
    """The row is named with the reason; the other row is measured all the same."""
    import requests

    def no_network(*_, **__):
        raise requests.ConnectionError("no network")

    monkeypatch.setattr(requests, "get", no_network)
    (tmp_path / "intel.g2o").unlink()
    if content is not None:
        (tmp_path / "intel.g2o").write_bytes(content)
    from graphopt.evaluate.datasets.registry import files_below

    files_below.cache_clear()
    status = main(["reproduce"])
    text = capsys.readouterr().out
    assert words in text and "| a | chi2 |" in text
    assert status == (0 if content is None else 1)


def test_ctrl_c_keeps_what_is_there(small, tmp_path, monkeypatch, capsys):
    """The rows before it are printed and written."""
    units = []

    def interrupted(unit, limit):
        units.append(unit)
        if len(units) == 2:
            raise KeyboardInterrupt
        return unit.run()

    monkeypatch.setattr(measure, "in_a_process", interrupted)
    output = tmp_path / "out.json"
    assert main(["reproduce", "-o", str(output)]) == 1
    assert "Interrupted" in capsys.readouterr().out
    document = json.loads(output.read_text())
    assert document["interrupted"] and [row["name"] for row in document["tables"][0]["rows"]] == ["a"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["reproduce", "tt"], "There is no table 'tt'. Did you mean 't'?"),
        (["reproduce", "t", "--rows", "aa"], "There is no row 'aa'. Did you mean 'a'?"),
        (["reproduce", "--against", "nothing.json"], "nothing.json does not exist"),
    ],
)
def test_names_that_are_unknown(small, capsys, arguments, words):
    """Status 2, and the nearest name."""
    assert main(arguments) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "no JSON"),
        ("{}", "a list 'tables'"),
        ('{"tables": [{"name": "t"}]}', "table 1 lacks title"),
        (json.dumps({"tables": [{**TABLE, "rows": [{"name": "a"}]}]}), "row 1 lacks problem, size"),
    ],
)
def test_files_to_compare_with_that_lack_something(small, tmp_path, capsys, text, words):
    """The error says the table and the row."""
    (tmp_path / "old.json").write_text(text)
    assert main(["reproduce", "--against", str(tmp_path / "old.json")]) == 2
    assert words in capsys.readouterr().err


def test_rows_that_a_file_lacks_are_shown_without_stated_numbers(small, tmp_path, capsys):
    """Nothing is compared then, which is a failure."""
    (tmp_path / "old.json").write_text(json.dumps({"tables": [{**TABLE, "rows": []}]}))
    assert main(["reproduce", "--against", str(tmp_path / "old.json")]) == 1
    assert "0 numbers compared" in capsys.readouterr().out


def test_rows_of_gpus_without_one(monkeypatch):
    """They run on the CPU for chi2, with one call; rows of several GPUs are left out unless told."""
    monkeypatch.setattr(measure.machine, "accelerators", lambda: ([], "none"))
    run = {"graph": {"make": "ba", "cameras": 4, "points": 60}}
    table = {**TABLE, "function": "calls", "device": "vulkan"}
    found = measure.Machine().measure(table, {**ROW, "peers": [], "run": run})
    assert list(found["seconds"]) == ["first"] and not found["is_stated_device"]
    ranks = {**ROW, "peers": [], "run": {**run, "ranks": 2}}
    assert "2 GPUs are needed, here: none" in measure.Machine().measure(table, ranks)["skipped"]


def test_ranks_on_the_cpu():
    """The row of several devices, with ranks that are threads."""
    street = {"make": "street", "cameras": 12, "points": 200, "observations": 900}
    row = {**ROW, "peers": [], "run": {"graph": street, "ranks": 2}}
    found = measure.Machine(device="cpu").measure({**TABLE, "function": "ranks", "device": "vulkan"}, row)
    assert found["seconds"].keys() == {"other ids", "again", "step of 10", "step of 40"}
    graph = graph_of(street)
    graphopt.optimize(graph, device="cpu")
    np.testing.assert_allclose(found["chi2"], graph.chi2(), rtol=1e-2)  # of ten iterations


def test_too_little_memory(monkeypatch):
    """A row is left out before its graph is made."""
    monkeypatch.setattr(measure, "available_bytes", lambda: 2**30)
    row = {**ROW, "run": {"graph": {"make": "published", "size": "final-13682"}}}
    assert "1 GiB are available" in measure.Machine().measure(TABLE, row)["skipped"]


def test_calls_of_a_graph_end_alike():
    """Other ids and orders, a copy and the same graph again: one minimum, and the problem is the same."""
    graph = datasets.ba(cameras=5, points=80)
    chi2 = [found for _, _, _, found in calls(graph, {"device": "cpu"}, 1)]
    assert len(chi2) == 4
    np.testing.assert_allclose(chi2, chi2[0], rtol=1e-6)
    start = datasets.ba(cameras=5, points=80)
    np.testing.assert_allclose(with_other_ids(start, 3).chi2(), start.chi2(), rtol=1e-12)


def test_published_sizes_are_made():
    """As many cameras, points and observations as published; the noise of a street is one pixel."""
    graph = datasets.published("trafalgar-257")
    assert (graph.num_vertices, graph.num_edges) == (257 + 65132, 225911)
    with pytest.raises(graphopt.errors.OptionError, match="Did you mean 'venice-1778'"):
        datasets.published("venice-1779")
    street = datasets.street(cameras=30, points=400, observations=2400)
    graphopt.optimize(street, device="cpu")
    # 2 m residuals of 1 px, less the unknowns
    freedom = 2 * street.num_edges - 9 * 30 - 3 * 400
    np.testing.assert_allclose(street.chi2() / freedom, 1.0, atol=0.1)


def test_a_run_that_takes_too_long_is_ended():
    """The entry is an error, and the process is gone."""
    assert "ended after 0.5 s" in in_a_process(Unit("a", "signal:pause"), 0.5)["error"]
    assert in_a_process(Unit("a", "os:abort"), 60.0)["error"].startswith("BrokenProcessPool")


def test_ctrl_c_of_a_terminal_ends_the_process_of_a_run(tmp_path):
    """SIGINT reaches the whole group; the command says what it has, without a traceback."""
    output = tmp_path / "out.json"
    command = [
        sys.executable,
        "-m",
        "graphopt",
        "reproduce",
        "gpu",
        "--rows",
        "ladybug-969",
        "-o",
        str(output),
    ]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "GRAPHOPT_DATA": "", "VK_DRIVER_FILES": "/none"},
    )
    assert "ladybug-969 ..." in process.stderr.readline()
    time.sleep(1.0)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1 and "Interrupted" in out, err
    assert "Traceback" not in err and json.loads(output.read_text())["interrupted"]
