"""Jacobians beside central differences of the residual through oplus.

column j of a vertex' block:   (e(x oplus h d_j) - e(x oplus -h d_j)) / 2 h
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from graphopt.errors import ShapeError
from graphopt.symbolic.source import defining_line

if TYPE_CHECKING:
    from graphopt.types.base import EdgeType

Array = Any

STEP = 1e-5
"""h: differences are good to about 1e-10 of the residual's size."""
TOLERANCE = 1e-4
"""Of a column's largest entry: a mistake is larger."""
_ROUNDING = 1e-5  # of an edge's largest derivative: columns below are known less well by differences


def differences(
    error: Callable[[Sequence[np.ndarray]], np.ndarray], kinds: Sequence[Any], values: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """One (..., residual_dim, tangent_dim) array per vertex.

    error: values (..., dim) of vertices, parameters, measurement -> (..., residual_dim); kinds: vertex types.
    """
    blocks = []
    for slot, kind in enumerate(kinds):
        columns = []
        for direction in np.eye(kind.tangent_dim):
            ends = []
            for sign in (STEP, -STEP):
                moved = list(values)
                delta = np.broadcast_to(sign * direction, (*values[slot].shape[:-1], kind.tangent_dim))
                moved[slot] = np.asarray(kind.oplus(values[slot], delta), float)
                ends.append(np.asarray(error(moved), float))
            columns.append((ends[0] - ends[1]) / (2.0 * STEP))
        blocks.append(np.stack(columns, axis=-1))
    return blocks


def relative_errors(given: np.ndarray, expected: np.ndarray, largest: Array) -> np.ndarray:
    """(..., tangent_dim) largest error of each column beside the column's size; NaN: not known."""
    scale = np.maximum(np.abs(expected).max(axis=-2, initial=0.0), _ROUNDING * np.expand_dims(largest, -1))
    scale = np.where(scale > _ROUNDING, scale, 1.0)
    with np.errstate(invalid="ignore"):
        return np.abs(given - expected).max(axis=-2, initial=0.0) / scale


def largest_of(blocks: Sequence[np.ndarray]) -> np.ndarray:
    """(...,) largest derivative of each edge over all of its blocks; what is not finite counts as 0."""
    found = [np.nan_to_num(np.abs(block), posinf=0.0).max(axis=(-2, -1), initial=0.0) for block in blocks]
    return np.max(found, axis=0)


def refuse_wrong_jacobian(kind: EdgeType, samples: Sequence[np.ndarray]) -> None:
    """Compare a type's own Jacobian with the derivative at some edges, each a row of the samples.

    Raises `ShapeError` that names the first wrong column. Edges at which the residual's differences are not
    finite say nothing.
    """
    assert kind.jacobian is not None
    wraps = [*(slot_type.wrap for slot_type in (*kind.vertices, *kind.parameters)), kind.wrap_measurement]

    def arguments(values: Sequence[np.ndarray]) -> list[Any]:
        return [wrap(value) for wrap, value in zip(wraps, values, strict=True)]

    with np.errstate(all="ignore"):
        for row in range(len(samples[0])):
            values = [np.array(sample[row]) for sample in samples]
            expected = differences(lambda v: kind.residual(*arguments(v)), kind.vertices, values)
            given = kind.jacobian(*arguments(values))
            given = given if isinstance(given, tuple | list) else (given,)
            _compare(kind, given, expected)


def _compare(kind: EdgeType, given: Sequence[Any], expected: list[np.ndarray]) -> None:
    what = f"the jacobian of edge type {kind.name}"
    way_out = (
        f"\n  {defining_line(kind.jacobian)}\nLeave jacobian out and it is derived from the residual, or "
        "pass check=False if it is meant not to be the derivative."
    )
    if len(given) != len(expected):
        raise ShapeError(
            f"{what} returns {len(given)} blocks, expected one per vertex, {len(expected)}.{way_out}"
        )
    for slot, (block, right) in enumerate(zip(given, expected, strict=True)):
        block = np.asarray(block, float)
        if block.shape != right.shape:
            raise ShapeError(
                f"{what} returns block {slot} of shape {block.shape}, expected (residual_dim, tangent_dim) = "
                f"{right.shape}.{way_out}"
            )
        wrong = np.isfinite(right).all(axis=0) & ~(
            relative_errors(block, right, largest_of(expected)) <= TOLERANCE
        )
        if wrong.any():
            column = int(np.argmax(wrong))
            vertex = kind.vertices[slot]
            raise ShapeError(
                f"{what} is not the derivative of its residual: column {column} of block {slot} "
                f"(vertex {slot}, {vertex.name}) is {_numbers(block[:, column])}, by differences through "
                f"oplus it is {_numbers(right[:, column])}.{way_out}"
            )


def _numbers(column: np.ndarray) -> str:
    return "[" + ", ".join(f"{x:.6g}" for x in column[:8]) + (", ...]" if len(column) > 8 else "]")
