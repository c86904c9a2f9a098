"""Ctrl-C in `optimize`: KeyboardInterrupt at the first press, with the best estimates in the vertices."""

from __future__ import annotations

import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from both import assert_same, estimates, ring
from processes import python

import graphopt
import graphopt.g2o as g2o
from graphopt.errors import OptionError
from graphopt.g2o import sparse_optimizer
from graphopt.optimizer import TerminationType


@pytest.fixture(autouse=True)
def as_it_was(monkeypatch):
    """Python's own handler before and after; no choice left over."""
    g2o.set_on_interrupt("raise")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def press():
    """Ctrl-C."""
    signal.raise_signal(signal.SIGINT)


class Pressing(g2o.HyperGraphAction):
    """Presses in an iteration; `after` notes that the action came to its end."""

    def __init__(self, iteration):
        super().__init__()
        self.iteration, self.after = iteration, False

    def __call__(self, graph, parameters=None):
        """After an iteration."""
        if parameters["iteration"] == self.iteration:
            press()
            self.after = True


def _tangled(**options):
    """A ring that needs many iterations."""
    optimizer = ring(g2o, 30, **options)
    random = np.random.default_rng(0)
    for id, vertex in optimizer.vertices().items():
        if id:
            vertex.oplus(random.normal(0.0, 0.4, 6))
    optimizer.initialize_optimization()
    optimizer.compute_active_errors()
    return optimizer


def _chi2(optimizer):
    optimizer.compute_active_errors()
    return optimizer.active_robust_chi2()


def test_best_estimates_are_in_place():
    """The vertices have what the summary says, and the optimizer goes on from there."""
    optimizer = _tangled()
    start = _chi2(optimizer)
    action = Pressing(1)
    optimizer.add_post_iteration_action(action)
    with pytest.raises(KeyboardInterrupt) as raised:
        optimizer.optimize(50)
    assert isinstance(raised.value, graphopt.Interrupted) and not action.after
    assert raised.value.summary is optimizer.summary
    assert optimizer.summary.termination is TerminationType.USER_INTERRUPT
    assert len(optimizer.summary.iterations) == 2
    assert _chi2(optimizer) == pytest.approx(optimizer.summary.final_chi2, rel=1e-12)
    assert _chi2(optimizer) < start
    optimizer.remove_post_iteration_action(action)
    assert optimizer.optimize(50) > 0


def test_between_calls_of_the_program(monkeypatch):
    """A press while the library computes waits for the estimates, then raises."""
    optimizer = _tangled()
    start = _chi2(optimizer)
    pressed = []

    def write(text):
        pressed.append(text)
        if len(pressed) == 2:
            press()
        return len(text)

    optimizer.set_verbose(True)
    monkeypatch.setattr(sys.stderr, "write", write)
    with pytest.raises(KeyboardInterrupt):
        optimizer.optimize(50)
    monkeypatch.undo()
    assert len(pressed) == 2
    assert _chi2(optimizer) == pytest.approx(optimizer.summary.final_chi2, rel=1e-12)
    assert _chi2(optimizer) < start


class Slow(g2o.EdgeSE3):
    """A pose constraint computed in Python, which presses at one of its evaluations."""

    count, press_at, after, pause = 0, -1, 0, 0.0

    def compute_error(self):
        """Count, press, compute."""
        Slow.count += 1
        if Slow.count == Slow.press_at:
            press()
            time.sleep(Slow.pause)
        Slow.after += Slow.count > Slow.press_at > 0
        super().compute_error()


def _python_ring():
    optimizer = _tangled()
    random = np.random.default_rng(2)
    for _ in range(10):
        i, j = sorted(random.choice(30, 2, replace=False).tolist())
        edge = Slow()
        edge.set_vertex(0, optimizer.vertex(i))
        edge.set_vertex(1, optimizer.vertex(j))
        edge.set_measurement(optimizer.vertex(i).estimate().inverse() * optimizer.vertex(j).estimate())
        edge.set_information(0.01 * np.eye(6))
        optimizer.add_edge(edge)
    optimizer.initialize_optimization()
    return optimizer


@pytest.mark.parametrize("press_at", [1, 7, 15, 300, 700])
def test_in_edges_of_the_program(press_at):
    """At once: no further edge is evaluated; the vertices are at accepted estimates."""
    optimizer = _python_ring()
    Slow.press_at = -1
    start = _chi2(optimizer)
    before = estimates(optimizer)
    Slow.count, Slow.press_at, Slow.after = 0, press_at, 0
    try:
        with pytest.raises(KeyboardInterrupt):
            optimizer.optimize(50)
    finally:
        Slow.press_at = -1
    assert Slow.after == 0
    summary = optimizer.summary
    assert summary.termination is TerminationType.USER_INTERRUPT
    if summary.iterations:
        assert _chi2(optimizer) == pytest.approx(summary.final_chi2, rel=1e-9)
        assert summary.final_chi2 <= summary.iterations[-1].chi2 < start
    else:
        assert_same(estimates(optimizer), before, rtol=1e-15, atol=1e-15)


class Drifting(g2o.VectorXVertex):
    """A vertex with an `oplus_impl` of its own, which presses."""

    press_next = False

    def __init__(self):
        super().__init__()
        self.set_dimension(1)
        self.set_estimate(np.zeros(1))

    def oplus_impl(self, update):
        """Move, and press after that."""
        self.set_estimate(self.estimate() + update)
        if Drifting.press_next:
            press()


class Near(g2o.VariableVectorXEdge):
    """Pulls a vertex to a number."""

    def __init__(self):
        super().__init__()
        self.set_dimension(1)
        self.resize(1)
        self.set_measurement([3.0])

    def compute_error(self):
        """Difference."""
        return self.vertex(0).estimate() - self.measurement()


def test_in_vertices_of_the_program():
    """A vertex that was moved by half a step is moved back."""
    optimizer = g2o.SparseOptimizer()
    solver = g2o.BlockSolverX(g2o.LinearSolverEigenX())
    optimizer.set_algorithm(g2o.OptimizationAlgorithmLevenberg(solver))
    for id in range(2):
        vertex, edge = Drifting(), Near()
        vertex.set_id(id)
        optimizer.add_vertex(vertex)
        edge.set_vertex(0, vertex)
        edge.set_information(np.eye(1))
        optimizer.add_edge(edge)
    optimizer.initialize_optimization()
    Drifting.press_next = True
    try:
        with pytest.raises(KeyboardInterrupt):
            optimizer.optimize(10)
    finally:
        Drifting.press_next = False
    assert [each_vertex.estimate()[0] for each_vertex in optimizer.vertices().values()] == [0.0, 0.0]
    assert optimizer.optimize(10) > 0
    assert optimizer.vertex(1).estimate()[0] == pytest.approx(3.0, abs=1e-3)


def test_during_the_set_up(monkeypatch):
    """Nothing was moved: the vertices keep what the program has set after the last optimization."""
    optimizer = _tangled()
    optimizer.optimize(1)
    for vertex in optimizer.vertices().values():
        vertex.oplus(np.full(6, 0.01))
    before = estimates(optimizer)
    prepared = sparse_optimizer.prepared_solver

    def pressing(*arguments, **options):
        press()
        return prepared(*arguments, **options)

    monkeypatch.setattr(sparse_optimizer, "prepared_solver", pressing)
    with pytest.raises(KeyboardInterrupt):
        optimizer.optimize(5)
    assert_same(estimates(optimizer), before, rtol=1e-15, atol=1e-15)
    monkeypatch.setattr("graphopt.g2o.engine.problem.Problem.take_values", lambda self: press())
    with pytest.raises(KeyboardInterrupt):
        optimizer.optimize(5)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("has_python", [False, True])
def test_stop_instead(has_python):
    """With "stop" `optimize` returns what it has, and a program that polls its flag finds it set."""
    g2o.set_on_interrupt("stop")
    assert g2o.on_interrupt() == "stop"
    optimizer = _python_ring() if has_python else _tangled()
    start = _chi2(optimizer)
    flag = g2o.Flag(False)
    optimizer.set_force_stop_flag(flag)
    action = Pressing(1)
    optimizer.add_post_iteration_action(action)
    assert optimizer.optimize(50) == 2
    assert flag.value and action.after
    assert optimizer.summary.termination is TerminationType.USER_INTERRUPT
    assert optimizer.active_robust_chi2() == pytest.approx(optimizer.summary.final_chi2, rel=1e-12)
    assert optimizer.active_robust_chi2() < start


def test_stop_within_edges_of_the_program():
    """The loop over the edges ends before its end too."""
    g2o.set_on_interrupt("stop")
    optimizer = _python_ring()
    Slow.count, Slow.press_at, Slow.after, Slow.pause = 0, 2, 0, 0.1  # native code asks every 0.02 s
    try:
        assert optimizer.optimize(50) == 0
    finally:
        Slow.press_at, Slow.pause = -1, 0.0
    assert optimizer.summary.termination is TerminationType.USER_INTERRUPT
    assert Slow.after == 10  # the errors at the end
    assert np.isfinite(_chi2(optimizer))


def test_unknown_reaction():
    """Only "raise" and "stop"; the message names both ways to say it."""
    expected = "on_interrupt is 'ignore' .GRAPHOPT_G2O_ON_INTERRUPT or set_on_interrupt.*raise, stop"
    with pytest.raises(OptionError, match=expected):
        g2o.set_on_interrupt("ignore")


def test_environment_variable():
    """For programs that cannot be changed."""
    code = (
        "import graphopt.g2o as g\n"
        "import signal; from both import ring\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "class A(g.HyperGraphAction):\n"
        "    def __call__(self, graph, parameters=None):\n"
        "        if parameters['iteration'] == 1: signal.raise_signal(signal.SIGINT)\n"
        "o = ring(g, 30, algorithm='GaussNewton'); a = A(); o.add_post_iteration_action(a)\n"
        "o.initialize_optimization(); print(o.optimize(20))"
    )
    helpers = Path(__file__).resolve().parents[1] / "helpers"
    done = python("-c", code, path=[helpers], environment={"GRAPHOPT_G2O_ON_INTERRUPT": "stop"})
    assert done.stdout.strip() == "2"


def test_a_handler_of_the_program_stays():
    """It is called, and the run goes on."""
    pressed = []
    signal.signal(signal.SIGINT, lambda number, frame: pressed.append(number))
    try:
        optimizer = _tangled(algorithm="GaussNewton")
        optimizer.add_post_iteration_action(action := Pressing(1))
        assert optimizer.optimize(5) == 5 and action.after
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    assert pressed == [signal.SIGINT]


def test_other_threads_run_on():
    """Ctrl-C belongs to the main thread."""
    optimizer = _tangled(algorithm="GaussNewton")
    answers = []
    thread = threading.Thread(target=lambda: answers.append(optimizer.optimize(5)))
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        press()
    thread.join()
    assert answers == [5]


def test_flag_of_an_action_lets_the_iteration_end():
    """As in g2o: an action that asks to stop before an iteration does not cut it short."""
    optimizer = _python_ring()
    flag = g2o.Flag(False)
    optimizer.set_force_stop_flag(flag)

    class Asking(g2o.HyperGraphAction):
        def __call__(self, graph, parameters=None):
            flag.value = parameters["iteration"] == 2

    optimizer.add_pre_iteration_action(action := Asking())
    assert optimizer.optimize(50) == 3
    assert optimizer.remove_pre_iteration_action(action)
