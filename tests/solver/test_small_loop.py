"""The native loop of small systems gives the digits of the Python loop."""

from __future__ import annotations

import signal
import threading
import time

import numpy as np
import pytest

import graphopt
from graphopt.errors import GraphError
from graphopt.evaluate.datasets import manhattan
from graphopt.optimizer import run as run_module
from graphopt.optimizer.native_loop import native_loop_for
from graphopt.optimizer.options import DoglegOptions, GaussNewtonOptions, LevenbergMarquardtOptions
from graphopt.optimizer.signals import StopFlag, StopSignals
from graphopt.solver.cpu import SMALL_DIM

CAMERA = [500.0, 500.0, 320.0, 240.0]


def pose_graph(outliers: bool = True, seed: int = 0) -> graphopt.Graph:
    """One camera pose and 60 points, a tenth of them wrong."""
    random = np.random.default_rng(seed)
    points = random.uniform([-4.0, -3.0, 6.0], [4.0, 3.0, 20.0], (60, 3))
    pixels = points[:, :2] / points[:, 2:] * 500.0 + [320.0, 240.0] + random.normal(size=(60, 2))
    if outliers:
        pixels[::10] += random.uniform(20.0, 60.0, (6, 2))
    graph = graphopt.Graph()
    graph.add_vertices("VERTEX_SE3:EXPMAP", [0], [[0.05, -0.03, 0.08, 0.0, 0.0, 0.0, 1.0]])
    camera = np.tile(CAMERA, (60, 1))
    graph.add_edges(
        "EdgeSE3ProjectXYZOnlyPose",
        np.zeros((60, 1), np.int64),
        np.concatenate([pixels, points, camera], axis=1),
        kernel="Huber",
        kernel_width=2.4,
    )
    return graph


def small_manhattan() -> graphopt.Graph:
    """Eight poses with loop closures."""
    return manhattan(8, seed=3)


PROBLEMS = {"pose": pose_graph, "manhattan": small_manhattan}


def both(problem, monkeypatch, method: str, **arguments):
    """(graph, summary) by the native loop and by Python."""
    results = []
    for is_native in (True, False):
        graph = PROBLEMS[problem]()
        seen = []

        def spy(algorithm, solver, is_native=is_native, seen=seen):
            seen.append(native_loop_for(algorithm, solver))
            return seen[-1] if is_native else None

        monkeypatch.setattr(run_module, "native_loop_for", spy)
        summary = graphopt.optimize(graph, method, **arguments)
        assert seen[0] is not None
        results.append((graph, summary))
    return results


def assert_same(results) -> None:
    (graph, native), (other, python) = results
    for ours, theirs in zip(graph.vertex_sets, other.vertex_sets, strict=True):
        np.testing.assert_array_equal(ours.estimate, theirs.estimate)
    assert native.termination is python.termination
    assert (native.initial_chi2, native.final_chi2) == (python.initial_chi2, python.final_chi2)
    rows = [
        [(iteration.chi2, iteration.lambda_, iteration.trials) for iteration in summary.iterations]
        for summary in (native, python)
    ]
    assert rows[0] == rows[1]
    assert rows[0]
    assert native.message == python.message


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("solver", ["dense", "cholesky"])
@pytest.mark.parametrize("method", ["lm", "gn", "dogleg"])
def test_same_digits(problem, solver, method, monkeypatch):
    """Estimates, chi2, damping and trials are equal bit for bit."""
    assert_same(both(problem, monkeypatch, method, linear_solver=solver, max_iterations=12))


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("lm", LevenbergMarquardtOptions(initial_lambda=1e5, max_trials=3, tau=1e-3)),
        ("lm", LevenbergMarquardtOptions(max_iterations=50, function_tolerance=1e-3)),
        ("gn", GaussNewtonOptions(max_iterations=50, step_tolerance=1e-3)),
        ("gn", GaussNewtonOptions(max_iterations=50, gradient_tolerance=1.0)),
        ("dogleg", DoglegOptions(initial_delta=0.01, max_iterations=30)),
        ("dogleg", DoglegOptions(initial_delta=1e-9, max_trials=4)),
    ],
)
def test_same_with_options(method, options, monkeypatch):
    """Also with other options, tolerances and a small trust region."""
    assert_same(both("manhattan", monkeypatch, method, options=options))


def test_indefinite_system(monkeypatch):
    """A pose that no measurement determines: Gauss-Newton fails, dogleg damps, in both loops alike."""

    def undetermined() -> graphopt.Graph:
        graph = pose_graph()
        graph.remove_edges("EdgeSE3ProjectXYZOnlyPose", np.arange(2, 60))
        return graph

    monkeypatch.setitem(PROBLEMS, "undetermined", undetermined)
    for method in ("gn", "dogleg", "lm"):
        assert_same(both("undetermined", monkeypatch, method))


def test_not_finite(monkeypatch):
    """A point in the camera's plane: both name the edge."""

    def broken() -> graphopt.Graph:
        graph = pose_graph()
        graph.edge_sets[0].measurement[3, 2:5] = [0.0, 0.0, -0.08]
        return graph

    monkeypatch.setitem(PROBLEMS, "broken", broken)
    (_, native), (_, python) = [both("broken", monkeypatch, "lm")[i] for i in (0, 1)]
    assert native.termination is python.termination is graphopt.TerminationType.NON_FINITE
    assert native.message == python.message
    assert "EDGE" in native.message


def test_stop_flag():
    """A flag that is set before stops at once; one that another thread sets stops between trials."""
    flag = StopFlag(True)
    summary = graphopt.optimize(pose_graph(), "lm", stop=flag)
    assert summary.termination is graphopt.TerminationType.USER_STOP
    assert not summary.iterations
    flag.clear()
    timer = threading.Thread(target=lambda: (time.sleep(0.05), flag.set()))
    timer.start()
    summary = graphopt.optimize(pose_graph(), "gn", 10_000_000, stop=flag)
    timer.join()
    assert summary.termination is graphopt.TerminationType.USER_STOP
    assert 0 < len(summary.iterations) < 10_000_000


def test_interrupts_are_seen_without_a_flag():
    """Nobody is expected to stop it: the native loop looks at times whether Ctrl-C was pressed."""
    main = threading.main_thread().ident
    timer = threading.Timer(0.05, lambda: signal.pthread_kill(main, signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt) as raised:
        graphopt.optimize(pose_graph(), "gn", 10_000_000)
    timer.join()
    summary = raised.value.summary
    assert summary.termination is graphopt.TerminationType.USER_INTERRUPT
    assert 0 < len(summary.iterations) < 10_000_000


def test_who_is_asked_how_often():
    """A flag or a time limit is looked at before each trial, surprises once in a while."""

    class Counting(StopFlag):
        calls = 0

        def is_set(self) -> bool:
            self.calls += 1
            return super().is_set()

    flag = Counting()
    summary = graphopt.optimize(pose_graph(), "gn", 500, stop=flag)
    assert flag.calls >= len(summary.iterations) == 500
    assert StopSignals(None, 3.0, 0.0).patience == StopSignals(flag, None, 0.0).patience == 0.0
    assert StopSignals(None, None, 0.0).patience > 0.0
    assert StopSignals(flag, None, 0.0, is_likely=False).patience > 0.0


def test_exception_in_stop():
    """What `is_set` raises comes out, with a finite estimate."""

    class Bad:
        calls = 0

        def is_set(self) -> bool:
            self.calls += 1
            if self.calls > 2:
                raise GraphError("enough")
            return False

    graph = pose_graph()
    with pytest.raises(GraphError, match="enough"):
        graphopt.optimize(graph, "gn", stop=Bad())
    assert np.isfinite(graph.vertex_sets[0].estimate).all()


def test_large_systems_run_in_python(monkeypatch):
    """More scalars than SMALL_DIM: no native loop."""
    found = []
    monkeypatch.setattr(run_module, "native_loop_for", lambda *pair: found.append(native_loop_for(*pair)))
    graphopt.optimize(manhattan(SMALL_DIM, seed=1), "lm")
    assert found == [None]


def test_callback_runs_in_python():
    """A callback sees each iteration."""
    seen = []
    summary = graphopt.optimize(small_manhattan(), "lm", callback=seen.append)
    assert seen == summary.iterations
