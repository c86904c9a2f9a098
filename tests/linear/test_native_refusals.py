"""The native solvers by themselves: what they refuse, and what they say of their memory."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from linear_problems import bundle, from_dense, make_pattern, make_problem

from graphopt.cpu_kernels import kernels
from graphopt.linear.options import SolverOptions
from graphopt.linear.pcg import pcg_of

LARGE = 9 << 17
"""Numbers of 9 MiB."""


def test_only_so_much_memory_is_kept():
    """Of eight arrays of 9 MiB that are released at once 64 MiB at most."""
    arrays = [kernels.kept_array(LARGE) for _ in range(8)]
    arrays.clear()
    assert 56 << 20 <= kernels.kept_bytes() <= 64 << 20


def test_matrices_of_too_many_rows_are_refused():
    """Of a pattern, and of a block of a sparse factor."""
    with pytest.raises(ValueError, match=r"the matrix has 2147549180 scalar rows, at most 2\^31 - 1"):
        make_pattern(np.full(65540, 32767), [])
    with pytest.raises(ValueError, match="Block 1 has dimension 32768, at most 32767 are supported"):
        kernels.SparseCholesky(make_pattern([1, 32768], []))


def test_wrong_choices_are_refused():
    """Orderings by another name, more kept blocks than there are, an inverse without a factor."""
    pattern = make_pattern([3, 3, 3], [(0, 1), (1, 2)])
    with pytest.raises(ValueError, match="ordering is 'best', expected auto, amd, metis"):
        kernels.SparseCholesky(pattern, "best")
    for num_kept in (-1, 4):
        with pytest.raises(ValueError, match=f"num_kept is {num_kept}, the pattern has 3 blocks"):
            kernels.SchurComplement(pattern, num_kept)
    for solver in (kernels.SparseCholesky(pattern), kernels.DenseCholesky(pattern)):
        with pytest.raises(Exception, match="marginals: there is no factorisation; call factorize"):
            solver.marginals(np.array([[0, 0]], np.int32))


@pytest.mark.parametrize("mode,num_kept", [("explicit", 5), ("explicit", 60), ("implicit", 5)])
def test_poses_beside_larger_blocks(mode, num_kept):
    """Landmarks seen by blocks of 6 and 9 rows: S x, its diagonal blocks, damping included, and memory."""
    dims, edges = bundle(num_kept, 8 * num_kept, [6, 9], 3, seed=2)
    problem = make_problem(dims, edges, seed=3, num_kept=num_kept, damped=True)
    schur = kernels.SchurComplement(problem.pattern, num_kept, mode)
    assert schur.form(problem.values, problem.damping, problem.b)
    size = int(problem.pattern.offsets[num_kept])
    h = problem.dense
    s = h[:size, :size] - h[:size, size:] @ np.linalg.solve(h[size:, size:], h[size:, :size])
    x = np.linspace(-1.0, 1.0, size)
    if mode == "implicit":
        np.testing.assert_allclose(schur.multiply(x), s @ x, atol=1e-10)
        offsets = problem.pattern.offsets[:6]
        expected = [s[a:b, a:b].ravel() for a, b in pairwise(offsets)]
        np.testing.assert_allclose(np.ravel(schur.diagonal_blocks()), np.concatenate(expected), atol=1e-10)
    solved = schur.back_substitute(np.linalg.solve(s, schur.reduced_b))
    np.testing.assert_allclose(solved, problem.x, atol=1e-10)
    assert schur.memory_bytes >= 8 * (num_kept * 72 + problem.pattern.dim)


@pytest.mark.parametrize("damping", [0.0, 0.1])
def test_damping_counts_where_blocks_of_h_stand_in_for_those_of_s(damping):
    """H_pp + D preconditions where a diagonal block of S is indefinite; there is none without the damping."""
    pattern = make_pattern([2, 2], [(0, 1)])
    blocks = np.zeros((4, 4))
    blocks[:2, 2:] = blocks[2:, :2] = 2.0 * np.eye(2)
    blocks[2:, 2:] = np.eye(2)
    schur = kernels.SchurComplement(pattern, 1, "implicit")
    solver = pcg_of(schur, SolverOptions(linear_solver="pcg", schur="implicit"))
    assert schur.form(from_dense(pattern, blocks), np.full(4, damping), np.ones(4))
    assert solver.factorize() == (damping > 0.0)


@pytest.mark.parametrize("first", [True, False])
def test_conjugate_directions_end_where_the_curvature_does(first):
    """A step along which the matrix is not positive: there is no solution, or the last one stays."""

    class Scalars:
        """r's = 1 always; curvatures 2 and -3, or -3 at once."""

        left, steps = [-3.0] if first else [2.0, -3.0], []

        def start(self):
            return 1.0

        def curvature(self, beta):
            return self.left.pop(0)

        def step(self, alpha):
            self.steps.append(alpha)
            return 1.0

    assert kernels.conjugate_gradients(Scalars(), 1e-12, 100) == (0 if first else 1, 1.0, False)
    assert Scalars.steps == ([] if first else [0.5])
