"""Arrays of evaluate_batch and fit_batch: checked, and in the layout of the native code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphopt.errors import ShapeError

_ALIGNMENT = 64
"""Bytes of the longest vectors."""


@dataclass(frozen=True)
class Points:
    """A data matrix by columns, and what the expressions are compared with."""

    data: np.ndarray
    """(num_variables, padded points) float32 or float64."""
    target: np.ndarray | None
    """(padded points,) of the same type."""
    num_points: int


def points_of(data: Any, target: Any) -> Points:
    """Check `data` (num_points, num_variables) and `target` (num_points,); what is not float32 is float64."""
    matrix = np.asarray(data)
    dtype = np.dtype(np.float32) if matrix.dtype == np.float32 else np.dtype(np.float64)
    matrix = _real(matrix, "data", dtype)
    if matrix.ndim == 1:
        matrix = matrix[:, None]
    if matrix.ndim != 2 or len(matrix) == 0:
        raise ShapeError(
            f"data has shape {matrix.shape}, expected (num_points, num_variables), num_points > 0."
        )
    requested = None
    if target is not None:
        requested = _real(np.asarray(target), "target", dtype)
        if requested.shape != (len(matrix),):
            raise ShapeError(
                f"target has shape {requested.shape}, expected ({len(matrix)},): one number per row of data."
            )
        requested = _padded(requested)
    return Points(_padded(matrix.T), requested, len(matrix))


def _real(array: np.ndarray, name: str, dtype: np.dtype) -> np.ndarray:
    if array.dtype.kind not in "fiub":
        raise ShapeError(f"{name} is an array of {array.dtype}, expected real numbers.")
    return array.astype(dtype, copy=False)


def _padded(array: np.ndarray) -> np.ndarray:
    """Aligned C-contiguous copy whose last axis repeats its last entry up to whole vectors."""
    lanes = _ALIGNMENT // array.itemsize
    length = -(-array.shape[-1] // lanes) * lanes
    shape = (*array.shape[:-1], length)
    memory = np.empty(int(np.prod(shape)) * array.itemsize + _ALIGNMENT, np.uint8)
    first = -memory.ctypes.data % _ALIGNMENT
    result = memory[first : first + memory.size - _ALIGNMENT].view(array.dtype).reshape(shape)
    result[..., : array.shape[-1]] = array
    result[..., array.shape[-1] :] = array[..., -1:]
    return result


@dataclass(frozen=True)
class ParameterSets:
    """Parameter sets of all expressions behind each other, and how to give results their shape."""

    values: np.ndarray
    """(sum of num_sets * strides,) float64."""
    num_sets: np.ndarray
    """(num_expressions,) int64."""
    strides: np.ndarray
    """(num_expressions,) int64: length of a set."""
    single: bool
    """Each expression has one set, given without an axis for it."""

    @property
    def total(self) -> int:
        """Sets of all expressions."""
        return int(self.num_sets.sum())

    def shaped(self, rows: np.ndarray) -> Any:
        """Results (total, ...) as (num_expressions, num_sets, ...), or a list where num_sets differ."""
        if self.single:
            return rows
        if (self.num_sets == self.num_sets[:1]).all():
            num_sets = int(self.num_sets[0]) if len(self.num_sets) else 0
            return rows.reshape(len(self.num_sets), num_sets, *rows.shape[1:])
        return np.split(rows, np.cumsum(self.num_sets)[:-1])


def lengths_of(parameters: Any, num_expressions: int) -> list[int] | int:
    """Lengths of the parameter sets, before they are checked: functions are traced with these."""
    if parameters is None:
        return 0
    if isinstance(parameters, np.ndarray) and parameters.dtype != object:
        return int(parameters.shape[-1]) if parameters.ndim else 0
    lengths = [int(np.shape(p)[-1]) if np.ndim(p) else 0 for p in parameters]
    return lengths if len(lengths) == num_expressions else 0


def parameter_sets(parameters: Any, num_parameters: np.ndarray, name: str) -> ParameterSets:
    """Check one array (expressions, [sets,] parameters) or one array ([sets,] parameters) per expression."""
    count = len(num_parameters)
    if parameters is None:
        parameters = np.zeros((count, 0))
    if not isinstance(parameters, np.ndarray) or parameters.dtype == object:
        parameters = list(parameters)
    if len(parameters) != count:
        raise ShapeError(f"{name} has {len(parameters)} entries, expected {count}: one per expression.")
    if isinstance(parameters, np.ndarray):
        return _from_array(parameters, num_parameters, name)
    return _from_list(parameters, num_parameters, name)


def _from_array(parameters: np.ndarray, num_parameters: np.ndarray, name: str) -> ParameterSets:
    if parameters.ndim not in (2, 3):
        raise ShapeError(
            f"{name} has shape {parameters.shape}, expected (expressions, parameters) or "
            "(expressions, sets, parameters)."
        )
    count, length = len(parameters), parameters.shape[-1]
    _check_lengths(np.full(count, length), num_parameters, name)
    values = _real(parameters, name, np.dtype(np.float64))
    num_sets = 1 if parameters.ndim == 2 else parameters.shape[1]
    return ParameterSets(
        np.ascontiguousarray(values).ravel(),
        np.full(count, num_sets, np.int64),
        np.full(count, length, np.int64),
        parameters.ndim == 2,
    )


def _from_list(parameters: Sequence[Any], num_parameters: np.ndarray, name: str) -> ParameterSets:
    arrays = [np.asarray(p, dtype=np.float64) for p in parameters]
    ndims = {array.ndim for array in arrays} or {1}
    if ndims not in ({1}, {2}):
        raise ShapeError(
            f"{name}: the entries have {sorted(ndims)} dimensions, expected (parameters,) in all or "
            "(sets, parameters) in all."
        )
    strides = np.array([array.shape[-1] for array in arrays], np.int64)
    _check_lengths(strides, num_parameters, name)
    single = ndims == {1}
    num_sets = np.array([1 if single else len(array) for array in arrays], np.int64)
    values = np.concatenate([array.ravel() for array in arrays]) if arrays else np.zeros(0)
    return ParameterSets(values, num_sets, strides, single)


def _check_lengths(lengths: np.ndarray, num_parameters: np.ndarray, name: str) -> None:
    wrong = np.flatnonzero(lengths < num_parameters)
    if len(wrong):
        k = int(wrong[0])
        raise ShapeError(
            f"{name}: the sets of expression {k} have {lengths[k]} numbers, expected at least "
            f"{num_parameters[k]}: it uses p{num_parameters[k]}."
        )
