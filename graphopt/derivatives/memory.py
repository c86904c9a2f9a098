"""Where the arrays of a solve's caller are: on the host, or where a library's CUDA and the kernels meet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from graphopt.batch.resident import Sharing
from graphopt.derivatives.batched import BatchOptimum
from graphopt.derivatives.refine import Doubts
from graphopt.derivatives.settings import Solved
from graphopt.foreign_arrays import on_cuda


class CallersLibrary(Protocol):
    """What is asked of a library's arrays."""

    def ordinal(self, array: Any) -> int | None:
        """CUDA's device of a float64 array, None of others."""
        ...

    def dense(self, array: Any) -> Any:
        """Without gaps, for `on_cuda`."""
        ...

    def is_finite(self, array: Any) -> bool:
        """All numbers are."""
        ...

    def host(self, array: Any) -> np.ndarray:
        """As float64."""
        ...


class Memory:
    """Solves and vector-Jacobian products of a problem, by arrays of a library."""

    def __init__(self, problem: Any, arrays: Sequence[Any], library: CallersLibrary):
        """Of a batch on the GPU of all arrays, if they are float64, numbers stay there."""
        self._problem, self._library = problem, library
        self._sharing: Sharing | None = None
        ordinals = {library.ordinal(array) for array in arrays}
        ordinal = ordinals.pop()
        if not ordinals and ordinal is not None and isinstance(problem, BatchOptimum):
            self._sharing = problem.sharing(ordinal)

    def solve(self, arrays: Sequence[Any]) -> tuple[Solved, list[np.ndarray] | None]:
        """See `OptimumProblem.solve`; and the inputs, if they have come to the host."""
        if self._sharing is None or not all(map(self._library.is_finite, arrays)):
            values = [self._library.host(array) for array in arrays]
            return self._problem.solve(values), values
        return self._problem.solve(self._taken(arrays), self._sharing), None

    def vjp(
        self,
        arrays: Sequence[Any],
        estimates: Sequence[Any],
        host: tuple[Sequence[np.ndarray], Sequence[np.ndarray]] | None,
        doubts: Doubts,
        cotangents: Sequence[Any],
    ) -> list[Any]:
        """See `OptimumProblem.vjp`; host: arrays and estimates, if they have been there."""
        if self._sharing is None:
            given = host or (self._taken(arrays), self._taken(estimates))
            return self._problem.vjp(*given, doubts, self._taken(cotangents))
        arguments = self._taken(arrays), self._taken(estimates), doubts, self._taken(cotangents)
        return self._problem.vjp(*arguments, self._sharing)

    def _taken(self, arrays: Sequence[Any]) -> list[Any]:
        return [None if array is None else self._array(array) for array in arrays]

    def _array(self, array: Any) -> Any:
        found = None
        if self._sharing is not None:
            numbers = on_cuda(self._library.dense(array))
            found = None if numbers is None else self._sharing.resident(numbers)
        return self._library.host(array) if found is None else found
