"""Bundle adjustment problems of Blender's motion tracker (libmv), as Ceres' libmv_bundle_adjuster reads them.

    byte    V big endian, v little endian
    byte    P markers in pixels, N markers on the plane z = 1
    8 float focal length, principal point x y, k1 k2 k3, p1 p2
    int n, n cameras: image int, rotation cam_R_world by columns 9 float, translation 3 float
    int n, n points:  track int, position 3 float
    int n, n markers: image int, track int, x y float

One set of intrinsics is shared by all images: VERTEX_CAMERA_LIBMV, id 0, fixed for normalised markers. Image
i becomes vertex 1 + i (VERTEX_SE3:EXPMAP), track j vertex 2 + largest image number + j. Markers of images or
tracks without a camera or a point are left out and counted.
"""

from __future__ import annotations

import numpy as np

import graphopt.io.extra_types as extra_types
from graphopt.errors import FormatError
from graphopt.geometry import SO3
from graphopt.graph import Graph
from graphopt.io.read_report import ReadReport

_CAMERA = [("image", "i4"), ("rotation", "f4", 9), ("translation", "f4", 3)]
_POINT = [("track", "i4"), ("position", "f4", 3)]
_MARKER = [("image", "i4"), ("track", "i4"), ("xy", "f4", 2)]


def read_libmv(data: bytes, path: str, report: ReadReport) -> Graph:
    """Graph of a libmv problem. Raises FormatError."""
    in_pixels, intrinsics, cameras, points, markers = _parse(data, path)
    first_track = 2 + int(cameras["image"].max(initial=-1))
    known = np.isin(markers["image"], cameras["image"]) & np.isin(markers["track"], points["track"])
    if not known.all():
        report.warnings.append(
            f"{int((~known).sum())} markers belong to images or tracks that are not in the file"
        )
    markers = markers[known]
    rotation = np.swapaxes(cameras["rotation"].reshape(-1, 3, 3).astype(np.float64), 1, 2)
    poses = np.concatenate(
        [cameras["translation"], np.asarray(SO3.from_matrix(rotation).normalize().storage).reshape(-1, 4)],
        axis=1,
    )
    graph = Graph()
    camera_type, edge_type = extra_types.CAMERA_VERTEX["LIBMV"], extra_types.PROJECTION_EDGE["LIBMV"]
    start = intrinsics if in_pixels else np.array([1.0, 0, 0, 0, 0, 0, 0, 0])
    graph.add_vertices(camera_type, [0], start[None], fixed=not in_pixels)
    graph.add_vertices(extra_types.POSE_TAG, 1 + cameras["image"].astype(np.int64), poses)
    track_ids = first_track + points["track"].astype(np.int64)
    graph.add_vertices(
        extra_types.POINT_TAG, track_ids, points["position"].astype(np.float64), marginalized=True
    )
    vertices = np.zeros((len(markers), 3), np.int64)
    vertices[:, 0] = 1 + markers["image"]
    vertices[:, 1] = first_track + markers["track"]
    graph.add_edges(edge_type, vertices, markers["xy"].astype(np.float64))
    report.vertices.update(
        {camera_type.tag: 1, extra_types.POSE_TAG: len(cameras), extra_types.POINT_TAG: len(points)}
    )
    report.edges[edge_type.tag] = len(markers)
    return graph


def _parse(data: bytes, path: str):
    if len(data) < 34 or data[:1] not in (b"V", b"v") or data[1:2] not in (b"P", b"N"):
        raise FormatError(f"{path}: expected a libmv problem, which starts with V or v, then P or N")
    order = ">" if data[:1] == b"V" else "<"
    intrinsics = np.frombuffer(data, f"{order}f4", 8, 2).astype(np.float64)
    offset = 34
    tables = []
    for what, fields, key in (
        ("cameras", _CAMERA, "image"),
        ("points", _POINT, "track"),
        ("markers", _MARKER, None),
    ):
        dtype = np.dtype([(name, order + kind, *shape) for name, kind, *shape in fields])
        if len(data) < offset + 4:
            raise FormatError(f"{path}: ends before the number of {what}, at byte {offset}")
        count = int(np.frombuffer(data, f"{order}i4", 1, offset)[0])
        offset += 4
        if not 0 <= count <= (len(data) - offset) // dtype.itemsize:
            raise FormatError(
                f"{path}: byte {offset - 4}: {count} {what} cannot stand in the remaining "
                f"{len(data) - offset} bytes"
            )
        table = np.frombuffer(data, dtype, count, offset)
        offset += count * dtype.itemsize
        _check(table, key, what, path)
        tables.append(table)
    if offset != len(data):
        raise FormatError(f"{path}: {len(data) - offset} bytes follow the last marker")
    if not np.isfinite(intrinsics).all():
        raise FormatError(f"{path}: the intrinsics are not finite")
    return data[1:2] == b"P", intrinsics, *tables


def _check(table: np.ndarray, key: str | None, what: str, path: str) -> None:
    for name in table.dtype.names or ():
        column = table[name]
        if column.dtype.kind == "f":
            bad = np.flatnonzero(~np.isfinite(column).all(axis=1))
            if len(bad):
                raise FormatError(f"{path}: {what}: entry {bad[0]} has a {name} that is not finite")
        elif (column < 0).any():
            raise FormatError(
                f"{path}: {what}: entry {np.flatnonzero(column < 0)[0]} has a negative {name} number"
            )
    if key is not None and len(np.unique(table[key])) != len(table):
        raise FormatError(f"{path}: {what}: a {key} number is used twice")
    if "rotation" in (table.dtype.names or ()) and len(table):
        rotation = table["rotation"].reshape(-1, 3, 3).astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            defect = np.abs(rotation @ np.swapaxes(rotation, 1, 2) - np.eye(3)).max(axis=(1, 2))
            wrong = np.flatnonzero(~(defect < 1e-2) | ~(np.linalg.det(rotation) > 0.0))
        if len(wrong):
            raise FormatError(f"{path}: cameras: entry {wrong[0]} has a matrix that is no rotation")
