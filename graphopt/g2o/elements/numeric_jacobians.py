"""Jacobians of edges that are defined in Python, by differences."""

from __future__ import annotations

from typing import Any

import numpy as np

NUMERIC_STEP = 1e-9
"""Step of numeric Jacobians, g2o's own."""


def numeric_jacobians(edge: Any) -> list[np.ndarray]:
    """Central differences through each vertex' oplus, with g2o's step."""
    result = []
    before = edge._chunk.error[edge._row].copy()
    for vertex in edge._vertices:
        columns = np.zeros((edge.dimension(), vertex.dimension()))
        if not vertex.fixed():
            for column in range(vertex.dimension()):
                step = np.zeros(vertex.dimension())
                step[column] = NUMERIC_STEP
                columns[:, column] = _moved_error(edge, vertex, step)
                columns[:, column] -= _moved_error(edge, vertex, -step)
            columns *= 0.5 / NUMERIC_STEP
        result.append(columns)
    edge.error = before
    return result


def _moved_error(edge: Any, vertex: Any, step: np.ndarray) -> np.ndarray:
    vertex.push()
    try:
        vertex.oplus_impl(step)
        edge.compute_error()
    finally:
        vertex.pop()
    return edge._chunk.error[edge._row].copy()
