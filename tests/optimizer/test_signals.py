"""Ctrl-C, time limits and stop flags end an optimization early, also in native code, with the best so far."""

import signal
import threading
import time

import numpy as np
import pytest
from optimizer_graphs import noisy_ring, tangled

import graphopt
from graphopt.cpu_kernels import kernels
from graphopt.errors import OptionError, Stopped
from graphopt.linear import BlockPattern, DenseCholesky, Pcg, SparseCholesky
from graphopt.optimizer import TerminationType, optimize
from graphopt.optimizer.signals import StopSignals, UsersCode


@pytest.fixture(autouse=True)
def pythons_own_handler():
    """Each test finds and leaves Python's own handler of SIGINT."""
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def pressing(number):
    """A callback that presses Ctrl-C in an iteration."""

    def callback(iteration):
        if iteration.iteration == number:
            signal.raise_signal(signal.SIGINT)

    return callback


def test_control_c_raises_after_the_best_estimate_is_in_place():
    """KeyboardInterrupt leaves `optimize`; the graph has what the summary on the exception says."""
    graph = noisy_ring()
    start = graph.chi2()
    with pytest.raises(KeyboardInterrupt) as raised:
        optimize(graph, "lm", 100, callback=pressing(1))
    assert isinstance(raised.value, graphopt.Interrupted)
    summary = raised.value.summary
    assert summary is not None and summary.termination is TerminationType.USER_INTERRUPT
    assert len(summary.iterations) == 2
    assert graph.chi2() == pytest.approx(summary.final_chi2, rel=1e-12)
    assert graph.chi2() < start


def test_with_stop_control_c_raises_nothing():
    """A program that looks at the summary: the run ends like one that was asked to stop."""
    graph = noisy_ring()
    start = graph.chi2()
    summary = optimize(graph, "lm", 100, callback=pressing(1), on_interrupt="stop")
    assert summary.termination is TerminationType.USER_INTERRUPT
    assert len(summary.iterations) == 2
    assert graph.chi2() == pytest.approx(summary.final_chi2, rel=1e-12)
    assert graph.chi2() < start


def test_unknown_reaction_is_refused():
    """Only "raise" and "stop"."""
    with pytest.raises(OptionError, match="on_interrupt is 'ignore', expected one of raise, stop"):
        optimize(noisy_ring(), on_interrupt="ignore")


def test_a_program_that_handles_control_c_keeps_its_handler():
    """Its handler is called, and the run goes on."""
    pressed = []
    signal.signal(signal.SIGINT, lambda number, frame: pressed.append(number))
    try:
        summary = optimize(noisy_ring(), "lm", 4, callback=pressing(1))
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    assert pressed == [signal.SIGINT] and len(summary.iterations) == 4


def test_users_code_is_interrupted_at_once():
    """Inside a callback the exception is raised where it is; between callbacks it waits for the estimates."""
    reached = []

    def callback(iteration):
        signal.raise_signal(signal.SIGINT)
        reached.append(iteration)

    with pytest.raises(KeyboardInterrupt):
        optimize(noisy_ring(), "lm", 10, callback=callback)
    assert not reached
    signals = StopSignals(None, None, 0.0)
    with signals.catching_interrupts():
        signal.raise_signal(signal.SIGINT)  # noted, not raised
        assert signals.should_stop()
    with pytest.raises(KeyboardInterrupt), signals.catching_interrupts(), UsersCode():
        signal.raise_signal(signal.SIGINT)


def arrow(num_blocks=400, dim=6, seed=0):
    """A dense symmetric positive definite matrix in blocks: pattern and values."""
    rows, cols = np.triu_indices(num_blocks)
    order = np.lexsort((rows, cols))
    col_ptr = np.concatenate([[0], np.cumsum(np.arange(1, num_blocks + 1))])
    pattern = BlockPattern(np.full(num_blocks, dim, np.int32), col_ptr, rows[order].astype(np.int32))
    values = np.random.default_rng(seed).normal(size=pattern.values_size) * 1e-3
    ends = np.asarray(pattern.value_offsets)[col_ptr[1:] - 1]
    for start in ends.tolist():
        values[start : start + dim * dim] = np.eye(dim).ravel() * 10.0
    return pattern, values


class Asked:
    """Says "stop" from the n-th question on."""

    def __init__(self, patience):
        self.patience, self.count = patience, 0

    def __call__(self):
        """Count the question."""
        self.count += 1
        return self.count > self.patience


@pytest.mark.parametrize("solver", [SparseCholesky, DenseCholesky])
def test_a_factorization_ends_early(solver):
    """It asks several times within one call, then raises; without a watch it runs to its end."""
    pattern, values = arrow()
    factor = solver(pattern)
    asked = Asked(2)
    watch = kernels.Watch(asked, 0.0)
    watch.begin()
    try:
        with pytest.raises(Stopped):
            factor.factorize(values)
    finally:
        watch.end()
    assert asked.count == 3
    assert factor.factorize(values)


def test_conjugate_gradients_end_early():
    """One question per iteration at most."""
    pattern, values = arrow(60)
    pcg = Pcg(pattern, 1e-30)
    assert pcg.factorize(values)
    watch = kernels.Watch(Asked(1), 0.0)
    watch.begin()
    try:
        with pytest.raises(Stopped):
            pcg.solve(np.arange(pattern.dim, dtype=float))
    finally:
        watch.end()
    assert np.isfinite(pcg.solve(np.arange(pattern.dim, dtype=float))).all()


def test_what_the_watch_raises_leaves_the_native_call():
    """An exception in Python ends the call and is raised from it."""

    def ask():
        raise ZeroDivisionError("in the question")

    watch = kernels.Watch(ask, 0.0)
    watch.begin()
    try:
        with pytest.raises(ZeroDivisionError, match="in the question"):
            kernels.check_stop()
    finally:
        watch.end()
    kernels.check_stop()


def test_a_run_ends_within_a_step():
    """Where native code stops in the middle of an iteration, the estimates are the last accepted ones."""
    graph = tangled()
    start = graph.chi2()
    slow = threading.Event()

    def callback(iteration):
        slow.set()

    timer = threading.Thread(target=lambda: (slow.wait(), time.sleep(0.01), flag.set()))
    flag = graphopt.StopFlag()
    timer.start()
    summary = optimize(graph, "lm", 100_000, stop=flag, callback=callback)
    timer.join()
    assert summary.termination is TerminationType.USER_STOP
    assert graph.chi2() == pytest.approx(summary.final_chi2, rel=1e-9)
    assert graph.chi2() <= start


@pytest.mark.parametrize(
    ("method", "device"),
    [("auto", "cpu"), ("gn", "cpu"), ("lm", "cpu"), ("dogleg", "cpu"), ("lm", "vulkan"), ("auto", "vulkan")],
)
def test_stopping_at_any_question(method, device):
    """Whichever question is answered with "stop", the graph and the summary agree and nothing got worse.

    On a device the questions are those of each wait; the next call finds nothing of what was left running.
    """
    whole = tangled(60)
    expected = optimize(whole.copy(), method, 50, device=device).final_chi2
    asked = [0]
    original = StopSignals.should_stop

    for stop_at in range(1, 40, 3):
        graph = whole.copy()
        start = graph.chi2()
        asked[0] = 0

        def should_stop(self, stop_at=stop_at):
            asked[0] += 1
            if asked[0] >= stop_at:
                self.ask(TerminationType.USER_STOP)
            return original(self)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(StopSignals, "should_stop", should_stop)
            patch.setattr("graphopt.optimizer.signals._PERIOD", 0.0)
            patch.setattr("graphopt.device.vulkan._WAIT", 0.0)
            summary = optimize(graph, method, 50, device=device)
        assert graph.chi2() == pytest.approx(summary.final_chi2, rel=1e-9)
        assert method == "gn" or graph.chi2() <= start * (1 + 1e-12)
        if device != "cpu":
            graph.vertex_sets[0].estimate = whole.vertex_sets[0].estimate.copy()
            assert optimize(graph, method, 50, device=device).final_chi2 == pytest.approx(expected, rel=1e-9)


def test_the_time_limit_holds_in_the_set_up():
    """A limit that is over before the first iteration: the start values stay, and the summary says so."""
    graph = tangled()
    start = graph.chi2()
    summary = optimize(graph, time_limit=1e-6)
    assert summary.termination is TerminationType.TIME_LIMIT
    assert not summary.iterations
    assert graph.chi2() == start == pytest.approx(summary.final_chi2)
    assert "set-up" in summary.message
