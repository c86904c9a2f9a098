"""Which vertices to hold so that the answer is determined.

A connected part of the graph in which nothing is fixed and nothing is measured absolutely can be moved as a
whole without changing chi2. Fixing one of its poses removes exactly that freedom and changes no chi2.
`choose_gauge` does it for every such part:

* a part is connected through its free vertices; a fixed neighbour or a unary edge determines it, and it is
  left alone;
* the vertex is the first one that has the part's largest tangent dimension, in the order in which g2o's
  `findGauge` looks at vertices, so a connected graph gets g2o's choice;
* only a pose (`types.poses.POSE_ROLES`) is a gauge, or a point of a part that has points only and whose
  errors stay the same when all of them move by one vector. Fixing, say, the coefficients of a curve or a
  camera with its focal length would take more than the freedom of the whole; such a part is left to the
  damping of the algorithm.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from weakref import WeakKeyDictionary

import numpy as np

from graphopt._native import gauge_of_parts, iteration_order
from graphopt.errors import OptionError
from graphopt.graph import Graph, Selection
from graphopt.graph.components import connected_parts
from graphopt.graph.residuals import arguments, errors_of
from graphopt.types.poses import POSE_ROLES

_DIRECTION = np.array([0.61, -0.47, 0.83])
"""In which points are moved together, to see whether errors change."""
_SAME = 1e-9
"""Share of an error and of the step that rounding may change."""
_known: WeakKeyDictionary[Selection, tuple[tuple[bytes, ...], list[tuple[int, int]]]] = WeakKeyDictionary()
"""Per selection which components were fixed, and the gauge."""


def fix_gauge(graph: Graph, selection: Selection, fix: str | list[int]) -> tuple[Selection, list[int]]:
    """The selection with the vertices of the option `fix` fixed, and their ids."""
    if isinstance(fix, str):
        if fix not in ("auto", "none"):
            raise OptionError(f"fix is '{fix}', expected 'auto', 'none' or a list of vertex ids.")
        places = known_gauge(graph, selection) if fix == "auto" else []
    elif not isinstance(fix, Iterable):
        raise OptionError(f"fix is {fix!r}, expected 'auto', 'none' or a list of vertex ids.")
    else:
        places = [graph.vertex_place(id_) for id_ in fix]
    ids = [int(selection.vertex_sets[number].ids[row]) for number, row in places]
    return selection.with_fixed(places), ids


def known_gauge(graph: Graph, selection: Selection) -> list[tuple[int, int]]:
    """`choose_gauge`, which need not look again at a selection that it has seen."""
    components = tuple(
        [
            each.fingerprint(name)
            for each in selection.vertex_sets
            for name in ("held", "lower", "upper")
            if each.has(name)
        ]
    )
    known = _known.get(selection)
    if known is None or known[0] != components:
        known = _known[selection] = components, choose_gauge(graph, selection)
    return known[1]


def choose_gauge(graph: Graph, selection: Selection) -> list[tuple[int, int]]:
    """(vertex set, row) of the vertices to fix, one per part of the graph that nothing holds."""
    if all(len(edges.vertex_sets) == 1 for edges in selection.edges):
        return []  # unary edges hold every part
    if not any(vertex_set.type.role in POSE_ROLES for vertex_set in selection.vertex_sets):
        if not any(_are_points(selection, edges.vertex_sets) for edges in selection.edges):
            return []  # nothing that could be held: no part has points only
    labels, held = connected_parts(selection, through_fixed=False)
    _hold_by_bounds(selection, labels, held)
    if held.all():
        return []
    part = np.concatenate(labels)
    sizes = list(map(len, labels))
    dims = np.repeat([vertex_set.type.tangent_dim for vertex_set in selection.vertex_sets], sizes)
    is_pose = np.repeat([vertex_set.type.role in POSE_ROLES for vertex_set in selection.vertex_sets], sizes)
    first = gauge_of_parts(_ranked(selection), part, dims, held)
    first = _where_components_are_held(selection, part, first)
    chosen = first[first >= 0]
    taken = is_pose[chosen]
    if not taken.all():
        taken[~taken] = _moves_freely(graph, selection, labels, len(held))[part[chosen[~taken]]]
    starts = list(accumulate(sizes, initial=0))
    places = []
    for vertex in np.sort(chosen[taken]).tolist():
        number = bisect_right(starts, vertex) - 1
        places.append((number, vertex - starts[number]))
    return places


def _are_points(selection: Selection, numbers: Sequence[int]) -> bool:
    """All of these vertex sets are."""
    return all(selection.vertex_sets[number].type.role == "point" for number in numbers)


def _hold_by_bounds(selection: Selection, labels: tuple[np.ndarray, ...], held: np.ndarray) -> None:
    """A part with a bounded pose or point cannot be moved as a whole: it holds itself."""
    for vertex_set, label in zip(selection.vertex_sets, labels, strict=True):
        if vertex_set.type.role in (*POSE_ROLES, "point") and vertex_set.has_bounds:
            bounded = np.isfinite(vertex_set.look("lower")) | np.isfinite(vertex_set.look("upper"))
            held[label[bounded.any(axis=1) & (label >= 0)]] = True


def _moves_freely(
    graph: Graph, selection: Selection, labels: tuple[np.ndarray, ...], count: int
) -> np.ndarray:
    """(count,) bool: parts of points only, all of whose errors stay when they move by one vector.

    labels: by vertex set, as `connected_parts` returns them.
    """
    free = np.ones(count, bool)
    for vertex_set, label in zip(selection.vertex_sets, labels, strict=True):
        if vertex_set.type.role != "point":
            free[label[label >= 0]] = False
    for edges in selection.edges:
        part = labels[edges.vertex_sets[0]][edges.vertex_rows[:, 0]]
        rows = np.flatnonzero((part >= 0) & free[part])
        kinds = edges.edge_set.type.vertices
        if not len(rows):
            continue
        if len({kind.storage_dim for kind in kinds}) > 1:
            free[part[rows]] = False  # in spaces of several dimensions
            continue
        values = arguments(graph, edges.edge_set, edges.rows[rows])
        points = values[: len(kinds)]
        step = max(float(np.abs(points).max()), 1.0) * _DIRECTION[: kinds[0].storage_dim]
        before = errors_of(edges.edge_set, values)
        after = errors_of(edges.edge_set, [*(point + step for point in points), *values[len(kinds) :]])
        scale = np.abs(before).max(axis=1) + np.abs(step).max()
        free[part[rows[~(np.abs(after - before).max(axis=1) <= _SAME * scale)]]] = False
    return free


def _where_components_are_held(selection: Selection, part: np.ndarray, first: np.ndarray) -> np.ndarray:
    """`first`, -1: none, where vertices hold single components (`Graph.hold`).

    The only one of a part that does is the gauge, which takes nothing from the rest. Of several none can be
    held as a whole without changing the answer: the damping takes care.
    """
    if not any(vertex_set.holds_components for vertex_set in selection.vertex_sets):
        return first
    holds = np.concatenate(
        [
            np.zeros(len(vertex_set), bool)
            if not vertex_set.has_room_for_components
            else vertex_set.look("held").any(axis=1)
            for vertex_set in selection.vertex_sets
        ]
    )
    holders = np.flatnonzero(holds & (part >= 0))
    number = np.bincount(part[holders], minlength=len(first))
    changed = np.where(number > 1, -1, first)
    single = holders[number[part[holders]] == 1]
    changed[part[single]] = np.where(first[part[single]] >= 0, single, -1)
    return changed


def _ranked(selection: Selection) -> np.ndarray:
    """The vertices of all sets in the order in which g2o looks at them."""
    sequence = np.concatenate([vertex_set.sequence for vertex_set in selection.vertex_sets])
    ids = np.concatenate([vertex_set.ids for vertex_set in selection.vertex_sets])
    if bool((sequence[1:] > sequence[:-1]).all()):
        return iteration_order(ids)
    added = np.argsort(sequence, kind="stable")
    return added[iteration_order(ids[added])]
