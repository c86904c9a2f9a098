"""Which state speculation is in after each event, what is handed out, and what is waited for."""

from __future__ import annotations

import pytest

from graphopt.solver.trial import Damping
from graphopt.vulkan.speculation import Evaluations, Speculation, SpeculativeTrial, Stage

START, END, ELSEWHERE = 0, 1, 2
DAMPING, TAIL = Damping(0.5), object()


class Submission:
    """Counts who waits."""

    def __init__(self):
        self.waits = 0

    def wait(self, seconds=None):
        """Note it."""
        self.waits += 1


def made(state):
    """A speculation in a state, with its submissions: H and b of a step's end, and a trial."""
    speculation, linearization, trial = Speculation(), Submission(), Submission()
    if state in ("linearized", "trial"):
        speculation.evaluations = Evaluations(START)
        speculation.linearize(START)
    if state == "replacing":
        speculation.linearize(END, linearization)
    if state == "trial":
        speculation.begin_trial(SpeculativeTrial(DAMPING, TAIL, TAIL, trial))
    return speculation, linearization, trial


EVENTS = {
    "take H and b": lambda s, seconds: s.take_point(START),
    "take others": lambda s, seconds: s.take_point(ELSEWHERE),
    "go on to the end": lambda s, seconds: s.take_replacing(END) is not None,
    "go on elsewhere": lambda s, seconds: s.take_replacing(ELSEWHERE) is not None,
    "take the trial": lambda s, seconds: s.take_trial(DAMPING, TAIL, seconds) is not None,
    "take another trial": lambda s, seconds: s.take_trial(Damping(2.0), TAIL, seconds) is not None,
    "a trial is done": lambda s, seconds: s.arrive(),
    "estimates move": lambda s, seconds: s.leave(),
    "discard": lambda s, seconds: (s.discard_begun(), s.discard_trial(seconds)) and None,
    "H of the start is asked for": lambda s, seconds: s.discard_replacing(seconds, ELSEWHERE),
    "H of the start is asked for at the end": lambda s, seconds: s.discard_replacing(seconds, END),
    "H and b are submitted": lambda s, seconds: s.settle(),
}
NONE, LINEARIZED, TRIAL = Stage
TABLE = [
    # state, event, stage after, what it returns, waits for the linearization and for the trial
    ("none", "take H and b", NONE, False, 0, 0),
    ("none", "go on to the end", NONE, False, 0, 0),
    ("none", "take the trial", NONE, False, 0, 0),
    ("none", "discard", NONE, None, 0, 0),
    ("none", "H of the start is asked for", NONE, False, 0, 0),
    ("linearized", "take H and b", NONE, True, 0, 0),
    ("linearized", "take others", NONE, False, 0, 0),
    ("linearized", "a trial is done", NONE, None, 0, 0),
    ("linearized", "estimates move", LINEARIZED, None, 0, 0),
    ("linearized", "discard", NONE, None, 0, 0),
    ("linearized", "H of the start is asked for", LINEARIZED, False, 0, 0),
    ("trial", "take H and b", TRIAL, True, 0, 0),
    ("trial", "take the trial", LINEARIZED, True, 0, 0),
    ("trial", "take another trial", LINEARIZED, False, 0, 1),
    ("trial", "discard", NONE, None, 0, 1),
    ("replacing", "take H and b", LINEARIZED, False, 0, 0),
    ("replacing", "go on to the end", NONE, True, 0, 0),
    ("replacing", "go on elsewhere", NONE, False, 0, 0),
    ("replacing", "a trial is done", LINEARIZED, None, 0, 0),
    ("replacing", "estimates move", LINEARIZED, None, 0, 0),
    ("replacing", "discard", LINEARIZED, None, 0, 0),
    ("replacing", "H of the start is asked for", NONE, True, 1, 0),
    ("replacing", "H of the start is asked for at the end", NONE, True, 1, 0),
    ("replacing", "H and b are submitted", NONE, None, 0, 0),
]


@pytest.mark.parametrize(("state", "event", "stage", "returns", "linearization", "trial"), TABLE)
def test_events(state, event, stage, returns, linearization, trial):
    """The row of the table."""
    speculation, *submissions = made(state)
    assert EVENTS[event](speculation, {}) is returns
    assert speculation.stage is stage
    assert [submission.waits for submission in submissions] == [linearization, trial]


def test_replaced_equations_stay_replaced_where_estimates_move():
    """They are of no version then, and are not gone on with."""
    speculation, linearization, _ = made("replacing")
    speculation.leave()
    assert speculation.replaces and speculation.take_replacing(END) is None
    assert linearization.waits == 0


def test_a_host_that_reads_at_a_step_that_was_taken_is_remembered():
    """Not one that comes back from a step that was not."""
    for current, reads in ((START, False), (END, True)):
        speculation, *_ = made("replacing")
        speculation.discard_replacing({}, current)
        assert speculation.host_reads is reads


def test_evaluations_are_taken_once_at_their_version():
    """chi2, and sums by group and slot; what nobody took is waited for in the end."""
    chi2, sums, left = Submission(), Submission(), Submission()
    begun = Evaluations(START, chi2, {(0, 1): sums, (2, 0): left})
    assert begun.take_sums(ELSEWHERE, 0, 1) is None
    assert begun.take_sums(START, 0, 1) is sums and begun.take_sums(START, 0, 1) is None
    assert begun.take_chi2(START) is chi2 and begun.take_chi2(START) is None
    begun.wait()
    assert (chi2.waits, sums.waits, left.waits) == (0, 0, 1)
