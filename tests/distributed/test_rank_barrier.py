"""Sums of native ranks: in the order of the ranks, of few and many numbers, and ended by an abort."""

import threading

import numpy as np
import pytest
from vulkan_devices import vulkan_runtime

from graphopt.distributed.communicator import add_in_order, run_as_threads

runtime = vulkan_runtime()


@pytest.mark.parametrize("count", [0, 1, 54, 2048, 2049, 10_001])
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_sums_are_those_in_the_order_of_ranks(size, count):
    """Bit by bit, many times in a row."""
    given = [np.random.default_rng(rank).standard_normal((20, count)) for rank in range(size)]
    barrier = runtime.RankBarrier(size)
    found = run_as_threads(
        size, lambda comm: np.array([barrier.sum(comm.rank, row) for row in given[comm.rank]])
    )
    expected = np.array([add_in_order([numbers[turn] for numbers in given]) for turn in range(20)])
    for total in found:
        np.testing.assert_array_equal(total, expected)


def test_an_abort_ends_those_who_wait_now_or_later():
    """With an error of their own."""
    barrier, errors = runtime.RankBarrier(3), []

    def work(rank):
        for _ in range(2):
            try:
                barrier.sum(rank, np.ones(5))
            except runtime.BarrierBroken as error:
                errors.append(str(error))

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    barrier.abort()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert errors == ["Another rank has ended."] * 4


def test_a_barrier_has_ranks():
    """At least one."""
    with pytest.raises(ValueError, match="at least one rank, got 0"):
        runtime.RankBarrier(0)
