"""What a run says while it runs and afterwards: verbose, logging, JSON, HTML. It changes no result."""

import json
import logging

import pytest

import graphopt
from graphopt.evaluate import datasets


def run(**options):
    """A small graph, optimized."""
    graph = datasets.manhattan(nodes=40, seed=1)
    return graphopt.optimize(graph, "lm", 4, **options)


def test_verbose_prints_every_iteration(capsys):
    """Start, one line each, and how it ended."""
    summary = run(verbose=True)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"lm: {summary.vertices} vertices, {summary.edges} edges"
    assert lines[1].split() == ["iteration", "chi2", "lambda", "trials", "ms"]
    assert float(lines[2].split()[1]) == pytest.approx(summary.initial_chi2, rel=1e-8)
    assert [int(line.split()[0]) for line in lines[3:-1]] == list(range(len(summary.iterations)))
    assert lines[-1] == summary.brief_report()


def test_logging_reports_what_its_level_asks_for(caplog):
    """INFO: start and end; DEBUG: iterations as well."""
    with caplog.at_level(logging.INFO, logger="graphopt"):
        summary = run()
    assert [record.levelno for record in caplog.records] == [logging.INFO, logging.INFO]
    assert caplog.messages[-1] == summary.brief_report()
    caplog.clear()
    with caplog.at_level(logging.DEBUG, logger="graphopt"):
        run()
    assert len(caplog.records) == 2 + len(summary.iterations)


def test_nothing_is_said_unasked(capsys, caplog):
    """No output and no record without verbose or logging."""
    run()
    out, err = capsys.readouterr()
    assert not out and not err and not caplog.records


def test_a_callback_is_still_called_and_may_stop(capsys):
    """With the graph's estimates up to date, if it looks at them."""
    seen = []

    def callback(iteration):
        seen.append(iteration.chi2)
        return len(seen) < 2

    summary = run(verbose=True, callback=callback)
    assert summary.termination is graphopt.TerminationType.USER_STOP and len(seen) == 2
    assert capsys.readouterr().out


def test_results_do_not_depend_on_who_listens(capsys):
    """The same digits."""
    assert [iteration.chi2 for iteration in run(verbose=True).iterations] == [
        iteration.chi2 for iteration in run().iterations
    ]
    assert capsys.readouterr().out


def test_json_and_html():
    """JSON that any parser takes, also where numbers are not finite; HTML with all iterations."""
    summary = run()
    assert json.loads(summary.to_json()) == summary.to_dict()
    empty = graphopt.Summary(1, 2, "lm")
    assert json.loads(empty.to_json(indent=1))["final_chi2"] is None
    summary.message = "<b>"
    html = summary._repr_html_()
    assert html.count("<tr>") == 6 + len(summary.iterations) and "&lt;b&gt;" in html
