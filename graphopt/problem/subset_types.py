"""Types of which some components are held: x oplus d, with d zero in the components that stay.

    oplus'(x, d') = oplus(x, E d'),     E (tangent_dim, k) the columns of the identity of the k free
    components

so H, b and the Jacobians have k columns where the full type has tangent_dim; everything else, on every
device, is as for any other type. (Ceres calls it a subset manifold.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from graphopt.errors import GraphError
from graphopt.geometry.arrays import components, stack
from graphopt.types.base import EdgeType, VertexType, derived_type
from graphopt.types.cache import per_type_cache

Array = Any


@per_type_cache
def subset_vertex_type(kind: VertexType, free: tuple[int, ...]) -> VertexType:
    """The type in which only the tangent components `free` (ascending) move; not registered."""
    if free == tuple(range(kind.tangent_dim)):
        return kind
    label = ",".join(map(str, free))
    working = kind.working
    if working is not None:
        working = replace(working, oplus=_embedded(working.oplus, kind.tangent_dim, free))
    return derived_type(
        kind,
        name=f"{kind.name}[{label}]",
        tag=f"{kind.tag}[{label}]",
        tangent_dim=len(free),
        oplus=_embedded(kind.oplus, kind.tangent_dim, free),
        working=working,
    )


def _embedded(oplus: Callable[..., Array], dim: int, free: tuple[int, ...]) -> Callable[..., Array]:
    def subset_oplus(storage: Array, delta: Array) -> Array:
        moved = components(delta)
        zero = 0.0 * moved[0]
        full = [moved[free.index(k)] if k in free else zero for k in range(dim)]
        return oplus(storage, stack(*full))

    return subset_oplus


@per_type_cache
def subset_edge_type(kind: EdgeType, vertices: tuple[VertexType, ...], free: tuple[Any, ...]) -> EdgeType:
    """The edge type between these vertices, of which slot k moves the components `free[k]` (None: all)."""
    if vertices == kind.vertices:
        return kind
    if kind.is_external and not kind.inequality:
        raise GraphError(
            f"{kind.tag} is evaluated outside the block solver, which cannot hold components of its "
            "vertices. Fix the whole vertex, or define the edge with graphopt.edge_type."
        )
    return derived_type(
        kind,
        name=f"{kind.name}[{','.join(vertex.name for vertex in vertices)}]",
        tag=f"{kind.tag}[{','.join(vertex.tag for vertex in vertices)}]",
        vertices=vertices,
        jacobian=_columns(kind.jacobian, free),
        working_jacobian=_columns(kind.working_jacobian, free),
        made_by=None,
    )


def _columns(jacobian: Callable[..., Any] | None, free: tuple[Any, ...]) -> Callable[..., Any] | None:
    if jacobian is None:
        return None

    def subset_jacobian(*arguments: Any) -> tuple[Array, ...]:
        blocks = jacobian(*arguments)
        return tuple(
            block if chosen is None else block[..., list(chosen)]
            for block, chosen in zip(blocks, free, strict=True)
        )

    return subset_jacobian
