"""What the definitions of g2o's types share."""

from __future__ import annotations

from typing import Any

from graphopt.geometry.arrays import components
from graphopt.types.base import EdgeType, ParameterType, VertexType, unwrapped
from graphopt.types.files import EdgeFile, VertexFile, measurement_then_information, plain
from graphopt.types.registry import register

Array = Any


def add(storage: Array, delta: Array) -> Array:
    """Oplus of a vector space."""
    return storage + delta


def scalar(measurement: Array) -> Array:
    """Measurement of one number as a scalar."""
    return components(measurement)[0]


def define_edge(
    name: str,
    tag: str,
    vertices: tuple[VertexType, ...],
    residual_dim: int,
    residual: Any,
    wrap_measurement: Any = unwrapped,
    *,
    parameters: tuple[ParameterType, ...] = (),
    measurement: VertexFile | None = None,
    measurement_dim: int | None = None,
    file: EdgeFile | None = None,
    **fields: Any,
) -> EdgeType:
    """Register an edge type whose line holds the measurement, then the information.

    `measurement` is the layout of the measurement; by default its tokens are the residual_dim stored numbers.
    `file` replaces the whole layout; then measurement_dim says how many numbers are stored. fields: further
    ones of `EdgeType`.
    """
    layout = measurement or plain(residual_dim)
    return register(
        EdgeType(
            name,
            tag,
            vertices,
            parameters,
            measurement_dim or layout.num_tokens,
            residual_dim,
            residual,
            fields.pop("jacobian", None),
            wrap_measurement,
            file or measurement_then_information(layout, residual_dim),
            doc=(residual.__doc__ or "").strip(),
            **fields,
        )
    )
