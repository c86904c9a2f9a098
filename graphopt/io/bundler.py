"""Bundler's bundle.out, version 0.3 (Snavely): cameras, points with colours and views.

    # Bundle file v0.3
    num_cameras num_points
    f k1 k2; 3 x 3 rotation; translation                 per camera, all 0 if it was not reconstructed
    position; colour; n, then n times (camera key x y)   per point; x right, y up, 0 in the image centre

The camera is BAL's (Snavely's). The graph is BAL's too; colours, keys and cameras that were not reconstructed
are kept in `graph.attachments["bundler"]`, so that an optimized graph writes back completely.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphopt.errors import FormatError
from graphopt.geometry import SO3
from graphopt.graph import Graph
from graphopt.io.bal import OBSERVATION, graph_of, problem_of
from graphopt.io.bal_problem import BalProblem
from graphopt.io.numbers import RaggedRows, format_ragged, format_table
from graphopt.io.read_report import ReadReport

HEADER = b"# Bundle file v0.3"
ATTACHMENT = "bundler"


@dataclass
class BundlerExtras:
    """What a Bundler file holds beside the BAL problem."""

    missing: np.ndarray  # (num_cameras,) bool: not reconstructed
    raw_cameras: np.ndarray  # (num_cameras, 15) f k1 k2, rotation row by row, translation, as read
    colours: np.ndarray  # (num_points, 3)
    keys: np.ndarray  # (m,) index of the feature in its image, by observation


def parse_bundler(data: bytes, path: str) -> tuple[BalProblem, BundlerExtras]:
    """Read a bundle.out. Raises FormatError with path and line."""
    if not data.lstrip().startswith(HEADER):
        raise FormatError(f"{path}:1: expected '{HEADER.decode()}' in the first line")
    rows = RaggedRows(data, path)
    flat = _Flat(rows)
    num_cameras, num_points = (flat.count(what, 1) for what in ("cameras", "points"))
    if num_cameras * 15 + num_points * 7 > flat.remaining:
        raise FormatError(
            f"{path}:{rows.lines[0]}: {num_cameras} cameras and {num_points} points cannot stand in the "
            f"{flat.remaining} numbers that follow"
        )
    raw = flat.take(15 * num_cameras, "a camera").reshape(-1, 15)
    positions, colours, views, point_index = [], [], [], []
    for point in range(num_points):
        head = flat.take(6, "a point")
        positions.append(head[:3])
        colours.append(head[3:])
        count = flat.count("views of a point", 4)
        views.append(flat.take(4 * count, "the views of a point").reshape(-1, 4))
        point_index.append(np.full(count, point))
    flat.expect_end()
    view = np.concatenate(views) if views else np.empty((0, 4))
    if (view[:, :2] != np.trunc(view[:, :2])).any() or (np.abs(view[:, :2]) > 2.0**53).any():
        raise FormatError(f"{path}: a view has a camera or key number that is not an integer")
    missing = raw[:, 0] == 0.0
    problem = BalProblem(
        camera_index=view[:, 0].astype(np.int64),
        point_index=np.concatenate(point_index) if point_index else np.empty(0, np.int64),
        observations=view[:, 2:].copy(),
        cameras=_bal_cameras(raw, missing, path),
        points=np.array(positions).reshape(-1, 3),
    )
    problem.check(path)
    return problem, BundlerExtras(missing, raw, np.array(colours).reshape(-1, 3), view[:, 1].astype(np.int64))


class _Flat:
    """The numbers of all lines one after the other; knows the line of each for messages."""

    def __init__(self, rows: RaggedRows):
        self._rows = rows
        self._at = 0

    @property
    def remaining(self) -> int:
        return len(self._rows.values) - self._at

    def _where(self) -> str:
        row = int(np.searchsorted(self._rows.row_start, self._at, side="right")) - 1
        line = self._rows.lines[min(row, len(self._rows) - 1)] if len(self._rows) else 1
        return f"{self._rows.path}:{line}"

    def take(self, count: int, what: str) -> np.ndarray:
        if count > self.remaining:
            raise FormatError(f"{self._where()}: the file ends in the middle of {what}")
        self._at += count
        return self._rows.values[self._at - count : self._at]

    def count(self, what: str, numbers_each: int) -> int:
        value = float(self.take(1, f"the number of {what}")[0])
        if value != int(value) or not 0 <= value * numbers_each <= self.remaining:
            raise FormatError(f"{self._where()}: {value:g} {what}, but {self.remaining} numbers follow")
        return int(value)

    def expect_end(self) -> None:
        if self.remaining:
            raise FormatError(f"{self._where()}: {self.remaining} numbers follow the last point")


def _bal_cameras(raw: np.ndarray, missing: np.ndarray, path: str) -> np.ndarray:
    """(n, 15) -> (n, 9) BAL cameras; those that are missing get no rotation and focal length 1."""
    rotation = raw[:, 3:12].reshape(-1, 3, 3).copy()
    rotation[missing] = np.eye(3)
    with np.errstate(over="ignore", invalid="ignore"):
        defect = np.abs(rotation @ np.swapaxes(rotation, 1, 2) - np.eye(3)).max(axis=(1, 2), initial=0.0)
        wrong = np.flatnonzero(~(defect < 1e-2) | ~(np.linalg.det(rotation) > 0.0))
    if len(wrong):
        raise FormatError(
            f"{path}: camera {wrong[0]}: the 3 x 3 matrix is no rotation (R R' is off by "
            f"{defect[wrong[0]]:.2g})"
        )
    vectors = np.asarray(SO3.from_matrix(rotation).normalize().log()).reshape(-1, 3)
    focal = np.where(missing, 1.0, raw[:, 0])
    return np.concatenate([vectors, raw[:, 12:], focal[:, None], raw[:, 1:3]], axis=1)


def read_bundler(data: bytes, path: str, report: ReadReport) -> Graph:
    """Graph of a bundle.out: BAL's, the cameras that were not reconstructed fixed."""
    problem, extras = parse_bundler(data, path)
    graph = graph_of(problem, report)
    report.num_lines = data.count(b"\n")
    if extras.missing.any():
        report.warnings.append(f"{int(extras.missing.sum())} cameras were not reconstructed (focal length 0)")
        graph.set_fixed(np.flatnonzero(extras.missing))
    graph.attachments[ATTACHMENT] = extras
    return graph


def write_bundler(graph: Graph) -> tuple[bytes, list[str]]:
    """bundle.out of a graph with BAL cameras; colours and keys are those of the file it came from, else 0."""
    problem, warnings = problem_of(graph)
    warnings = [line for line in warnings if "fixed" not in line]
    extras = graph.attachments.get(ATTACHMENT)
    num_cameras, num_points, m = len(problem.cameras), len(problem.points), len(problem.observations)
    colours, keys, missing, raw = np.zeros((num_points, 3)), np.zeros(m), np.zeros(num_cameras, bool), None
    if isinstance(extras, BundlerExtras) and (len(extras.missing), len(extras.colours)) == (
        num_cameras,
        num_points,
    ):
        sequence = graph.edge_set(OBSERVATION).sequence - (num_cameras + num_points)
        colours, missing, raw = extras.colours, extras.missing, extras.raw_cameras
        if len(sequence) and 0 <= sequence.min() and sequence.max() < len(extras.keys):
            keys = extras.keys[sequence]
    else:
        warnings.append(
            "the graph does not come from a Bundler file: colours and feature numbers are written as 0"
        )
    rotation = np.asarray(SO3.exp(problem.cameras[:, :3]).to_matrix()).reshape(-1, 9)
    cameras = np.concatenate([problem.cameras[:, 6:9], rotation, problem.cameras[:, 3:6]], axis=1)
    if raw is not None:
        cameras[missing] = raw[missing]
    parts = [HEADER + f"\n{num_cameras} {num_points}\n".encode(), format_table(cameras.reshape(-1, 3))]
    return b"".join([*parts, _format_points(problem, colours, keys)]), warnings


def _format_points(problem: BalProblem, colours: np.ndarray, keys: np.ndarray) -> bytes:
    """Three lines per point."""
    order = np.argsort(problem.point_index, kind="stable")
    count = np.bincount(problem.point_index, minlength=len(problem.points))
    view = np.column_stack([problem.camera_index, keys, problem.observations])[order]
    length = 7 + 4 * count  # numbers per point
    start = np.concatenate([[0], np.cumsum(length)])
    values = np.empty(start[-1])
    head = start[:-1, None] + np.arange(7)
    is_view = np.ones(len(values), bool)
    is_view[head.ravel()] = False
    values[head] = np.column_stack([problem.points, colours, count])
    values[is_view] = view.ravel()
    row_start = np.concatenate(
        [np.stack([start[:-1], start[:-1] + 3, start[:-1] + 6], axis=1).ravel(), start[-1:]]
    )
    return format_ragged(values, row_start)
