"""Order of launches that write the same rows: who assigns, who adds, what stands between two barriers."""

from __future__ import annotations

import numpy as np
import pytest

from graphopt.vulkan.kernels.sums import plan_writes


def run(plan, writes, num_rows):
    """The sums that launches leave which write row + 1 each, in rows that held garbage."""
    sums = np.zeros(num_rows) if plan.clears else np.full(num_rows, 1e9)
    for step in plan.steps:
        before = sums.copy()
        for number in step:  # launches of a step see what was there before it
            rows = writes[number]
            sums[rows] = (before[rows] if plan.adds[number] else 0.0) + rows + 1
    return sums


def test_the_largest_assigns_and_those_without_common_rows_run_side_by_side():
    writes = [np.array(places) for places in ([0, 1], [4], [0, 1, 2, 3], [2, 3], [4])]
    plan = plan_writes(writes, 5)
    assert plan.steps == [[2, 1], [0, 3, 4]]
    assert plan.adds == [True, False, False, True, True] and not plan.clears
    np.testing.assert_array_equal(run(plan, writes, 5), 2.0 * np.arange(1, 6))


def test_rows_of_both_kinds_and_rows_of_nobody_are_cleared():
    writes = [np.array([0, 1]), np.array([1, 2])]
    plan = plan_writes(writes, 3)
    assert plan.clears and plan.adds == [True, True] and plan.steps == [[0], [1]]
    alone = plan_writes([np.array([0, 1])], 3)
    assert alone.clears
    np.testing.assert_array_equal(alone.touched, [True, True, False])
    assert not plan_writes([np.array([0, 1])], 3, slice(0, 2)).clears
    assert plan_writes([], 1).clears and not plan_writes([], 0).clears


@pytest.mark.parametrize("seed", range(30))
def test_nothing_is_lost_and_nothing_races(seed):
    """Random launches: the sums are right, and no two of a step write one row."""
    rng = np.random.default_rng(seed)
    num_rows = int(rng.integers(1, 9))
    writes = [np.flatnonzero(rng.random(num_rows) < rng.random()) for _ in range(rng.integers(1, 7))]
    plan = plan_writes(writes, num_rows)
    assert sorted(number for step in plan.steps for number in step) == list(range(len(writes)))
    for step in plan.steps:
        rows = np.concatenate([writes[number] for number in step])
        assert len(np.unique(rows)) == len(rows)
    expected = sum((np.bincount(write, write + 1.0, num_rows) for write in writes), np.zeros(num_rows))
    np.testing.assert_array_equal(run(plan, writes, num_rows), expected)
