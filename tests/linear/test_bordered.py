"""Dense systems whose right-hand side is a row of the matrix: solved as others, in any size and scale."""

from __future__ import annotations

import numpy as np
import pytest
from linear_problems import make_pattern, spd_values, to_dense
from vulkan_devices import shared_device

from graphopt.vulkan.cholesky import TrialFactorization, analyse
from graphopt.vulkan.cholesky.bordered import BorderedCholesky, is_possible
from graphopt.vulkan.kernels.damping import HEADER, given
from graphopt.vulkan.program import Context, Program

SIZES = [
    [1],
    [5],
    [3, 2],
    [15, 15, 1],
    [8, 8, 8, 8],
    [11, 11, 11],
    [9] * 7,
    [8] * 8,
    [13] * 5,
    [6, 3] * 20,
    [7] * 31,
]


def dense_pattern(dims):
    """All blocks."""
    return make_pattern(dims, [(i, j) for i in range(len(dims)) for j in range(i)])


class Trials:
    """One program that solves for numbers which are put in before each run."""

    def __init__(self, dims, is_damped, room=0, access="address", pattern=None):
        self.pattern = pattern = pattern or dense_pattern(dims)
        self.context = context = Context(shared_device(access), "double")
        self.trial = TrialFactorization(context, pattern, dense=True)
        self.values, self.damping, self.b = (
            context.reals(size) for size in (pattern.values_size, HEADER + pattern.dim, pattern.dim)
        )
        self.x = context.reals(pattern.dim + room)
        self.status = context.device.upload(np.zeros(8, np.uint32))
        program = Program(context).phase("linear_solver")
        self.trial.record_clear(program)
        damping = self.damping if is_damped else None
        self.trial.record(program.barrier(), self.values, damping, self.b, self.x)
        self.trial.record_outcome(program, self.status)
        self.program = program

    def solve(self, values, damping, b):
        """x (dim,), and whether all pivots were good."""
        for buffer, numbers in ((self.values, values), (self.damping, given(damping)), (self.b, b)):
            self.context.device.write(buffer, numbers)
        self.program.run()
        return self.context.download(self.x, self.pattern.dim), self.trial.is_definite


@pytest.mark.parametrize("dims", SIZES, ids=lambda dims: str(sum(dims)))
@pytest.mark.parametrize("is_damped", [False, True])
@pytest.mark.parametrize("room", [0, 7])
def test_solutions(dims, is_damped, room):
    """Twice with one program; a vector with room for more has what fits."""
    rng = np.random.default_rng(len(dims))
    trials = Trials(dims, is_damped, room)
    borders = sum(dims) != 64
    assert isinstance(trials.trial.solver, BorderedCholesky) == borders
    for scale in (1.0, 1e-40, 1e40):
        values, damping = scale * spd_values(trials.pattern, rng), scale * rng.random(trials.pattern.dim)
        b = rng.normal(size=trials.pattern.dim)
        x, is_definite = trials.solve(values, damping, b)
        matrix = to_dense(trials.pattern, values) + (np.diag(damping) if is_damped else 0.0)
        assert is_definite
        residual = matrix @ x - b
        assert np.abs(residual).max() < 1e-12 * (np.abs(matrix) @ np.abs(x) + np.abs(b)).max()


def test_with_storage_buffers():
    """Devices without addresses bind the same arrays."""
    trials = Trials([6] * 15, False, access="storage")
    rng = np.random.default_rng(1)
    values, b = spd_values(trials.pattern, rng), rng.normal(size=90)
    x, _ = trials.solve(values, np.zeros(90), b)
    np.testing.assert_allclose(to_dense(trials.pattern, values) @ x, b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("bad", [0, 17, 89])
def test_bad_pivots_are_found(bad):
    """By block, and the next good numbers are solved with."""
    trials = Trials([6] * 15, True)
    rng = np.random.default_rng(2)
    values, b, damping = spd_values(trials.pattern, rng), rng.normal(size=90), np.zeros(90)
    damping[bad] = -1e6
    assert not trials.solve(values, damping, b)[1]
    assert trials.trial.failed_block == bad // 6
    assert trials.solve(values, np.zeros(90), b)[1]
    assert trials.trial.failed_block is None


def test_right_hand_sides_that_are_no_numbers_are_noticed():
    """They are no solution."""
    trials = Trials([6] * 15, False)
    values = spd_values(trials.pattern, np.random.default_rng(3))
    x, is_definite = trials.solve(values, np.zeros(90), np.full(90, np.nan))
    assert not is_definite or np.isnan(x).any()


def test_trees_and_large_fronts_have_none():
    """They are solved by levels."""
    device = shared_device("address")
    chain = make_pattern([6] * 80, [(i + 1, i) for i in range(79)])
    assert not is_possible(device, analyse(chain, "amd"))
    assert not is_possible(device, analyse(dense_pattern([15] * 137), "dense"))
    assert is_possible(device, analyse(dense_pattern([15] * 136), "dense"))


@pytest.mark.parametrize("room", [0, 7])
@pytest.mark.parametrize("seed", range(6))
def test_sparse_systems_in_whatever_order_they_are_eliminated(seed, room):
    """Blocks are missing, of some columns all but the diagonal: the solution is in the rows' own order."""
    rng = np.random.default_rng(seed)
    dims = [6] * int(rng.integers(5, 30)) + [3] * 3
    share = rng.random(len(dims)) ** 2
    pairs = [(i, j) for i in range(len(dims)) for j in range(i) if rng.random() < share[i] * share[j]]
    pattern = make_pattern(dims, pairs)
    trials = Trials(dims, False, room, pattern=pattern)
    values, b = spd_values(pattern, rng), rng.normal(size=pattern.dim)
    x, is_definite = trials.solve(values, np.zeros(pattern.dim), b)
    assert is_definite
    np.testing.assert_allclose(x, np.linalg.solve(to_dense(pattern, values), b), atol=1e-12)
