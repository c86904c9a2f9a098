"""`linear_solver="cholesky"` on a device factorizes on the device, in the trial's submission, and says so.

The answers are those of the CPU, for pose graphs (all of H) and bundle adjustment (the Schur complement), in
both precisions, also where a trial's matrix is not positive definite.
"""

from __future__ import annotations

import numpy as np
import pytest
from linear_problems import make_pattern, spd_values, to_dense
from vulkan_devices import shared_device

import graphopt
from graphopt.evaluate import datasets
from graphopt.linear import BlockPattern
from graphopt.vulkan.cholesky import TrialFactorization, analyse, choice, factorization_on_device
from graphopt.vulkan.data.layout import BlockLayout
from graphopt.vulkan.kernels.system import DampedSystem
from graphopt.vulkan.plan.configuration import Configuration
from graphopt.vulkan.program import Context, Program

GRAPHS = {
    "sphere": lambda: datasets.sphere(8, 8),
    "manhattan": lambda: datasets.manhattan(150),
    "bundle": lambda: datasets.ba(6, 80),
}


@pytest.mark.parametrize("precision", ["double", "mixed"])
@pytest.mark.parametrize("solver", ["cholesky", "dense"])
@pytest.mark.parametrize("name", GRAPHS)
def test_same_answer_as_the_cpu(name, solver, precision):
    """Final chi2 and iterations; where it was factorized is in the summary, its report and its JSON."""
    expected = graphopt.optimize(GRAPHS[name](), device="cpu", linear_solver=solver)
    summary = graphopt.optimize(GRAPHS[name](), device="vulkan", linear_solver=solver, precision=precision)
    assert summary.factorized_on == summary.to_dict()["factorized_on"] == "device"
    assert f"linear solver {solver} on the device" in summary.full_report()
    assert expected.factorized_on == "cpu"
    assert summary.final_chi2 == pytest.approx(
        expected.final_chi2, rel=1e-9 if precision == "double" else 1e-6
    )
    assert len(summary.iterations) == len(expected.iterations)


def test_pcg_factorizes_nowhere():
    """Conjugate gradients have no factor."""
    summary = graphopt.optimize(GRAPHS["bundle"](), device="vulkan", linear_solver="pcg")
    assert summary.factorized_on == ""


@pytest.mark.parametrize("precision", ["double", "mixed"])
def test_an_indefinite_matrix_is_told(precision):
    """`solve` returns False for this damping, and solves with a larger one."""
    layout = BlockLayout(np.array([2, 2]), np.array([0, 1, 3]), np.array([0, 0, 1]), 2)
    context = Context(shared_device("address"), precision)
    system = DampedSystem(context, layout, Configuration(linear_solver="cholesky"))
    dense = np.kron([[1.0, 2.0], [2.0, 1.0]], np.eye(2))
    blocks = (dense[:2, :2], dense[:2, 2:], dense[2:, 2:])
    system.values[:] = np.concatenate([block.ravel() for block in blocks])
    system.b[:] = [1.0, 2.0, 3.0, 4.0]
    system.upload()
    assert not system.solve(0.5)
    assert system.factorized_on == "device"
    assert system.method.factorization.failed_block is not None
    assert system.solve(3.0)
    expected = np.linalg.solve(dense + 3.0 * np.eye(4), system.b)
    assert system.dx == pytest.approx(expected, rel=1e-12 if precision == "double" else 1e-6)


def test_long_factorizations_are_cut():
    """A driver ends submissions that take too long: many operations go into several of them."""
    context = Context(shared_device("address"), "double")
    context.submission_bytes = 1e6
    pattern = make_pattern([10] * 40, [(i, j) for i in range(40) for j in range(i)])
    values, b = spd_values(pattern, np.random.default_rng(0)), np.ones(400)
    trial = TrialFactorization(context, pattern)
    x, program = context.reals(400), Program(context).phase("linear_solver")
    trial.record_clear(program)
    trial.record(program.barrier(), context.device.upload(values), None, context.device.upload(b), x)
    assert len(program.recorded) > 3
    program.run()
    residual = to_dense(pattern, values) @ context.download(x, 400) - b
    assert np.abs(residual).max() < 1e-12


def test_auto_asks_the_cost_model(monkeypatch):
    """The faster of device and CPU; a software driver is never the faster one."""
    device = shared_device("address")
    edges = np.arange(1, 200)
    layout = BlockLayout(
        np.full(200, 3), np.concatenate([[0, 1], 1 + 2 * edges]),
        np.concatenate([[0], np.stack([edges - 1, edges], axis=1).ravel()]), 200,
    )  # fmt: skip
    context = Context(device, "double")
    assert factorization_on_device(context, layout, "cholesky", is_chosen=True) is None
    assert factorization_on_device(context, layout, "cholesky", is_chosen=False) is not None
    analysis = analyse(BlockPattern(layout.dims, layout.col_ptr, layout.row_idx))
    monkeypatch.setitem(device.info, "kind", "discrete")
    for cpu, taken in ((1e-9, False), (1e9, True)):
        monkeypatch.setattr(choice, "cpu_seconds", lambda analysis, seconds=cpu: seconds)
        assert choice.is_faster_on_device(device, analysis) is taken
        found = factorization_on_device(context, layout, "cholesky", is_chosen=True)
        assert (found is not None) is taken
