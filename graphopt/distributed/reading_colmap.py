"""A COLMAP model read by all ranks: each takes some points with their tracks.

Cameras, rigs, frames and the poses of images are on all ranks; of the keypoints a rank takes those of its
tracks. Binary parts are looked through by each rank, which takes an equal number of points; of text each
reads equal pieces of the bytes (`reading_colmap_text`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from graphopt.distributed.communicator import Communicator, together
from graphopt.distributed.reading_colmap_text import head_of, joined_heads, read_images, read_points
from graphopt.distributed.tables import EdgeRows, PartedGraph, Tables, VertexRows, deal
from graphopt.errors import FormatError, OptionError
from graphopt.io.colmap import ColmapImages, ColmapModel, ColmapPoints, binary, find_part, text
from graphopt.io.colmap.graph import graph_of
from graphopt.io.colmap.mapped import COUNT, Mapped, image_pieces, point_pieces
from graphopt.io.read_report import ReadReport

_PARTS = ("cameras", "images", "points3D")


def read_colmap(folder: str, comm: Communicator) -> PartedGraph:
    """Read a model in parts, binary or text. Collective. `FormatError` on all ranks for a damaged one."""
    paths = together(comm, lambda: _paths(folder))
    points, first, num_points = _own_points(paths["points3D"], comm)
    images, points.track = _own_images(paths["images"], comm, points.track)
    model = together(comm, lambda: _model(folder, paths, images, points))
    total = len(images.ids) + len(model.cameras) + num_points
    tables = together(comm, lambda: _tables(model, folder, first, total, comm.rank == 0))
    elements = comm.share(len(model.points.track))
    for edge in tables.edges:
        edge.order += total + sum(elements[: comm.rank])
    return deal(comm, folder, tables)


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


def _paths(folder: str) -> dict[str, Path]:
    """The files of a model's parts, as `graphopt.read` finds them."""
    found = {part: path for part in (*_PARTS, "rigs", "frames") if (path := find_part(folder, part))}
    for part in _PARTS:
        if part not in found:
            raise OptionError(f"{folder}: {part}.bin or {part}.txt is missing.")
    for path in found.values():
        if path.suffix not in (".bin", ".txt"):
            raise OptionError(f"{path}: parts of a packed file cannot be read alone: unpack it first.")
    return found


def without_points(folder: str) -> tuple[ColmapModel, dict[str, Path], int]:
    """The model without points and keypoints, the files of its parts, and how many points it has."""
    paths = _paths(folder)
    if paths["points3D"].suffix == ".bin":
        none, _, num_points = _points(paths["points3D"], 0, 1 << 62)  # of none: 0 to 0
    else:
        none = text.parse_points(b"", "")
        num_points = sum(len(piece.ids) for piece in point_pieces(paths["points3D"]))
    if paths["images"].suffix == ".bin":
        images, _ = _images(paths["images"], none.track)
    else:
        images = joined_heads([head_of(piece) for piece in image_pieces(paths["images"])])
    return _model(folder, paths, images, none), paths, num_points


def _model(folder: str, paths: dict[str, Path], images: ColmapImages, points: ColmapPoints) -> ColmapModel:
    """A model with these points, and keypoints of their tracks only."""

    def parsed(part: str) -> Any:
        form: Any = text if paths[part].suffix == ".txt" else binary
        return getattr(form, f"parse_{part}")(paths[part].read_bytes(), str(paths[part]))

    model = ColmapModel(parsed("cameras"), images, points)
    if "rigs" in paths and "frames" in paths:
        model.rigs, model.frames = parsed("rigs"), parsed("frames")
    model.check(folder)
    return model


def _own_points(path: Path, comm: Communicator) -> tuple[ColmapPoints, int, int]:
    """This rank's points, the number of the first one, and of all. Collective."""
    if path.suffix == ".bin":
        return together(comm, lambda: _points(path, comm.rank, comm.size))
    points = read_points(path, comm)
    counts = comm.share(len(points.ids))
    return points, sum(counts[: comm.rank]), sum(counts)


def _own_images(path: Path, comm: Communicator, track: np.ndarray) -> tuple[ColmapImages, np.ndarray]:
    """All images, with the keypoints of this rank's track; and that as they stand there. Collective."""
    if path.suffix == ".bin":
        return together(comm, lambda: _images(path, track))
    return read_images(path, comm, track)


def _points(path: Path, rank: int, size: int) -> tuple[ColmapPoints, int, int]:
    """An equal number of points; the number of the first one, and of all. Entries differ in length."""
    heads, tracks = [], []
    with Mapped(path) as mapped:
        (count,) = mapped.take(COUNT, 0, "the number of points")
        first, last = (number * count // size for number in (rank, rank + 1))
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
