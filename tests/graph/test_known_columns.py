"""What is known of a column is never older than the column, however that is written."""

from __future__ import annotations

import copy
import ctypes
import pickle
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from graphopt.graph.columns import Columns


def grown():
    """Columns with some rows."""
    columns = Columns({"number": ((2,), np.float64), "other": ((), np.int32)})
    columns.append(40, {"number": np.arange(80.0).reshape(40, 2)})
    return columns


class Question:
    """The sum of a column, and how often it was asked for."""

    def __init__(self, columns):
        self.columns, self.times = columns, 0

    def find(self, column):
        """And count."""
        self.times += 1
        return float(column.sum())

    def __call__(self):
        """Ask."""
        return self.columns.known("number", "sum", self.find)


@pytest.fixture
def question():
    """Known already."""
    question = Question(grown())
    assert question() == question() == 3160.0
    assert question.times == 1
    return question


def lines_of(function):
    """Numbers of its lines."""
    return sorted({line for _, _, line in function.__code__.co_lines() if line})[1:]


@contextmanager
def interrupted(function, line, action):
    """Does something, once, before this line of a function runs, as another thread might."""
    before, done = sys.gettrace(), []

    def trace(frame, event, _):
        if frame.f_code is function.__code__ and (frame.f_lineno, event, done) == (line, "line", []):
            done.append(True)
            action()
        return trace

    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


def test_a_view_taken_by_a_thread_in_between_is_seen():
    """`known` counts references and notes facts: a view that is taken in the middle, wherever, ends them."""
    gaps = 0
    for line in lines_of(Columns.known):
        columns = grown()
        question, taken = Question(columns), []
        with interrupted(Columns.known, line, lambda c=columns, t=taken: t.append(c["number"])):
            question()
        if taken:
            gaps += 1
            taken[0][0, 0] = 50.0
            assert question() == columns.look("number").sum() == 3210.0, f"before line {line}"
    assert gaps > 3


def test_facts_found_while_a_view_is_handed_out_end():
    """The other half of it: a thread asks between the moments in which another one's view is on its way."""
    gaps = 0
    for line in lines_of(Columns.__getitem__):
        columns = grown()
        question = Question(columns)
        with interrupted(Columns.__getitem__, line, question):
            view = columns["number"]
        gaps += question.times
        view[0, 0] = 50.0
        assert question() == columns.look("number").sum() == 3210.0, f"before line {line}"
    assert gaps > 2


def test_what_is_written_by_an_address_is_seen_after_touch(question):
    view = question.columns["number"]
    address = view.ctypes.data
    del view
    question()
    (ctypes.c_double * 80).from_address(address)[0] = 50.0
    question.columns.touch()
    assert question() == question.columns.look("number").sum() == 3210.0


def test_reading_without_a_way_to_write_asks_nothing_again(question):
    looked = question.columns.look("number")
    with pytest.raises(ValueError, match="read-only"):
        looked[0] = 1.0
    with pytest.raises(ValueError, match="WRITEABLE"):
        looked.flags.writeable = True
    question.columns["other"][...] = 3
    assert question() == 3160.0
    assert question.times == 1


@pytest.mark.parametrize(
    "kept",
    [
        lambda view: view,
        lambda view: view[3:5],
        lambda view: view.T[1:][:, ::2],
        lambda view: view.reshape(-1),
        lambda view: memoryview(view).cast("B").cast("d"),
        lambda view: view[7],
        lambda view: np.frombuffer(view, np.float64),
        lambda view: view.view(np.recarray),
        lambda view: iter(view),
    ],
)
def test_whoever_keeps_a_view_may_write_at_any_time(question, kept):
    mine = kept(question.columns["number"])
    for value in (1.0, 7.0, -3.0):
        np.asarray(next(mine) if isinstance(mine, Iterator) else mine)[...] = value
        assert question() == question.columns["number"].sum()
    times = question.times
    question()
    assert question.times == times + 1  # it is still there
    del mine
    assert question() == question()
    assert question.times == times + 2


def test_a_view_taken_before_anything_was_known_counts():
    columns = grown()
    question = Question(columns)
    mine = columns["number"][4:]
    question()
    mine[0] = 100.0
    assert question() == columns.look("number").sum()
    assert question.times == 2


def test_a_write_in_passing_is_seen(question):
    question.columns["number"][...] *= 2.0
    assert question() == 6320.0
    assert question.times == 2


def test_rows_that_come_or_go_are_seen(question):
    question.columns.append(1, {"number": 5.0})
    assert question() == 3170.0
    question.columns.keep(np.arange(41) != 0)
    assert question() == 3169.0
    question.columns.append(100, {"number": 1.0})
    assert question() == 3369.0


def test_a_view_of_fewer_rows_counts_after_the_column_has_grown_in_place(question):
    columns = question.columns
    columns.reserve(200)
    mine = columns["number"][:2]
    columns.append(60, {"number": 0.0})
    assert question() == 3160.0
    mine[...] = 0.0
    assert question() == 3160.0 - 6.0


@pytest.mark.parametrize(
    "other_of", [copy.copy, copy.deepcopy, lambda graph: pickle.loads(pickle.dumps(graph))]
)
def test_copies_know_for_themselves(question, other_of):
    columns = question.columns
    other = Question(other_of(columns))
    assert other() == 3160.0
    other.columns["number"][0, 0] += 5.0
    assert other() == other.columns.look("number").sum() == 3165.0
    assert question() == columns.look("number").sum()
    columns["number"][0, 1] += 7.0
    assert question() == columns.look("number").sum()
    assert other() == other.columns.look("number").sum()


def test_buffers_that_leave_with_a_pickle_may_be_written(question):
    buffers = []
    pickle.dumps(question.columns, protocol=5, buffer_callback=buffers.append)
    mine = [np.frombuffer(buffer.raw(), np.float64) for buffer in buffers if buffer.raw().nbytes == 640]
    for value in (4.0, 5.0):
        mine[0][:] = value
        assert question() == 80 * value


def test_arrays_of_somebody_else_are_looked_at_every_time():
    mine = np.ones((40, 2))
    question = Question(Columns.holding({"number": mine}))
    assert question() == 80.0
    mine[0] = 3.0
    assert question() == 84.0
    part = Question(Columns.holding({"number": mine[:20]}))
    part()
    mine[0] = 5.0
    assert part() == 48.0


def test_a_column_handed_out_while_it_is_looked_at_is_looked_at_again():
    columns = grown()
    taken = []

    def find(column):
        if not taken:
            taken.append(columns["number"])
        return float(column.sum())

    columns.known("number", "sum", find)
    taken[0][0] = 50.0
    assert columns.known("number", "sum", find) == columns.look("number").sum()
