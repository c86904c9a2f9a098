"""A binary COLMAP model read by all ranks: each takes an equal number of points with their tracks.

Cameras, rigs, frames and the poses of images are on all ranks; of the keypoints a rank takes those of its
tracks.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from graphopt.distributed.communicator import Communicator, agreed, together
from graphopt.distributed.tables import EdgeRows, PartedGraph, Tables, VertexRows, deal, hold_first
from graphopt.errors import FormatError, OptionError
from graphopt.io.colmap import ColmapImages, ColmapModel, ColmapPoints, binary
from graphopt.io.colmap.graph import graph_of
from graphopt.io.colmap.mapped import COUNT, Mapped
from graphopt.io.folders import in_folder
from graphopt.io.read_report import ReadReport

_PARTS = ("cameras", "images", "points3D")


def read_colmap(folder: str, comm: Communicator) -> PartedGraph:
    """Read a model in parts. Collective. `FormatError` on all ranks for a damaged one."""
    missing = [part for part in _PARTS if not in_folder(folder, f"{part}.bin").is_file()]
    if any(comm.share(bool(missing))):
        names = ", ".join(f"{part}.bin" for part in missing)
        raise agreed(OptionError(f"{folder}: {names} is missing; only binary models are read in parts."))
    model, first, total = together(comm, lambda: _part(folder, comm.rank, comm.size))
    tables = together(comm, lambda: _tables(model, folder, first, total, comm.rank == 0))
    elements = comm.share(len(model.points.track))
    for edge in tables.edges:
        edge.order += total + sum(elements[: comm.rank])
    held = hold_first(comm, tables)
    parted = deal(comm, folder, tables)
    parted.held = held
    return parted


def _tables(model: ColmapModel, folder: str, first: int, total: int, leads: bool) -> Tables:
    """Tables of a model whose points are those from number `first` on of `total`."""
    graph = graph_of(model, folder, ReadReport(folder, "colmap"))
    own = len(model.images.ids) + len(model.cameras)
    num_vertices = own + len(model.points.ids)
    tables = Tables()
    for vertex_set in graph.vertex_sets:
        gone = vertex_set.marginalized
        if leads or gone.any():
            ids = vertex_set.ids + first * gone
            tables.vertices.append(
                VertexRows(vertex_set.type, ids, vertex_set.estimate, vertex_set.fixed, gone, ids)
            )
    for edge_set in graph.edge_sets:
        vertices = edge_set.vertices + first * (
            (edge_set.vertices >= own) & (edge_set.vertices < num_vertices)
        )
        columns = (
            vertices,
            edge_set.measurement,
            edge_set.information,
            edge_set.parameters,
            edge_set.sequence - num_vertices,
        )
        tables.edges.append(EdgeRows(edge_set.type, *columns))
    if leads:
        sets = [parameter_set for parameter_set in graph.parameter_sets if len(parameter_set)]
        tables.parameters = [(set_.type, set_.ids, set_.values, set_.sequence) for set_ in sets]
    return tables


def _part(folder: str, rank: int, size: int) -> tuple[ColmapModel, int, int]:
    """A model with the rank's points; number of its first one, and of all vertices of the whole model."""
    points, first, num_points = _points(in_folder(folder, "points3D.bin"), rank, size)
    model = _model(folder, points)
    return model, first, len(model.images.ids) + len(model.cameras) + num_points


def without_points(folder: str) -> tuple[ColmapModel, int]:
    """The model without points and keypoints, and how many points it has."""
    points, _, num_points = _points(in_folder(folder, "points3D.bin"), 0, 1 << 62)  # of none: 0 to 0
    return _model(folder, points), num_points


def _model(folder: str, points: ColmapPoints) -> ColmapModel:
    """A model with these points, and keypoints of their tracks only."""
    path = in_folder(folder, "cameras.bin")
    cameras = binary.parse_cameras(path.read_bytes(), str(path))
    images, points.track = _images(in_folder(folder, "images.bin"), points.track)
    model = ColmapModel(cameras, images, points)
    rigs, frames = (in_folder(folder, f"{one}.bin") for one in ("rigs", "frames"))
    if rigs.is_file() and frames.is_file():
        model.rigs = binary.parse_rigs(rigs.read_bytes(), str(rigs))
        model.frames = binary.parse_frames(frames.read_bytes(), str(frames))
    model.check(folder)
    return model


def _points(path: Path, rank: int, size: int) -> tuple[ColmapPoints, int, int]:
    """An equal number of points; the number of the first one, and of all. Entries differ in length."""
    heads, tracks = [], []
    with Mapped(path) as mapped:
        (count,) = mapped.take(COUNT, 0, "the number of points")
        first, last = (one * count // size for one in (rank, rank + 1))
        at, to_length = COUNT.size, binary.POINT.size - COUNT.size
        for number in range(last):
            (length,) = mapped.take(COUNT, at + to_length, "a point")
            if number >= first:
                heads.append(mapped.take(binary.POINT, at, "a point"))
                begin = at + binary.POINT.size
                tracks.append(mapped.array(binary.TRACK, length, begin, f"the track of point {heads[-1][0]}"))
            at += binary.POINT.size + length * binary.TRACK.itemsize
    every = np.concatenate([np.empty(0, binary.TRACK), *tracks])
    found = ColmapPoints(
        ids=np.array([head[0] for head in heads], np.int64),
        xyz=np.array([head[1:4] for head in heads], np.float64).reshape(-1, 3),
        rgb=np.array([head[4:7] for head in heads], np.uint8).reshape(-1, 3),
        error=np.array([head[7] for head in heads], np.float64),
        track_start=np.cumsum([0] + [len(track) for track in tracks]),
        track=np.stack([every["image"], every["keypoint"]], axis=1).astype(np.int64),
    )
    return found, first, int(count)


def _images(path: Path, track: np.ndarray) -> tuple[ColmapImages, np.ndarray]:
    """All images, with the keypoints (image id, number) of a track only; and these, as they stand there."""
    order = np.lexsort((track[:, 1], track[:, 0]))
    wanted, starts = np.unique(track[order, 0], return_index=True)
    rows_of = dict(zip(wanted.tolist(), np.split(order, starts[1:]), strict=True)) if len(order) else {}
    taken = track.copy()
    heads, names, keypoints = [], [], []
    with Mapped(path) as mapped:
        (count,) = mapped.take(COUNT, 0, "the number of images")
        at = COUNT.size
        for _ in range(count):
            heads.append(mapped.take(binary.IMAGE, at, "an image"))
            identifier, begin = heads[-1][0], at + binary.IMAGE.size
            end = mapped.data.find(b"\0", begin)
            if end < 0:
                raise FormatError(f"{path}: ends in the middle of the name of image {identifier}")
            names.append(mapped.data[begin:end].decode("utf-8", "surrogateescape"))
            what = f"keypoints of image {identifier}"
            (number,) = mapped.take(COUNT, end + 1, what)
            at = end + 1 + COUNT.size
            rows = rows_of.pop(identifier, np.empty(0, np.int64))
            if len(rows):
                asked = track[rows, 1]
                if asked.max() >= number:
                    raise FormatError(f"{path}: image {identifier} has no keypoint {asked.max()}")
                keypoints.append(mapped.array(binary.KEYPOINT, number, at, what)[asked])
                taken[rows, 1] = np.arange(len(rows))
            else:
                keypoints.append(np.empty(0, binary.KEYPOINT))
            at += number * binary.KEYPOINT.itemsize
    if rows_of:
        raise FormatError(f"{path}: a track names image {min(rows_of)}, which does not exist")
    table, every = np.array(heads, np.float64).reshape(-1, 9), np.concatenate(keypoints)
    images = ColmapImages(
        ids=table[:, 0].astype(np.int64),
        quaternion=table[:, 1:5].copy(),
        translation=table[:, 5:8].copy(),
        camera_ids=table[:, 8].astype(np.int64),
        names=names,
        keypoint_start=np.cumsum([0] + [len(keypoint) for keypoint in keypoints]),
        xy=np.stack([every["x"], every["y"]], axis=1),
        point_ids=every["point_id"].astype(np.int64),
    )
    return images, taken
