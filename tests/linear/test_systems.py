"""Linear systems beside their common way: other right-hand sides, no solution, refusals."""

from __future__ import annotations

import numpy as np
import pytest
from linear_problems import bundle, from_dense, make_pattern, make_problem
from optimizer_graphs import noisy_ring

import graphopt
from graphopt.errors import OptionError, PluginError, SolverError
from graphopt.linear import memory, systems
from graphopt.linear.null_space import GeneralizedInverse, NullSpace
from graphopt.linear.options import SolverOptions
from graphopt.linear.schur import SchurComplement
from graphopt.linear.systems import Explicit, Implicit, solver_for
from graphopt.linear.table import LinearSolver, register_linear_solver


def reduced(mode):
    """A system that eliminates landmarks, and its problem."""
    dims, edges = bundle(5, 30, 6, 3, seed=0)
    problem = make_problem(dims, edges, seed=1, num_kept=5, damped=True)
    schur = SchurComplement(problem.pattern, 5, mode=mode)
    options = SolverOptions(linear_solver="pcg" if mode == "implicit" else "cholesky", pcg_tolerance=1e-14)
    if mode == "implicit":
        return Implicit(schur, options), problem
    return Explicit(schur, *solver_for(schur.reduced_pattern, options)), problem


@pytest.mark.parametrize("mode", ["explicit", "implicit"])
def test_another_right_hand_side_has_the_same_matrix(mode):
    """Against the dense solution, timed and not; an indefinite matrix has none."""
    system, problem = reduced(mode)
    near = {"rtol": 0.0, "atol": 1e-12 if mode == "explicit" else 1e-6}
    dx = np.empty(problem.pattern.dim)
    assert system.solve(problem.values, problem.damping, problem.b, dx)
    np.testing.assert_allclose(dx, problem.x, **near)
    other = np.arange(problem.pattern.dim, dtype=float)
    seconds = {"schur": 0.0, "numeric": 0.0, "triangular": 0.0}
    with system.timing(seconds):
        system.solve_again(other, dx)
    np.testing.assert_allclose(dx, np.linalg.solve(problem.dense, other), **near)
    assert seconds["schur"] > 0.0 and seconds["triangular"] > 0.0
    assert not system.solve(problem.values, np.full(len(dx), -1e9), problem.b, dx)


def test_too_large_factors_are_iterated_on(monkeypatch):
    """Where nothing is asked for."""
    pattern = make_pattern([6] * 200, [(k, k + 1) for k in range(199)])
    assert solver_for(pattern, SolverOptions())[0] == "cholesky"
    monkeypatch.setattr(systems, "_MAX_FACTOR_FLOPS", 1.0)
    assert solver_for(pattern, SolverOptions())[0] == "pcg"


def test_a_system_that_does_not_say_has_no_limit(tmp_path, monkeypatch):
    """No such file, or one without the line."""
    for name, text in (("absent", None), ("empty", "MemTotal: 64 kB\n"), ("odd", "MemAvailable: much\n")):
        if text is not None:
            (tmp_path / name).write_text(text)
        monkeypatch.setattr(memory, "_MEMINFO", tmp_path / name)
        monkeypatch.setattr(memory, "_CGROUP", tmp_path / "none")
        assert memory.available_bytes() is None


@pytest.mark.parametrize(
    "kind,sentence", [("hold", r"too ill-conditioned\. \["), ("pseudo-inverse", "Use singular='hold'")]
)
def test_an_indefinite_matrix_has_no_generalized_inverse(kind, sentence):
    """Holding its singular direction leaves it indefinite."""
    pattern = make_pattern([3], [])
    values = from_dense(pattern, np.diag([1.0, -1.0, 0.0]))
    space = NullSpace(pattern, np.array([[0.0], [0.0], [1.0]]), np.ones((3, 1)))
    with pytest.raises(SolverError, match=sentence):
        GeneralizedInverse(space, values, kind)


@pytest.mark.parametrize(
    "call,error,sentence",
    [
        (lambda: SolverOptions(work_queues="gpu", device="cpu"), OptionError, "an explicit Schur complement"),
        (lambda: SolverOptions(schedule={"EDGE_SE2": "fast"}), OptionError, "of 'EDGE_SE2' is 'fast'"),
        (lambda: register_linear_solver("mine", 3), OptionError, "make is 3, expected a function"),
        (lambda: LinearSolver(lambda pattern: pattern).make_direct(3), PluginError, "has no method factor"),
    ],
)
def test_refused_solvers(call, error, sentence):
    """Options that contradict each other, and plug-ins that are none."""
    with pytest.raises(error, match=sentence):
        call()


def test_covariances_of_what_cannot_be_factorized_are_refused():
    """Indefinite information matrices: damping does not help."""
    graph = noisy_ring(5)
    graph.edge_set("EDGE_SE2").information[:] = -np.eye(3)
    with pytest.raises(SolverError, match="not positive definite even when damped"):
        graphopt.compute_covariances(graph, singular="damp")
    for call in (graphopt.compute_marginals, graphopt.compute_covariances):
        with pytest.raises(OptionError, match="singular is 'some'"):
            call(graph, [0], singular="some")
