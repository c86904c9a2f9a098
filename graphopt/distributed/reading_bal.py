"""Bundle adjustment files (BAL text, .npz) read by all ranks: equal pieces of bytes, or rows of arrays.

Cameras stand in a row along the longest axis of their centres.
"""

from __future__ import annotations

import itertools
import re
import zipfile
import zlib
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
from graphopt.io.numbers import NumberReader
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
    own = slice(*(number * num_cameras // comm.size for number in (comm.rank, comm.rank + 1)))
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
    if not len(cameras):
        raise FormatError(f"{path}: there are no cameras")
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
    whole = len(header) == 3 and bool((np.isfinite(header) & (header == np.floor(header))).all())
    counts = (int(header[0]), int(header[1]), int(header[2])) if whole else (-1, 0, 0)
    ends = np.cumsum([3, 4 * counts[2], CAMERA_DIM * counts[0], 3 * counts[1]])

    def check() -> None:
        if min(counts) < 0:
            raise FormatError(
                f"{path}:1: not a BAL text: it begins with {list(map(float, header))}, expected the numbers "
                "of cameras, points and observations"
            )
        if ends[-1] != total:
            raise FormatError(
                f"{path}: not a BAL text: its first numbers {list(counts)} ask for {int(ends[-1])} numbers, "
                f"it has {total}"
            )

    together(comm, check)
    parts = [numbers[max(a - first, 0) : max(b - first, 0)] for a, b in itertools.pairwise(ends)]
    rows = _whole_rows(comm, parts[0], max(first - 3, 0))
    return _Piece(counts, rows, parts[1], max(first - int(ends[2]), 0), parts[2])


def _numbers_of(path: str, rank: int, size: int) -> np.ndarray:
    """The numbers that begin in this rank's piece of a text."""
    length = Path(path).stat().st_size
    pieces = size if length > SMALL * size else 1
    begin, end = (min(number, pieces) * length // pieces for number in (rank, rank + 1))
    if begin == end:
        return np.empty(0)
    with open(path, "rb") as file:
        file.seek(max(begin - 1, 0))
        data = file.read(end - max(begin - 1, 0))
        rest = b"x"
        while data and not data[-1:].isspace() and rest and not rest[-1:].isspace():  # the last number's end
            rest = file.read(1)
            data += rest
    first = max(begin - 1, 0)
    if begin:  # a number that began before is the other rank's
        found = re.search(rb"\s", data)
        skipped = found.start() if found else len(data)
        data, first = data[skipped:], first + skipped
    count = len(data.split())
    try:
        return NumberReader(data, path).table("numbers", count, 0, 1)[1].ravel()
    except FormatError:  # again, for the line of the file
        return NumberReader(data, path, 0, _line_of(path, first)).table("numbers", count, 0, 1)[1].ravel()


def _line_of(path: str, byte: int) -> int:
    """Line of a text that a byte is in, from 1 on."""
    line = 1
    with open(path, "rb") as file:
        while byte > 0 and (data := file.read(min(byte, 1 << 20))):
            line, byte = line + data.count(b"\n"), byte - len(data)
    return line


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
            missing = [name for name in _WIDTHS if f"{name}.npy" not in archive.namelist()]
            if missing:
                raise FormatError(f"{path}: no array {', '.join(missing)}")
            camera, point, pixel, cameras, points = (
                _rows_of(archive, path, name, comm.rank, comm.size) for name in _WIDTHS
            )
    except FormatError:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise FormatError(f"{path}: not a readable .npz archive of a BAL problem ({error})") from error
    for name, found in (("camera_index", camera), ("point_index", point)):
        if found[0] != pixel[0]:
            raise FormatError(f"{path}: {name} has shape ({found[0]},), expected ({pixel[0]},)")
    rows = np.column_stack([camera[1], point[1], pixel[1]])
    counts = (cameras[0], points[0], camera[0])
    first = 3 * (comm.rank * points[0] // comm.size)
    return _Piece(counts, rows, cameras[1].ravel(), first, points[1].ravel())


_WIDTHS = {"camera_index": 0, "point_index": 0, "observations": 2, "cameras": CAMERA_DIM, "points": 3}
"""Arrays of an archive and numbers per row; 0: one, in an array of one dimension."""


def _rows_of(archive: zipfile.ZipFile, path: str, name: str, rank: int, size: int) -> tuple[int, np.ndarray]:
    """Number of rows of an array, and this rank's of them."""
    with archive.open(f"{name}.npy") as file:
        shape, is_fortran, dtype = _header(file)
        if dtype.hasobject or dtype.kind not in ("iuf" if _WIDTHS[name] else "iu"):
            raise FormatError(f"{path}: {name} holds {dtype}, expected numbers")
        rest = (_WIDTHS[name],) if _WIDTHS[name] else ()
        if not shape or shape[1:] != rest:
            expected = ", ".join(["n", *map(str, rest)])
            raise FormatError(f"{path}: {name} has shape {shape}, expected ({expected})")
        first, last = (number * shape[0] // size for number in (rank, rank + 1))
        columns = max(_WIDTHS[name], 1)
        if is_fortran and rest:
            pieces = [_read_at(file, dtype, shape[0], first, last) for _ in range(columns)]
            values = np.stack(pieces, axis=1)
        else:
            values = _read_at(file, dtype, shape[0] * columns, first * columns, last * columns)
    return shape[0], values.reshape(last - first, *rest).astype(np.float64)


def _read_at(file: IO[bytes], dtype: np.dtype, count: int, first: int, last: int) -> np.ndarray:
    """Numbers `first` to `last` of the `count` that follow; the file stands behind all of them then."""
    begin = file.tell()
    file.seek(begin + first * dtype.itemsize)
    data = file.read((last - first) * dtype.itemsize)
    if len(data) != (last - first) * dtype.itemsize:
        raise EOFError("an array ends early")
    file.seek(begin + count * dtype.itemsize)
    return np.frombuffer(data, dtype)


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype]:
    version = np.lib.format.read_magic(file)
    reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, is_fortran, dtype = reader(file)
    return shape, is_fortran, dtype
