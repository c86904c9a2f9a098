"""Parallel regions end, whatever their number of shares, whoever calls, however many threads there are."""

from __future__ import annotations

import subprocess
import sys
import threading

import numpy as np
import pytest

import graphopt
import graphopt.evaluate.datasets
from graphopt.cpu_kernels import kernels


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_regions_of_any_size_end(count):
    """Fewer and more shares than threads; teams up to the number of threads, none beyond it."""
    kernels.set_num_threads(count)
    for shares in (1, 2, count, 3 * count + 1, 2000):
        assert len(kernels.time_regions(shares, False, 0, 20)) == 20
    for team in range(1, count + 1):
        assert len(kernels.time_regions(team, True, 0, 20)) == 20
    assert kernels.time_regions(count + 1, True, 0, 20) == []


def test_regions_after_workers_fell_asleep():
    """Sleeping workers wake for a team."""
    kernels.set_num_threads(4)
    for pause in (50, 500, 3000):
        assert len(kernels.time_regions(4, True, pause, 10)) == 10


def test_regions_of_several_callers_follow_each_other():
    """Python threads that start regions and change the number of threads meanwhile."""
    kernels.set_num_threads(3)
    done: list[int] = []

    def call(team: bool) -> None:
        for _ in range(20):
            done.append(len(kernels.time_regions(2, team, 0, 20)) in (0, 20))

    callers = [threading.Thread(target=call, args=(k % 2 == 0,)) for k in range(4)]
    for caller in callers:
        caller.start()
    for count in (1, 4, 2, 3):
        kernels.set_num_threads(count)
    for caller in callers:
        caller.join()
    assert len(done) == 80 and all(done)


def test_results_do_not_depend_on_who_did_the_work():
    """A pass in shares gives the same bits in every run, and for every number of threads."""
    array = np.random.default_rng(0).normal(size=300_000)
    found = set()
    for count in (1, 2, 5):
        kernels.set_num_threads(count)
        found |= {bytes(kernels.fingerprint(array)) for _ in range(5)}
    assert len(found) == 1


def test_threads_of_a_team_are_on_cores_of_their_own():
    """Workers move within the cores that the process may use; the caller and its cores stay as they are."""
    script = """
import os
from graphopt.cpu_kernels import kernels
kernels.set_num_threads(2)
before = os.sched_getaffinity(0)
for _ in range(20):
    kernels.time_regions(2, True, 200, 50)
assert os.sched_getaffinity(0) == before
own = set()
for task in os.listdir("/proc/self/task"):
    own.add(frozenset(os.sched_getaffinity(int(task))))
assert all(mask <= before for mask in own), own
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_teams_of_a_caller_alone():
    """On a crowded machine the caller is the whole team: the same bits, and no worker is waited for."""
    graph = graphopt.datasets.ba(30, 1500, seed=0)
    for count in (2, 3, 7):
        kernels.set_num_threads(count)
        found = set()
        for seconds in (0.0, 1000.0, 0.0):
            kernels.give_way(seconds)
            before = kernels.num_taken_over()
            assert len(kernels.time_regions(count, True, 0, 20)) == 20
            assert len(kernels.time_regions(2000, False, 0, 2)) == 2
            if seconds:
                assert kernels.num_taken_over() - before == 20 * (count - 1)
            for solver in ("dense", "cholesky", "pcg"):
                moved = graph.copy()
                summary = graphopt.optimize(moved, device="cpu", linear_solver=solver, max_iterations=3)
                found.add((solver, summary.iterations[-1].chi2))
        assert len(found) == 3


FOUR_COPIES = """
import graphopt, graphopt.evaluate.datasets
from graphopt.cpu_kernels import kernels
kernels.set_num_threads(2)
graph = graphopt.datasets.ba(60, 2000, seed=0)
summaries = [graphopt.optimize(graph.copy(), device="cpu", max_iterations=4) for _ in range(3)]
print({summary.iterations[-1].chi2 for summary in summaries})
"""


def test_four_copies_on_the_same_cores():
    """They all end, with the same digits."""
    command = [sys.executable, "-c", FOUR_COPIES]
    copies = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    printed = {copy.communicate()[0] for copy in copies}
    assert all(copy.returncode == 0 for copy in copies)
    assert len(printed) == 1 and "," not in printed.pop()


@pytest.mark.parametrize(
    ("files", "membership", "expected"),
    [
        ({"cpu.max": "150000 100000"}, "0::/", 2),
        ({"cpu.max": "max 100000"}, "0::/", 0),
        ({"cpu.max": "max 100000", "a/cpu.max": "400000 100000", "a/b/cpu.max": "max 100000"}, "0::/a/b", 4),
        ({"a/cpu.max": "100000 100000", "a/b/cpu.max": "300000 100000"}, "0::/a/b", 1),
        ({"a/cpu.max": "50000 100000"}, "0::/a", 1),
        ({"cpu/cpu.cfs_quota_us": "250000", "cpu/cpu.cfs_period_us": "100000"}, "3:cpu:/", 3),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, "3:cpu:/", 0),
        (
            {"cpu,cpuacct/c/cpu.cfs_quota_us": "400000", "cpu,cpuacct/c/cpu.cfs_period_us": "100000"},
            "5:cpu,cpuacct:/c\n1:memory:/c",
            4,
        ),
        ({"cpu.max": "300000 100000"}, "0::/elsewhere", 3),
        ({"cpu.max": "nonsense"}, "0::/", 0),
        ({}, "nonsense", 0),
        ({}, "", 0),
    ],
)
def test_a_container_limits_cores(tmp_path, files, membership, expected):
    """Quotas of both versions of control groups, of the process's group and of those above."""
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    (tmp_path / "membership").write_text(membership + "\n")
    assert kernels.granted_cores(str(tmp_path), str(tmp_path / "membership")) == expected
