"""Numbers that look as if they were meant otherwise: units, orders and directions that a program mixes up.

The median chi2 of an edge at the estimates is compared with what it would be if the numbers meant something
else. A graph far from its optimum keeps it large whatever they mean; it falls by a factor of 100 only where
the other reading makes most edges agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from graphopt.geometry import SE2, SO2
from graphopt.geometry.group import LieGroup
from graphopt.graph.residuals import arguments, errors_of

if TYPE_CHECKING:
    from graphopt.graph.selection import EdgeSelection
    from graphopt.graph.store import GraphStore

_TURN = 2.1 * np.pi  # a full turn, and some rounding
_MOST_EDGES = 2_000  # of each set that are looked at
_BAD, _GOOD, _SMALL = 10.0, 0.01, 1e-3  # chi2 per residual; chi2 by chi2; chi2 per residual
Change = Callable[[object, np.ndarray], np.ndarray]


def _is_group(wrap: object, *groups: type) -> bool:
    return isinstance(wrap, type) and issubclass(wrap, groups)


def _w_last(wrap: object, rows: np.ndarray) -> np.ndarray:
    """w x y z as x y z w."""
    for first in getattr(wrap, "quaternions", ()):
        rows = rows.copy()
        rows[:, first : first + 4] = np.roll(rows[:, first : first + 4], -1, axis=1)
    return rows


def _radians(wrap: object, rows: np.ndarray) -> np.ndarray:
    """Degrees as radians."""
    if _is_group(wrap, SE2, SO2):
        rows = rows.copy()
        rows[:, -1] = np.deg2rad(rows[:, -1])
    return rows


def _inverse(wrap: object, rows: np.ndarray) -> np.ndarray:
    """A motion the other way round."""
    return np.asarray(wrap(rows).inverse().storage) if _is_group(wrap, LieGroup) else rows  # type: ignore[operator]


READINGS: tuple[tuple[Change, str, str], ...] = (
    (_w_last, "quaternions w first", "they are stored x, y, z, w: np.roll(q, -1, axis=-1)"),
    (_radians, "angles in degrees", "they are in radians: np.deg2rad"),
    (_inverse, "inverse motions", "exchange the two frames, as cam_T_world and world_T_cam (`.inverse()`)"),
)
_PLACES = (("estimates", (True, False)), ("measurements", (False, True)), ("all numbers", (True, True)))


def misread(graph: GraphStore, edges: Iterable[EdgeSelection]) -> Iterator[tuple[str, str]]:
    """(kind, sentence) of each other reading that explains the edges better."""
    parts = [part for part in edges if part.edge_set.type.outside is None and len(part.rows)]
    samples = [part.rows[:: 1 + len(part.rows) // _MOST_EDGES] for part in parts]
    values = [arguments(graph, part.edge_set, rows) for part, rows in zip(parts, samples, strict=True)]
    informations = [
        part.edge_set.look("information")[rows] for part, rows in zip(parts, samples, strict=True)
    ]

    def median(change: Change | None = None, where: tuple[bool, bool] = (True, True), inverse=False) -> float:
        found = [np.zeros(0)]
        for part, row, information in zip(parts, values, informations, strict=True):
            kind = part.edge_set.type
            error = errors_of(part.edge_set, _changed(kind, row, change, where))
            weight = np.linalg.pinv(information) if inverse else information
            found.append(np.einsum("ki,kij,kj->k", error, weight, error) / kind.residual_dim)
        return float(np.median(np.concatenate(found)))

    for part, row in zip(parts, values, strict=True):
        kind = part.edge_set.type
        if (
            _is_group(kind.wrap_measurement, SE2, SO2)
            and (turn := float(np.abs(row[-1][:, -1]).max())) > _TURN
        ):
            sentence = f"{kind.tag} measures a turn of {turn:g} rad. Of degrees: np.deg2rad."
            yield "misread", sentence
            return
    if not parts:
        return
    with np.errstate(all="ignore"):
        present = median()
        if present > _BAD:
            for change, words, way_out in READINGS:
                other, place = min((median(change, where), place) for place, where in _PLACES)
                if other < _GOOD * present:
                    yield (
                        "misread",
                        f"The median chi2 of an edge per residual is {present:.3g}; were the {place} "
                        f"{words}, it would be {other:.3g}. Check what they mean: {way_out}.",
                    )
        elif 0.0 < present < _SMALL and 0.1 < (other := median(inverse=True)) < _BAD:
            yield (
                "misread",
                f"The median chi2 of an edge per residual is {present:.3g}; were the information matrices "
                f"covariances, it would be {other:.3g}. Pass their inverses: np.linalg.inv(covariance).",
            )


def _changed(
    kind, values: list[np.ndarray], change: Change | None, where: tuple[bool, bool]
) -> list[np.ndarray]:
    """Arguments of a residual with estimates, measurement, or both changed."""
    if change is None:
        return values
    wraps = [vertex.wrap for vertex in kind.vertices] if where[0] else []
    changed = [
        *(change(wrap, rows) for wrap, rows in zip(wraps, values, strict=False)),
        *values[len(wraps) :],
    ]
    if where[1]:
        changed[-1] = change(kind.wrap_measurement, changed[-1])
    return changed
