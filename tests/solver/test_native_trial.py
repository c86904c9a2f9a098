"""A trial in one native call does what its parts do, to the bit, whichever factorization solves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from optimizer_graphs import map_of_points

import graphopt
from graphopt.cpu_kernels import kernels
from graphopt.errors import ShapeError
from graphopt.linear import SchurComplement, SparseCholesky
from graphopt.linear.options import SolverOptions
from graphopt.problem.structure import Structure
from graphopt.solver.cpu import CpuBlockSolver
from graphopt.solver.trial import Damping, DefaultTrial
from graphopt.types import slam2d

WAYS = [
    {},
    {"linear_solver": "cholesky", "schur": "explicit"},
    {"linear_solver": "dense", "schur": "explicit"},
    {"linear_solver": "cholesky", "schur": "off"},
    {"linear_solver": "dense", "schur": "off"},
]
DAMPINGS = [Damping(3.0), Damping(0.0), Damping(1e-3, scaled=True, floor=1e-6, ceiling=1e32)]


def solver_of(graph: graphopt.Graph, **way: Any) -> CpuBlockSolver:
    """The CPU's."""
    return CpuBlockSolver(graph, Structure(graph.select(0, None, None)), SolverOptions("cpu", **way))


@pytest.mark.parametrize("linearizes_trials", [False, True])
@pytest.mark.parametrize("damping", DAMPINGS)
@pytest.mark.parametrize("way", WAYS)
def test_one_call_does_what_the_parts_do(
    way: dict[str, str], damping: Damping, linearizes_trials: bool
) -> None:
    """Steps, chi2, gain, estimates, and H and b of the linearization that follows, over three trials."""
    native, parts = solver_of(map_of_points(), **way), solver_of(map_of_points(), **way)
    for solver in (native, parts):
        solver.linearizes_trials = linearizes_trials
    for keep in (True, False, True):
        assert native.linearize() == parts.linearize()
        mine, theirs = native.trial(damping), DefaultTrial.trial(parts, damping)
        assert mine.solved
        assert (mine.chi2, mine.gain, mine.step_size) == (theirs.chi2, theirs.gain, theirs.step_size)
        assert mine.seconds.keys() == theirs.seconds.keys()
        np.testing.assert_array_equal(native.dx, parts.dx)
        for solver in (native, parts):
            solver.discard_top() if keep else solver.pop()
        for a, b in zip(native.snapshot(), parts.snapshot(), strict=True):
            np.testing.assert_array_equal(a, b)
    assert native.linearize() == parts.linearize()
    np.testing.assert_array_equal(native.values, parts.values)
    np.testing.assert_array_equal(native.b, parts.b)


@pytest.mark.parametrize("way", WAYS)
def test_a_system_that_is_not_positive_definite_moves_nothing(way: dict[str, str]) -> None:
    """Nothing is on the stack then, and H and b stay those of the estimates."""
    solver = solver_of(map_of_points(), **way)
    before = solver.linearize()
    estimates, h = solver.snapshot(), solver.values.copy()
    failed = solver.trial(Damping(-1e9))
    assert not failed.solved
    for a, b in zip(solver.snapshot(), estimates, strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(solver.values, h)
    assert solver.chi2() == before
    assert solver.trial(Damping(1.0)).solved


def test_arrays_of_another_size_are_refused() -> None:
    """By name and expected size; and a solver of another pattern than the Schur complement's."""
    solver = solver_of(map_of_points(), schur="explicit", linear_solver="cholesky")
    structure = solver.structure
    schur, other = (SchurComplement(structure.pattern, structure.num_kept) for _ in range(2))
    trials = kernels.Trials(solver.linearizer, schur, SparseCholesky(schur.reduced_pattern))
    solver.linearize()
    with pytest.raises(ShapeError, match="dx: expected a writeable contiguous float64 array"):
        trials.run(solver.values, 1.0, solver.b, np.zeros(3), None)
    with pytest.raises(ShapeError, match="damping"):
        trials.run(solver.values, np.ones(4), solver.b, solver.dx, None)
    with pytest.raises(ShapeError, match="another pattern"):
        kernels.Trials(solver.linearizer, schur, SparseCholesky(other.reduced_pattern))


def test_poses_of_a_plane_take_the_same_way() -> None:
    """Nothing is eliminated there."""
    rng = np.random.default_rng(2)
    graphs = []
    for _ in range(2):
        graph = graphopt.Graph()
        graph.add_vertices(slam2d.VertexSE2, np.arange(50), np.zeros((50, 3)), fixed=np.arange(50) == 0)
        pairs = np.stack([np.arange(49), np.arange(1, 50)], axis=1)
        graph.add_edges(slam2d.EdgeSE2, pairs, np.tile([1.0, 0.1, 0.05], (49, 1)))
        graphs.append(graph)
    native, parts = (solver_of(graph) for graph in graphs)
    shift = np.abs(rng.normal(size=native.dim))
    for solver in (native, parts):
        solver.linearize()
        assert solver.solve(shift)
    np.testing.assert_array_equal(native.dx, parts.dx)
    mine, theirs = native.trial(Damping(0.5)), DefaultTrial.trial(parts, Damping(0.5))
    assert (mine.chi2, mine.gain, mine.step_size) == (theirs.chi2, theirs.gain, theirs.step_size)


@pytest.mark.parametrize("accuracy", [0.5, 1e-30, None])
def test_a_trial_is_coarse_where_conjugate_gradients_may_end_early(accuracy: float | None) -> None:
    """Only where the damping asks for less than the solver's own tolerance."""
    solver = solver_of(map_of_points(), linear_solver="pcg")
    solver.linearize()
    found = solver.trial(Damping(1e-3, True, 1e-6, 1e32, accuracy))
    assert found.solved and found.is_coarse == (accuracy == 0.5)
