"""Schur complement and conjugate gradients against dense numpy."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from linear_problems import bundle, chain_with_loops, make_problem, to_dense

from graphopt.cpu_kernels import kernels
from graphopt.errors import OptionError, ShapeError, SolverError
from graphopt.linear import BlockPattern, Pcg, SchurComplement, SparseCholesky

SHAPES = {
    "9-3": ([9], [3]),
    "6-3": ([6], [3]),
    "7-3": ([7], [3]),
    "3-3": ([3], [3]),
    "3-2": ([3], [2]),
    "mixed-3": ([6, 4, 1], [3]),
    "mixed": ([9, 2, 6, 12], [3, 1, 2, 5]),
    "1-1": ([1], [1]),
}


def _system(shape, damped, num_eliminated=60):
    kept, eliminated = SHAPES[shape]
    return make_problem(*bundle(9, num_eliminated, kept, eliminated, 5), 6, num_kept=9, damped=damped)


def _dense_schur(system):
    n = system.pattern.offsets[system.num_kept]
    full = system.dense
    coupling = np.linalg.solve(full[n:, n:], full[n:, :n])
    return full[:n, :n] - full[:n, n:] @ coupling, system.b[:n] - coupling.T @ system.b[n:]


@pytest.mark.parametrize("damped", [False, True])
@pytest.mark.parametrize("num_eliminated", [60, 170])
@pytest.mark.parametrize("mode", ["explicit", "implicit"])
@pytest.mark.parametrize("shape", SHAPES)
def test_schur_complement_is_the_dense_one(shape, mode, num_eliminated, damped):
    """S, its right side, its products and its diagonal blocks are those of the dense formula."""
    system = _system(shape, damped, num_eliminated)
    expected, expected_b = _dense_schur(system)
    schur = SchurComplement(system.pattern, system.num_kept, mode)
    assert schur.form(system.values, system.damping, system.b)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(schur.reduced_b, expected_b, rtol=1e-10, atol=1e-11)
    x = np.random.default_rng(0).standard_normal(schur.kept_dim)
    np.testing.assert_allclose(schur.multiply(x), expected @ x, rtol=1e-10, atol=1e-12 * scale)
    offsets = system.pattern.offsets[: system.num_kept + 1]
    blocks = [expected[a:b, a:b].ravel(order="F") for a, b in pairwise(offsets)]
    np.testing.assert_allclose(
        schur.diagonal_blocks(), np.concatenate(blocks), rtol=1e-10, atol=1e-12 * scale
    )
    if mode == "explicit":
        reduced = to_dense(schur.reduced_pattern, schur.reduced_values)
        np.testing.assert_allclose(reduced, expected, rtol=1e-10, atol=1e-12 * scale)


@pytest.mark.parametrize("shape", SHAPES)
def test_back_substitution_gives_the_whole_solution(shape):
    """The solution of S, substituted back, solves the whole system; in place works too."""
    system = _system(shape, damped=True)
    schur = SchurComplement(system.pattern, system.num_kept)
    assert schur.form(system.values, system.damping, system.b)
    solver = SparseCholesky(schur.reduced_pattern)
    assert solver.factorize(schur.reduced_values)
    x = np.empty(system.pattern.dim)
    assert schur.back_substitute(solver.solve(schur.reduced_b), out=x) is x
    np.testing.assert_allclose(x, system.x, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("num_eliminated", [60, 1700])
@pytest.mark.parametrize("mode", ["explicit", "implicit"])
@pytest.mark.parametrize("shape", SHAPES)
def test_another_right_side_is_reduced_as_the_first_one(shape, mode, num_eliminated):
    """With the same S; with any number of threads its bits are the same."""
    system = _system(shape, True, num_eliminated)
    schur = SchurComplement(system.pattern, system.num_kept, mode)
    with pytest.raises(SolverError, match="reduce: call form"):
        schur.reduce(system.b)
    other = np.random.default_rng(1).standard_normal(len(system.b))
    assert schur.form(system.values, system.damping, other)
    x_kept = np.random.default_rng(2).standard_normal(schur.kept_dim)
    expected = schur.reduced_b.copy(), schur.back_substitute(x_kept)
    assert schur.form(system.values, system.damping, system.b)
    products, found = schur.multiply(x_kept), []
    before = kernels.num_threads()
    try:
        for threads in (1, 2, 3):
            kernels.set_num_threads(threads)
            schur.reduce(other)
            found.append((schur.reduced_b.copy(), schur.back_substitute(x_kept)))
    finally:
        kernels.set_num_threads(before)
    for reduced, x in found:
        np.testing.assert_array_equal(reduced, found[0][0])
        np.testing.assert_allclose(reduced, expected[0], rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(x, expected[1], rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(schur.multiply(x_kept), products, rtol=1e-12)


def _many_landmarks(num_kept=30, num_eliminated=2500):
    """A window's size: S is made landmark by landmark, in several shares."""
    return make_problem(*bundle(num_kept, num_eliminated, [6], [3], 5), 6, num_kept=num_kept, damped=True)


def _of_threads(threads, system):
    kernels.set_num_threads(threads)
    schur = SchurComplement(system.pattern, system.num_kept)
    assert schur.form(system.values, system.damping, system.b)
    x = np.random.default_rng(1).standard_normal(schur.kept_dim)
    return schur.reduced_values.copy(), schur.reduced_b.copy(), schur.back_substitute(x)


@pytest.mark.parametrize("num_kept", [30, 150])
def test_many_landmarks_give_the_dense_complement_with_any_number_of_threads(num_kept):
    """S in shares (30 poses) and by columns (150, S too large for copies): right, and bitwise the same."""
    system = _many_landmarks(num_kept)
    implicit = SchurComplement(system.pattern, system.num_kept, "implicit")
    assert implicit.form(system.values, system.damping, system.b)
    values, b, x = _of_threads(1, system)
    pattern = SchurComplement(system.pattern, system.num_kept).reduced_pattern
    dense = to_dense(pattern, values)
    for column in range(0, implicit.kept_dim, 17):
        unit = np.zeros(implicit.kept_dim)
        unit[column] = 1.0
        np.testing.assert_allclose(dense[:, column], implicit.multiply(unit), rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(b, implicit.reduced_b, rtol=1e-10, atol=1e-10)
    x_kept = np.random.default_rng(1).standard_normal(implicit.kept_dim)
    np.testing.assert_allclose(x, implicit.back_substitute(x_kept), rtol=1e-9, atol=1e-10)
    for threads in (2, 3):
        for mine, other in zip((values, b, x), _of_threads(threads, system), strict=True):
            np.testing.assert_array_equal(mine, other)


def test_of_many_landmarks_the_first_bad_one_is_named():
    """Shares and lanes that are done later know nothing of it."""
    system = _many_landmarks()
    values = system.values.copy()
    pattern = system.pattern
    blocks = [30 + 11, 30 + 1700]
    for block in blocks:
        diagonal = pattern.value_offsets[pattern.col_ptr[block + 1] - 1]
        values[diagonal : diagonal + 9] = -np.eye(3).ravel()
    schur = SchurComplement(pattern, system.num_kept)
    assert not schur.form(values, None, system.b)
    assert schur.failed_block == blocks[0]


def test_reduced_pattern_has_only_blocks_that_occur():
    """Two kept blocks are coupled in S exactly if they are in H or see the same eliminated block."""
    dims = [6, 6, 6, 6, 3, 3, 3]
    system = make_problem(dims, [(0, 4), (1, 4), (2, 5), (0, 3)], 0, num_kept=4)
    pattern = SchurComplement(system.pattern, 4).reduced_pattern
    columns = np.repeat(np.arange(4), np.diff(pattern.col_ptr))
    off_diagonal = {(r, c) for r, c in zip(pattern.row_idx, columns, strict=True) if r != c}
    assert off_diagonal == {(0, 1), (0, 3)}


@pytest.mark.parametrize("num_kept", [0, 9])
def test_nothing_or_everything_is_eliminated(num_kept):
    """The borders: all blocks eliminated, or none."""
    dims, edges = ([3] * 9, []) if num_kept == 0 else chain_with_loops(9, [6], 0, 4)
    system = make_problem(dims, edges, 1, num_kept=num_kept)
    schur = SchurComplement(system.pattern, num_kept)
    assert schur.form(system.values, None, system.b)
    solver = SparseCholesky(schur.reduced_pattern)
    assert solver.factorize(schur.reduced_values)
    x = schur.back_substitute(solver.solve(schur.reduced_b))
    np.testing.assert_allclose(x, system.x, rtol=1e-10, atol=1e-12)


def test_dependent_blocks_are_refused():
    """Eliminated blocks that share an entry are named."""
    system = make_problem([6, 3, 3], [(0, 1), (1, 2)], 0)
    with pytest.raises(ShapeError, match="eliminated blocks 1 and 2 share an entry"):
        SchurComplement(system.pattern, 1)


@pytest.mark.parametrize("num_eliminated", [60, 170])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -5.0, 0.0])
def test_bad_eliminated_block_is_named(bad, num_eliminated):
    """An eliminated block that is not positive definite gives False and its number."""
    system = _system("6-3", False, num_eliminated)
    values = system.values.copy()
    block = 9 + 41
    values[system.pattern.value_offsets[system.pattern.col_ptr[block + 1] - 1]] = bad
    schur = SchurComplement(system.pattern, system.num_kept)
    assert not schur.form(values, None, system.b)
    assert schur.failed_block == block
    with pytest.raises(SolverError, match="form"):
        schur.back_substitute(np.zeros(schur.kept_dim))
    assert schur.form(system.values, None, system.b)
    assert schur.failed_block is None


def test_schur_arguments_are_checked():
    """Misuse says what was expected."""
    system = _system("6-3", False)
    with pytest.raises(OptionError, match="explicit, implicit"):
        SchurComplement(system.pattern, 9, "lazy")
    with pytest.raises(ShapeError, match="num_kept is 70"):
        SchurComplement(system.pattern, 70)
    schur = SchurComplement(system.pattern, 9, "implicit")
    with pytest.raises(SolverError, match="form"):
        schur.multiply(np.zeros(54))
    with pytest.raises(SolverError, match="form"):
        Pcg(schur).factorize()
    with pytest.raises(SolverError, match="implicit form"):
        _ = schur.reduced_pattern
    with pytest.raises(ShapeError, match="b: expected"):
        schur.form(system.values, None, system.b[:-1])
    assert schur.form(system.values, None, system.b)
    with pytest.raises(ShapeError, match="x_kept: expected"):
        schur.back_substitute(np.zeros(3))
    x = np.zeros(54)
    with pytest.raises(ShapeError, match="out must not be x"):
        schur.multiply(x, out=x)


def _reference_pcg(matrix, b, offsets, tolerance):
    """g2o's LinearSolverPCG::solve, relative, in numpy: x, iterations, final r' inv(M) r."""
    inverse = np.zeros_like(matrix)
    for begin, end in pairwise(offsets):
        inverse[begin:end, begin:end] = np.linalg.inv(matrix[begin:end, begin:end])
    x, r = np.zeros_like(b), b.copy()
    d = inverse @ r
    dn = r @ d
    bound = tolerance * dn
    for iteration in range(len(b) + 1):
        if dn <= bound or iteration == len(b):
            return x, iteration, dn
        q = matrix @ d
        alpha = dn / (d @ q)
        x, r = x + alpha * d, r - alpha * q
        s = inverse @ r
        dn, old = r @ s, dn
        d = s + dn / old * d
    raise AssertionError


@pytest.mark.parametrize("shape", ["6-3", "9-3", "mixed"])
def test_preconditioner_of_the_kept_blocks(shape):
    """The first step goes along inv(M) b, M the diagonal blocks of H_pp + D, or of S."""
    system = _system(shape, True)
    dense, b = _dense_schur(system)
    schur = SchurComplement(system.pattern, system.num_kept, "implicit")
    assert schur.form(system.values, system.damping, system.b)
    offsets = system.pattern.offsets[: system.num_kept + 1]
    for preconditioner, matrix in (("jacobi", system.dense), ("hschur", dense)):
        pcg = Pcg(schur, 1e-30, 1, preconditioner)
        assert pcg.factorize()
        x = pcg.solve(b)
        blocks = [slice(first, last) for first, last in pairwise(offsets)]
        along = np.concatenate([np.linalg.solve(matrix[block, block], b[block]) for block in blocks])
        np.testing.assert_allclose(x / np.linalg.norm(x), along / np.linalg.norm(along), rtol=0, atol=1e-12)
    with pytest.raises(OptionError, match="expected one of schur_jacobi, jacobi"):
        Pcg(schur, preconditioner="none")


def test_pcg_follows_g2os_rule():
    """Iterations and residuals of consecutive solves are those of g2o with a relative tolerance."""
    system = make_problem(*chain_with_loops(200, [6, 3], 8, 80), 8, damped=True)
    pcg = Pcg(system.pattern, tolerance=1e-6)
    assert pcg.factorize(system.values, system.damping)
    for scale in (1.0, 1e-2, 1e-5):
        b = scale * system.b
        expected, iterations, residual = _reference_pcg(system.dense, b, system.pattern.offsets, 1e-6)
        x = pcg.solve(b)
        assert pcg.converged
        assert pcg.iterations == iterations
        assert pcg.residual == pytest.approx(residual, rel=1e-6)
        np.testing.assert_allclose(x, expected, rtol=1e-8, atol=1e-12 * scale)
    pcg.reset()
    pcg.solve(1e-5 * system.b)
    assert pcg.iterations > 0


def test_pcg_stops_at_its_limit_and_on_indefinite_matrices():
    """Neither runs on: `converged` is False."""
    system = make_problem(*chain_with_loops(100, [3], 9, 30), 9)
    pcg = Pcg(system.pattern, tolerance=1e-30, max_iterations=3)
    assert pcg.factorize(system.values)
    pcg.solve(system.b)
    assert (pcg.iterations, pcg.converged) == (3, False)
    indefinite = make_problem([1, 1], [(0, 1)], 0)
    pcg = Pcg(indefinite.pattern)
    assert pcg.factorize(np.array([1.0, 2.0, 1.0]))
    pcg.solve(np.array([1.0, -1.0]))
    assert not pcg.converged
    assert pcg.factorize(np.array([1.0, np.nan, 1.0]))
    pcg.solve(np.array([1.0, -1.0]))
    assert not pcg.converged


def test_pcg_arguments_are_checked():
    """Misuse says what was expected."""
    system = _system("6-3", False)
    with pytest.raises(OptionError, match="tolerance"):
        Pcg(system.pattern, tolerance=-1.0)
    with pytest.raises(OptionError, match="max_iterations"):
        Pcg(system.pattern, max_iterations=-2)
    with pytest.raises(ShapeError, match="BlockPattern or a SchurComplement"):
        Pcg("H")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ShapeError, match="values"):
        Pcg(system.pattern).factorize()
    schur = SchurComplement(system.pattern, 9, "implicit")
    assert schur.form(system.values, None, system.b)
    with pytest.raises(ShapeError, match="without arrays"):
        Pcg(schur).factorize(system.values)


def test_an_indefinite_block_of_s_is_replaced_for_preconditioning():
    """Where rounding left nothing of a diagonal block of S, conjugate gradients take H_pp's and go on."""
    dims = np.array([2, 2, 2], np.int32)  # two kept, one eliminated that is all the first one knows
    pattern = BlockPattern(dims, np.array([0, 1, 2, 5]), np.array([0, 1, 0, 1, 2], np.int32))
    coupling, weak = np.diag([3.0, 5.0]), 0.5 * np.eye(2)
    values = np.concatenate(
        [
            (coupling @ coupling.T * (1.0 - 1e-15)).ravel(),
            (4.0 * np.eye(2)).ravel(),
            coupling.ravel(),
            weak.ravel(),
            np.eye(2).ravel(),
        ]
    )
    schur = SchurComplement(pattern, 2, mode="implicit")
    assert schur.form(values, None, np.arange(6.0))
    blocks = schur.diagonal_blocks().reshape(2, 2, 2)
    assert np.abs(blocks[0]).max() < 1e-13
    pcg = Pcg(schur, 1e-12)
    assert pcg.factorize()
    assert np.isfinite(pcg.solve(schur.reduced_b)).all()
