"""The H of every real graph: CPU (LL', LDL'), device and CHOLMOD solve it, with float64's residual."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from as_scipy import symmetric_matrix
from vulkan_devices import shared_device

from graphopt.errors import GraphOptError
from graphopt.io.formats import read_with_report
from graphopt.linear import SparseCholesky
from graphopt.linear.null_space import diagonal_of
from graphopt.linear.options import SolverOptions
from graphopt.problem.structure import Structure
from graphopt.solver.cpu import CpuBlockSolver
from graphopt.vulkan.cholesky import DeviceCholesky, analyse

SUFFIXES = (".g2o", ".g2o.xz", ".graph", ".toro", ".txt.xz", ".txt")
DEVICE_FLOPS = 2e8
"""Operations that a software driver is asked for."""
SMALLEST_RESIDUAL = 1e-14


def graphs(folder):
    """Readable graphs of a few MB, smallest first."""
    found = [path for path in folder.rglob("*") if path.name.endswith(SUFFIXES) and "kernel" not in path.name]
    return sorted(
        (path for path in found if path.stat().st_size < 1.5e6), key=lambda path: path.stat().st_size
    )


def systems(shared_data):
    """Name, pattern, H with a damping as in a trial, and damping of each."""
    for path in graphs(shared_data):
        try:
            graph, _ = read_with_report(path)
            structure = Structure(graph.select())
        except GraphOptError:  # not a graph: trajectories, calibrations
            continue
        if not 0 < structure.dim < 60_000:
            continue
        solver = CpuBlockSolver(graph, structure, SolverOptions())
        solver.linearize()
        pattern = structure.pattern
        diagonal = diagonal_of(pattern, solver.values)
        yield path.name, pattern, solver.values, 1e-6 * np.maximum(diagonal, 1e-6 * diagonal.max())


def relative(matrix, x, b):
    """Backward error."""
    return np.abs(b - matrix @ x).max() / (abs(matrix).sum(axis=1).max() * np.abs(x).max() + np.abs(b).max())


@pytest.mark.slow
def test_all_solvers_agree_on_real_graphs(shared_data):
    """Residuals; the solutions follow from them."""
    device, count, on_device = shared_device("address"), 0, 0
    for name, pattern, values, damping in systems(shared_data):
        matrix = symmetric_matrix(pattern, values) + sp.diags(damping)
        b = np.random.default_rng(0).standard_normal(pattern.dim)
        for method in ("llt", "ldlt"):
            solver = SparseCholesky(pattern, method=method)
            assert solver.factorize(values, damping), (name, method)
            assert relative(matrix, solver.solve(b), b) < SMALLEST_RESIDUAL, (name, method)
        analysis = analyse(pattern)
        if analysis.flops < DEVICE_FLOPS and pattern.dim < 8000:
            own = DeviceCholesky(device, pattern, analysis=analysis)
            assert own.factorize(values, damping), name
            assert relative(matrix, own.solve(b), b) < SMALLEST_RESIDUAL, name
            on_device += 1
        count += 1
    assert count >= 5 and on_device >= 3
    assert device.messages == []


def test_cholmod_agrees(shared_data):
    """The smallest real graphs against CHOLMOD, where it is installed."""
    cholmod = pytest.importorskip("sksparse.cholmod")
    count = 0
    for name, pattern, values, damping in systems(shared_data):
        if pattern.dim > 20_000:
            continue
        b = np.random.default_rng(0).standard_normal(pattern.dim)
        solver = SparseCholesky(pattern)
        assert solver.factorize(values, damping), name
        matrix = sp.csc_matrix(symmetric_matrix(pattern, values) + sp.diags(damping))
        expected = cholmod.cholesky(matrix)(b)
        assert relative(matrix, expected, b) < SMALLEST_RESIDUAL
        assert np.abs(solver.solve(b) - expected).max() < 1e-5 * np.abs(expected).max(), name
        count += 1
        if count == 6:
            return
    assert count >= 3
