"""Functions of arrays that evaluate an edge type: a network, a renderer, a simulator (`types.outside`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphopt.errors import ShapeError
from graphopt.types.signature import Residual

Evaluate = Callable[..., Any]
Linearize = Callable[..., "tuple[Any, Sequence[Any]]"]
_STEP = 1e-5
"""Of central differences by stored numbers, beside their size where that is above 1."""


@dataclass(frozen=True, eq=False)
class Outside:
    """The two functions of an edge type."""

    evaluate: Evaluate
    linearize: Linearize | None
    """None: central differences of `evaluate`."""

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
        if len(blocks) != len(kind.vertices):
            raise ShapeError(
                f"{kind.tag}: linearize returned {len(blocks)} Jacobians for {len(kind.vertices)} vertices."
            )
        shapes = [(count, kind.residual_dim, vertex.storage_dim) for vertex in kind.vertices]
        return _checked(kind, "residual", residual, (count, kind.residual_dim)), [
            _checked(kind, f"Jacobian of vertex {slot}", block, shape)
            for slot, (block, shape) in enumerate(zip(blocks, shapes, strict=True))
        ]

    def _given(self, kind: Residual, values: Sequence[np.ndarray]) -> list[np.ndarray]:
        taken = values if kind.measurement_dim else values[:-1]
        return [np.ascontiguousarray(value, np.float64) for value in taken]


def _checked(kind: Residual, what: str, found: Any, shape: tuple[int, ...]) -> np.ndarray:
    array = np.asarray(found, np.float64)
    if array.shape != shape:
        raise ShapeError(f"{kind.tag}: the {what} has shape {array.shape}, expected {shape}.")
    return array


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
