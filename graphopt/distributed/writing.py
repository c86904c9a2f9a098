"""The result of a problem that was read in parts, written by rank 0 in pieces, whole or not at all.

BAL and .g2o: what is not a vertex is copied from the input, a buffer at a time; vertices come from one rank
after the other, so no rank has more than these. COLMAP models: `writing_colmap`. Files of another format than
the input are made by rank 0 of the whole.
"""

from __future__ import annotations

import os
import re
import shutil
import zipfile
from pathlib import Path
from typing import IO

import numpy as np

from graphopt import io
from graphopt.distributed.communicator import Communicator, together
from graphopt.distributed.gathering import Piece, each_rank, own_pieces
from graphopt.distributed.tables import PartedGraph
from graphopt.distributed.writing_colmap import write_model
from graphopt.errors import FormatError
from graphopt.io.bal import CAMERA
from graphopt.io.bal_problem import parse_bal
from graphopt.io.dialects import DIALECTS
from graphopt.io.files import write_together
from graphopt.io.g2o_file import tag_table
from graphopt.io.g2o_write import vertex_lines
from graphopt.io.numbers import format_table
from graphopt.io.tagged import read_tagged
from graphopt.types import VertexType

_BUFFER = 1 << 22


def write(
    parted: PartedGraph, path: str | os.PathLike[str], comm: Communicator, format: str | None = None
) -> None:
    """Write the present estimates; format None: the one that the path stands for. Collective.

    `FormatError` where the format cannot hold the graph, `OSError` where it cannot be written, on all ranks.
    """
    target = os.fspath(path)
    if comm.share(_is_model(parted, target, format))[0]:
        write_model(parted, target, comm, as_text=format == "colmap_text")
        return
    kinds = {_kind(target) if format is None else format, _kind(parted.path)}
    if kinds == {"text"} or kinds == {"npz"}:
        _write_bal(parted, target, comm)
        return
    found = [piece for pieces in each_rank(comm, own_pieces(comm, parted.share)) for piece in pieces]
    if kinds == {"g2o"}:
        together(comm, lambda: _write_g2o(parted, target, found) if comm.rank == 0 else None)
    else:
        together(comm, lambda: _write_whole(parted, target, found, format) if comm.rank == 0 else None)


def _is_model(parted: PartedGraph, target: str, format: str | None) -> bool:
    """A COLMAP model that becomes one again."""
    if format is not None and format not in ("colmap", "colmap_text"):
        return False
    is_folder = format is not None or Path(target).is_dir() or not Path(target).suffix
    return is_folder and Path(parted.path).is_dir()


def _kind(path: str) -> str:
    """How a file is written."""
    if path.endswith((".npz", ".g2o")):
        return path[-3:]
    return "text" if path.endswith((".bal", ".txt")) else "other"


def _write_whole(parted: PartedGraph, target: str, pieces: list[Piece], format: str | None) -> None:
    graph = io.read(parted.path, dialect=parted.dialect)
    for piece in pieces:
        piece.write(graph)
    io.write(graph, target, format)


def _write_g2o(parted: PartedGraph, target: str, pieces: list[Piece]) -> None:
    """The input with other numbers behind its vertices."""
    types, rules = tag_table()
    dialect = DIALECTS[parted.dialect or "g2o"]
    known = {}
    for tag in {piece.tag for piece in pieces}:
        ids, estimates = (
            np.concatenate([getattr(piece, name) for piece in pieces if piece.tag == tag])
            for name in ("ids", "estimates")
        )
        order = np.argsort(ids)
        known[tag] = ids[order], estimates[order]

    def changed(data: bytes) -> bytes:
        lines = data.split(b"\n")
        for group in read_tagged(data, parted.path, rules).groups:
            kind = types.get(group.tag)
            if not isinstance(kind, VertexType) or kind.tag not in known:
                continue
            ids, estimates = known[kind.tag]
            at = np.minimum(np.searchsorted(ids, group.ids[:, 0]), len(ids) - 1)
            mine = np.flatnonzero(ids[at] == group.ids[:, 0])
            text = vertex_lines(kind, ids[at[mine]], estimates[at[mine]], dialect).split(b"\n")
            for line, new in zip((group.lines[mine] - 1).tolist(), text, strict=False):
                lines[line] = new
        return b"\n".join(lines)

    def fill(file: IO[bytes]) -> None:
        with open(parted.path, "rb") as given:
            while data := given.read(_BUFFER):
                file.write(changed(data + given.readline()))

    write_together({Path(target): fill})


def _write_bal(parted: PartedGraph, target: str, comm: Communicator) -> None:
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


def _start_of(parted: PartedGraph) -> tuple[np.ndarray, np.ndarray]:
    """Cameras and points of the input: those without observations stay as they are there."""
    if parted.path.endswith(".npz"):
        with np.load(parted.path, allow_pickle=False) as archive:
            return archive["cameras"].astype(np.float64), archive["points"].astype(np.float64)
    with open(parted.path, "rb") as file:
        header = file.readline()
        counts = [int(word) for word in header.split()]
        file.seek(_end_of_numbers(parted.path, 3 + 4 * counts[2]))
        tail = file.read()
    problem = parse_bal(f"{counts[0]} {counts[1]} 0\n".encode() + tail, parted.path)
    return problem.cameras, problem.points


def _write(source: str, target: str, cameras: np.ndarray, points: np.ndarray) -> None:
    fill = _fill_archive if target.endswith(".npz") else _fill_text
    write_together({Path(target): lambda file: fill(file, source, cameras, points)})


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
        counts = [int(word) for word in given.readline().split()]
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
    ends = [token.end() for token, _ in zip(re.finditer(rb"\S+", whole), range(count - done), strict=False)]
    if len(ends) < count - done:
        raise FormatError(f"{path}: it has fewer than {count} numbers")
    return position + (ends[-1] if ends else 0)
