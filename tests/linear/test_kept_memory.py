"""Memory of large arrays that were released serves the next ones, and never one that somebody still sees."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import graphopt
from graphopt.cpu_kernels import kernels
from graphopt.errors import ShapeError
from graphopt.linear.options import SolverOptions
from graphopt.problem.structure import Structure
from graphopt.solver.cpu import CpuBlockSolver
from graphopt.types import slam2d

MIB = 1 << 17  # numbers of one


def address(array: np.ndarray) -> int:
    """Of its first number."""
    return array.__array_interface__["data"][0]


def test_a_released_array_s_memory_is_used_again():
    """Of about the same size; it is aligned to cache lines, writable, a small one gets another."""
    first = kernels.kept_array(3 * MIB + 5)
    place = address(first)
    assert place % 64 == 0
    assert first.shape == (3 * MIB + 5,)
    first[:] = 7.0
    del first
    kept = kernels.kept_bytes()
    assert kept >= 24 * MIB
    again = kernels.kept_array(3 * MIB + 900)
    assert address(again) == place
    assert kernels.kept_bytes() < kept
    small = kernels.kept_array(10)
    assert not place <= address(small) < place + again.nbytes


def test_memory_that_a_view_sees_is_nobody_else_s():
    """A slice, a reshaped array and another thread's reference keep it."""
    array = kernels.kept_array(3 * MIB)
    view = array[6:].reshape(-1, 3)[:, ::2]
    array[:] = 1.0
    del array
    other = kernels.kept_array(3 * MIB)
    other[:] = 2.0
    assert (view == 1.0).all()


def test_no_more_than_64_mib_are_kept():
    """However many arrays are released, by whichever thread; one beyond the bound goes at once."""
    arrays = [kernels.kept_array(4 * MIB) for _ in range(5)]
    release = threading.Thread(target=arrays.clear)
    release.start()
    release.join()
    assert kernels.kept_bytes() <= 64 << 20
    before = kernels.kept_array(9 * MIB)
    del before
    assert kernels.kept_bytes() <= 64 << 20
    with pytest.raises(ShapeError, match="size is -1"):
        kernels.kept_array(-1)


def test_a_solver_finds_the_same_in_memory_that_holds_other_numbers():
    """H of a solver whose arrays begin as NaN is that of one whose arrays begin as zeros."""
    graph = graphopt.Graph()
    rng = np.random.default_rng(0)
    graph.add_vertices(slam2d.VertexSE2, np.arange(40), rng.normal(size=(40, 3)))
    pairs = np.stack([np.arange(39), np.arange(1, 40)], axis=1)
    graph.add_edges(slam2d.EdgeSE2, pairs, rng.normal(size=(39, 3)))
    found = []
    for number in (0.0, np.nan):
        solver = CpuBlockSolver(graph, Structure(graph.select(0, None, None)), SolverOptions("cpu"))
        solver.values[:] = number
        chi2 = solver.linearize()
        found.append((chi2, solver.values.copy()))
    assert found[0][0] == found[1][0]
    np.testing.assert_array_equal(found[0][1], found[1][1])
    assert np.isfinite(found[0][1]).all()
