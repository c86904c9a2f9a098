"""Statements in another order: the same function, with fewer values alive and reads where they are needed."""

from __future__ import annotations

import random

import numpy as np
import pytest

from graphopt.codegen.assignment import Assignment, Statement
from graphopt.codegen.gpu import live_order
from graphopt.codegen.gpu.live_order import where_needed, with_few_live


def tree(num_leaves=32):
    """Sums of products of neighbours, level by level: all leaves are alive at the same time."""
    statements, level = [], [f"x{i}" for i in range(num_leaves)]
    while len(level) > 1:
        above = []
        for i in range(0, len(level), 2):
            above.append(f"t{len(statements)}")
            statements.append(Statement("ADD", (above[-1],), (level[i], level[i + 1])))
        level = above
    return Assignment(tuple(statements), {"y": level[0]})


def most_alive(assignment, words):
    """At the same time, where words are read when one of their values is first needed."""
    last = {name: i for i, statement in enumerate(assignment.statements) for name in statement.names()}
    alive, most, begun = set(), 0, set()
    for i, statement in enumerate(assignment.statements):
        new = {words[name] for name in statement.names() if name in words} - begun
        begun |= new
        alive |= {name for name, word in words.items() if word in new and name in last}
        alive |= {target for target in statement.targets if target in last}
        most = max(most, len(alive))
        alive = {name for name in alive if last[name] > i}
    return most


def value_of(assignment, inputs):
    """Of a tree."""
    values = dict(inputs)
    for statement in assignment.statements:
        values[statement.targets[0]] = sum(values[name] for name in statement.names())
    return values[assignment.outputs["y"]]


def test_a_tree_is_walked_in_depth():
    """Two leaves of a word and one value per level, whatever order the statements came in."""
    whole = tree()
    words = {f"x{i}": i // 2 for i in range(32)}
    shuffled = [*whole.statements]
    random.Random(1).shuffle(shuffled)
    given = [
        whole,
        Assignment(
            tuple(sorted(shuffled, key=lambda statement: int(statement.targets[0][1:]) // 16)), {"y": "t30"}
        ),
    ]
    inputs = {name: float(k) for k, name in enumerate(words)}
    for assignment in given:
        found = with_few_live(assignment, words)
        assert sorted(found.statements) == sorted(whole.statements)
        assert value_of(found, inputs) == np.sum(np.arange(32.0))
        assert most_alive(found, words) <= 8 < most_alive(whole, words)
        assert with_few_live(assignment, words).statements == found.statements


@pytest.mark.parametrize("found", ['{"order": [0, 0, 1]}', "{}", "no json"])
def test_an_order_is_looked_for_once(tmp_path, monkeypatch, found):
    """The folder of the cache has it; what stands there in its place is not followed."""
    monkeypatch.setenv("GRAPHOPT_CACHE_DIR", str(tmp_path))
    whole, words = tree(), {f"x{i}": i for i in range(32)}
    first = with_few_live(whole, words)
    with monkeypatch.context() as patched:
        patched.setattr(live_order, "_best", None)
        assert with_few_live(whole, words).statements == first.statements
    (path,) = tmp_path.glob("*.order")
    path.write_text(found)
    assert with_few_live(whole, words).statements == first.statements
    assert with_few_live(whole, {f"x{i}": i // 4 for i in range(32)}).statements != first.statements
    assert len(list(tmp_path.glob("*.order"))) == 2


def test_statements_that_nothing_reads_stay():
    """Outputs, inputs without a word, and a function without statements."""
    assignment = Assignment(
        (Statement("NEG", ("y",), ("a",)), Statement("NEG", ("z",), ("b",))), {"y": "y", "z": "z"}
    )
    assert sorted(with_few_live(assignment, {"a": 0}).statements) == sorted(assignment.statements)
    assert with_few_live(Assignment((), {"y": "a"}), {"a": 0}).statements == ()


def test_reads_come_before_the_first_line_that_needs_them():
    """With the word that holds a value; additions as soon as theirs is known, rows in front."""
    reads = [
        "const uint point_row = 7;",
        "const packed_word point_w0 = AT(packed, point_row, 0);",
        "const real point_0 = point_w0.x;",
        "const real point_1 = point_w0.y;",
        "point_ahead = 8;",
    ]
    lines = [
        "const real t0 = 1.0 + width;",
        "const real y_0 = t0",
        "    * point_1;",
        "real t1, t2;",
        "f(y_0, t1, t2);",
    ]
    additions = [("y_0", "sum[0] += y_0;"), ("point_0", "sum[1] += point_0;")]
    assert where_needed(reads, lines, additions) == [
        "const uint point_row = 7;",
        "point_ahead = 8;",
        "const real t0 = 1.0 + width;",
        "const packed_word point_w0 = AT(packed, point_row, 0);",
        "const real point_1 = point_w0.y;",
        "const real y_0 = t0",
        "    * point_1;",
        "sum[0] += y_0;",
        "real t1, t2;",
        "f(y_0, t1, t2);",
        "const real point_0 = point_w0.x;",
        "sum[1] += point_0;",
    ]
