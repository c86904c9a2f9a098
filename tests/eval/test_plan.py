"""`graphopt explain FILE` says what a run will take before it runs."""

from __future__ import annotations

import json

import numpy as np
import pytest

import graphopt
from graphopt.cli.main import main
from graphopt.evaluate import plan
from graphopt.linear.options import SolverOptions

PROBLEMS = {
    "plane": lambda: graphopt.datasets.manhattan(400, seed=3),
    "space": lambda: graphopt.datasets.sphere(12, 10, seed=3),
    "images": lambda: graphopt.datasets.ba(12, 500, seed=3),
    "images by conjugate gradients": lambda: graphopt.datasets.ba(12, 500, camera="expmap", seed=3),
}


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    """The machine is measured once, into a folder of this module."""
    patch = pytest.MonkeyPatch()
    patch.setenv("GRAPHOPT_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
    yield
    patch.undo()


@pytest.mark.parametrize("name", PROBLEMS)
def test_memory_and_solver_are_those_of_the_run(name):
    """Memory to 15 %, solver and elimination by name; seconds are positive and add up."""
    graph = PROBLEMS[name]()
    options = {"linear_solver": "pcg", "schur": "implicit"} if "conjugate" in name else {}
    made = SolverOptions("cpu", **options)
    found = plan.plan(graph, plan.structure_of(graph), 0.01, made)
    summary = graphopt.optimize(graph, device="cpu", method="lm", max_iterations=3, **options)
    assert found.memory_bytes == pytest.approx(summary.memory_bytes, rel=0.15)
    assert (found.linear_solver, found.schur) == (summary.linear_solver, summary.schur)
    assert found.setup > 0.01 and found.linearize > 0.0 and found.solve > 0.0
    assert found.seconds == pytest.approx(found.setup + plan.TYPICAL * found.iteration) and found.fits


def test_a_sample_stands_for_many_edges(monkeypatch):
    """Of 800 edges 100 are evaluated; counts of the factor stay those of the whole."""
    graph = PROBLEMS["plane"]()
    structure = plan.structure_of(graph)
    monkeypatch.setattr(plan, "_SAMPLE", 100)
    seen = []
    made = plan.HostEquations
    monkeypatch.setattr(
        plan, "HostEquations", lambda g, s, *rest: seen.append(s.num_edges) or made(g, s, *rest)
    )
    found = plan.plan(graph, structure, 0.0, SolverOptions("cpu"))
    assert 50 <= seen[0] <= 100 < structure.num_edges and found.memory_bytes > 8 * structure.values_size


@pytest.mark.parametrize(("load", "seconds"), [(0.0, 30 * 86400.0), (1e3, 3600.0)])
def test_figures_of_a_busy_machine_are_kept_for_an_hour(load, seconds, monkeypatch, tmp_path):
    """Those of one that was idle for a month."""
    monkeypatch.setenv("GRAPHOPT_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(plan.os, "getloadavg", lambda: (load, load, load), raising=False)
    calls = []
    monkeypatch.setattr(plan, "_measure", lambda: calls.append(1) or np.ones(6))
    stored = plan.disk_cache.load_dated
    for age, count in ((None, 1), (seconds - 60.0, 1), (seconds + 60.0, 2)):
        if age is not None:
            monkeypatch.setattr(plan.disk_cache, "load_dated", lambda name, age=age: (stored(name)[0], age))
        plan.machine_figures()
        assert len(calls) == count


def test_figures_of_the_machine_are_measured_once(monkeypatch):
    """They are kept with their date; none is below zero."""
    figures, date = plan.machine_figures()
    monkeypatch.setattr(plan, "_measure", lambda: pytest.fail("measured again"))
    again, same_date = plan.machine_figures()
    assert (figures == again).all() and date == same_date and (figures >= 0.0).all() and figures.sum() > 0.0


def test_what_does_not_fit_is_refused_with_the_way_out(tmp_path, monkeypatch, capsys):
    """Exit status 1, both sizes, and other ways; the prediction is printed all the same."""
    path = tmp_path / "graph.g2o"
    graphopt.write(PROBLEMS["plane"](), path)
    words = ["explain", str(path), "--device", "cpu", "--json"]
    assert main(words) == 0
    run = json.loads(capsys.readouterr().out)["run"]
    assert run["fits"] and run["seconds"] > 10 * run["iteration"] > 0.0
    monkeypatch.setattr(plan, "available_bytes", lambda: 1 << 16)
    assert main(words[:-1]) == 1
    captured = capsys.readouterr()
    assert "per iteration" in captured.out
    assert all(word in captured.err for word in ("MiB", "--linear-solver pcg", "--schur implicit", "E702"))
