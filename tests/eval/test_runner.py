"""Evaluations resume, keep failures apart, run in processes, and their report says what the JSON says."""

import html
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import eval_units
import pytest

import graphopt
from graphopt.cli.main import main
from graphopt.errors import FormatError, OptionError
from graphopt.evaluate import html_report, pictures, results, runner
from graphopt.evaluate.report import figure
from graphopt.evaluate.results import Results
from graphopt.evaluate.runner import Unit


class Silent:
    """Shows nothing."""

    def begin(self, key: str) -> None:
        """A unit starts."""

    def end(self, key: str, entry: dict[str, Any]) -> None:
        """A unit has ended."""


def units(folder: Path, names: str) -> list[Unit]:
    return [
        Unit(name, "eval_units:count_calls", {"folder": str(folder), "name": name}) for name in names.split()
    ]


def test_failures_do_not_stop_the_others_and_are_tried_again(tmp_path: Path) -> None:
    first = runner.run(Results("pose-graph", {}), units(tmp_path, "a bad b"), tmp_path, watcher=Silent())
    assert list(first.entries) == ["a", "bad", "b"]
    assert first.failed == ["bad"]
    assert "this one fails" in first.entries["bad"]["error"]
    runner.run(Results("pose-graph", {}), units(tmp_path, "a bad b c"), tmp_path, watcher=Silent())
    assert (tmp_path / "calls").read_text().split() == ["a", "bad", "b", "bad", "c"]
    assert list(results.load(tmp_path).entries) == ["a", "bad", "b", "c"]


def test_a_file_that_was_changed_is_measured_again(tmp_path: Path) -> None:
    """Also where the file is one of several in a list."""
    data = tmp_path / "data.txt"
    data.write_text("1 2 3")
    unit = Unit("a", "eval_units:sizes", {"paths": [str(data)]})
    for text, size in (("1 2 3", 5), ("1 2 3", 5), ("1 2", 3)):
        if data.read_text() != text:
            data.write_text(text)
        found = runner.run(Results("pose-graph", {}), [unit], tmp_path / "out", watcher=Silent())
        assert found.entries["a"]["sizes"] == [size]


def test_a_bug_in_a_unit_is_kept_with_its_traceback(tmp_path: Path) -> None:
    found = runner.run(Results("pose-graph", {}), units(tmp_path, "worse a"), tmp_path, watcher=Silent())
    assert "ZeroDivisionError" in found.entries["worse"]["traceback"]
    assert found.entries["a"]["seconds"] == 1.0


def test_other_options_do_not_mix(tmp_path: Path) -> None:
    runner.run(Results("pose-graph", {"runs": 1}), units(tmp_path, "a"), tmp_path, watcher=Silent())
    with pytest.raises(OptionError, match="another evaluation"):
        runner.run(Results("pose-graph", {"runs": 2}), units(tmp_path, "a"), tmp_path, watcher=Silent())
    fresh = runner.run(
        Results("pose-graph", {"runs": 2}), units(tmp_path, "a"), tmp_path, fresh=True, watcher=Silent()
    )
    assert fresh.options == {"runs": 2}


def test_processes_give_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "PYTHONPATH", f"{Path(eval_units.__file__).parent}:{Path(graphopt.__file__).parents[1]}"
    )
    found = runner.run(
        Results("pose-graph", {}), units(tmp_path, "a bad b"), tmp_path, jobs=2, watcher=Silent()
    )
    assert found.failed == ["bad"]
    assert {key: entry["chi2"] for key, entry in found.entries.items() if key != "bad"} == {
        "a": 2.0,
        "b": 2.0,
    }


@pytest.mark.parametrize("jobs", [1, 2])
def test_units_that_measure_their_process_have_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: int
) -> None:
    """A small unit after a large one of the same process would find the large one's peak, and no growth."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    measured = [
        Unit(f"{number}", "eval_units:taking_memory", {"size": size}, measures_process=True)
        for number, size in enumerate([20_000_000, 5_000_000, 5_000_000])
    ]
    found = runner.run(Results("euroc", {}), measured, tmp_path, jobs=jobs, watcher=Silent())
    grown = [found.entries[unit.key]["grown"] for unit in measured]
    assert min(grown) > 2e7 and grown[0] > 2 * max(grown[1:])


def test_a_report_without_matplotlib_has_no_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is written all the same, and says what is missing."""
    runner.run(Results("pose-graph", {}), units(tmp_path, "a b"), tmp_path, watcher=Silent())
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    written = html_report.write(tmp_path)
    assert [path.suffix for path in written] == [".html", ".json"]
    assert "pip install 'graphopt[plot]'" in html.unescape(written[0].read_text())


@pytest.mark.parametrize(
    ("values", "axis"), [([255.86, 255.88, 255.9], "linear"), ([1.0, 5.0], "linear"), ([1.0, 100.0], "log")]
)
def test_bars_begin_at_zero_unless_they_differ_a_lot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values: list[float], axis: str
) -> None:
    """Four equal figures are four equal bars."""
    drawn = []
    monkeypatch.setattr(figure, "save", lambda drawing, path: drawn.append(drawing.axes[0]))
    entries = {f"{value}": {"problem": f"{value}", "memory_bytes": value * 2**20} for value in values}
    pictures.draw(Results("bal", {}, entries=entries), tmp_path)
    assert drawn[0].get_yscale() == axis
    assert axis == "log" or drawn[0].get_ylim()[0] == 0.0


def test_damaged_results_are_named(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"graphopt eval wrote"):
        results.load(tmp_path)
    for text, words in (("{", "no results.json"), ("[]", "no results.json"), ('{"kind": 1}', "missing")):
        (tmp_path / "results.json").write_text(text)
        with pytest.raises(FormatError, match=words):
            results.load(tmp_path)


def graph_file(folder: Path) -> Path:
    path = folder / "square.g2o"
    graphopt.write(graphopt.datasets.manhattan(nodes=60, seed=1), path)
    return path


def test_a_pose_graph_from_the_command_line_to_the_report(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    path = graph_file(tmp_path)
    folder = tmp_path / "out"
    arguments = [
        "eval",
        "pose-graph",
        str(path),
        "--configurations",
        "auto,llt-cpu",
        "--runs",
        "1",
        "-o",
        str(folder),
    ]
    assert main(arguments) == 0
    table = capsys.readouterr().out
    found = results.load(folder)
    assert list(found.entries) == ["square auto", "square llt-cpu"]
    solved = graphopt.read(path)
    graphopt.optimize(solved)
    for entry in found.entries.values():
        assert entry["chi2"] == pytest.approx(solved.chi2(), rel=1e-6)
        assert f"{entry['chi2']:.8g}" in table
        assert f"{entry['chi2']:.8g}" in (folder / "report.html").read_text()
        times = [seconds for seconds, _ in entry["convergence"]]
        assert times == sorted(times) and times[-1] <= entry["seconds"]
    page = (folder / "report.html").read_text()
    assert "http" not in page.replace("http-equiv", "").split("<pre>")[0]
    assert {path.name for path in folder.glob("*.png")} >= {
        "time.png",
        "phases.png",
        "convergence-square.png",
    }
    # again: nothing is left to do
    before = (folder / "results.json").read_bytes()
    assert main(arguments) == 0
    assert results.load(folder).entries == json.loads(before)["entries"]


def test_sparsity_is_that_of_the_matrices() -> None:
    from graphopt.evaluate.report.sparsity import patterns, raster

    graph = graphopt.datasets.ba(cameras=4, points=30, seed=0)
    found = patterns(graph)
    for name, pattern in found.items():
        image = raster(pattern)
        assert (image == image.T).all() and image.diagonal().all(), name
    cameras = graph.vertex_sets[0]
    kept = found["H_schur"]["rows"]
    assert kept == (~cameras.fixed).sum() * cameras.type.tangent_dim
    assert 0 < kept < found["H"]["rows"]
    # every camera sees most points: the Schur complement is full
    assert found["H_schur"]["nonzeros"] == kept * kept


def test_ctrl_c_keeps_what_was_done(tmp_path: Path) -> None:
    path = graph_file(tmp_path)
    script = (
        "import signal, sys, threading, _thread, time\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from graphopt.evaluate import runner, results\n"
        "from graphopt.evaluate.runner import Unit\n"
        "from pathlib import Path\n"
        "class Watcher:\n"
        "    def begin(self, key): print(key, flush=True)\n"
        "    def end(self, key, entry): pass\n"
        f"sys.path.insert(0, {str(Path(eval_units.__file__).parent)!r})\n"
        "unit = lambda key, seconds: Unit(key, 'eval_units:slow', {'seconds': seconds})\n"
        f"folder = Path({str(tmp_path)!r})\n"
        "both = [unit('quick', 0.0), unit('long', 60.0)]\n"
        "runner.run(results.Results('pose-graph', {}), both, folder, watcher=Watcher())\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        for line in process.stdout:
            if "long" in line:
                break
        process.send_signal(2)
        process.communicate(timeout=30)
    assert list(results.load(tmp_path).entries) == ["quick"]
    assert path.exists()


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="no process groups here")
@pytest.mark.parametrize("jobs", [1, 2])
def test_ctrl_c_says_what_there_is_and_how_to_go_on(tmp_path: Path, jobs: int) -> None:
    """From the terminal it reaches all processes: none of them prints its stack, all of them end."""
    script = (
        "import faulthandler, signal, sys\n"
        "faulthandler.enable()\n"
        f"sys.path.insert(0, {str(Path(eval_units.__file__).parent)!r})\n"
        "from graphopt.cli import eval as command\n"
        "from graphopt.cli.main import main\n"
        "from graphopt.evaluate.runner import Unit\n"
        "seconds = {'quick': 0.0, 'long': 60.0, 'longer': 60.0}\n"
        "units = [Unit(key, 'eval_units:slow', {'seconds': one}) for key, one in seconds.items()]\n"
        "command._KINDS['pose-graph'] = lambda args: (units, {})\n"
        "if __name__ == '__main__':\n"
        "    signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"    words = ['eval', 'pose-graph', 'x', '-o', {str(tmp_path / 'out')!r}, '--jobs', '{jobs}']\n"
        "    sys.exit(main(words))\n"
    )
    (tmp_path / "script.py").write_text(script)
    process = subprocess.Popen(
        [sys.executable, str(tmp_path / "script.py")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        assert process.stderr is not None
        seen = next(line for line in process.stderr if "[1/3] quick" in line)
        os.killpg(process.pid, signal.SIGINT)
        try:
            rest = process.communicate(timeout=60)[1]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGABRT)  # faulthandler shows where everybody is
            pytest.fail(process.communicate()[1])
    assert process.returncode == 1 and "Traceback" not in seen + rest, rest
    assert "Interrupted. 1 of 3 ended here and are in" in rest and "goes on from there" in rest
    assert list(results.load(tmp_path / "out").entries) == ["quick"]


def test_report_is_made_from_the_json_alone(tmp_path: Path) -> None:
    entry = {"problem": "a <b>", "solver": "auto", "seconds": 0.5, "mse": 1.25, "observations": 10}
    Results(
        "bal", {}, "graphopt eval bal x", "now", {"graphopt": "0"}, {"a": entry, "c": {"error": "no & such"}}
    ).save(tmp_path)
    written = html_report.write(tmp_path)
    page = written[0].read_text()
    assert "a &lt;b&gt;" in page and "no &amp; such" in page and "1.25" in page


def test_typos_are_answered(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    path = str(graph_file(tmp_path))
    for arguments, words in (
        (["eval", "pose-graf", path], "pose-graph"),
        (["eval", "pose-graph", "nothere.g2o"], "no such file"),
        (["eval", "pose-graph", path, "--configurations", "llt-cpuu"], "Did you mean"),
        (["eval", "bal", path, "--peers", "cerse"], "Known: pyceres"),
        (["eval", "pose-graph", path, "-o", path], "expected a folder"),
    ):
        assert main(arguments) == 2
        assert words in capsys.readouterr().err
