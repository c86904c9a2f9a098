"""Conjugate gradients with a Cholesky factor as preconditioner: an older one, or one of clusters.

They have the answers of a factorization, on the CPU and on a device; a factor of before is used while it
helps and replaced where it does not; equal input gives equal bits.
"""

from __future__ import annotations

import numpy as np
import pytest
from linear_problems import make_pattern, spd_values, to_dense
from vulkan_devices import shared_device

import graphopt
from graphopt.errors import OptionError, SolverError
from graphopt.evaluate import datasets
from graphopt.linear import FactorPcg
from graphopt.linear.factor_pcg import clusters_of, within_clusters
from graphopt.linear.options import SolverOptions
from graphopt.vulkan.kernels.factor_pcg import FactorPcg as DeviceFactorPcg

GRAPHS = {"sphere": lambda: datasets.sphere(7, 7), "bundle": lambda: datasets.ba(6, 60)}


def cube(side: int = 5):
    """A lattice of blocks of 6 rows and its random numbers."""
    index = np.arange(side**3).reshape(side, side, side)
    pairs = [
        np.stack([np.take(index, range(side - 1), a).ravel(), np.take(index, range(1, side), a).ravel()], 1)
        for a in range(3)
    ]
    pattern = make_pattern([6] * side**3, np.concatenate(pairs))
    return pattern, spd_values(pattern, np.random.default_rng(0))


@pytest.mark.parametrize("kind", ["factor", "clusters"])
def test_solutions_are_those_of_a_factorization(kind):
    """With the numbers of the factor, with others near by, and with a damping far away."""
    pattern, values = cube()
    rng = np.random.default_rng(1)
    solver = FactorPcg(pattern, 1e-24, kind=kind)
    for scale, damping in ((1.0, 0.0), (1.001, 0.0), (1.0, 100.0), (1.0, 1e-3)):
        d = np.full(pattern.dim, damping)
        assert solver.factorize(scale * values, d)
        b = rng.standard_normal(pattern.dim)
        expected = np.linalg.solve(scale * to_dense(pattern, values) + np.diag(d), b)
        assert solver.solve(b) == pytest.approx(expected, rel=1e-9, abs=1e-11)
        assert solver.converged


def test_a_factor_of_before_is_used_and_replaced():
    """Near by a few iterations; far away A is factored, and then not tried for a while."""
    pattern, values = cube()
    b = np.ones(pattern.dim)
    solver = FactorPcg(pattern, 1e-12)
    solver._worth = 6
    solver.factorize(values)
    solver.solve(b)
    assert (solver.num_factorizations, solver.iterations) == (1, 0)
    solver.factorize(1.0001 * values, np.full(pattern.dim, 1e-6))
    solver.solve(b)
    assert solver.num_factorizations == 1 and 0 < solver.iterations <= 6
    rng = np.random.default_rng(0)
    for number, expected in enumerate((2, 3, 4)):  # tried in vain; not tried; tried in vain
        solver.factorize(values, 10.0 ** rng.uniform(0, 8, pattern.dim))
        solver.solve(b)
        assert (number, solver.num_factorizations) == (number, expected)
    solver.reset()
    solver.factorize(values)
    assert solver.num_factorizations == 5


def test_a_matrix_that_is_not_positive_definite():
    """Refused by the first factorization; found by a later one; the next good one is solved."""
    pattern, values = cube(3)
    b = np.ones(pattern.dim)
    solver = FactorPcg(pattern)
    with pytest.raises(SolverError, match=r"call factorize\(\) first"):
        solver.solve(b)
    assert not solver.factorize(-values) and solver.failed_block is not None
    assert solver.factorize(values)
    solver.solve(b)
    assert solver.factorize(-values)  # the factor of before is there
    solver.solve(b)
    assert not solver.converged
    assert not solver.factorize(-values)
    assert solver.factorize(values)
    residual = to_dense(pattern, values) @ solver.solve(b) - b
    assert np.abs(residual).max() < 1e-9


def test_clusters_are_neighbours_of_bounded_size():
    """The pattern within them falls apart into them, and its numbers are the matrix'."""
    pattern, values = cube()
    cluster = clusters_of(pattern, 100)
    rows = np.bincount(cluster, pattern.dims)
    assert rows.sum() == pattern.dim and 0 < rows.max() <= 150
    own, places = within_clusters(pattern, cluster)
    dense, part = to_dense(pattern, values), to_dense(own, values[places])
    same = np.equal.outer(np.repeat(cluster, 6), np.repeat(cluster, 6))
    assert np.array_equal(part, np.where(same, dense, 0.0))
    between = pattern.num_stored_blocks - own.num_stored_blocks
    assert between < 0.6 * (pattern.num_stored_blocks - pattern.num_blocks)


@pytest.mark.parametrize("kind", ["factor", "clusters"])
@pytest.mark.parametrize("where", [("cpu", "double"), ("vulkan", "double"), ("vulkan", "mixed")])
@pytest.mark.parametrize("name", GRAPHS)
def test_optimizations_end_where_a_factorization_ends(name, where, kind):
    """Chi2 of ten steps of Levenberg-Marquardt, whole H and Schur complement; twice the same bits."""
    expected = graphopt.optimize(GRAPHS[name](), device="cpu", method="lm", linear_solver="cholesky")
    device, precision = where
    options = {"linear_solver": "pcg", "preconditioner": kind, "method": "lm"}
    found = [
        graphopt.optimize(GRAPHS[name](), device=device, precision=precision, **options) for _ in range(2)
    ]
    assert found[0].linear_solver == "pcg" and found[0].schur == expected.schur
    rel = 1e-6 if precision == "double" else 1e-4
    assert found[0].final_chi2 == pytest.approx(expected.final_chi2, rel=rel)
    assert found[0].final_chi2 == found[1].final_chi2


@pytest.mark.parametrize("kind", ["factor", "clusters"])
def test_a_singular_matrix_is_told_on_a_device(kind):
    """Gauss-Newton on a bundle adjustment whose scale is free: as with a factorization on the CPU."""
    summary = graphopt.optimize(
        GRAPHS["bundle"](), device="vulkan", method="gn", linear_solver="pcg", preconditioner=kind
    )
    assert summary.termination.name == "LINEAR_SOLVER_FAILURE"


def test_a_device_counts_its_factorizations(monkeypatch):
    """Fewer than trials: later ones start from the factor of before."""
    made = []
    record = DeviceFactorPcg.note

    def note(self, *, solved):
        made.append(self.is_due)
        record(self, solved=solved)

    monkeypatch.setattr(DeviceFactorPcg, "note", note)
    graphopt.optimize(
        GRAPHS["sphere"](), device="vulkan", method="gn", linear_solver="pcg", preconditioner="factor"
    )
    assert made[0] and not all(made)
    assert shared_device("address").messages == []


def test_what_cannot_be_preconditioned_so_is_refused():
    """A matrix that is not formed, and solvers that need no preconditioner."""
    with pytest.raises(OptionError, match="schur='explicit' or 'off'"):
        SolverOptions(linear_solver="pcg", schur="implicit", preconditioner="factor")
    with pytest.raises(OptionError, match="is for linear_solver='pcg'"):
        SolverOptions(linear_solver="cholesky", preconditioner="clusters")
    with pytest.raises(OptionError, match="needs the blocks of H"):
        graphopt.optimize(
            GRAPHS["sphere"](),
            device="vulkan",
            linear_solver="pcg",
            preconditioner="factor",
            schedule="matrix-free",
        )
