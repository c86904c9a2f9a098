"""Edge types with fewer slots, for edges that would name a vertex twice.

At the border of an image a stencil may meet the same pixel in two slots: f(x_0, x_1, x_2) with x_1 = x_0 is
the edge g(x_0, x_2) = f(x_0, x_0, x_2), whose derivative by x_0 is the sum of f's by its first two arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphopt.errors import GraphError
from graphopt.types.base import EdgeType, derived_type
from graphopt.types.cache import per_type_cache
from graphopt.types.files import EdgeFile

Array = Any


@per_type_cache
def merged_edge_type(kind: EdgeType, pattern: tuple[int, ...]) -> EdgeType:
    """The type in which slot k of `kind` is slot `pattern[k]`; `kind` itself for (0, 1, 2, ...)."""
    if pattern == tuple(range(len(kind.vertices))):
        return kind
    first = [pattern.index(slot) for slot in range(max(pattern) + 1)]
    for slot, place in enumerate(pattern):
        if kind.vertices[slot] is not kind.vertices[first[place]]:
            raise GraphError(
                f"{kind.tag}: slots {first[place]} and {slot} cannot be the same vertex, "
                f"they take {kind.vertices[first[place]].tag} and {kind.vertices[slot].tag}."
            )
    return derived_type(
        kind,
        name=f"{kind.name}[{','.join(map(str, pattern))}]",
        vertices=tuple(kind.vertices[slot] for slot in first),
        residual=_spread(kind.residual, pattern),
        sees=None if kind.sees is None else _spread(kind.sees, pattern),
        jacobian=_summed(kind.jacobian, pattern),
        working_jacobian=_summed(kind.working_jacobian, pattern),
        file=EdgeFile(kind.file.num_tokens, _refuse(kind), _refuse(kind)),
        made_by=(merged_edge_type, (kind, pattern)),
    )


def _refuse(kind: EdgeType) -> Callable[..., Any]:
    def refuse(*numbers: Array) -> Any:
        raise GraphError(
            f"{kind.tag}: an edge at a border of a grid that has a vertex twice has no line in a .g2o file. "
            'Make the stencil with boundary="skip".'
        )

    return refuse


def _spread(function: Callable[..., Any], pattern: tuple[int, ...]) -> Callable[..., Any]:
    num_slots = max(pattern) + 1

    def residual(*arguments: Any) -> Any:
        return function(*(arguments[place] for place in pattern), *arguments[num_slots:])

    return residual


def _summed(function: Callable[..., Any] | None, pattern: tuple[int, ...]) -> Callable[..., Any] | None:
    if function is None:
        return None
    spread = _spread(function, pattern)

    def jacobian(*arguments: Any) -> tuple[Array, ...]:
        blocks: list[Any] = [None] * (max(pattern) + 1)
        for place, block in zip(pattern, spread(*arguments), strict=True):
            blocks[place] = block if blocks[place] is None else blocks[place] + block
        return tuple(blocks)

    return jacobian
