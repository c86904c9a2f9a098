"""COLMAP's gauge by three points: which ones it holds.

Its adjustment counts the observations of each point in a `std::unordered_map`, as it goes over the images of
its config (a `std::unordered_set`), their keypoints, and then the config's variable and constant points. The
first three linearly independent points of this table stay: constant ones first, then others.
"""

from __future__ import annotations

import numpy as np

from graphopt._native import iteration_order
from graphopt.colmap.memory import order_in_config
from graphopt.colmap.model import NO_POINT, ColmapModel, Observations
from graphopt.colmap.options import Config
from graphopt.graph.sets import VertexSet

_AT_ONCE = 1000
"""Points whose independence is looked at at once."""


def order_of_points(
    model: ColmapModel, seen: Observations, counted: np.ndarray, config: Config
) -> np.ndarray:
    """Rows of the points in COLMAP's table, in its order; counted (n,) bool: points that may take part."""
    images, *named = order_in_config(config.source) or [
        _in_table_order(np.sort(np.fromiter(ids, np.int64, len(ids))))
        for ids in (config.images, config.variable_points, config.constant_points)
    ]
    starts, keypoints = _keypoints(model, seen)
    parts = [keypoints[starts[row] : starts[row + 1]] for row in _rows(model.images.ids, images).tolist()]
    sequence = np.concatenate([*parts, *(_rows(model.points.ids, ids) for ids in named)]).astype(np.int64)
    sequence = sequence[sequence >= 0]
    sequence = sequence[counted[sequence]]
    places = np.arange(len(sequence))
    first = np.empty(len(counted), np.int64)
    first[sequence[::-1]] = places[::-1]  # of those of one row the last stays, which is the first
    rows = sequence[first[sequence] == places]
    return np.asarray(rows[iteration_order(model.points.ids[rows])])


def fix(points: VertexSet, rows: np.ndarray) -> None:
    """Fix the first three linearly independent points of these rows; constant ones come first."""
    is_fixed, place = points.fixed[rows], points.look("estimate")
    rows, chosen = np.concatenate([rows[is_fixed], rows[~is_fixed]]), np.empty((0, 3))
    while len(chosen) < 3 and len(rows):
        beside = np.broadcast_to(chosen, (min(len(rows), _AT_ONCE), *chosen.shape))
        sets = np.concatenate([beside, place[rows[:_AT_ONCE], None]], axis=1)
        is_new = np.linalg.matrix_rank(sets) > len(chosen)
        if is_new.any():
            first = int(is_new.argmax())
            chosen = sets[first]
            points.fixed[rows[first]] = True
            rows = rows[first + 1 :]
        else:
            rows = rows[_AT_ONCE:]


def _in_table_order(ids: np.ndarray) -> np.ndarray:
    return np.asarray(ids[iteration_order(ids)])


def _rows(ids: np.ndarray, named: np.ndarray) -> np.ndarray:
    """Row of each of these ids, all of which are there."""
    order = np.argsort(ids, kind="stable")
    return np.asarray(order[np.searchsorted(ids, named, sorter=order)])


def _keypoints(model: ColmapModel, seen: Observations) -> tuple[np.ndarray, np.ndarray]:
    """Where those of each image start (images + 1,), and the row of each one's point, -1 for none."""
    if model.seen is not None:
        return np.concatenate([[0], np.cumsum(seen.image_count)]), seen.point_row
    images = model.images
    rows, has_point = np.full(len(images.point_ids), -1), images.point_ids != NO_POINT
    rows[has_point] = _rows(model.points.ids, images.point_ids[has_point])
    return images.keypoint_start, rows
