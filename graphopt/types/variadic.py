"""Edges of one type between one vertex and any number of others: the user's decorator.

    @graphopt.variadic_edge_type(first="VERTEX_SE2", rest="VERTEX_XY", measurement_dim_per_vertex=2)
    def EdgeSeen(pose, points, measured):
        return np.concatenate([pose.inverse_act(point) for point in points], axis=-1) - measured

Edges with the same number of vertices are an edge set, compiled by itself (`VariadicEdgeType.instantiate`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import graphopt.types.registry as registry
from graphopt.errors import ShapeError
from graphopt.types.base import EdgeType, VariadicEdgeType, VertexType, unwrapped
from graphopt.types.decorators import default_tag, made_edge_type
from graphopt.types.files import counted
from graphopt.types.identity import home_of

Array = Any


def variadic_edge_type(
    *,
    first: str | VertexType,
    rest: str | VertexType,
    measurement_dim: int = 0,
    measurement_dim_per_vertex: int = 0,
    tag: str | None = None,
    aliases: Sequence[str] = (),
    name: str | None = None,
) -> Callable[[Callable[..., Array]], VariadicEdgeType]:
    """Define an edge type from its residual: (first vertex, list of the others, measurement) -> (dim,).

    A measurement has `measurement_dim` numbers and `measurement_dim_per_vertex` for each of the others; with
    both 0 the function takes none. The residual's length may depend on how many others there are. Lines in
    .g2o files are those of g2o's own types of this kind. `Graph.add_variadic_edges` adds edges of different
    numbers of vertices. Raises `ShapeError` as `edge_type` does.
    """
    if measurement_dim < 0 or measurement_dim_per_vertex < 0:
        raise ShapeError("measurement_dim and measurement_dim_per_vertex must not be negative.")

    def define(function: Callable[..., Array]) -> VariadicEdgeType:
        label = name or function.__name__
        kind = VariadicEdgeType(
            label,
            tag or default_tag(label, "EDGE"),
            registry.vertex_type(first),
            registry.vertex_type(rest),
            0,
            lambda variadic, num: _instance(variadic, num, function, own_dim(num)),
            tuple(aliases),
            (function.__doc__ or "").strip(),
            home_of(function),
        )
        two, three = (kind.make(kind, num).residual_dim for num in (2, 3))
        return registry.register(replace(kind, residual_dim_per_vertex=three - two))

    def own_dim(num_vertices: int) -> int:
        return measurement_dim + measurement_dim_per_vertex * (num_vertices - 1)

    return define


def _instance(
    variadic: VariadicEdgeType, num_vertices: int, function: Callable[..., Array], dim: int
) -> EdgeType:
    """The type of edges between so many vertices."""

    def residual(*arguments: Any) -> Array:
        first, *others = arguments[:num_vertices]
        return function(first, others, *arguments[num_vertices:])

    kind = made_edge_type(
        residual,
        vertices=(variadic.first, *(num_vertices - 1) * (variadic.rest,)),
        measurement_dim=dim,
        wrap_measurement=unwrapped,
        aliases=variadic.aliases,
        name=variadic.name,
        tag=variadic.tag,
    )
    layout = counted(dim, kind.residual_dim, count_old=num_vertices - 1)
    return replace(kind, file=layout, doc=variadic.doc, home=variadic.home)


__all__ = ["variadic_edge_type"]
