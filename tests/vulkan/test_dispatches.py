"""An iteration of conjugate gradients is three dispatches, the same ones however their work is cut."""

from __future__ import annotations

import numpy as np
import pytest
from vulkan_devices import shared_device
from vulkan_graphs import bundle_adjustment

from graphopt.linear.options import SolverOptions
from graphopt.problem.structure import Structure
from graphopt.solver.trial import Damping
from graphopt.vulkan.kernels import products
from graphopt.vulkan.plan.configuration import Configuration
from graphopt.vulkan.program import Program
from graphopt.vulkan.solver import create

DAMPING = Damping(1e-3, True, 1e-6, 1e32)


def solver_of(graph, schur="implicit", schedule="matrix-free", precision="double", access="address"):
    """A solver of a graph with conjugate gradients, linearised."""
    configuration = Configuration("pcg", schur, tolerance=1e-12)
    options = SolverOptions("vulkan", "pcg", schur, precision, schedule=schedule)
    solver = create(
        graph,
        Structure(graph.select()),
        options,
        device=shared_device(access),
        configuration=configuration,
    )
    solver.linearize()
    return solver


def dispatches_of(solver):
    """Of two iterations: launches, and those of finish_product."""
    system = solver.system
    system.wait_prepared()
    program = Program(system.context)
    system.iterations.pcg.record_pair(program, system.reduction.record_product)
    return [command for name, command in program.commands if name == "launch"]


@pytest.mark.parametrize(
    ("schur", "schedule"),
    [("implicit", "matrix-free"), ("implicit", "jacobians"), ("explicit", "blocks")],
)
@pytest.mark.parametrize("precision", ["double", "mixed"])
def test_an_iteration_is_three_dispatches(schur, schedule, precision):
    """Cameras with many edges each: two products, whose second one ends with d and q, and the vectors."""
    solver = solver_of(bundle_adjustment(num_points=120), schur, schedule, precision)
    assert len(dispatches_of(solver)) == 2 * 3


def test_cameras_with_few_edges_take_four():
    """Their sums come from tiles, which leave the rest to a kernel over rows."""
    assert len(dispatches_of(solver_of(bundle_adjustment()))) == 2 * 4


def step_of(solver):
    """dx and iterations of a trial."""
    assert solver.trial(DAMPING).solved
    return solver.dx.copy(), solver.system.outcome.iterations


@pytest.mark.parametrize("access", ["address", "storage"])
@pytest.mark.parametrize("precision", ["double", "mixed"])
def test_the_kernel_of_a_product_ends_it_as_rows_do(monkeypatch, precision, access):
    """Up to rounding; hundreds of rows, so that several workgroups wait for the last one."""
    graph = bundle_adjustment(num_cameras=60, num_points=120)
    ended, iterations = step_of(solver_of(graph.copy(), precision=precision, access=access))
    again, same = step_of(solver_of(graph.copy(), precision=precision, access=access))
    assert np.array_equal(ended, again) and iterations == same
    monkeypatch.setattr(products.EdgeProducts, "can_end", False)
    apart, others = step_of(solver_of(graph.copy(), precision=precision, access=access))
    tolerance = 1e-9 if precision == "double" else 1e-2
    assert np.linalg.norm(ended - apart) < tolerance * np.linalg.norm(apart)
    assert iterations > 8 and abs(iterations - others) <= (1 if precision == "double" else others // 4)
