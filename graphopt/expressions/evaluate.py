"""Values of many expressions at many points for many parameter sets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphopt.errors import ShapeError
from graphopt.expressions.arguments import ParameterSets, Points, lengths_of, parameter_sets, points_of
from graphopt.expressions.batch import Expression, ExpressionBatch, batch_of, interruptible


def evaluate_batch(
    expressions: Sequence[Expression] | ExpressionBatch,
    data: Any,
    parameters: Any = None,
    target: Any = None,
    *,
    variables: Sequence[str] | None = None,
    device: str = "cpu",
    out: np.ndarray | None = None,
) -> Any:
    """Evaluate all expressions at all points for all parameter sets.

    data: (num_points, num_variables); float32 computes in float32, everything else in float64.
    parameters: one array ([num_sets,] num_parameters) per expression, or all in one array, expressions in
    front; None where there are none. A set may be longer than the expression needs.
    target: (num_points,); with it the result is the sum of (value - target)^2 over the points.

    Returns (num_expressions, num_sets, num_points) in the data's type, or with a target float64
    (num_expressions, num_sets); without the axis num_sets if `parameters` has none, and one array per
    expression where num_sets differ. `out`: an array of that shape and type to write to. Values that do not
    exist are NaN or infinite as in numpy; sums with one of them are not finite.

    device: "cpu" (by all threads), or "vulkan", "vulkan:1", ...: one submission for all; sums of float32 data
    are then carried in pairs of float32.

    Raises ExpressionError (texts that cannot be read, all of them), ShapeError, DeviceError.
    """
    points = points_of(data, target)
    batch = batch_of(expressions, len(points.data), variables, lengths_of(parameters, len(expressions)))
    sets = parameter_sets(parameters, batch.num_parameters, "parameters")
    rows = _result_rows(points, sets, out)
    if device == "cpu":
        with interruptible():
            batch.native.evaluate(
                points.data, points.num_points, points.target, sets.values, sets.num_sets, sets.strides, rows
            )
    else:
        from graphopt.expressions.on_device import evaluate_on_device

        evaluate_on_device(device, batch, points, sets, rows)
    return sets.shaped(rows) if out is None else out


def _result_rows(points: Points, sets: ParameterSets, out: np.ndarray | None) -> np.ndarray:
    """Where the results go: (all sets,) or (all sets, num_points)."""
    shape = (sets.total,) if points.target is not None else (sets.total, points.num_points)
    dtype = np.dtype(np.float64) if points.target is not None else points.data.dtype
    if out is None:
        return np.empty(shape, dtype)
    if sets.single or (sets.num_sets == sets.num_sets[:1]).all():
        num_sets = () if sets.single else (int(sets.num_sets[0]),)
        expected = (len(sets.num_sets), *num_sets, *shape[1:])
        fits = out.shape == expected and out.dtype == dtype and out.flags.c_contiguous and out.flags.writeable
        if fits:
            return out.reshape(shape)
        raise ShapeError(
            f"out is {out.dtype} of shape {out.shape}, expected a writeable contiguous {dtype} of shape "
            f"{expected}."
        )
    raise ShapeError("out cannot take results of expressions with different numbers of sets; leave it out.")
