"""Trajectories in TUM, KITTI and EuRoC's form.

    TUM     timestamp x y z qx qy qz qw      one line per pose, # comments
    KITTI   r11 r12 r13 x r21 ... r33 z      first three rows of the matrix, one line per pose, no timestamps
    EuRoC   stamp [ns], x, y, z, qw, qx, qy, qz, ...    and what else is known of the state, # comments

All hold world_T_body. Poses are (n, 7) arrays x y z qx qy qz qw with unit quaternions. From a graph:
VERTEX_SE3:QUAT as it is, VERTEX_SE2 with z = 0, VERTEX_SE3:EXPMAP inverted, because it is cam_T_world.
"""

from __future__ import annotations

import io
import os

import numpy as np

from graphopt.errors import FormatError, GraphError
from graphopt.geometry import SE3
from graphopt.graph import Graph
from graphopt.graph.poses import poses_of_graph
from graphopt.io.files import PathLike, read_bytes, write_bytes
from graphopt.io.numbers import RaggedRows, format_table
from graphopt.io.read_report import ReadReport

TUM_LAYOUT = "timestamp x y z qx qy qz qw"
KITTI_LAYOUT = "3 x 4 matrix row by row"
TIMESTAMPS = "timestamps"
"""Key of the timestamps in `graph.attachments`: dict from vertex id to seconds."""


def parse_tum(data: bytes, path: str) -> tuple[np.ndarray, np.ndarray]:
    """Timestamps (n,) [s] and poses (n, 7) of a TUM text; fields may also be separated by commas."""
    table = RaggedRows(data, path, separator=",").matrix(8, TUM_LAYOUT)
    rows = RaggedRows(data, path, separator=",")
    poses = table[:, 1:].copy()
    length = np.linalg.norm(poses[:, 3:], axis=1)
    wrong = np.flatnonzero(~(length > 1e-6) | ~np.isfinite(length))
    if len(wrong):
        raise FormatError(
            f"{path}:{rows.lines[wrong[0]]}: the quaternion has length {length[wrong[0]]:g}, expected 1"
        )
    poses[:, 3:] /= length[:, None]
    return table[:, 0].copy(), poses


def parse_kitti(data: bytes, path: str) -> np.ndarray:
    """Poses (n, 7) of a KITTI text."""
    rows = RaggedRows(data, path)
    matrices = rows.matrix(12, KITTI_LAYOUT).reshape(-1, 3, 4)
    rotation = matrices[:, :, :3]
    with np.errstate(over="ignore", invalid="ignore"):
        defect = np.abs(rotation @ np.swapaxes(rotation, 1, 2) - np.eye(3)).max(axis=(1, 2), initial=0.0)
        proper = np.linalg.det(rotation) > 0.0
    wrong = np.flatnonzero(~(defect < 1e-2) | ~proper)
    if len(wrong):
        raise FormatError(
            f"{path}:{rows.lines[wrong[0]]}: the 3 x 3 part is no rotation (R R' differs from 1 by "
            f"{defect[wrong[0]]:.2g})"
        )
    full = np.tile(np.eye(4), (len(matrices), 1, 1))
    full[:, :3] = matrices
    return np.asarray(SE3.from_matrix(full).normalize().storage) if len(full) else np.empty((0, 7))


def read_tum(path: PathLike) -> tuple[np.ndarray, np.ndarray]:
    """Timestamps (n,) [s] and poses (n, 7). Raises FormatError, OSError."""
    return parse_tum(read_bytes(path), os.fspath(path))


def read_kitti(path: PathLike) -> np.ndarray:
    """Poses (n, 7). Raises FormatError, OSError."""
    return parse_kitti(read_bytes(path), os.fspath(path))


def read_euroc(
    path: PathLike, widths: tuple[int, ...] | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Stamps (n,) int64 [ns], poses (n, 7), and the columns behind them (n, k).

    widths: numbers of columns behind the stamp that are allowed, None: from 7. Raises FormatError, OSError.
    """
    stamps, values = read_stamped(path, widths)
    if values.shape[1] < 7:
        raise FormatError(
            f"{os.fspath(path)}: {values.shape[1] + 1} columns, expected stamp [ns], p (3), q (4)."
        )
    length = np.linalg.norm(values[:, 3:7], axis=-1, keepdims=True)
    if not (np.abs(length - 1.0) < 1e-2).all():
        row = int(np.argmax(np.abs(length[:, 0] - 1.0)))
        raise FormatError(
            f"{os.fspath(path)}: the quaternion at {stamps[row]} ns has length {length[row, 0]:.4f}, "
            "expected 1. Columns are p (3), q as w x y z (4)."
        )
    q = values[:, 3:7] / length
    return stamps, np.concatenate([values[:, :3], q[:, 1:], q[:, :1]], axis=1), values[:, 7:]


def read_stamped(path: PathLike, widths: tuple[int, ...] | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Stamps (n,) int64 and the other columns (n, width) of lines of numbers separated by commas.

    widths: of these those that are allowed. Raises FormatError, OSError.
    """
    data, name = read_bytes(path), os.fspath(path)
    first = next((line for line in data.splitlines() if line.strip() and not line.startswith(b"#")), None)
    if first is None:
        raise FormatError(f"{name}: holds no samples, only comments and blank lines.")
    width = first.count(b",")
    if widths is not None and width not in widths:
        raise FormatError(
            f"{name}: the first line of numbers has {width + 1} columns separated by commas, "
            f"expected {' or '.join(str(each_width + 1) for each_width in widths)}."
        )
    columns = [("stamp", np.int64), ("values", np.float64, (width,))]
    try:
        table = np.loadtxt(io.BytesIO(data), dtype=columns, delimiter=",", comments="#", ndmin=1)
    except ValueError as error:
        lines = enumerate(data.splitlines(), 1)
        bad = [k for k, line in lines if line.strip() and line[:1] != b"#" and line.count(b",") != width]
        what = f"line {bad[0]} has not {width + 1} columns as the first" if bad else str(error)
        raise FormatError(f"{name}: {what}. Is the file complete?") from error
    return table["stamp"], table["values"]


def write_tum(path: PathLike, timestamps: np.ndarray, poses: np.ndarray) -> None:
    """Write timestamps (n,) [s] and poses (n, 7)."""
    write_bytes(path, format_tum(timestamps, poses))


def write_kitti(path: PathLike, poses: np.ndarray) -> None:
    """Write poses (n, 7)."""
    write_bytes(path, format_kitti(poses))


def format_tum(timestamps: np.ndarray, poses: np.ndarray) -> bytes:
    """TUM text of timestamps (n,) and poses (n, 7)."""
    return f"# {TUM_LAYOUT}\n".encode() + format_table(np.column_stack([timestamps, poses]))


def format_kitti(poses: np.ndarray) -> bytes:
    """KITTI text of poses (n, 7)."""
    return format_table(SE3(np.asarray(poses, dtype=float)).to_matrix()[:, :3].reshape(-1, 12))


def poses_of(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    """Ids (n,) and world_T_body poses (n, 7) of all vertices with a pose, by ascending id.

    FormatError if there are none.
    """
    try:
        return poses_of_graph(graph)
    except GraphError as error:
        raise FormatError(f"nothing to write as a trajectory: {error}") from None


def read_tum_graph(data: bytes, path: str, report: ReadReport) -> Graph:
    """Graph with one VERTEX_SE3:QUAT per line, ids from 0, and no edges."""
    timestamps, poses = parse_tum(data, path)
    graph = _pose_graph(poses, report)
    graph.attachments[TIMESTAMPS] = dict(enumerate(timestamps.tolist()))
    return graph


def read_kitti_graph(data: bytes, path: str, report: ReadReport) -> Graph:
    """Graph with one VERTEX_SE3:QUAT per line, ids from 0, and no edges."""
    return _pose_graph(parse_kitti(data, path), report)


def _pose_graph(poses: np.ndarray, report: ReadReport) -> Graph:
    graph = Graph()
    graph.add_vertices("VERTEX_SE3:QUAT", np.arange(len(poses)), poses)
    report.vertices["VERTEX_SE3:QUAT"] = report.num_lines = len(poses)
    return graph


def write_tum_graph(graph: Graph) -> tuple[bytes, list[str]]:
    """Poses by ascending id; the timestamp is that of the file the graph came from, else the id."""
    ids, poses = poses_of(graph)
    known = graph.attachments.get(TIMESTAMPS)
    times = known if isinstance(known, dict) else {}
    warnings = _only_poses(graph, len(ids))
    if any(id_ not in times for id_ in ids.tolist()):
        warnings.append("the graph has no timestamps: vertex ids stand in their place")
    return format_tum(np.array([times.get(id_, float(id_)) for id_ in ids.tolist()]), poses), warnings


def write_kitti_graph(graph: Graph) -> tuple[bytes, list[str]]:
    """Poses by ascending id."""
    ids, poses = poses_of(graph)
    return format_kitti(poses), _only_poses(graph, len(ids))


def _only_poses(graph: Graph, num_poses: int) -> list[str]:
    others = graph.num_vertices - num_poses
    lost = [f"{graph.num_edges} edges"] if graph.num_edges else []
    lost += [f"{others} other vertices"] if others else []
    return [f"a trajectory holds poses only: {' and '.join(lost)} are not kept"] if lost else []
