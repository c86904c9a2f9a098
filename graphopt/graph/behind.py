"""Points behind the cameras that are said to see them.

A projection maps a point behind a pinhole camera to a pixel as well, mirrored. g2o counts such edges like all
others, and so does chi2 here; nothing real is seen there, so whoever optimizes should know. What a camera
sees is a property of the edge type (`EdgeType.sees`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from graphopt.graph.residuals import arguments
from graphopt.graph.selection import EdgeSelection

if TYPE_CHECKING:
    from graphopt.graph.store import GraphStore

MOST_AT_ONCE = 200_000
"""Images of points for which arrays are made at the same time."""


def num_images(parts: Iterable[EdgeSelection]) -> int:
    """Edges of these selections that are images of points."""
    return sum(len(part.rows) for part in parts if part.edge_set.type.sees is not None)


def edges_behind(graph: GraphStore, part: EdgeSelection) -> np.ndarray:
    """Rows (k,) of the edges of a selection that no camera sees; none for other edges than images.

    Numbers that are not finite are not seen.
    """
    if part.edge_set.type.sees is None or len(part.rows) == 0:
        return part.rows[:0]
    blocks = [
        part.rows[i : i + MOST_AT_ONCE] for i in range(0, len(part.rows), MOST_AT_ONCE)
    ]  # fewer at a time: the arrays of a point's way into its camera are many
    return np.concatenate(
        [rows[~part.edge_set.type.seen(*arguments(graph, part.edge_set, rows))] for rows in blocks]
    )


def points_behind(graph: GraphStore, parts: Iterable[EdgeSelection]) -> dict[str, list[int]]:
    """Tag of the edge set -> rows of the edges whose point is not where the camera sees."""
    found: dict[str, list[int]] = {}
    for part in parts:
        rows = edges_behind(graph, part).tolist()
        if rows:
            found.setdefault(part.edge_set.type.tag, []).extend(rows)
    return found
