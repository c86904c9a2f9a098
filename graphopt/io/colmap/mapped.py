"""Files of COLMAP models that are read a piece at a time, so that no process has all of one.

Binary ones here, text by `lines`.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from graphopt.errors import FormatError
from graphopt.io.colmap import binary, lines
from graphopt.io.colmap.model import ColmapImages, ColmapPoints

COUNT = struct.Struct("<Q")
PIECE = 1 << 18
"""Track elements or keypoints of a piece, if a single entry has no more."""
BYTES_OF_TEXT = 16
"""Of one of them, about."""


class Mapped:
    """The bytes of a file, of which only what is looked at is read."""

    def __init__(self, path: Path):
        self.path = path
        self._file = open(path, "rb")
        self.data = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)

    def __enter__(self) -> Mapped:
        return self

    def __exit__(self, *error: object) -> None:
        self.data.close()
        self._file.close()

    def take(self, layout: struct.Struct, at: int, what: str) -> tuple:
        """The numbers of a structure; `FormatError` where the file ends before."""
        if at + layout.size > len(self.data):
            raise FormatError(f"{self.path}: ends in the middle of {what}, at byte {at}")
        return layout.unpack_from(self.data, at)

    def array(self, dtype: np.dtype, count: int, at: int, what: str) -> np.ndarray:
        """A copy."""
        if at + count * dtype.itemsize > len(self.data):
            raise FormatError(f"{self.path}: ends in the middle of {what}, at byte {at}")
        return np.frombuffer(self.data[at : at + count * dtype.itemsize], dtype)

    def text(self, at: int, what: str) -> tuple[str, int]:
        """The text that begins there, and where the next thing does."""
        end = self.data.find(b"\0", at)
        if end < 0:
            raise FormatError(f"{self.path}: ends in the middle of {what}, at byte {at}")
        return self.data[at:end].decode("utf-8", "surrogateescape"), end + 1


def point_pieces(path: Path) -> Iterator[ColmapPoints]:
    """points3D, some points at a time."""
    if path.suffix == ".txt":
        yield from lines.point_pieces(path, BYTES_OF_TEXT * PIECE)
        return
    with Mapped(path) as mapped:
        (count,) = mapped.take(COUNT, 0, "the number of points")
        at, heads, tracks, elements = COUNT.size, [], [], 0
        for _ in range(count):
            heads.append(mapped.take(binary.POINT, at, "a point"))
            what = f"the track of point {heads[-1][0]}"
            tracks.append(mapped.array(binary.TRACK, heads[-1][8], at + binary.POINT.size, what))
            at += binary.POINT.size + tracks[-1].nbytes
            elements += len(tracks[-1]) + 1
            if elements >= PIECE:
                yield binary.points_of(heads, tracks)
                heads, tracks, elements = [], [], 0
        if heads:
            yield binary.points_of(heads, tracks)


def image_pieces(path: Path) -> Iterator[ColmapImages]:
    """images, some with all their keypoints at a time."""
    if path.suffix == ".txt":
        yield from lines.image_pieces(path, BYTES_OF_TEXT * PIECE)
        return
    with Mapped(path) as mapped:
        (count,) = mapped.take(COUNT, 0, "the number of images")
        at, heads, names, keypoints, elements = COUNT.size, [], [], [], 0
        for _ in range(count):
            heads.append(mapped.take(binary.IMAGE, at, "an image"))
            name, at = mapped.text(at + binary.IMAGE.size, f"the name of image {heads[-1][0]}")
            what = f"keypoints of image {heads[-1][0]}"
            (number,) = mapped.take(COUNT, at, what)
            names.append(name)
            keypoints.append(mapped.array(binary.KEYPOINT, number, at + COUNT.size, what))
            at += COUNT.size + keypoints[-1].nbytes
            elements += number + 1
            if elements >= PIECE:
                yield binary.images_of(heads, names, keypoints)
                heads, names, keypoints, elements = [], [], [], 0
        if heads:
            yield binary.images_of(heads, names, keypoints)
