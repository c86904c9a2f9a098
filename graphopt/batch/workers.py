"""Native workers of a batch: each has the structure's linearizer and factorization for one thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphopt.batch.arrays import BatchArrays
from graphopt.cpu_kernels import kernels
from graphopt.errors import OptionError
from graphopt.linear.options import SolverOptions
from graphopt.linear.systems import choose_system
from graphopt.solver.cpu import make_linearizer
from graphopt.types.base import VertexType, working_vertex_type


@dataclass(frozen=True)
class _Estimates:
    """What `make_linearizer` wants of a vertex set."""

    type: VertexType
    array: np.ndarray


@dataclass(frozen=True)
class _Parameters:
    values: np.ndarray


def does_not_factorize(linear_solver: str) -> OptionError:
    """The error for a linear solver by iterations."""
    return OptionError(
        f"linear_solver '{linear_solver}' is not for optimize_batch, whose problems are "
        "factorized: use 'auto', 'dense' or 'cholesky', or optimize() for one large graph."
    )


class Workers:
    """As many as there are threads for the problems, on the same arrays."""

    device = "cpu"

    def __init__(self, arrays: BatchArrays, options: SolverOptions):
        self._arrays = arrays
        count = min(arrays.problems.count, kernels.num_threads())
        with kernels.Alone():
            self._workers = [self._worker(options) for _ in range(count)]

    def _worker(self, options: SolverOptions) -> Any:
        structure = self._arrays.structure
        estimates = [
            _Estimates(working_vertex_type(vertex_set.type), array[0].copy())
            for vertex_set, array in zip(structure.selection.vertex_sets, self._arrays.working, strict=True)
        ]
        sets = [
            _Parameters(each.look("values").copy()) for each in self._arrays.problems.graph.parameter_sets
        ]
        linearizer, _ = make_linearizer(sets, structure, estimates)  # type: ignore[arg-type]
        system = choose_system(structure, options)
        self.linear_solver = system.linear_solver
        if system.direct is None:
            raise does_not_factorize(system.linear_solver)
        arrays = np.zeros(structure.values_size), np.zeros(structure.dim), np.zeros(structure.dim)
        return kernels.BatchWorker(linearizer, *system.direct, *arrays, structure.pattern.diagonal_indices())

    def run(self, method: Any, rules: Any, covariances: Sequence[int], outcome: tuple) -> bool:
        """Optimize; the arrays have the results. False: it was stopped before the end."""
        arrays, structure, problems = self._arrays, self._arrays.structure, self._arrays.problems
        masks = arrays.masks()
        blocks = [(int(structure.offsets[k]), int(structure.dims[k])) for k in covariances]
        return kernels.run_batch(
            self._workers,
            method,
            rules,
            problems.count,
            list(enumerate(arrays.working)),
            list(problems.parameters.items()),
            arrays.data(masks),
            None if masks is None else arrays.unobserved(masks),
            blocks,
            outcome,
        )
