"""Vertex types taken apart: components of a vertex that oplus moves independently are vertices of their own.

    x = (x_1, ..., x_k),   oplus(x, d) = (oplus_1(x_1, d_1), ..., oplus_k(x_k, d_k))

A vector of forty weights becomes three of at most fifteen, a pose with forty weights a pose and these. H, b
and the residuals are the same, in more and smaller blocks. Which components belong together says
`problem.small_blocks`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from graphopt.geometry.arrays import components, stack
from graphopt.types.base import WITHOUT_GEOMETRY, EdgeType, VertexType, derived_type, unwrapped
from graphopt.types.cache import per_type_cache

Array = Any


@dataclass(frozen=True)
class Piece:
    """Some components of a vertex."""

    storage: tuple[int, ...]
    tangent: tuple[int, ...]


@per_type_cache
def piece_type(kind: VertexType, piece: Piece) -> VertexType:
    """The vertex type of a piece; not registered."""
    label = f"{kind.tag}[{piece.tangent[0]}-{piece.tangent[-1]}]"
    return derived_type(
        kind,
        name=label,
        tag=label,
        storage_dim=len(piece.storage),
        tangent_dim=len(piece.tangent),
        oplus=_oplus_of(kind, piece),
        wrap=unwrapped,
        identity=tuple(kind.identity[k] for k in piece.storage),
        pose=None,
        place=None,
        role="",
    )


def _oplus_of(kind: VertexType, piece: Piece) -> Callable[..., Array]:
    def oplus(storage: Array, delta: Array) -> Array:
        own, moves = components(storage), components(delta)
        zero = 0.0 * moves[0]
        values = [value + zero for value in kind.identity]
        for place, value in zip(piece.storage, own, strict=True):
            values[place] = value
        steps = [zero] * kind.tangent_dim
        for place, value in zip(piece.tangent, moves, strict=True):
            steps[place] = value
        moved = components(kind.oplus(stack(*values), stack(*steps)))
        return stack(*(moved[place] for place in piece.storage))

    return oplus


@per_type_cache
def split_edge_type(kind: EdgeType, pieces: tuple[tuple[Piece, ...], ...]) -> EdgeType:
    """The edge type between the pieces of its vertices, slot after slot."""
    vertices: list[VertexType] = []
    for vertex, some in zip(kind.vertices, pieces, strict=True):
        vertices += [vertex] if len(some) == 1 else [piece_type(vertex, piece) for piece in some]
    return derived_type(
        kind,
        name=f"{kind.name}[{','.join(each_vertex.name for each_vertex in vertices)}]",
        tag=f"{kind.tag}[{','.join(each_vertex.tag for each_vertex in vertices)}]",
        vertices=tuple(vertices),
        residual=_joining(kind.residual, kind, pieces),
        jacobian=_cut(kind.jacobian, kind, pieces),
        working_jacobian=_cut(kind.working_jacobian, kind, pieces),
        made_by=None,
        **WITHOUT_GEOMETRY,
    )


def _joining(
    function: Callable[..., Any], kind: EdgeType, pieces: tuple[tuple[Piece, ...], ...]
) -> Callable[..., Any]:
    num_slots = sum(map(len, pieces))

    def joined(*arguments: Any) -> Any:
        given, whole = iter(arguments[:num_slots]), []
        for vertex, some in zip(kind.vertices, pieces, strict=True):
            if len(some) == 1:
                whole.append(next(given))
                continue
            values: list[Any] = [None] * vertex.storage_dim
            for piece in some:
                for place, value in zip(piece.storage, components(next(given)), strict=True):
                    values[place] = value
            whole.append(vertex.wrap(stack(*values)))
        return function(*whole, *arguments[num_slots:])

    return joined


def _cut(
    function: Callable[..., Any] | None, kind: EdgeType, pieces: tuple[tuple[Piece, ...], ...]
) -> Callable[..., Any] | None:
    if function is None:
        return None
    joined = _joining(function, kind, pieces)

    def jacobian(*arguments: Any) -> tuple[Array, ...]:
        blocks: list[Array] = []
        for block, some in zip(joined(*arguments), pieces, strict=True):
            blocks += [block] if len(some) == 1 else [block[..., list(piece.tangent)] for piece in some]
        return tuple(blocks)

    return jacobian
