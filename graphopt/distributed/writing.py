"""The result of a problem that was read in parts, written by rank 0 in pieces, whole or not at all.

Observations are copied from the input, a buffer at a time; cameras and points come from one rank after the
other. So no rank has more than the vertices.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

import numpy as np

from graphopt.distributed.communicator import Communicator, together
from graphopt.distributed.gathering import each_rank, own_pieces
from graphopt.distributed.reading import PartedGraph
from graphopt.errors import FormatError, OptionError
from graphopt.io.bal import CAMERA
from graphopt.io.bal_problem import parse_bal
from graphopt.io.numbers import format_table

_BUFFER = 1 << 22


def write(parted: PartedGraph, path: str | os.PathLike[str], comm: Communicator) -> None:
    """Write the present estimates as a file of the input's kind. Collective.

    `OptionError` where the name is of another kind, `OSError` where it cannot be written, on all ranks.
    """
    target = os.fspath(path)
    together(comm, lambda: check_kind(parted.path, target))
    vertices = together(comm, lambda: _start_of(parted) if comm.rank == 0 else None)
    for pieces in each_rank(comm, own_pieces(comm, parted.share)):
        assert vertices is not None
        cameras, points = vertices
        for piece in pieces:
            if piece.tag == CAMERA:
                cameras[piece.ids] = piece.estimates
            else:
                points[piece.ids - len(cameras)] = piece.estimates
    together(comm, lambda: None if vertices is None else _write(parted.path, target, *vertices))


def check_kind(source: str, target: str) -> None:
    """`OptionError` where the result would be of another format than the input."""
    if source.endswith(".npz") != target.endswith(".npz") or target.endswith((".g2o", ".gz", ".bz2", ".xz")):
        raise OptionError(
            f"{target}: what was read in parts is written in the input's format ({Path(source).suffix}). "
            "Convert it afterwards, or let rank 0 read the file."
        )


def _start_of(parted: PartedGraph) -> tuple[np.ndarray, np.ndarray]:
    """Cameras and points of the input: those without observations stay as they are there."""
    if parted.path.endswith(".npz"):
        with np.load(parted.path, allow_pickle=False) as archive:
            return archive["cameras"].astype(np.float64), archive["points"].astype(np.float64)
    with open(parted.path, "rb") as file:
        header = file.readline()
        counts = [int(one) for one in header.split()]
        file.seek(_end_of_numbers(parted.path, 3 + 4 * counts[2]))
        tail = file.read()
    problem = parse_bal(f"{counts[0]} {counts[1]} 0\n".encode() + tail, parted.path)
    return problem.cameras, problem.points


def _write(source: str, target: str, cameras: np.ndarray, points: np.ndarray) -> None:
    fill = _fill_archive if target.endswith(".npz") else _fill_text
    _whole_or_not(target, lambda file: fill(file, source, cameras, points))


def _fill_archive(file: IO[bytes], source: str, cameras: np.ndarray, points: np.ndarray) -> None:
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(file, "w") as new:
        for name in ("camera_index", "point_index", "observations"):
            with old.open(f"{name}.npy") as given, new.open(f"{name}.npy", "w", force_zip64=True) as taken:
                shutil.copyfileobj(given, taken, _BUFFER)
        for name, values in (("cameras", cameras), ("points", points)):
            with new.open(f"{name}.npy", "w", force_zip64=True) as taken:
                np.lib.format.write_array(taken, values, allow_pickle=False)


def _fill_text(file: IO[bytes], source: str, cameras: np.ndarray, points: np.ndarray) -> None:
    with open(source, "rb") as given:
        counts = [int(one) for one in given.readline().split()]
        left = _end_of_numbers(source, 3 + 4 * counts[2])
        given.seek(0)
        while left > 0:
            data = given.read(min(_BUFFER, left))
            left -= len(data)
            file.write(data)
    file.write(b"\n")
    for values in (cameras, points):
        file.write(format_table(values.reshape(-1, 1)))


def _end_of_numbers(path: str, count: int) -> int:
    """Bytes of a text up to the end of so many numbers."""
    done = position = 0
    with open(path, "rb") as file:
        rest = b""
        while data := file.read(_BUFFER):
            whole = rest + data
            cut = max(whole.rfind(b" "), whole.rfind(b"\n")) + 1
            words = len(whole[:cut].split())
            if done + words >= count:
                break
            done, position, rest = done + words, position + cut, whole[cut:]
        else:
            whole = rest
    ends = [one.end() for one, _ in zip(re.finditer(rb"\S+", whole), range(count - done), strict=False)]
    if len(ends) < count - done:
        raise FormatError(f"{path}: it has fewer than {count} numbers")
    return position + (ends[-1] if ends else 0)


def _whole_or_not(path: str, fill: Callable[[IO[bytes]], None]) -> None:
    """Write a file beside the target, then put it in its place."""
    target = Path(path).resolve()
    handle, temporary = tempfile.mkstemp(dir=target.parent, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            fill(file)
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
