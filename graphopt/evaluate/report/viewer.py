"""An interactive 3-D page of a graph: one file, no network, WebGL; `viewer.html` is the page without data.

Arrays travel in the page as base64 of float32 and uint32; positions are relative to the middle of the graph,
so that float32 keeps millimetres far from the origin. Edges are sorted by their later pose: the time slider
draws a prefix of them.
"""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from graphopt.errors import GraphError
from graphopt.evaluate.report.scene import Scene, scene
from graphopt.evaluate.report.thumbnails import frustum_rows
from graphopt.graph.residuals import edge_chi2

if TYPE_CHECKING:
    from graphopt.graph import Graph

MAX_EDGES = 1_000_000
"""Edges drawn at most; of more, those with the largest chi2."""


def graph_page(
    graph: Graph,
    title: str,
    *,
    before: Graph | None = None,
    times: dict[int, float] | None = None,
) -> str:
    """The page of a graph.

    before: the same graph with other estimates, which a switch shows. times: [s] by vertex id, for a slider.
    """
    drawn = scene(graph)
    chi2 = _EdgeErrors(graph, drawn)
    old = None
    if before is not None:
        old = scene(before)
        if not np.array_equal(old.ids, drawn.ids):
            raise GraphError(
                "The graph before has other vertices than the one after; both must have the same ids."
            )
    shown = chi2.chosen(MAX_EDGES)
    middle = _middle(drawn.positions)
    document = {
        "title": title,
        "num_poses": drawn.num_poses,
        "ids": drawn.ids.tolist(),
        "is_planar": drawn.dim == 2,
        "draws_edges": not drawn.is_ba,
        "positions": _packed(_placed(drawn.positions, middle), np.float32),
        "before": _packed(_placed(None if old is None else old.positions, middle), np.float32),
        "truth": "",
        "orientations": _packed(drawn.orientations, np.float32),
        "is_camera": _packed(drawn.is_camera, np.uint8),
        "looks_along": drawn.looks_along,
        "lines": _packed(drawn.lines[shown], np.uint32),
        "edge_chi2": _packed(chi2.of_lines[shown], np.float32),
        "vertex_chi2": _packed(chi2.of_vertices, np.float32),
        "times": _packed(_times(drawn, times), np.float64),
    }
    return filled(document)


def trajectory_page(
    curves: Mapping[str, Mapping[str, Any]],
    title: str,
    points: NDArray[np.float64] | None = None,
    images: Mapping[str, Mapping[str, Any]] | None = None,
) -> str:
    """The page of trajectories with their truths: `trajectory_document` in the page.

    images: by name of a curve, small ones inside of its frusta, as `thumbnails.embedded` makes them.
    """
    document = trajectory_document(curves, title, points)
    starts = dict(zip(curves, document["truth_breaks"], strict=True))
    document["images"] = [
        {**atlas, "poses": [starts[name] + row for row in atlas["rows"]]}
        for name, atlas in (images or {}).items()
    ]
    return filled(document)


def trajectory_document(
    curves: Mapping[str, Mapping[str, Any]],
    title: str,
    points: NDArray[np.float64] | None = None,
    middle: NDArray[np.float64] | None = None,
) -> dict[str, Any]:
    """What the page of trajectories shows, for JSON.

    curves: by name, `estimate` and `truth` (n, 3) [m], `error_m` (n,), `times_s` (n,); of image sequences
    also `world_R_cam` (n, 4), quaternions of the camera. points: (m, 3) [m] of maps. middle: (3,)
    that becomes the origin; None: that of the trajectories.
    """
    positions = np.concatenate([np.asarray(curve["estimate"], float) for curve in curves.values()])
    truth = np.concatenate([np.asarray(curve["truth"], float).reshape(-1, 3) for curve in curves.values()])
    error = np.concatenate([np.asarray(curve["error_m"], float) for curve in curves.values()])
    counts = [len(curve["estimate"]) for curve in curves.values()]
    starts = np.cumsum([0, *counts[:-1]])
    lines = np.concatenate([first + _chain(count) for first, count in zip(starts, counts, strict=True)])
    times = next(iter(curves.values()))["times_s"] if len(curves) == 1 else None
    middle = _middle(positions) if middle is None else middle
    points = np.zeros((0, 3)) if points is None else points
    turns, is_camera = _cameras(curves)
    return {
        "title": title,
        "num_poses": len(positions),
        "ids": list(range(len(positions) + len(points))),
        "is_planar": False,
        "draws_edges": True,
        "positions": _packed(np.concatenate([positions, points]) - middle, np.float32),
        "orientations": _packed(turns, np.float32),
        "is_camera": _packed(is_camera, np.uint8),
        "looks_along": 1.0,
        "truth": _packed(truth - middle, np.float32),
        "truth_breaks": starts.tolist(),
        "lines": _packed(lines, np.uint32),
        "edge_chi2": _packed(error[lines[:, 1]], np.float32),
        "vertex_chi2": _packed(np.concatenate([error, np.zeros(len(points))]), np.float32),
        "times": _packed(None if times is None else np.asarray(times), np.float64),
    }


def _cameras(curves: Mapping[str, Mapping[str, Any]]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Quaternions (n, 4) of all poses, and (n,) bool: a frustum is drawn there."""
    turns, drawn = [], []
    for curve in curves.values():
        count = len(curve["estimate"])
        turns.append(np.asarray(curve.get("world_R_cam", np.tile([0.0, 0.0, 0.0, 1.0], (count, 1))), float))
        drawn.append(np.isin(np.arange(count), frustum_rows(count)) & ("world_R_cam" in curve))
    return np.concatenate(turns), np.concatenate(drawn)


def _chain(count: int) -> NDArray[np.int64]:
    """(count - 1, 2) rows of neighbours."""
    return np.stack([np.arange(count - 1), np.arange(1, count)], axis=1)


def _times(drawn: Scene, times: dict[int, float] | None) -> NDArray[np.float64] | None:
    poses = drawn.ids[: drawn.num_poses].tolist()
    if not times or any(pose not in times for pose in poses):
        return None
    return np.array([times[pose] for pose in poses])


class _EdgeErrors:
    """chi2 of the edges that are drawn, and summed at each vertex."""

    def __init__(self, graph: Graph, drawn: Scene) -> None:
        order = np.argsort(drawn.ids)
        parts, self.of_vertices = [np.empty(0)], np.zeros(len(drawn.ids))
        for edge_set in graph.edge_sets:
            if not len(edge_set):
                continue
            values = np.nan_to_num(edge_chi2(graph, edge_set, np.arange(len(edge_set))), posinf=0.0)
            ends = np.asarray(edge_set.vertices)
            place = order[np.minimum(np.searchsorted(drawn.ids, ends, sorter=order), len(order) - 1)]
            is_drawn = drawn.ids[place] == ends
            for slot in range(ends.shape[1]):
                np.add.at(self.of_vertices, place[is_drawn[:, slot], slot], values[is_drawn[:, slot]])
            if edge_set.arity == 2:
                parts.append(values[is_drawn.all(axis=1)])
        self.of_lines = np.concatenate(parts)
        poses = np.where(drawn.lines < drawn.num_poses, drawn.lines, -1)
        self._later = poses.max(axis=1) if len(poses) else np.empty(0, np.int64)

    def chosen(self, most: int) -> NDArray[np.int64]:
        """Rows of the edges to draw, by their later pose."""
        rows = np.arange(len(self.of_lines))
        if len(rows) > most:
            rows = np.argpartition(-self.of_lines, most)[:most]
        return rows[np.argsort(self._later[rows], kind="stable")]


def filled(document: dict[str, Any]) -> str:
    """The page with its data."""
    text = json.dumps(document, separators=(",", ":"), allow_nan=False).replace("</", "<\\/")
    template = Path(__file__).with_name("viewer.html").read_text(encoding="utf-8")
    title = html.escape(str(document["title"]))
    return template.replace("__TITLE__", title, 1).replace("__DATA__", text, 1)


def _middle(positions: NDArray[np.float64]) -> NDArray[np.float64]:
    placed = _in_space(positions)
    finite = placed[np.isfinite(placed).all(axis=1)]
    return np.median(finite, axis=0) if len(finite) else np.zeros(3)


def _in_space(positions: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.pad(positions, ((0, 0), (0, 3 - positions.shape[1])))


def _placed(positions: NDArray[np.float64] | None, middle: NDArray[np.float64]) -> NDArray[np.float64] | None:
    return None if positions is None else _in_space(positions) - middle


def _packed(values: NDArray | None, kind: type) -> str:
    if values is None:
        return ""
    return base64.b64encode(np.ascontiguousarray(values, dtype=kind).tobytes()).decode()
