"""Inequalities as edges that an optimization keeps to: c(x) >= 0, number by number."""

from __future__ import annotations

from graphopt.types.base import WITHOUT_GEOMETRY, EdgeType, derived_type
from graphopt.types.cache import per_type_cache


@per_type_cache
def constraint_edge_type(kind: EdgeType) -> EdgeType:
    """The inequality as a type of edges that have places in H and are evaluated beside the others."""
    return derived_type(
        kind,
        name=f"{kind.name}[constraint]",
        tag=f"{kind.tag}[constraint]",
        is_external=True,
        jacobian=None,
        working_jacobian=None,
        measure=None,
        made_by=None,
        **WITHOUT_GEOMETRY,
    )
