"""Text files of COLMAP models that are read a piece at a time.

images.txt has two lines per image; the second one may be empty, or begin with #, and is keypoints all the
same. So what a line is follows from those before it: `expects_keypoints` is all that one has to know of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from graphopt.io.colmap import text
from graphopt.io.colmap.model import ColmapImages, ColmapPoints


def expects_keypoints(data: bytes, before: bool) -> bool:
    """Whether keypoints follow some lines of images.txt; before: whether they begin with such."""
    at = 0
    while at < len(data):
        end = data.find(b"\n", at)
        end = len(data) if end < 0 else end
        head = b"" if before else data[at:end].lstrip()
        before = head != b"" and not head.startswith(b"#")
        at = end + 1
    return before


def _pieces(path: Path, size: int, of_images: bool) -> Iterator[tuple[bytes, int]]:
    """Whole entries of about `size` bytes, and the number of their first line."""
    held: list[bytes] = []
    length, first, number, inside = 0, 1, 1, False
    with open(path, "rb") as file:
        for line in file:
            held.append(line)
            length, number = length + len(line), number + 1
            inside = of_images and expects_keypoints(line, inside)
            if length >= size and not inside:
                yield b"".join(held), first
                held, length, first = [], 0, number
    if held:
        yield b"".join(held), first


def point_pieces(path: Path, size: int) -> Iterator[ColmapPoints]:
    """points3D.txt, about `size` bytes at a time."""
    for data, first in _pieces(path, size, False):
        found = text.parse_points(data, str(path), first)
        if len(found.ids):
            yield found


def image_pieces(path: Path, size: int) -> Iterator[ColmapImages]:
    """images.txt, about `size` bytes at a time."""
    for data, first in _pieces(path, size, True):
        found = text.parse_images(data, str(path), first)
        if len(found.ids):
            yield found
