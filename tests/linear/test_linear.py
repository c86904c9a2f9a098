"""Direct and iterative solvers against dense numpy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from linear_problems import bundle, chain_with_loops, from_dense, make_pattern, make_problem, to_dense

from graphopt.cpu_kernels import kernels
from graphopt.errors import OptionError, ShapeError, SolverError
from graphopt.linear import BlockPattern, DenseCholesky, Pcg, SchurComplement, SparseCholesky


def _through_schur(problem, mode):
    schur = SchurComplement(problem.pattern, problem.num_kept, mode)
    assert schur.form(problem.values, problem.damping, problem.b)
    if mode == "explicit":
        solver = SparseCholesky(schur.reduced_pattern)
        assert solver.factorize(schur.reduced_values)
    else:
        solver = Pcg(schur, tolerance=1e-28)
        assert solver.factorize()
    return schur.back_substitute(solver.solve(schur.reduced_b))


def _direct(solver, problem):
    assert solver.factorize(problem.values, problem.damping)
    return solver.solve(problem.b)


SOLVERS = {
    "sparse-auto": lambda p: _direct(SparseCholesky(p.pattern), p),
    "sparse-amd": lambda p: _direct(SparseCholesky(p.pattern, "amd"), p),
    "sparse-metis": lambda p: _direct(SparseCholesky(p.pattern, "metis"), p),
    "sparse-natural": lambda p: _direct(SparseCholesky(p.pattern, "natural"), p),
    "dense": lambda p: _direct(DenseCholesky(p.pattern), p),
    "pcg": lambda p: _direct(Pcg(p.pattern, tolerance=1e-28), p),
    "schur-explicit": lambda p: _through_schur(p, "explicit"),
    "schur-implicit": lambda p: _through_schur(p, "implicit"),
}

PROBLEMS = {
    "one-block": lambda: make_problem([6], [], 0),
    "one-scalar": lambda: make_problem([1], [], 1, damped=True),
    "isolated-blocks": lambda: make_problem([3, 1, 15, 6], [], 2),
    "pose-chain": lambda: make_problem(*chain_with_loops(120, [6], 3, 60), 3, damped=True),
    "mixed-dims": lambda: make_problem(*chain_with_loops(60, range(1, 16), 4, 50), 4),
    "two-components": lambda: make_problem([3] * 40, [(i, i + 2) for i in range(38)], 5),
    "full": lambda: make_problem([7] * 40, [(i, j) for j in range(40) for i in range(j)], 6),
    "fronts of panels": lambda: make_problem(
        [15] * 27, [(i, j) for j in range(27) for i in range(j)], 20, damped=True
    ),
    "grid": lambda: make_problem(
        [3] * 400,
        [(i, i + 1) for i in range(400) if i % 20 != 19] + [(i, i + 20) for i in range(380)],
        7,
    ),
    "bundle-9-3": lambda: make_problem(*bundle(12, 200, [9], [3], 8), 8, num_kept=12, damped=True),
    "bundle-mixed": lambda: make_problem(
        *bundle(10, 90, [6, 4, 9], [3, 1, 2], 9), 9, num_kept=10, damped=True
    ),
    "bundle-planar": lambda: make_problem(*bundle(15, 100, [3], [2], 10), 10, num_kept=15),
}


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("problem", PROBLEMS)
def test_every_solver_solves_every_problem(solver, problem):
    """The solution is numpy's to 1e-9 of its largest entry, the residual 1e-10 of the right side's."""
    system = PROBLEMS[problem]()
    x = SOLVERS[solver](system)
    reference = system.x
    assert np.abs(x - reference).max() <= 1e-9 * np.abs(reference).max()
    assert np.linalg.norm(system.dense @ x - system.b) <= 1e-10 * np.linalg.norm(system.b)


@st.composite
def _systems(draw):
    num_blocks = draw(st.integers(1, 30))
    dims = draw(st.lists(st.integers(1, 15), min_size=num_blocks, max_size=num_blocks))
    block = st.integers(0, num_blocks - 1)
    edges = draw(st.lists(st.tuples(block, block).filter(lambda e: e[0] != e[1]), max_size=60))
    return make_problem(dims, edges, draw(st.integers(0, 2**31)), damped=draw(st.booleans()))


@settings(max_examples=60, deadline=None)
@given(_systems(), st.sampled_from(["auto", "amd", "metis", "natural"]))
def test_random_patterns(system, ordering):
    """Any pattern of blocks of 1 to 15 is solved under any ordering."""
    solver = SparseCholesky(system.pattern, ordering)
    assert solver.factorize(system.values, system.damping)
    np.testing.assert_allclose(solver.solve(system.b), system.x, rtol=1e-9, atol=1e-11)
    assert sorted(solver.permutation) == list(range(system.pattern.num_blocks))


@pytest.mark.parametrize("num_threads", [1, 2, 3])
@pytest.mark.parametrize("solver", SOLVERS)
def test_bitwise_reproducible(solver, num_threads):
    """Two runs with the same number of threads agree in every bit, also after the number has changed."""
    edges = [(i, i + 1) for i in range(699) if i % 27 != 26] + [(i, i + 27) for i in range(673)]
    poses = make_problem([6] * 700, edges, 21) if "schur" not in solver else None
    system = poses or make_problem(*bundle(20, 600, [6], [3], 22), 22, num_kept=20)
    kernels.set_num_threads(num_threads)
    first = SOLVERS[solver](system)
    assert np.array_equal(first, SOLVERS[solver](system))
    sparse = SparseCholesky(system.pattern)
    results = [_direct(sparse, system)]
    kernels.set_num_threads(num_threads % 3 + 1)
    _direct(sparse, system)
    kernels.set_num_threads(num_threads)
    results.append(_direct(sparse, system))
    assert np.array_equal(*results)
    assert np.linalg.norm(to_dense(system.pattern, system.values) @ first - system.b) < 1e-9


def test_empty_system():
    """A pattern without blocks factorizes and solves to an empty vector."""
    pattern = BlockPattern([], [0], [])
    assert (pattern.num_blocks, pattern.dim, pattern.values_size) == (0, 0, 0)
    for solver in (SparseCholesky(pattern), DenseCholesky(pattern), Pcg(pattern)):
        assert solver.factorize(np.empty(0))
        assert solver.solve(np.empty(0)).shape == (0,)


def test_several_right_sides_and_in_place():
    """A right side of shape (dim, k) is solved column by column; `out` may be b itself."""
    system = PROBLEMS["pose-chain"]()
    sides = np.random.default_rng(0).standard_normal((system.pattern.dim, 3))
    for solver in (SparseCholesky(system.pattern), DenseCholesky(system.pattern)):
        assert solver.factorize(system.values, system.damping)
        np.testing.assert_allclose(
            solver.solve(sides), np.linalg.solve(system.dense, sides), rtol=1e-9, atol=1e-12
        )
        x = system.b.copy()
        assert solver.solve(x, out=x) is x
        np.testing.assert_allclose(x, system.x, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("problem", ["mixed-dims", "pose-chain", "grid", "bundle-9-3", "two-components"])
@pytest.mark.parametrize("num_pairs", [1, 400])
def test_marginals_are_blocks_of_the_inverse(problem, num_pairs):
    """Blocks inside and outside the factor's structure equal those of the dense inverse."""
    system = PROBLEMS[problem]()
    inverse = np.linalg.inv(system.dense)
    offsets, num_blocks = system.pattern.offsets, system.pattern.num_blocks
    pairs = np.random.default_rng(1).integers(0, num_blocks, (num_pairs, 2))
    pairs[::3, 1] = pairs[::3, 0]
    for solver in (SparseCholesky(system.pattern), DenseCholesky(system.pattern)):
        assert solver.factorize(system.values, system.damping)
        for (row, col), block in zip(pairs, solver.marginals(pairs), strict=True):
            expected = inverse[offsets[row] : offsets[row + 1], offsets[col] : offsets[col + 1]]
            np.testing.assert_allclose(block, expected, rtol=1e-8, atol=1e-13)
    assert solver.marginals(np.empty((0, 2), dtype=int)) == []


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, -1e3])
@pytest.mark.parametrize("block", [0, 57, 119])
def test_bad_pivot_is_reported(bad, block):
    """NaN, infinity or a negative diagonal gives False and names a block; the next good input works again."""
    system = PROBLEMS["pose-chain"]()
    values = system.values.copy()
    start = system.pattern.value_offsets[system.pattern.col_ptr[block + 1] - 1]
    values[start + 7] = bad  # (1, 1) of the diagonal block
    for solver in (SparseCholesky(system.pattern), DenseCholesky(system.pattern), Pcg(system.pattern)):
        assert not solver.factorize(values, system.damping)
        if bad == -1e3:
            assert solver.failed_block == block or not isinstance(solver, Pcg)
        assert 0 <= solver.failed_block < system.pattern.num_blocks
        with pytest.raises(SolverError, match="factorize"):
            solver.solve(system.b)
        assert solver.factorize(system.values, system.damping)
        assert solver.failed_block is None


def test_nan_in_a_coupling_block_is_found():
    """A NaN off the diagonal makes the factorisation fail, on one thread and on several."""
    dims, edges = chain_with_loops(1500, [6], 3, 900)
    pattern = make_pattern(dims, edges)
    values = np.zeros(pattern.values_size)
    for block in range(pattern.num_blocks):
        start = pattern.value_offsets[pattern.col_ptr[block + 1] - 1]
        values[start : start + 36] = np.eye(6).ravel()
    solver = SparseCholesky(pattern)
    assert solver.factorize(values)
    for k in (1, pattern.num_stored_blocks // 2, pattern.num_stored_blocks - 2):
        broken = values.copy()
        broken[pattern.value_offsets[k]] = np.nan
        assert not solver.factorize(broken)


def test_singular_matrix_is_refused():
    """A Laplacian (the missing gauge) is not positive definite; damping repairs it."""
    pattern = make_pattern([1] * 6, [(i, i + 1) for i in range(5)])
    laplacian = np.diag([1.0, 2, 2, 2, 2, 1]) - np.eye(6, k=1) - np.eye(6, k=-1)
    values = from_dense(pattern, laplacian)
    for solver in (SparseCholesky(pattern), DenseCholesky(pattern)):
        assert not solver.factorize(values)
        assert solver.factorize(values, np.full(6, 1e-3))


def test_arguments_are_checked():
    """Wrong shapes, dtypes and layouts name the argument and what was expected."""
    system = PROBLEMS["two-components"]()
    dim = system.pattern.dim
    solver = SparseCholesky(system.pattern)
    with pytest.raises(ShapeError, match=r"values: expected .*\(\d+,\), got float64 array of shape \(3,\)"):
        solver.factorize(np.zeros(3))
    with pytest.raises(ShapeError, match=r"values: .*float32"):
        solver.factorize(system.values.astype(np.float32))
    with pytest.raises(ShapeError, match=r"values: .*not contiguous"):
        solver.factorize(np.repeat(system.values, 2)[::2])
    with pytest.raises(ShapeError, match=r"damping: .*or None"):
        solver.factorize(system.values, np.zeros(dim + 1))
    assert solver.factorize(system.values)
    with pytest.raises(ShapeError, match="b: "):
        solver.solve(np.zeros(dim + 1))
    with pytest.raises(ShapeError, match=r"out: .*writeable"):
        frozen = np.zeros(dim)
        frozen.flags.writeable = False
        solver.solve(system.b, out=frozen)
    with pytest.raises(ShapeError, match="no block 40"):
        solver.marginals([(0, 40)])
    with pytest.raises(OptionError, match="natural"):
        SparseCholesky(system.pattern, "rcm")
    with pytest.raises(SolverError, match="factorize"):
        SparseCholesky(system.pattern).solve(system.b)


@pytest.mark.parametrize(
    ("dims", "col_ptr", "row_idx", "message"),
    [
        ([3, 3], [0, 1], [0], "col_ptr has 2 entries, expected 3"),
        ([3, 0], [0, 1, 2], [0, 1], r"dims\[1\] is 0"),
        ([3, 3], [0, 1, 1], [0], "without its diagonal"),
        ([3, 3], [0, 1, 3], [0, 1, 0], "must ascend"),
        ([3, 3], [0, 1, 2], [0, 0], "must be its diagonal"),
        ([3, 3], [0, 1, 3], [0, 1], "row_idx has 2"),
        ([3, 3, 3], [0, 2, 1, 3], [0, 1, 2], "must be its diagonal"),
        ([3, 3, 3], [0, 1, 1, 3], [0, 1, 2], "without its diagonal"),
        ([3], [0, 1], [2**40], "32-bit"),
        ([3, 3], [1, 1, 2], [0, 1], "must be 0"),
        ([3.0, 3.0], [0, 1, 2], [0, 1], "dims: expected a vector of integers"),
    ],
)
def test_patterns_are_checked(dims, col_ptr, row_idx, message):
    """A pattern that breaks a rule is refused with the place."""
    with pytest.raises(ShapeError, match=message):
        BlockPattern(np.asarray(dims), col_ptr, row_idx)
