"""Which format is a file in? Its content decides; the suffix settles what the content leaves open."""

from __future__ import annotations

import os

import numpy as np

import graphopt.io.gtsam_stereo as gtsam_stereo
from graphopt.errors import FormatError
from graphopt.io.files import PathLike, strip_compression
from graphopt.io.g2o_tree import tree_format
from graphopt.io.graph_npz import MEMBER

_ISAM_TAGS = {b"ODOMETRY", b"LANDMARK", b"POINT3"}
_TORO_TAGS = {b"VERTEX2", b"VERTEX3", b"BR", b"EQUIV"}
_SHARED_TAGS = {b"EDGE2", b"EDGE3"}
_SAMPLE = 1 << 18
"""Bytes looked at."""
_BINARY = 1 << 12
"""Bytes among which text has no zero."""
_HDF5 = b"\x89HDF\r\n\x1a\n"
_LINES = 1000
"""Lines of numbers looked at."""
_UNIT = 0.05
"""Error of a quaternion's length that rounded text may have."""
_MOST = 0.9
"""Share of the lines that must look like a trajectory."""

SUFFIXES = {
    ".g2o": "g2o",
    ".graph": "toro",
    ".toro": "toro",
    ".isam": "isam",
    ".bal": "bal",
    ".npz": "graph_npz",
    ".json": "g2o_json",
    ".out": "bundler",
    ".tum": "tum",
    ".kitti": "kitti",
}
"""Formats that a suffix alone stands for."""


def suffix_format(path: PathLike) -> str | None:
    """Format that the suffix names, compression aside; None if it leaves it open."""
    return SUFFIXES.get(strip_compression(path).suffix.lower())


def detect(data: bytes, path: PathLike, preferred: str | None = None) -> str:
    """Name of the format of a file's unpacked content; `preferred` where the content leaves it open.

    Raises FormatError if nothing fits.
    """
    if not data.strip():
        raise FormatError(f"{os.fspath(path)}:1: the file is empty")
    if data.startswith(b"PK\x03\x04"):
        return _detect_archive(data, path)
    tree = tree_format(data)
    if tree is not None:
        return tree
    if data[:2] in (b"vP", b"vN", b"VP", b"VN") and any(byte < 9 or byte > 126 for byte in data[2:64]):
        return "libmv"
    _refuse_no_text(data, path)
    sample = data[:_SAMPLE].removeprefix(b"\xef\xbb\xbf")
    if sample.lstrip().startswith(b"# Bundle file"):
        return "bundler"
    lines = [line.split(None, 1) for line in sample.split(b"\n")]  # first token, rest
    lines = [tokens for tokens in lines if tokens and not tokens[0].startswith(b"#")]
    if not lines:
        raise FormatError(f"{os.fspath(path)}: only comments")
    if _is_number(lines[0][0]):
        return _detect_numbers([b" ".join(tokens).split() for tokens in lines[:2]], lines, path)
    return _detect_tagged({tokens[0] for tokens in lines}, path, preferred)


def _detect_archive(data: bytes, path: PathLike) -> str:
    """Which of the archives of arrays (.npz) it is; FormatError for those that hold no graph."""
    first = data[30:80]
    if first.startswith(MEMBER.encode()):
        return "graph_npz"
    if is_map_archive(data):
        raise FormatError(
            f"{os.fspath(path)}: a map of slam_bridge, and no graph: graphopt convert MAP.npz OUT.g2o makes "
            "one"
        )
    if first.startswith(b"kind.npy"):
        raise FormatError(f"{os.fspath(path)}: a checkpoint, and no graph: --resume goes on from it")
    return "bal_npz"


def is_map_archive(data: bytes) -> bool:
    """An archive that begins as `slam_bridge.Map.save` writes it: its first member is `format`."""
    return data.startswith(b"PK\x03\x04") and data[30:40] == b"format.npy"


def _refuse_no_text(data: bytes, path: PathLike) -> None:
    """FormatError for what cannot be lines of text."""
    name = os.fspath(path)
    if data.startswith(_HDF5):
        raise FormatError(
            f"{name}: HDF5, such as a .vib problem, and no graph: graphopt convert IN.vib OUT.g2o makes one"
        )
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise FormatError(f"{name}: text in UTF-16; save it as UTF-8: iconv -f utf-16 -t utf-8")
    if b"\0" in data[:_BINARY]:
        raise FormatError(
            f"{name}: binary data of no known format. Known are .npz archives (of graphs, of bundle "
            "adjustment), libmv reconstructions, COLMAP models (pass their folder), texts, and .gz, .bz2 or "
            ".xz of these"
        )


def _detect_tagged(tags: set[bytes], path: PathLike, preferred: str | None) -> str:
    if tags & _ISAM_TAGS:
        return "isam"
    if tags & _TORO_TAGS:
        return "toro"
    if tags <= _SHARED_TAGS:  # TORO and iSAM write different numbers under these tags
        named = preferred or suffix_format(path)
        return named if named in ("toro", "g2o", "isam") else "isam"
    return "g2o"


def _detect_numbers(lines: list[list[bytes]], rows: list[list[bytes]], path: PathLike) -> str:
    named = suffix_format(path)
    first, second = lines[0], lines[1] if len(lines) > 1 else []
    if len(first) == 3 and all(_is_integer(token) for token in first):
        both_integers = len(second) >= 2 and _is_integer(second[0]) and _is_integer(second[1])
        return "bal_fixed_k" if len(second) == 4 and not both_integers else "bal"
    fields = len(b" ".join(first).replace(b",", b" ").split())
    if fields == 8:
        return "tum" if named == "tum" else _detect_eight(rows, path)
    if fields == 12:
        return "kitti"
    if named is not None:
        return named
    raise FormatError(
        f"{os.fspath(path)}: not a known format: the first line has {fields} numbers, expected a line "
        "with a tag, "
        "3 counts (BAL), 8 numbers (TUM) or 12 numbers (KITTI)"
    )


def _detect_eight(rows: list[list[bytes]], path: PathLike) -> str:
    """Format of lines of eight numbers. Raises FormatError if they look like none.

    A trajectory has unit quaternions and rising time stamps, stereo factors have two counting numbers in
    front; a few bad lines are left to the reader.
    """
    texts = [b" ".join(tokens).replace(b",", b" ").split() for tokens in rows[:_LINES]]
    try:
        table = np.array([[float(token) for token in text] for text in texts if len(text) == 8])
    except ValueError:
        return "tum"
    length = np.linalg.norm(table[:, 4:], axis=1)
    unit = float(np.mean(np.abs(length - 1.0) < _UNIT))
    rising = float(np.mean(np.diff(table[:, 0]) > 0.0)) if len(table) > 1 else 1.0
    if unit >= _MOST and rising >= _MOST:
        return "tum"
    if gtsam_stereo.looks_like(table):
        return "gtsam_stereo"
    raise FormatError(
        f"{os.fspath(path)}: lines of 8 numbers, but no TUM trajectory (timestamp x y z qx qy qz qw): "
        f"{unit:.0%} of the quaternions have length 1, {rising:.0%} of the time stamps rise. "
        "If it is one all the same, say so: format='tum'"
    )


def _is_number(token: bytes) -> bool:
    try:
        float(token.split(b",")[0])
    except ValueError:
        return False
    return True


def _is_integer(token: bytes) -> bool:
    return token.lstrip(b"+-").isdigit()
