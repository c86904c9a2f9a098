"""Poses of files whose quaternions have few digits, which are not quite rotations.

g2o keeps such a quaternion as a matrix that is not quite orthogonal while it optimizes
(`types.base.WorkingForm`), and `lm`, `gn` and `dogleg` follow it digit by digit. That is no rotation: what is
written back is one, with another chi2. `auto` makes the quaternions of what it moves unit before it starts.
"""

from __future__ import annotations

import numpy as np

from graphopt.graph import Selection, VertexSet

_ROUNDING = 1e-13  # of a number of a unit quaternion

RoughRows = list[tuple[VertexSet, np.ndarray]]
"""Vertex sets and (k,) rows in them."""


def rough_rows(selection: Selection) -> RoughRows:
    """Free vertices that are optimized in a working form and whose quaternions are not unit."""
    found = []
    for number, vertex_set in enumerate(selection.vertex_sets):
        form = vertex_set.type.working
        if form is None:
            continue
        estimate = vertex_set.look("estimate")
        is_rough = (np.abs(form.tidy(estimate) - estimate) > _ROUNDING).any(axis=1)
        rows = np.flatnonzero(is_rough & selection.free(number))
        if len(rows):
            found.append((vertex_set, rows))
    return found


def make_unit(rough: RoughRows) -> None:
    """Normalize these quaternions in the graph."""
    for vertex_set, rows in rough:
        form = vertex_set.type.working
        assert form is not None
        vertex_set.estimate[rows] = form.tidy(vertex_set.estimate[rows])
