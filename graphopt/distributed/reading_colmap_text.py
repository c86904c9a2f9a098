"""images.txt and points3D.txt of a COLMAP model, read by all ranks: equal pieces of the bytes.

    points3D.txt   the lines that begin in a rank's piece
    images.txt     the images whose first line does. What a piece's first line is depends on those before:
                   each rank finds out what its lines make of either case, and all put that together

Images are told to all ranks, without their keypoints. A rank's tracks name keypoints that others have read:
it asks these ranks, which answer (two exchanges).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from graphopt.distributed.communicator import Communicator, together
from graphopt.distributed.lines import Lines, read_lines
from graphopt.errors import FormatError
from graphopt.io.colmap import ColmapImages, ColmapPoints, text
from graphopt.io.colmap.lines import expects_keypoints


def read_points(path: Path, comm: Communicator) -> ColmapPoints:
    """This rank's points. Collective."""
    own = read_lines(str(path), comm)
    return together(comm, lambda: text.parse_points(own.data, str(path), own.first_line))


def read_images(path: Path, comm: Communicator, track: np.ndarray) -> tuple[ColmapImages, np.ndarray]:
    """All images, with the keypoints of a track (n, 2) image id, number; and the track as they stand there.

    Collective.
    """
    own = _own_images(path, comm)
    every = joined_heads(comm.share(head_of(own)))
    mine = together(comm, lambda: _rows_of(path, every.ids, track))
    rank_of, first_of = _owners(comm, len(own.ids))
    order = np.lexsort((track[:, 1], mine))
    rows, numbers = mine[order], track[order, 1]
    bounds = np.searchsorted(rank_of[rows], np.arange(comm.size + 1))
    asked = [
        np.stack([rows[a:b] - first_of[rank], numbers[a:b]], axis=1)
        for rank, (a, b) in enumerate(itertools.pairwise(bounds.tolist()))
    ]
    requests = comm.exchange(asked)
    answers = together(comm, lambda: [_answer(path, own, request) for request in requests])
    found = comm.exchange(answers)
    every.xy = np.concatenate([xy for xy, _ in found])
    every.point_ids = np.concatenate([point_ids for _, point_ids in found])
    every.keypoint_start = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(every.ids)))])
    taken = track.copy()
    taken[order, 1] = np.arange(len(rows)) - every.keypoint_start[rows]
    return every, taken


def _own_images(path: Path, comm: Communicator) -> ColmapImages:
    """The images that begin in this rank's piece, with all their keypoints. Collective."""
    own = read_lines(str(path), comm)
    ends = comm.share([expects_keypoints(own.data, before) for before in (False, True)])
    inside = False
    for end in ends[: comm.rank]:
        inside = end[inside]
    data, first_line = own.data, own.first_line
    if inside and data:  # keypoints of an image of a rank before
        cut = data.find(b"\n") + 1 or len(data)
        data, first_line = data[cut:], first_line + 1
    if data and ends[comm.rank][inside]:  # keypoints of the last image are the next rank's line
        data += b"" if data.endswith(b"\n") else b"\n"
        data += _line_at(path, own)
    return together(comm, lambda: text.parse_images(data, str(path), first_line))


def _line_at(path: Path, own: Lines) -> bytes:
    """The line after a rank's."""
    with open(path, "rb") as file:
        file.seek(own.end)
        return file.readline()


def head_of(images: ColmapImages) -> ColmapImages:
    """Images without their keypoints."""
    start, xy, point_ids = np.zeros(len(images.ids) + 1, np.int64), np.empty((0, 2)), np.empty(0, np.int64)
    return replace(images, keypoint_start=start, xy=xy, point_ids=point_ids)


def joined_heads(pieces: Sequence[ColmapImages]) -> ColmapImages:
    """One after the other; they have no keypoints."""
    nothing = head_of(text.parse_images(b"", ""))
    names = ("ids", "quaternion", "translation", "camera_ids")
    columns = {name: np.concatenate([getattr(piece, name) for piece in (nothing, *pieces)]) for name in names}
    every = replace(nothing, **columns, names=[name for piece in pieces for name in piece.names])
    return head_of(every)


def _rows_of(path: Path, ids: np.ndarray, track: np.ndarray) -> np.ndarray:
    """(n,) rows of a track's images; `FormatError` for one that is not there."""
    order = np.argsort(ids, kind="stable")
    at = np.minimum(np.searchsorted(ids, track[:, 0], sorter=order), max(len(ids) - 1, 0))
    rows = order[at] if len(ids) else np.full(len(track), -1)
    missing = np.flatnonzero(ids[rows] != track[:, 0]) if len(ids) else np.arange(len(track))
    if len(missing):
        raise FormatError(f"{path}: a track names image {track[missing[0], 0]}, which does not exist")
    return rows


def _owners(comm: Communicator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Rank that has read each image of all; and the first image of each rank."""
    counts = comm.share(count)
    return np.repeat(np.arange(comm.size), counts), np.cumsum([0, *counts])[:-1]


def _answer(path: Path, own: ColmapImages, asked: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pixels (n, 2) and point ids (n,) of keypoints (n, 2): row of the image, number."""
    rows, numbers = asked.T
    wrong = np.flatnonzero((numbers < 0) | (numbers >= np.diff(own.keypoint_start)[rows]))
    if len(wrong):
        image = own.ids[rows[wrong[0]]]
        raise FormatError(f"{path}: image {image} has no keypoint {numbers[wrong[0]]}, which a track names")
    places = own.keypoint_start[rows] + numbers
    return own.xy[places], own.point_ids[places]
