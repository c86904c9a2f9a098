"""A system takes as many threads as its work pays for: a larger pool changes neither memory nor one bit.

Partial results belong to threads, so that the order of their sums tells how many took part.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from linear_problems import bundle, chain_with_loops, make_problem

from graphopt.cpu_kernels import kernels
from graphopt.linear import Pcg, SchurComplement, SparseCholesky

PROBLEMS = {
    "chain": lambda: make_problem(*chain_with_loops(300, [6], 3, 150), 3, damped=True),
    "bundle": lambda: make_problem(*bundle(12, 300, [9], [3], 8), 8, num_kept=12, damped=True),
}


def _solutions(problem):
    """By solver the solution, and what the sparse one takes of memory."""
    found = {}
    for name, solver in {
        "sparse": SparseCholesky(problem.pattern),
        "pcg": Pcg(problem.pattern, tolerance=1e-20),
    }.items():
        assert solver.factorize(problem.values, problem.damping)
        found[name] = solver.solve(problem.b).tobytes()
        if name == "sparse":
            found["memory"] = solver.memory_bytes, solver.required_bytes
    if problem.num_kept < problem.pattern.num_blocks:
        schur = SchurComplement(problem.pattern, problem.num_kept, "implicit")
        assert schur.form(problem.values, problem.damping, problem.b)
        solver = Pcg(schur, tolerance=1e-20)
        assert solver.factorize()
        found["implicit"] = solver.solve(schur.reduced_b).tobytes()
    return found


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_larger_pool_is_not_asked_for_more(name):
    """16 and 24 threads are both more than these are worth."""
    problem = PROBLEMS[name]()
    kernels.set_num_threads(16)
    few = _solutions(problem)
    kernels.set_num_threads(24)
    assert _solutions(problem) == few


def test_the_pool_may_be_smaller():
    """Between two factorizations the pool shrinks below the plan, and grows again."""
    problem = PROBLEMS["chain"]()
    solver = SparseCholesky(problem.pattern)
    for count in (4, 1, 2, 6):
        kernels.set_num_threads(count)
        assert solver.factorize(problem.values, problem.damping)
        np.testing.assert_allclose(
            solver.solve(problem.b), problem.x, rtol=0, atol=1e-9 * abs(problem.x).max()
        )


def test_one_product_serves_several_callers():
    """Python threads that multiply with different values get each their own, to the bit."""
    kernels.set_num_threads(2)
    problem = PROBLEMS["bundle"]()
    product, x = kernels.SymmetricProduct(problem.pattern), np.ones(problem.pattern.dim)
    scales = (1.0, 2.0, 4.0, 8.0)
    expected = [product.multiply(scale * problem.values, x) for scale in scales]
    with ThreadPoolExecutor(len(scales)) as callers:
        found = callers.map(
            lambda scale: [product.multiply(scale * problem.values, x) for _ in range(300)], scales
        )
        for each, alone in zip(found, expected, strict=True):
            assert all(np.array_equal(y, alone) for y in each)
