"""Bounds of estimates: lower <= x <= upper, number by number, where a type allows it (`types.bounds`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from graphopt.errors import GraphError, ShapeError
from graphopt.foreign_arrays import host
from graphopt.graph.arguments import comma_separated
from graphopt.types.bounds import STAYS, added_components

if TYPE_CHECKING:
    from graphopt.graph.sets import VertexSet
    from graphopt.graph.store import GraphStore
    from graphopt.types.base import VertexType

_SHOWN = 5  # ids in a message


def set_bounds(
    sets: Iterable[tuple[VertexSet, np.ndarray]], lower: Any, upper: Any, components: Iterable[int] | None
) -> None:
    """See `Graph.set_bounds`; sets: (vertex set, rows) of the vertices. All or nothing is written."""
    changes = []
    for vertex_set, rows in sets:
        chosen = _components(vertex_set.type, components)
        low = _numbers(lower, -np.inf, len(rows), len(chosen), f"lower bounds of {vertex_set.type.tag}")
        high = _numbers(upper, np.inf, len(rows), len(chosen), f"upper bounds of {vertex_set.type.tag}")
        _refuse_crossed(vertex_set, rows, chosen, low, high)
        _refuse_others(vertex_set.type, chosen, np.isfinite(low) | np.isfinite(high))
        changes.append((vertex_set, np.ix_(rows, chosen), low, high))
    for vertex_set, places, low, high in changes:
        lower_column, upper_column = vertex_set.make_room_for_bounds()
        lower_column[places], upper_column[places] = low, high


def _components(kind: VertexType, components: Iterable[int] | None) -> np.ndarray:
    if components is None:
        return np.arange(kind.storage_dim)
    chosen = np.array([int(component) for component in components], np.int64)
    wrong = chosen[(chosen < 0) | (chosen >= kind.storage_dim)]
    if len(wrong):
        raise GraphError(
            f"{kind.tag} has no component {wrong[0]}: its estimates have {kind.storage_dim} numbers, 0 to "
            f"{kind.storage_dim - 1}."
        )
    return chosen


def _numbers(given: Any, none: float, count: int, size: int, what: str) -> np.ndarray:
    """(count, size) numbers; a missing bound is `none`, which is infinite."""
    if given is None:
        return np.full((count, size), none)
    try:
        array = np.asarray(host(given, what), np.float64)
    except (TypeError, ValueError) as error:
        raise ShapeError(f"{what} cannot be read as float64: {error}.") from None
    if array.shape not in ((), (size,), (count, size)):
        raise ShapeError(
            f"{what} have shape {array.shape}, expected one number, ({size},) or {(count, size)}: one for "
            "each component, infinity where there is none."
        )
    if np.isnan(array).any() or bool((array == -none).any()):
        raise GraphError(f"{what} hold NaN or {-none}; a component without such a bound has {none}.")
    return np.broadcast_to(array, (count, size))


def _refuse_crossed(
    vertex_set: VertexSet, rows: np.ndarray, chosen: np.ndarray, low: np.ndarray, high: np.ndarray
) -> None:
    crossed = np.argwhere(low > high)
    if len(crossed):
        row, column = crossed[0]
        raise GraphError(
            f"{vertex_set.type.tag} {int(vertex_set.ids[rows[row]])}: the lower bound {low[row, column]:.9g} "
            f"of component {int(chosen[column])} is above its upper bound {high[row, column]:.9g}."
        )


def _refuse_others(kind: VertexType, chosen: np.ndarray, bounded: np.ndarray) -> None:
    """`GraphError` for a bound on a number that oplus does not move by adding."""
    may = added_components(kind)
    wrong = [int(place) for place in chosen[bounded.any(axis=0)] if int(place) not in may]
    if not wrong:
        return
    free = [place for place, component in may.items() if component != STAYS]
    allowed = f"only components {comma_separated(np.array(free))} are" if free else "none is"
    raise GraphError(
        f"Component {wrong[0]} of {kind.tag} cannot be bounded: its update does not add one number to it "
        f"({allowed} moved so). Bound what you mean by an edge with inequality=True instead."
    )


def bound_components(vertex_set: VertexSet) -> list[int]:
    """Numbers of estimates in which some vertex has a bound."""
    if not vertex_set.has_bounds:
        return []
    bounded = np.isfinite(vertex_set.look("lower")) | np.isfinite(vertex_set.look("upper"))
    return np.flatnonzero(bounded.any(axis=0)).tolist()


def wrong_bounds(vertex_set: VertexSet) -> str | None:
    """A sentence about bounds that hold NaN or are crossed, as live views let them be; None: all are well."""
    if not vertex_set.has_bounds:
        return None
    lower, upper = vertex_set.look("lower"), vertex_set.look("upper")
    bad = np.argwhere(~(lower <= upper) | (lower == np.inf) | (upper == -np.inf))
    if not len(bad):
        may = added_components(vertex_set.type)
        wrong = [place for place in bound_components(vertex_set) if place not in may]
        if wrong:
            return (
                f"Component {wrong[0]} of {vertex_set.type.tag} has bounds and cannot: see Graph.set_bounds."
            )
        return None
    row, place = bad[0]
    return (
        f"{vertex_set.type.tag} {int(vertex_set.ids[row])} has the bounds {lower[row, place]:.9g} and "
        f"{upper[row, place]:.9g} of component {int(place)}, expected lower <= upper."
    )


def outside_bounds(vertex_set: VertexSet) -> np.ndarray:
    """(n, storage_dim) bool: estimates beyond a bound."""
    if not vertex_set.has_bounds:
        return np.zeros((len(vertex_set), vertex_set.type.storage_dim), bool)
    estimate = vertex_set.look("estimate")
    return (estimate < vertex_set.look("lower")) | (estimate > vertex_set.look("upper"))


def bound_findings(vertex_sets: Iterable[VertexSet]) -> Iterator[tuple[str, str, str]]:
    """(kind, severity, message) about bounds, for `Graph.check`."""
    for vertex_set in vertex_sets:
        wrong = wrong_bounds(vertex_set)
        if wrong is not None:
            yield "bounds-crossed", "error", wrong
            continue
        outside = outside_bounds(vertex_set)
        if not outside.any():
            continue
        stays = cannot_move(vertex_set)
        tag, ids = vertex_set.type.tag, vertex_set.ids
        stuck = (outside & stays).any(axis=1)
        if stuck.any():
            yield (
                "bounds-violated",
                "error",
                f"{int(stuck.sum())} {tag} are outside their bounds and fixed: {some_ids(ids[stuck])}.",
            )
        moved = (outside & ~stays).any(axis=1)
        if moved.any():
            yield (
                "bounds-violated",
                "warning",
                f"{int(moved.sum())} {tag} are outside their bounds, and an optimization will move them in "
                f"before it starts: {some_ids(ids[moved])}.",
            )


def cannot_move(vertex_set: VertexSet, fixed: np.ndarray | None = None) -> np.ndarray:
    """(n, storage_dim) bool: no update moves these numbers; fixed: (n,) instead of the set's own flags."""
    fixed = vertex_set.look("fixed") if fixed is None else fixed
    may = added_components(vertex_set.type)
    stays = np.tile(
        np.array([may.get(k) == STAYS for k in range(vertex_set.type.storage_dim)]), (len(fixed), 1)
    )
    if vertex_set.has_room_for_components:
        held = vertex_set.look("held")
        for place, component in may.items():
            if component != STAYS:
                stays[:, place] = held[:, component]
    return stays | fixed[:, None]


def some_ids(ids: np.ndarray) -> str:
    """The first ids for a message."""
    shown = comma_separated(ids[:_SHOWN])
    return shown if len(ids) <= _SHOWN else f"{shown}, ... ({len(ids)} in all)"


def constraints_of(graph: GraphStore) -> str | None:
    """What constrains estimates beside fixed vertices, in words; None: nothing does."""
    for vertex_set in graph.vertex_sets:
        if vertex_set.has_bounds:
            return f"bounds of {vertex_set.type.tag} (Graph.set_bounds)"
    for edge_set in graph.edge_sets:
        if edge_set.type.inequality and len(edge_set):
            return f"the inequalities {edge_set.type.tag}"
    return None
