"""A COLMAP model that was read in parts, written by rank 0: binary or text, whole or not at all.

    every rank      its cameras and poses; of its points coordinates and mean reprojection errors
    rank 0          has these of all ranks. Tracks and keypoints come from the files of the input, a piece at
                    a time, and go with the new numbers to files beside the old ones

All files are complete before the first takes its place (`io.folders`). What is written is, byte by byte, what
`graphopt.write` writes of a whole graph with these estimates.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any

import numpy as np

from graphopt.distributed.communicator import Communicator, together
from graphopt.distributed.gathering import Piece, each_rank, own_pieces
from graphopt.distributed.reading_colmap import without_points
from graphopt.distributed.tables import PartedGraph
from graphopt.errors import FormatError
from graphopt.graph import Graph
from graphopt.io.colmap import binary, check_folder_writable, text, write_contents
from graphopt.io.colmap.graph import element_errors, graph_of, mean_errors, model_of
from graphopt.io.colmap.mapped import image_pieces, point_pieces
from graphopt.io.colmap.model import ColmapModel
from graphopt.io.extra_types import POINT_TAG
from graphopt.io.g2o_write import check_finite
from graphopt.io.read_report import ReadReport


@dataclass(eq=False)
class _Points:
    """What a rank knows of points, or rank 0 of all of them."""

    ids: np.ndarray
    """(n,) int64 vertices."""
    xyz: np.ndarray
    """(n, 3)."""
    error: np.ndarray
    """(n,) [px]."""


def write_model(parted: PartedGraph, target: str, comm: Communicator, as_text: bool) -> None:
    """Write the present estimates into a folder. Collective.

    `FormatError` where the folder holds parts in the other form, or the input has changed; `OSError`.
    """
    together(comm, lambda: check_folder_writable(target, as_text) if comm.rank == 0 else None)
    first = together(comm, lambda: _opened(parted, comm.rank == 0))
    num_vertices = comm.share(None if first is None else first.num_vertices)[0]
    points = together(comm, lambda: _own_points(parted.share.graph, num_vertices))
    own = own_pieces(comm, parted.share)
    kept = [piece for piece in own if piece.tag != POINT_TAG]
    for pieces in each_rank(comm, [(kept, points)]):
        assert first is not None
        first.take(*pieces[0])
    together(comm, lambda: None if first is None else first.write(target, as_text))


def _opened(parted: PartedGraph, leads: bool) -> _Whole | None:
    return _Whole(parted) if leads else None


def _own_points(graph: Graph, num_vertices: int) -> _Points:
    """This rank's points that have observations: all of a point's are on its rank."""
    check_finite(graph)
    ids, elements, distances = ([np.empty(0, np.int64)], [np.empty(0, np.int64)], [np.empty(0)])
    for edge_set in graph.edge_sets:
        element, distance = element_errors(graph, edge_set, num_vertices)
        elements.append(element)
        distances.append(distance)
        if len(element):
            ids.append(edge_set.vertices[:, 1])
    order = np.argsort(np.concatenate(elements))  # sums as of the whole
    found, row, length = np.unique(np.concatenate(ids)[order], return_inverse=True, return_counts=True)
    total = np.bincount(row, weights=np.concatenate(distances)[order], minlength=len(found))
    xyz = np.empty((len(found), 3))
    numbers, rows = graph.find_vertices(found)
    for number in np.unique(numbers).tolist():
        mine = numbers == number
        xyz[mine] = graph.vertex_sets[number].estimate[rows[mine]]
    return _Points(found, xyz, mean_errors(total, length))


class _Whole:
    """On rank 0: the model without points and keypoints, and the numbers of the points."""

    def __init__(self, parted: PartedGraph):
        self._folder = parted.path
        model, self._paths, count = without_points(parted.path)
        self._first_point = len(model.images.ids) + len(model.cameras)
        self.num_vertices = self._first_point + count
        if count != parted.num_points:
            raise FormatError(
                f"{parted.path}: it has {count} points, and had {parted.num_points} when it was read. Write "
                "into another folder, from a model that stays as it was."
            )
        self._graph = graph_of(model, parted.path, ReadReport(parted.path, "colmap"))
        self._xyz, self._error = np.empty((count, 3)), np.empty(count)
        self._is_kept = np.zeros(count, bool)

    def take(self, kept: list[Piece], points: _Points) -> None:
        """What one rank has."""
        for piece in kept:
            piece.write(self._graph)
        rows = points.ids - self._first_point
        self._xyz[rows], self._error[rows], self._is_kept[rows] = points.xyz, points.error, True

    def write(self, target: str, as_text: bool) -> None:
        """All files."""
        model, _ = model_of(self._graph)
        form: Any = text if as_text else binary
        fill_images, fill_points = self._images(model, form), self._points(form)
        write_contents(model, target, as_text, {"images": fill_images, "points3D": fill_points})

    def _images(self, model: ColmapModel, form: Any) -> Callable[[IO[bytes]], None]:
        new, path = model.images, self._paths["images"]

        def fill(file: IO[bytes]) -> None:
            num_seen = 0
            if form is text:
                num_seen = sum(int((piece.point_ids >= 0).sum()) for piece in image_pieces(path))
            file.write(form.images_header(len(new.ids), num_seen))
            first = 0
            for piece in image_pieces(path):
                rows = slice(first, first + len(piece.ids))
                first = rows.stop
                self._require_same(piece.ids, new.ids[rows], "images")
                piece.quaternion, piece.translation = new.quaternion[rows], new.translation[rows]
                file.write(form.image_entries(piece))

        return fill

    def _points(self, form: Any) -> Callable[[IO[bytes]], None]:
        path = self._paths["points3D"]

        def fill(file: IO[bytes]) -> None:
            elements = 0
            if form is text:
                elements = sum(len(piece.track) for piece in point_pieces(path))
            file.write(form.points_header(int(self._is_kept.sum()), elements))
            first = 0
            for piece in point_pieces(path):
                rows = slice(first, first + len(piece.ids))
                first = rows.stop
                has_track = np.diff(piece.track_start) > 0
                self._require_same(has_track, self._is_kept[rows], "points")
                piece.xyz, piece.error = self._xyz[rows][has_track], self._error[rows][has_track]
                piece.ids, piece.rgb = piece.ids[has_track], piece.rgb[has_track]
                piece.track_start = piece.track_start[np.concatenate([has_track, [True]])]
                file.write(form.point_entries(piece))

        return fill

    def _require_same(self, found: np.ndarray, expected: np.ndarray, what: str) -> None:
        if not np.array_equal(found, expected):
            raise FormatError(f"{self._folder}: its {what} are others than when it was read")
