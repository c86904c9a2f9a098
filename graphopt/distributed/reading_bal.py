"""Bundle adjustment files (BAL text, .npz) read by all ranks: equal pieces of bytes, or rows of arrays.

Cameras stand in a row along the longest axis of their centres.
"""

from __future__ import annotations

import itertools
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

from graphopt.distributed.communicator import Communicator, together
from graphopt.distributed.tables import EdgeRows, PartedGraph, Tables, VertexRows, deal
from graphopt.errors import FormatError
from graphopt.geometry import SO3
from graphopt.io.bal import CAMERA, OBSERVATION, POINT
from graphopt.io.bal_problem import CAMERA_DIM
from graphopt.types import EdgeType, registry

SMALL = 1 << 16
"""Bytes of a text up to which one rank reads it all."""


@dataclass(eq=False)
class _Piece:
    """What one rank has read."""

    counts: tuple[int, int, int]
    """Cameras, points, observations of the whole file."""
    rows: np.ndarray
    """(k, 4) camera, point, x, y of its observations."""
    cameras: np.ndarray
    """Its numbers of the cameras, one camera after the other."""
    first_point_number: int
    points: np.ndarray
    """Its numbers of the points, from that one on."""


def read_bal(name: str, comm: Communicator) -> PartedGraph:
    """Read a BAL problem in parts. Collective.

    Cameras are vertices 0, 1, ..., points follow, as `graphopt.read` numbers them. `FormatError` or `OSError`
    on all ranks where a file is damaged or of another kind.
    """
    if name.endswith(".npz"):
        piece = together(comm, lambda: _read_archive(name, comm))
    else:
        piece = _read_text(name, comm)
    num_cameras, num_points, _ = piece.counts
    cameras = np.concatenate(comm.share(piece.cameras)).reshape(num_cameras, CAMERA_DIM)
    together(comm, lambda: _check(name, piece, cameras))
    numbers, points = _whole_points(comm, piece)
    own = slice(*(one * num_cameras // comm.size for one in (comm.rank, comm.rank + 1)))
    ids = np.arange(num_cameras)[own]
    tables = Tables()
    for tag, at, estimate, gone in (
        (CAMERA, ids, cameras[own], False),
        (POINT, num_cameras + numbers, points, True),
    ):
        flags = np.zeros(len(at), bool), np.full(len(at), gone)
        tables.vertices.append(VertexRows(registry.vertex_type(tag), at, estimate, *flags, at))
    index = piece.rows[:, :2].astype(np.int64)
    count = len(index)
    kind = registry.edge_type(OBSERVATION)
    order = sum(comm.share(count)[: comm.rank]) + np.arange(count)
    tables.edges.append(
        EdgeRows(
            cast("EdgeType", kind),
            index + np.array([0, num_cameras]),
            piece.rows[:, 2:],
            np.broadcast_to(np.eye(2), (count, 2, 2)),
            np.empty((count, 0), np.int64),
            num_cameras + num_points + order,
        )
    )
    parted = deal(comm, name, tables, _place_of_cameras(cameras))
    parted.num_points = num_points
    return parted


def _place_of_cameras(cameras: np.ndarray) -> np.ndarray:
    """(n,) along the longest axis of the centres."""
    rotation = SO3.exp(cameras[:, :3])
    centers = -np.asarray(rotation.inverse().act(cameras[:, 3:6]))
    centered = centers - centers.mean(axis=0)
    axis = np.linalg.eigh(centered.T @ centered)[1][:, -1]
    return np.argsort(np.argsort(centered @ axis, kind="stable"), kind="stable").astype(float)


def _whole_points(comm: Communicator, piece: _Piece) -> tuple[np.ndarray, np.ndarray]:
    """Numbers (k,) and estimates (k, 3) of the points that begin in this rank's piece."""
    first = piece.first_point_number
    missing = min(-first % 3, len(piece.points)) if comm.rank else 0
    sent: list[Any] = [np.empty(0)] * comm.size
    if comm.rank:
        sent[comm.rank - 1] = piece.points[:missing]
    values = np.concatenate([piece.points[missing:], *comm.exchange(sent)]).reshape(-1, 3)
    return (first + missing) // 3 + np.arange(len(values)), values


def _check(path: str, piece: _Piece, cameras: np.ndarray) -> None:
    """`FormatError` for numbers that cannot be."""
    for what, column, count in (("camera", 0, piece.counts[0]), ("point", 1, piece.counts[1])):
        index = piece.rows[:, column]
        wrong = np.flatnonzero(~((index >= 0) & (index < count) & (index == np.floor(index))))
        if len(wrong):
            raise FormatError(
                f"{path}: an observation names {what} {index[wrong[0]]:g}, expected 0 to {count - 1} "
                f"({count} {what}s)"
            )
    for what, values in (("observations", piece.rows), ("cameras", cameras), ("points", piece.points)):
        if not np.isfinite(values).all():
            raise FormatError(f"{path}: a number of the {what} is not finite")


# -------------------------------------------------------------------- text


def _read_text(path: str, comm: Communicator) -> _Piece:
    """Equal pieces of the bytes; numbers are counted together."""
    numbers = together(comm, lambda: _numbers_of(path, comm.rank, comm.size))
    first = sum(comm.share(len(numbers))[: comm.rank])
    total = sum(comm.share(len(numbers)))
    header = comm.share(numbers[:3])[0]
    counts = (int(header[0]), int(header[1]), int(header[2])) if len(header) == 3 else (-1, 0, 0)
    ends = np.cumsum([3, 4 * counts[2], CAMERA_DIM * counts[0], 3 * counts[1]])

    def check() -> None:
        if min(counts) < 0 or ends[-1] != total:
            raise FormatError(
                f"{path}: not a BAL text: its first numbers {list(map(float, header))} ask for "
                f"{int(ends[-1])} numbers, it has {total}"
            )

    together(comm, check)
    parts = [numbers[max(a - first, 0) : max(b - first, 0)] for a, b in itertools.pairwise(ends)]
    rows = _whole_rows(comm, parts[0], max(first - 3, 0))
    return _Piece(counts, rows, parts[1], max(first - int(ends[2]), 0), parts[2])


def _numbers_of(path: str, rank: int, size: int) -> np.ndarray:
    """The numbers that begin in this rank's piece of a text."""
    length = Path(path).stat().st_size
    pieces = size if length > SMALL * size else 1
    begin, end = (min(one, pieces) * length // pieces for one in (rank, rank + 1))
    if begin == end:
        return np.empty(0)
    with open(path, "rb") as file:
        file.seek(max(begin - 1, 0))
        data = file.read(end - max(begin - 1, 0))
        rest = b"x"
        while data and not data[-1:].isspace() and rest and not rest[-1:].isspace():  # the last number's end
            rest = file.read(1)
            data += rest
    if begin:  # a number that began before is the other rank's
        found = re.search(rb"\s", data)
        data = data[found.start() :] if found else b""
    try:
        return np.array(data.split(), np.float64)
    except ValueError as error:
        raise FormatError(f"{path}: {error} (bytes {begin} to {end})") from error


def _whole_rows(comm: Communicator, numbers: np.ndarray, first: int) -> np.ndarray:
    """(k, 4) rows, after what belongs to the row that began on the rank before has gone there."""
    missing = min(-first % 4, len(numbers)) if comm.rank else 0
    sent: list[Any] = [np.empty(0)] * comm.size
    if comm.rank:
        sent[comm.rank - 1] = numbers[:missing]
    received = comm.exchange(sent)
    return np.concatenate([numbers[missing:], *received]).reshape(-1, 4)


# -------------------------------------------------------------------- .npz


def _read_archive(path: str, comm: Communicator) -> _Piece:
    """Equal numbers of rows of each array; members that are not compressed are read where they are."""
    try:
        with zipfile.ZipFile(path) as archive:
            camera, point, pixel, cameras, points = (
                _rows_of(archive, path, name, comm.rank, comm.size)
                for name in ("camera_index", "point_index", "observations", "cameras", "points")
            )
    except (zipfile.BadZipFile, KeyError, ValueError) as error:
        raise FormatError(f"{path}: not a readable .npz archive of a BAL problem ({error})") from error
    rows = np.column_stack([camera[1], point[1], pixel[1]])
    counts = (cameras[0], points[0], camera[0])
    first = 3 * (comm.rank * points[0] // comm.size)
    if rows.shape[1:] != (4,) or cameras[1].shape[1:] != (CAMERA_DIM,) or points[1].shape[1:] != (3,):
        raise FormatError(f"{path}: the arrays have wrong shapes for a BAL problem")
    return _Piece(counts, rows, cameras[1].ravel(), first, points[1].ravel())


def _rows_of(archive: zipfile.ZipFile, path: str, name: str, rank: int, size: int) -> tuple[int, np.ndarray]:
    """Number of rows of an array, and this rank's of them."""
    with archive.open(f"{name}.npy") as file:
        shape, dtype = _header(file)
        if dtype.hasobject or dtype.kind not in "iuf" or not shape:
            raise FormatError(f"{path}: {name} holds {dtype} of shape {shape}, expected numbers")
        first, last = (one * shape[0] // size for one in (rank, rank + 1))
        bytes_per_row = dtype.itemsize * int(np.prod(shape[1:], dtype=np.int64))
        file.seek(file.tell() + first * bytes_per_row)
        data = file.read((last - first) * bytes_per_row)
    if len(data) != (last - first) * bytes_per_row:
        raise FormatError(f"{path}: {name} ends early")
    return shape[0], np.frombuffer(data, dtype).reshape(last - first, *shape[1:]).astype(np.float64)


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype]:
    version = np.lib.format.read_magic(file)
    reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, is_fortran, dtype = reader(file)
    if is_fortran and len(shape) > 1:
        raise ValueError("arrays in Fortran order")
    return shape, dtype
