"""Conjugate gradients on the CPU end where an algorithm needs no more of a step, as those of devices do."""

from __future__ import annotations

import numpy as np
import pytest

import graphopt
from graphopt.evaluate import datasets
from graphopt.linear import BlockPattern, Pcg
from graphopt.linear.options import SolverOptions
from graphopt.problem.structure import Structure
from graphopt.solver.cpu import CpuBlockSolver
from graphopt.solver.trial import Damping


def chain(num: int = 400) -> tuple[BlockPattern, np.ndarray, np.ndarray]:
    """1-D Laplacian with a weak diagonal, which block-Jacobi takes hundreds of iterations for."""
    later = np.arange(1, num)
    col_ptr = np.concatenate([[0, 1], 1 + 2 * later])
    row_idx = np.concatenate([[0], np.stack([later - 1, later], axis=1).ravel()])
    values = np.full(2 * num - 1, 2.001)
    values[1::2] = -1.0
    b = np.random.default_rng(0).normal(size=num)
    return BlockPattern(np.ones(num, np.int64), col_ptr, row_idx), values, b


def model(values: np.ndarray, b: np.ndarray, x: np.ndarray) -> float:
    """2 b'x - x'A x."""
    product = values[::2] * x
    product[1:] += values[1::2] * x[:-1]
    product[:-1] += values[1::2] * x[1:]
    return float(2.0 * b @ x - x @ product)


def solved(share: float, worth: float) -> tuple[Pcg, np.ndarray]:
    """The solver after a solve, and the solution."""
    pattern, values, b = chain()
    pcg = Pcg(pattern, 1e-20)
    assert pcg.factorize(values)
    pcg.set_early_stop(share, worth)
    return pcg, pcg.solve(b)


def test_a_share_replaces_the_tolerance():
    """Of r' inv(M) r, where it is the larger one."""
    whole, _ = solved(0.0, 0.0)
    early, _ = solved(0.3, 0.0)
    _, values, b = chain()
    assert early.converged and early.residual <= 0.3 * float((b * b / values[::2]).sum())
    assert early.iterations < 0.1 * whole.iterations


def test_what_is_left_is_not_worth_more_iterations():
    """No less than 30, and what they leave is about what was said; without the rule all of it is found."""
    _, values, b = chain()
    whole, x = solved(0.0, 0.0)
    best = model(values, b, x)
    assert whole.converged and whole.iterations > 200
    endless, _ = solved(0.0, 1e9)
    assert endless.converged and endless.iterations == 30
    for worth in (1e-2 * best, 1e-4 * best):
        early, x = solved(0.0, worth)
        assert early.converged and 30 <= early.iterations < whole.iterations
        assert 0.0 <= best - model(values, b, x) < 2.0 * worth


def test_patience_follows_the_solve_before():
    """A quarter of its iterations, 10 to 30; 30 where there was none."""
    pattern, values, b = chain()
    pcg = Pcg(pattern, 1e-20)
    assert pcg.factorize(values)
    counts = []
    for share, worth in ((0.0, 1e9), (0.0, 1e9), (0.0, 0.0), (0.0, 1e9), (1e-3, 0.0), (0.0, 1e9)):
        pcg.set_early_stop(share, worth)
        pcg.solve(b)
        counts.append(pcg.iterations)
    assert counts[:2] == [30, 10] and counts[2] > 200 and counts[3] == 30
    assert 40 < counts[4] < 120 and counts[5] == counts[4] // 4
    pcg.reset()
    pcg.solve(b)
    assert pcg.iterations == 30


def test_trials_ask_for_it_and_solves_do_not(monkeypatch):
    """The damping's accuracy holds for its trial only; a direct solver is never coarse."""
    graph = datasets.ba(6, 80)
    counts = []
    plain = Pcg.solve

    def counted(self, *arguments):
        found = plain(self, *arguments)
        counts.append(self.iterations)
        return found

    monkeypatch.setattr(Pcg, "solve", counted)
    for linear_solver in ("pcg", "cholesky"):
        options = SolverOptions("cpu", linear_solver, "implicit" if linear_solver == "pcg" else "explicit")
        solver = CpuBlockSolver(graph, Structure(graph.select()), options)
        solver.linearize()
        for damping in (Damping(1e-4, accuracy=0.3), Damping(1e-4)):
            trial = solver.trial(damping)
            solver.pop()
            assert trial.solved and trial.is_coarse == (linear_solver == "pcg" and damping.accuracy == 0.3)
        if linear_solver == "pcg":  # solved as exactly as ever, and not at all
            for damping, is_solved in (
                (Damping(1e-4, accuracy=1e-9), True),
                (Damping(-1e9, accuracy=0.3), False),
            ):
                trial = solver.trial(damping)
                assert trial.solved == is_solved and not trial.is_coarse
    assert len(counts) == 3 and 0 < counts[0] < counts[1] == counts[2]


@pytest.mark.parametrize("schur", ["implicit", "explicit"])
def test_the_minimum_stays(schur):
    """Of `auto`, with conjugate gradients and with a factorization."""
    expected = graphopt.optimize(datasets.ba(20, 300), device="cpu", linear_solver="cholesky")
    found = graphopt.optimize(datasets.ba(20, 300), device="cpu", linear_solver="pcg", schur=schur)
    assert found.final_chi2 == pytest.approx(expected.final_chi2, rel=1e-6)
