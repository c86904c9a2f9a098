"""Bytes in and out: compression by content and suffix, and files that are whole or not there.

Writing: the text goes to a temporary file in the target's own directory, is flushed to the disk, and takes
the target's place by rename, which is atomic on one file system. Whatever fails before leaves the old file as
it was; what a killed writer leaves beside it, the next one removes (`temporary_files`).
"""

from __future__ import annotations

import bz2
import contextlib
import errno
import gzip
import io
import lzma
import os
import stat
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

from graphopt.errors import FormatError
from graphopt.temporary_files import temporary_file

PathLike = str | os.PathLike[str]
Content = bytes | Callable[[IO[bytes]], None]
"""What a file holds, or what writes it."""

_MAGIC = {b"\x1f\x8b": ".gz", b"BZh": ".bz2", b"\xfd7zXZ\x00": ".xz"}
COMPRESSION_SUFFIXES = (".gz", ".bz2", ".xz")
_STREAMS = {"/dev/stdout": 1, "/dev/stderr": 2}
"""Names of open files: opened anew, a regular file would be emptied."""
_CHUNK = 1 << 22
_BOMB_FLOOR = 64 << 20
"""Bytes that any compressed file may expand to."""
_BOMB_RATIO = 300
"""Expansion refused beyond the floor; text of numbers compresses 3 to 20 times."""


def strip_compression(path: PathLike) -> Path:
    """Return the path without a .gz, .bz2 or .xz at its end."""
    plain = Path(path)
    return plain.with_suffix("") if plain.suffix.lower() in COMPRESSION_SUFFIXES else plain


def read_bytes(path: PathLike) -> bytes:
    """Content of a file, unpacked if it starts as gzip, bzip2 or xz does.

    Raises OSError (missing, a directory, no permission) with the system's reason, FormatError for a damaged
    archive or one that unpacks to more than 300 times its size.
    """
    if os.path.isdir(path):
        raise IsADirectoryError(
            errno.EISDIR, "Is a folder, expected a file: pass one of the files in it", os.fspath(path)
        )
    return unpack(packed_bytes(path), os.fspath(path))


def packed_bytes(path: PathLike) -> bytes:
    """Content of a file as it is. Its OSError names the file, whichever call of the system failed."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        if error.filename is None:
            error.filename = os.fspath(path)
        raise


def unpack(data: bytes, path: str) -> bytes:
    """Content of a gzip, bzip2 or xz archive; other data as it is. Raises FormatError."""
    for magic, suffix in _MAGIC.items():
        if data.startswith(magic):
            return _unpack(data, suffix, path)
    return data


def _unpack(data: bytes, suffix: str, path: str) -> bytes:
    opener = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}[suffix]
    limit = max(_BOMB_FLOOR, _BOMB_RATIO * len(data))
    parts: list[bytes] = []
    size = 0
    try:
        with opener(io.BytesIO(data), "rb") as packed:
            while chunk := packed.read(_CHUNK):
                parts.append(chunk)
                size += len(chunk)
                if size > limit:
                    raise FormatError(
                        f"{path}: unpacks to more than {_BOMB_RATIO} times its {len(data)} bytes; this "
                        "is no graph. "
                        "Unpack it by hand if it is wanted all the same."
                    )
    except (OSError, EOFError, ValueError, lzma.LZMAError, zlib.error) as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(f"{path}: damaged or truncated {suffix[1:]} archive ({error})") from error
    return b"".join(parts)


def check_writable(path: PathLike) -> None:
    """Raise OSError now if `write_bytes` to this path could not work later; leaves nothing behind.

    For callers that compute for a long time before they write.
    """
    target = Path(path)
    _check_existing(target)
    if target.exists() and not target.is_file():
        return
    with temporary_file(target.resolve()):
        pass


def write_bytes(path: PathLike, data: bytes) -> None:
    """Write a file whole or not at all; packed if the path ends in .gz, .bz2 or .xz.

    Permissions of an old file stay.
    A link is followed; a pipe or a terminal (/dev/stdout) is written directly. Raises OSError with the path
    and the system's reason; the old file is then untouched.
    """
    target = Path(path)
    _check_existing(target)
    packed = _pack(data, target.suffix.lower())
    if os.fspath(path) in _STREAMS or (target.exists() and not target.is_file()):
        _write_directly(os.fspath(path), packed)
        return
    target = target.resolve()
    with temporary_file(target) as (file, name):
        file.write(packed)
        file.flush()
        if target.exists():
            os.fchmod(file.fileno(), stat.S_IMODE(target.stat().st_mode))
        os.fsync(file.fileno())
        os.replace(name, target)
    sync_directory(target.parent)


def write_content(path: PathLike, content: Content) -> None:
    """`write_bytes`; what writes itself goes into a plain file piece by piece."""
    target = Path(path)
    is_plain = target.suffix.lower() not in COMPRESSION_SUFFIXES and os.fspath(path) not in _STREAMS
    if not callable(content):
        write_bytes(path, content)
    elif is_plain and (target.is_file() or not target.exists()):
        write_together({target: content})
    else:
        write_bytes(path, bytes_of(content))


def bytes_of(content: Content) -> bytes:
    """All of it."""
    if not callable(content):
        return content
    buffer = io.BytesIO()
    content(buffer)
    return buffer.getvalue()


def _write_directly(path: str, data: bytes) -> None:
    """To a pipe or a terminal; a stream goes on where the process has written to last."""
    try:
        with open(os.dup(_STREAMS[path]) if path in _STREAMS else path, "wb") as file:
            file.write(data)
    except OSError as error:
        error.filename = path
        raise


def write_together(contents: Mapping[Path, Content]) -> None:
    """Write files of one folder: all are complete on the disk before the first takes its place by rename.

    A function is called with the open file and writes it piece by piece; it packs nothing.
    Raises OSError, or what such a function raises; what was there before the first rename is then untouched.
    """
    with contextlib.ExitStack() as stack:
        names: list[tuple[str, Path]] = []
        for target, data in contents.items():
            _check_existing(target)
            file, name = stack.enter_context(temporary_file(target.resolve()))
            if callable(data):
                data(file)
            else:
                file.write(_pack(data, target.suffix.lower()))
            file.flush()
            if target.exists():
                os.fchmod(file.fileno(), stat.S_IMODE(target.stat().st_mode))
            os.fsync(file.fileno())
            names.append((name, target.resolve()))
        for name, target in names:
            os.replace(name, target)
    for folder in {target.parent for _, target in names}:
        sync_directory(folder)


def append(path: PathLike, text: str) -> None:
    """Add to the end of a file, whole or not at all. Raises OSError."""
    target = Path(path)
    before = packed_bytes(target) if target.is_file() else b""
    write_bytes(target, before + text.encode())


def _check_existing(target: Path) -> None:
    """Refuse folders and read-only files, which renaming would replace."""
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, "Is a directory, expected a file to write", os.fspath(target))
    if target.exists() and not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, "The file exists and is not writable", os.fspath(target))


def sync_directory(directory: Path) -> None:
    """Make the rename itself durable; not every file system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _pack(data: bytes, suffix: str) -> bytes:
    if suffix == ".gz":
        return gzip.compress(data, compresslevel=6, mtime=0)
    if suffix == ".bz2":
        return bz2.compress(data)
    if suffix == ".xz":
        return lzma.compress(data)
    return data
