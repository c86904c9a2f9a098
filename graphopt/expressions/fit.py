"""Levenberg-Marquardt for every parameter set of every expression: formulas in native/src/batch/fit.h."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from graphopt.errors import OptionError
from graphopt.expressions.arguments import ParameterSets, lengths_of, parameter_sets, points_of
from graphopt.expressions.batch import Expression, ExpressionBatch, batch_of, interruptible


class FitStatus(IntEnum):
    """Why the search from one start ended."""

    CONVERGED = 0
    """A tolerance was met."""
    MAX_ITERATIONS = 1
    """The parameters may still be improving."""
    NON_FINITE = 2
    """At the start a value or a derivative is NaN or infinite; the parameters are the start."""
    NO_DECREASE = 3
    """No step from here leads to a smaller, finite sum, yet no tolerance is met."""


@dataclass(frozen=True)
class BatchFit:
    """Results of `fit_batch`: lists with an array per expression where numbers of sets differ."""

    parameters: list[np.ndarray]
    """Per expression ([num_sets,] num_parameters), as long as its start."""
    sum_of_squares: Any
    """(num_expressions[, num_sets]) float64 at these parameters; NaN where not finite at the start."""
    status: Any
    """(num_expressions[, num_sets]) int8, see FitStatus."""
    num_iterations: Any
    """(num_expressions[, num_sets]) int32: steps tried."""
    best: np.ndarray
    """(num_expressions,) int64: the set with the smallest sum among those that `is_usable`; -1: none is."""

    @property
    def is_usable(self) -> Any:
        """True where a fit converged, or ran out of iterations on its way."""
        if isinstance(self.status, list):
            return [_is_usable(status) for status in self.status]
        return _is_usable(self.status)


def _is_usable(status: np.ndarray) -> np.ndarray:
    return status <= FitStatus.MAX_ITERATIONS


def fit_batch(
    expressions: Sequence[Expression] | ExpressionBatch,
    data: Any,
    target: Any,
    start: Any,
    *,
    variables: Sequence[str] | None = None,
    device: str = "cpu",
    max_num_iterations: int = 100,
    function_tolerance: float = 1e-8,
    parameter_tolerance: float = 1e-8,
    gradient_tolerance: float = 1e-8,
) -> BatchFit:
    """Minimise sum_i (f(x_i, p) - y_i)^2 over p, for every expression f and from every start.

    data, `start` (as `parameters`): see `evaluate_batch`. target: (num_points,), or None where the
    expressions are residuals themselves. max_num_iterations: steps tried. Tolerances: relative decrease of
    the sum, relative length of a step, cosine of the angle between the residual and a column of the Jacobian.

    device: "cpu" (by all threads), or "vulkan", "vulkan:1", ...: an iteration of all fits is one submission.

    A fit that fails is marked in `status`, and never the `best` one. Raises ExpressionError, ShapeError,
    OptionError, DeviceError.
    """
    tolerances = function_tolerance, parameter_tolerance, gradient_tolerance
    if max_num_iterations < 0 or not all(0.0 <= t < 1.0 for t in tolerances):
        raise OptionError(
            f"max_num_iterations is {max_num_iterations}, the tolerances are {tolerances}; expected >= 0, "
            "and numbers in [0, 1)."
        )
    points = points_of(data, target)
    batch = batch_of(expressions, len(points.data), variables, lengths_of(start, len(expressions)))
    sets = parameter_sets(start, batch.num_parameters, "start")
    found = sets.values.copy()
    sums, status = np.empty(sets.total), np.empty(sets.total, np.int8)
    iterations = np.empty(sets.total, np.int32)
    if device == "cpu":
        with interruptible():
            batch.native.fit(
                points.data, points.num_points, points.target, sets.values, sets.num_sets, sets.strides,
                max_num_iterations, tolerances, found, sums, status, iterations,
            )  # fmt: skip
    else:
        from graphopt.expressions.fit_on_device import fit_on_device

        results = found, sums, status, iterations
        fit_on_device(device, batch, points, sets, max_num_iterations, tolerances, results)
    return BatchFit(
        _split(found, sets),
        sets.shaped(sums),
        sets.shaped(status),
        sets.shaped(iterations),
        _best(sums, status, sets),
    )


def _split(values: np.ndarray, sets: ParameterSets) -> list[np.ndarray]:
    sizes = sets.num_sets * sets.strides
    parts = np.split(values, np.cumsum(sizes)[:-1]) if len(sizes) else []
    if sets.single:
        return parts
    return [
        part.reshape(num, length)
        for part, num, length in zip(parts, sets.num_sets.tolist(), sets.strides.tolist(), strict=True)
    ]


def _best(sums: np.ndarray, status: np.ndarray, sets: ParameterSets) -> np.ndarray:
    costs = np.where(_is_usable(status), sums, np.inf)
    first = np.cumsum(sets.num_sets) - sets.num_sets
    best = np.full(len(sets.num_sets), -1, np.int64)
    for e in np.flatnonzero(sets.num_sets).tolist():
        of = costs[first[e] : first[e] + sets.num_sets[e]]
        k = int(np.argmin(of))
        best[e] = k if np.isfinite(of[k]) else -1
    return best
