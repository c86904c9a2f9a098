"""NIST's problems are solved to their certified digits by `auto` and `lm`; no early "converged"."""

from dataclasses import replace

import nist
import numpy as np
import pytest
from nist_problems import PROBLEMS
from recorded_runs import assert_recorded

import graphopt
from graphopt.linear.options import SolverOptions
from graphopt.optimizer.algorithm import predicted_relative_decrease
from graphopt.optimizer.levenberg_marquardt import LevenbergMarquardt
from graphopt.optimizer.options import LevenbergMarquardtOptions
from graphopt.problem.structure import Structure
from graphopt.solver.create import create_block_solver
from graphopt.switches import SWITCHES

STARTS = [(name, start) for name in PROBLEMS for start in (0, 1)]

ROUNDING_DECIDES = ("MGH10", "MGH17", "Lanczos1", "Eckerle4", "Rat43")
"""Which steps are made, on one instruction set or another."""

FILES = """BoxBOD Chwirut1 Chwirut2 DanWood Gauss1 Gauss2 Kirby2 Lanczos2 Lanczos3 MGH09 Misra1a Misra1b
Misra1c Misra1d Nelson Rat42 Roszman1""".split()


@pytest.mark.parametrize("method", ["auto", "lm"])
@pytest.mark.parametrize("name", [*PROBLEMS, *(pytest.param(name, marks=pytest.mark.data) for name in FILES)])
def test_certified_digits_from_both_starts(name, method, request):
    """At least six of 11, and the certified sum of squares; of what is read from files lm has more."""
    is_file = name in FILES
    problem = (
        nist.read_nist(request.getfixturevalue("shared_data") / "nist" / f"{name}.dat")
        if is_file
        else PROBLEMS[name]
    )
    assert len(problem.starts) == 2
    for number, start in enumerate(problem.starts):
        found, summary = nist.fit(problem, start, method=method, options=nist.METHODS[method], device="cpu")
        is_exact = is_file and method == "lm"
        assert nist.digits(found, problem.certified, name) >= (6.5 if is_exact else 6.0)
        rel = 1e-9 if is_exact else 1e-8
        assert summary.final_chi2 == pytest.approx(problem.residual_sum, rel=rel, abs=1e-24)
        if not is_file and method == "auto" and name not in ROUNDING_DECIDES:
            assert_recorded(f"NIST, {name}, start {number}", summary)


@pytest.mark.parametrize("without", ["", *SWITCHES, ",".join(SWITCHES)])
def test_auto_as_it_is(without, monkeypatch):
    """With its own tolerances it is exact on small systems, too, whichever optimizations are switched off."""
    monkeypatch.setenv("GRAPHOPT_WITHOUT", without)
    for name, start in STARTS:
        problem = PROBLEMS[name]
        found, _ = nist.fit(problem, problem.starts[start])
        assert nist.digits(found, problem.certified, name) >= 6.0, (name, start)


def test_digits_know_exchangeable_terms():
    """The two exponentials of MGH17 in the other order are the same fit; a wrong one is not."""
    certified = PROBLEMS["MGH17"].certified
    other = certified[[0, 2, 1, 4, 3]]
    assert nist.digits(other, certified, "MGH17") == 11.0
    assert nist.digits(other, certified) < 1.0
    assert nist.digits(certified[[0, 2, 1, 3, 4]], certified, "MGH17") < 1.0


def test_a_step_that_damping_made_small_is_no_end():
    """MGH17, first start: lm creeps in a valley, and goes on where a tolerance would have ended it."""
    problem = PROBLEMS["MGH17"]
    edge = nist.edge_type("MGH17", 5, 1)
    graph = graphopt.Graph()
    coefficients = graph.add_array(edge.vertices[0], [problem.starts[0]])
    observations = np.column_stack([problem.predictors, problem.response])
    graph.add_edges(edge, graphopt.unique(coefficients), observations)
    rules = LevenbergMarquardtOptions(60)
    graphopt.optimize(graph, "lm", options=rules)
    solver = create_block_solver(graph, Structure(graph.select()), SolverOptions(device="cpu"))
    assert predicted_relative_decrease(solver, 1e-9) > 0.1
    algorithm = LevenbergMarquardt(replace(rules, initial_lambda=1e7))
    algorithm.start(solver, solver.chi2())
    algorithm.resume()
    assert algorithm.damping().value == 1e7
    assert algorithm.loosen(1e-9) and algorithm.damping().value < 1e-6
    assert not algorithm.loosen(1e-9), "it is as loose as can be"
