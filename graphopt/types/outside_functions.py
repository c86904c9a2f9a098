"""Functions of arrays that evaluate an edge type: a network, a renderer, a simulator (`types.outside`)."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from graphopt.errors import ShapeError
from graphopt.types.signature import Residual

Evaluate = Callable[..., Any]
Linearize = Callable[..., "tuple[Any, Sequence[Any]]"]
_STEP = 1e-5
"""Of central differences by stored numbers, beside their size where that is above 1."""


class Library(Protocol):
    """Arrays of another library on a CUDA device: float64, as `Outside` takes them."""

    @property
    def functions(self) -> Mapping[str, Callable[..., Any]]:
        """By operation of `symbolic.ops`, those without images."""
        ...

    def einsum(self, subscripts: str, *arrays: Any) -> Any:
        """As of numpy."""
        ...

    def concatenate(self, arrays: Sequence[Any]) -> Any:
        """Arrays (n,) after one another."""
        ...

    def stack(self, arrays: Sequence[Any]) -> Any:
        """Arrays (n,) as columns (n, k)."""
        ...

    def ordinal(self) -> int | None:
        """Of the device, None: it is none of CUDA's."""
        ...

    def active(self) -> AbstractContextManager[Any]:
        """Within it the library computes in float64, and records no gradients."""
        ...

    def upload(self, array: Any) -> Any:
        """An array of numpy's (float64, int64, bool), or a number, there."""
        ...

    def of(self, array: Any) -> Any:
        """A `CudaArray` there, uncopied."""
        ...

    def numbers(self, array: Any) -> Any:
        """`CudaNumbers` of an array."""
        ...


@dataclass(frozen=True, eq=False)
class OnDevice:
    """The functions of an edge type on arrays of a library."""

    library: Library
    evaluate: Evaluate
    linearize: Linearize


@dataclass(frozen=True, eq=False)
class Outside:
    """The two functions of an edge type."""

    evaluate: Evaluate
    linearize: Linearize | None
    """None: central differences of `evaluate`."""
    on_device: OnDevice | None = None
    """The same where they compute; without the way through numpy."""

    def residual_of(self, kind: Residual, values: Sequence[np.ndarray]) -> np.ndarray:
        """(m, residual_dim), checked."""
        given = self._given(kind, values)
        return _checked(kind, "residual", self.evaluate(*given), (len(given[0]), kind.residual_dim))

    def linearize_of(
        self, kind: Residual, values: Sequence[np.ndarray]
    ) -> tuple[np.ndarray, list[np.ndarray]]:
        """Residuals, and per vertex (m, residual_dim, storage_dim), checked."""
        given = self._given(kind, values)
        count = len(given[0])
        if self.linearize is None:
            return self.residual_of(kind, values), _differences(self, kind, values)
        residual, blocks = self.linearize(*given)
        check_linearized(kind, count, residual, blocks)
        return np.asarray(residual, np.float64), [np.asarray(block, np.float64) for block in blocks]

    def _given(self, kind: Residual, values: Sequence[np.ndarray]) -> list[np.ndarray]:
        taken = values if kind.measurement_dim else values[:-1]
        return [np.ascontiguousarray(value, np.float64) for value in taken]


def operations(library: Any, as_float64: Callable[[Any], Any]) -> dict[str, Callable[..., Any]]:
    """`Library.functions` of a module like numpy; as_float64: makes numbers of an array of bool."""

    def truth(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *arguments: as_float64(function(*arguments))

    names = "sqrt sin cos tan exp log sign floor".split()
    return {
        **{name: getattr(library, name) for name in names},
        "add": operator.add,
        "sub": operator.sub,
        "mul": operator.mul,
        "neg": operator.neg,
        "abs": operator.abs,
        "recip": lambda x: 1.0 / x,
        "asin": library.arcsin,
        "acos": library.arccos,
        "atan": library.arctan,
        "atan2": library.arctan2,
        "pow": operator.pow,
        "min": library.minimum,
        "max": library.maximum,
        "lt": truth(operator.lt),
        "le": truth(operator.le),
        "eq": truth(operator.eq),
        "and": truth(library.logical_and),
        "or": truth(library.logical_or),
        "not": truth(library.logical_not),
        "select": lambda condition, x, y: library.where(condition != 0, x, y),
    }


def check_linearized(kind: Residual, count: int, residual: Any, blocks: Sequence[Any]) -> None:
    """`ShapeError` for what `linearize` returned of so many edges, arrays of any library."""
    check_shape(kind, "residual", residual, (count, kind.residual_dim))
    if len(blocks) != len(kind.vertices):
        raise ShapeError(
            f"{kind.tag}: linearize returned {len(blocks)} Jacobians for {len(kind.vertices)} vertices."
        )
    for slot, (block, vertex) in enumerate(zip(blocks, kind.vertices, strict=True)):
        check_shape(kind, f"Jacobian of vertex {slot}", block, (count, kind.residual_dim, vertex.storage_dim))


def check_shape(kind: Residual, what: str, found: Any, shape: tuple[int, ...]) -> None:
    """`ShapeError` for an array of any library of another shape."""
    if tuple(np.shape(found)) != shape:
        raise ShapeError(f"{kind.tag}: the {what} has shape {tuple(np.shape(found))}, expected {shape}.")


def _checked(kind: Residual, what: str, found: Any, shape: tuple[int, ...]) -> np.ndarray:
    check_shape(kind, what, found, shape)
    return np.asarray(found, np.float64)


def _differences(outside: Outside, kind: Residual, values: Sequence[np.ndarray]) -> list[np.ndarray]:
    blocks = []
    for slot, vertex in enumerate(kind.vertices):
        columns = []
        for number in range(vertex.storage_dim):
            step = _STEP * np.maximum(np.abs(values[slot][:, number]), 1.0)
            ends = []
            for sign in (1.0, -1.0):
                moved = [np.array(value, np.float64) for value in values]
                moved[slot][:, number] += sign * step
                ends.append(outside.residual_of(kind, moved))
            columns.append((ends[0] - ends[1]) / (2.0 * step[:, None]))
        blocks.append(np.stack(columns, axis=-1))
    return blocks
