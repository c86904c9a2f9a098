"""Exact steps of ranks are factorized on the GPU of one of them: chi2 as on one rank, the same bits again."""

import numpy as np
import pytest
from rank_programs import adjustment, sphere

import graphopt
from graphopt.device.shared import shared_device
from graphopt.distributed.communicator import run_as_threads
from graphopt.distributed.factor import SpokenFactor
from graphopt.linear import BlockPattern
from graphopt.vulkan.cholesky import DeviceCholesky

EXACT = {"method": "lm", "max_iterations": 4, "linear_solver": "cholesky"}


@pytest.mark.parametrize("make", [adjustment, sphere])
@pytest.mark.parametrize("device", ["vulkan:0,vulkan:0", "cpu,vulkan:0"])
def test_chi2_per_iteration_is_that_of_one_rank(make, device):
    """To 1e-9; whichever rank has the device."""
    alone, graph, again = make(), make(), make()
    expected = graphopt.optimize(alone, device="cpu", **EXACT)
    found = graphopt.distributed.optimize(graph, None, device=device, precision="double", **EXACT)
    assert found.factorized_on == "device"
    np.testing.assert_allclose(
        [iteration.chi2 for iteration in found.iterations],
        [iteration.chi2 for iteration in expected.iterations],
        rtol=1e-9,
    )
    repeated = graphopt.distributed.optimize(again, None, device=device, precision="double", **EXACT)
    assert [iteration.chi2 for iteration in repeated.iterations] == [
        iteration.chi2 for iteration in found.iterations
    ]
    for vertices, other in zip(graph.vertex_sets, again.vertex_sets, strict=True):
        np.testing.assert_array_equal(vertices.estimate, other.estimate)


def test_auto_leaves_it_to_the_cpu_where_the_device_is_software():
    """As on one device."""
    if shared_device(None).info.get("kind") != "cpu":
        pytest.skip("a GPU")
    found = graphopt.distributed.optimize(sphere(), None, "gn", 2, device="vulkan:0,vulkan:0")
    assert found.factorized_on == "cpu"


def test_all_ranks_hear_of_what_is_not_definite():
    """And of the solution of what is."""
    pattern = BlockPattern(np.array([2], np.int32), np.array([0, 1]), np.array([0], np.int32))

    def solved(comm):
        solver = DeviceCholesky(shared_device(None), pattern) if comm.rank == 1 else None
        factor = SpokenFactor(comm, solver, 2)
        b, none = np.array([2.0, 8.0]), np.zeros(2)
        bad = factor.solve(np.array([1.0, 0.0, 0.0, -1.0]), none, b)
        return bad, factor.solve(np.array([1.0, 0.0, 0.0, 3.0]), np.ones(2), b)

    for bad, x in run_as_threads(3, solved):
        assert bad is None and x is not None
        np.testing.assert_allclose(x, [1.0, 2.0])
