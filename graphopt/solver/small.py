"""The native loop for small systems: which block solvers can have it.

A system of a few vertices is linearized and solved in microseconds, less than Python needs between the two.
`native_loop` hands such a block solver to `kernels.SmallLoop`, which runs all iterations of g2o's algorithms
on the same arrays with the same numbers.
"""

from __future__ import annotations

from typing import Any

from graphopt.cpu_kernels import kernels
from graphopt.solver.cpu import SMALL_DIM, CpuBlockSolver

LARGEST_DIM = SMALL_DIM
"""Scalars of dx; beyond, Python's share is small."""


def native_loop(solver: Any, with_product: bool) -> Any:
    """A `kernels.SmallLoop` over the arrays of a block solver, None if it has to be driven from Python.

    `with_product`: the algorithm multiplies by H. The block solver keeps it for the next time.
    """
    if type(solver) is not CpuBlockSolver or solver.dim > LARGEST_DIM:
        return None
    if with_product not in solver.small_loops:
        solver.small_loops[with_product] = _native_loop(solver, with_product)
    return solver.small_loops[with_product]


def _native_loop(solver: CpuBlockSolver, with_product: bool) -> Any:
    direct = solver._system.direct
    if direct is None or direct[0] is not None:
        return None
    return kernels.SmallLoop(
        solver._linearizer,
        direct[1],
        solver._symmetric_product() if with_product else None,
        solver.values,
        solver._b,
        solver._dx,
        solver._diagonal,
    )
