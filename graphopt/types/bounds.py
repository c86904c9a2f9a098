"""Which numbers of an estimate may be bounded: those that oplus moves by adding one number of the update.

    oplus(x, d)_k = x_k + d_j        k may be bounded
    oplus(x, d)_k = x_k              k never moves

Coordinates of points, vectors, intrinsics of cameras are such numbers; the translation of a pose whose update
is taken in its own frame, a quaternion and an angle that is brought into one turn are not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphopt.errors import GraphOptError
from graphopt.symbolic import fresh_table
from graphopt.symbolic.symbolic_array import variables
from graphopt.types.base import VertexType
from graphopt.types.cache import per_type_cache

STAYS = -1
"""In place of a component of the update: no update moves this number."""


@per_type_cache
def added_components(kind: VertexType) -> Mapping[int, int]:
    """Number of an estimate -> component of the update that is added to it, or `STAYS`.

    Numbers that oplus moves in any other way are missing.
    """
    if kind.working is not None:
        return {}
    with fresh_table():
        storage, delta = variables("storage", kind.storage_dim), variables("delta", kind.tangent_dim)
        for array in (storage, delta):
            array.flags.writeable = False
        try:
            moved: Any = kind.oplus(storage, delta)
        except (GraphOptError, TypeError, ValueError):  # it is not written for symbols
            return {}
        found = {place: _added(moved[place], storage[place], delta) for place in range(kind.storage_dim)}
    return {place: component for place, component in found.items() if component is not None}


def _added(moved: Any, before: Any, delta: Any) -> int | None:
    if moved is before:
        return STAYS
    for component, step in enumerate(delta):
        if moved is before + step:  # equal expressions are one object
            return component
    return None
