"""GTSAM's stereo visual odometry: factors, camera poses and calibration in three text files of one folder.

    ..stereo_factors..  pose point u_left u_right v  X Y Z      a line per observation; X Y Z in its camera
    ..camera_poses..    pose  4 x 4 matrix row by row           world_T_cam
    ..calibration..     fx fy skew cx cy baseline

(GTSAM's StereoVOExample_large.cpp.) A point starts where its first line sees it. Poses become
VERTEX_SE3:EXPMAP, the first one fixed as in GTSAM's example, observations EDGE_STEREO_SE3_PROJECT_XYZ:EXPMAP
with the identity as information. Pose i is vertex i, point j vertex j + 1 + the largest pose number.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from graphopt.errors import FormatError
from graphopt.geometry import SE3
from graphopt.graph import Graph
from graphopt.io.files import read_bytes
from graphopt.io.numbers import RaggedRows, to_integers
from graphopt.io.read_report import ReadReport

POSE, POINT, OBSERVATION = "VERTEX_SE3:EXPMAP", "VERTEX_TRACKXYZ", "EDGE_STEREO_SE3_PROJECT_XYZ:EXPMAP"
_FACTORS, _POSES, _CALIBRATION = "stereo_factors", "camera_poses", "calibration"


def looks_like(table: np.ndarray) -> bool:
    """Tell whether lines (n, 8) may be factors: two counting numbers, then u_left >= u_right."""
    ids = table[:, :2]
    return bool(len(table)) and bool(
        (ids == np.trunc(ids)).all() and (table[:, 2] >= table[:, 3]).mean() > 0.9
    )


def _companion(path: str, part: str) -> Path:
    """File beside the factors: the same name with another part, or the only one whose name has the part."""
    folder, name = Path(path).parent, Path(path).name
    same = folder / name.replace(_FACTORS, part)
    if _FACTORS in name and same.is_file():
        return same
    candidates = sorted(
        each_path for each_path in folder.iterdir() if part in each_path.name and each_path.is_file()
    )
    if len(candidates) != 1:
        names = ", ".join(member.name for member in candidates) or "none"
        raise FormatError(
            f"{path}: stereo factors need a file whose name contains '{part}' beside them, found {names}"
        )
    return candidates[0]


def _table(path: Path, columns: int, layout: str) -> tuple[np.ndarray, np.ndarray]:
    rows = RaggedRows(read_bytes(path), os.fspath(path))
    return rows.matrix(columns, layout), rows.lines


def _calibration(path: Path) -> np.ndarray:
    """(5,) fx fy cx cy, baseline times fx."""
    table, lines = _table(path, 6, "fx fy skew cx cy baseline")
    if len(table) != 1 or table[0, 2] != 0.0:
        raise FormatError(f"{path}:{lines[0] if len(lines) else 1}: expected one line with a skew of 0")
    fx, fy, _, cx, cy, baseline = table[0]
    return np.array([fx, fy, cx, cy, fx * baseline])


def _poses(path: Path) -> tuple[np.ndarray, SE3]:
    """Numbers (n,) and world_T_cam of the poses."""
    table, lines = _table(path, 17, "pose number, 4 x 4 matrix row by row")
    ids = to_integers(table[:, 0], lines, os.fspath(path), "pose number")
    matrices = table[:, 1:].reshape(-1, 4, 4)
    rotation = matrices[:, :3, :3]
    defect = np.abs(rotation @ np.swapaxes(rotation, 1, 2) - np.eye(3)).max(axis=(1, 2), initial=0.0)
    wrong = np.flatnonzero(~(defect < 1e-2) | ~(np.linalg.det(rotation) > 0.0))
    if len(wrong):
        raise FormatError(f"{path}:{lines[wrong[0]]}: the 3 x 3 part is no rotation")
    if len(np.unique(ids)) != len(ids):
        raise FormatError(f"{path}: a pose number stands on two lines")
    return ids, SE3.from_matrix(matrices).normalize()


def read_gtsam_stereo(data: bytes, path: str, report: ReadReport) -> Graph:
    """Graph of the factors in `data` and of the two files beside `path`. Raises FormatError, OSError."""
    rows = RaggedRows(data, path)
    table = rows.matrix(8, "pose point u_left u_right v X Y Z")
    if len(table) == 0:
        raise FormatError(f"{path}:1: the file is empty")
    pose_of, point_of = (
        to_integers(table[:, k], rows.lines, path, what) for k, what in ((0, "pose"), (1, "point"))
    )
    pose_ids, world_T_cam = _poses(_companion(path, _POSES))
    missing = np.flatnonzero(~np.isin(pose_of, pose_ids))
    if len(missing):
        raise FormatError(
            f"{path}:{rows.lines[missing[0]]}: pose {pose_of[missing[0]]} is not in the poses' file"
        )
    order = np.argsort(pose_ids)
    at = order[np.searchsorted(pose_ids, pose_of, sorter=order)]
    points, first = np.unique(point_of, return_index=True)
    shift = int(pose_ids.max()) + 1
    graph = Graph()
    graph.add_vertices(POSE, pose_ids, np.asarray(world_T_cam.inverse().storage))
    graph.set_fixed([int(pose_ids[0])])
    seen_from = SE3(np.asarray(world_T_cam.storage)[at[first]])
    graph.add_vertices(POINT, points + shift, np.asarray(seen_from.act(table[first, 5:])), marginalized=True)
    constants = np.broadcast_to(_calibration(_companion(path, _CALIBRATION)), (len(table), 5))
    measured = np.concatenate([table[:, [2, 4, 3]], constants], axis=1)
    graph.add_edges(OBSERVATION, np.stack([point_of + shift, pose_of], axis=1), measured)
    report.vertices.update({POSE: len(pose_ids), POINT: len(points)})
    report.edges[OBSERVATION] = len(table)
    report.num_lines = len(table)
    return graph
