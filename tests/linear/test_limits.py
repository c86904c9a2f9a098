"""Limits of the direct solvers: memory is asked for before it is taken; nearly singular systems work."""

from __future__ import annotations

import numpy as np
import pytest
from linear_problems import from_dense, make_pattern, spd_values
from vulkan_devices import shared_device

from graphopt.errors import SolverError
from graphopt.linear import DenseCholesky, SparseCholesky, memory
from graphopt.vulkan.cholesky import DeviceCholesky

CHAIN = [(k, k + 1) for k in range(99)]


def test_memory_is_asked_for_before(monkeypatch, tmp_path):
    """What is needed, what is there, and what would help; enough of it lets the factorisation begin."""
    pattern = make_pattern([6] * 100, CHAIN)
    solver = SparseCholesky(pattern)
    assert solver.factorize(spd_values(pattern, np.random.default_rng(0)))
    assert solver.required_bytes == pytest.approx(solver.memory_bytes, rel=0.25)
    (tmp_path / "meminfo").write_text("MemTotal: 64 kB\nMemAvailable: 40 kB\n")
    monkeypatch.setattr(memory, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(memory, "_WORTH_A_LOOK", 0)
    assert memory.available_bytes() == 40 << 10
    for make in (SparseCholesky, DenseCholesky):
        with pytest.raises(SolverError, match=r"0 MiB are available. Use linear_solver='pcg'"):
            make(pattern)
    for make, kilobytes in ((DenseCholesky, 1425), (SparseCholesky, 400000)):  # 4 * 600 * 608 bytes
        (tmp_path / "meminfo").write_text(f"MemAvailable: {kilobytes} kB\n")
        make(pattern)
    (tmp_path / "meminfo").write_text("MemAvailable: 1424 kB\n")
    with pytest.raises(SolverError, match="dense factor of 600 rows takes 1 MiB"):
        DenseCholesky(pattern)
    (tmp_path / "meminfo").write_text("MemAvailable: 400000 kB\n")
    monkeypatch.setattr(memory, "_CGROUP", tmp_path)
    (tmp_path / "memory.max").write_text("5000\n")
    (tmp_path / "memory.current").write_text("4000\n")
    (tmp_path / "memory.stat").write_text("anon 3000\nactive_file 300\ninactive_file 400\n")
    assert memory.available_bytes() == 1700
    (tmp_path / "memory.current").write_text("6000\n")
    assert memory.available_bytes() == 0
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.available_bytes() == 400000 << 10


@pytest.mark.parametrize("method", ["llt", "ldlt"])
@pytest.mark.parametrize("smallest", [1e-6, 1e-10, 1e-13])
def test_nearly_singular_systems(smallest, method):
    """A chain of springs that one weak one holds: solved with float64's residual, on CPU and device."""
    pattern = make_pattern([6] * 100, CHAIN)
    laplacian = 2.0 * np.eye(100) - np.eye(100, k=1) - np.eye(100, k=-1)
    laplacian[0, 0] = 1.0 + smallest
    laplacian[-1, -1] = 1.0
    rng = np.random.default_rng(0)
    coupling = rng.standard_normal((6, 6))
    dense = np.kron(laplacian, coupling @ coupling.T + np.eye(6))
    values, b = from_dense(pattern, dense), rng.standard_normal(600)
    solvers = [make(pattern, method=method) for make in (SparseCholesky, DenseCholesky)]
    solvers.append(DeviceCholesky(shared_device("address"), pattern, method=method))
    for solver in solvers:
        assert solver.factorize(values)
        x = solver.solve(b)
        assert np.abs(dense @ x - b).max() < 1e-14 * np.abs(dense).sum(axis=1).max() * np.abs(x).max()
