"""What is kept between processes: compiled programs, shaders, pipelines, figures of devices.

An entry ends in a checksum of its name and content: one that was cut, changed, exchanged or written by
another version counts as missing, so that whoever asks makes it anew and replaces it. The folder is kept
below `$GRAPHOPT_CACHE_SIZE` MiB (256): after each sixteenth of that, counted over all processes, the entries
that were not used for longest are removed until seven eighths are left.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from graphopt.errors import OptionError
from graphopt.temporary_files import remove_abandoned, temporary_file

_DEFAULT_SIZE = 256  # MiB
_DIGEST = 16  # bytes
_BLOCK = 4096  # bytes: what a file takes at least
_HOUR = 3600.0  # [s] the time of the last use is noted this often
_FOLDERS = ("", "spirv", "kernels", "devices")
_ENTRY = re.compile(
    r"[0-9a-f]{40}\.(program|cut)|pipelines-[\w-]+\.bin"
    r"|spirv/[\w.]+-[0-9a-f]{32}\.spv|kernels/[0-9a-f]{40}|devices/[0-9a-f]{16}\.json"
)
"""Names of entries: nothing else in the folder is ever removed."""
_WRITTEN = "written"
"""File with a byte for every block that was written since entries were removed."""


def cache_directory() -> Path | None:
    """`$GRAPHOPT_CACHE_DIR`, else `$XDG_CACHE_HOME/graphopt`, else `~/.cache/graphopt`.

    None, where nothing is kept: GRAPHOPT_CACHE_DIR is empty, GRAPHOPT_CACHE is "off", or there is no home.
    """
    asked = os.environ.get("GRAPHOPT_CACHE_DIR")
    if asked == "" or os.environ.get("GRAPHOPT_CACHE") == "off":
        return None
    if asked is not None:
        return Path(asked)
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "graphopt"
    except RuntimeError:  # no home directory
        return None


def load(name: str) -> bytes | None:
    """Content of an entry as it was stored; None where there is none, or a damaged one.

    name: below the cache folder, such as "spirv/NAME.spv".
    """
    folder = cache_directory()
    if folder is None:
        return None
    try:
        with open(folder / name, "rb") as file:
            entry = file.read()
            last_use = os.fstat(file.fileno()).st_mtime
    except OSError:
        return None
    content = entry[:-_DIGEST]
    if entry[-_DIGEST:] != _digest(name, content):
        return None
    if time.time() - last_use > _HOUR:
        with contextlib.suppress(OSError):  # a folder that can only be read
            os.utime(folder / name)
    return content


def store(name: str, content: bytes) -> OSError | None:
    """Keep an entry for `load`; the error of a folder that cannot be written, where it is not kept.

    Other processes see all of it or nothing.
    """
    folder = cache_directory()
    if folder is None:
        return None
    limit = size_limit()
    try:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary_file(path, removes_abandoned=False) as (file, temporary):
            file.write(content + _digest(name, content))
            file.flush()
            _put(temporary, path)
        if _note_written(folder, _blocks(len(content) + _DIGEST)) * _BLOCK > limit // 16:
            _evict(folder, limit)
    except OSError as error:
        return error
    return None


def _put(temporary: str | Path, path: Path) -> None:
    """Rename a whole file to an entry; an empty folder of the entry's name gives way."""
    try:
        os.replace(temporary, path)
    except IsADirectoryError:
        path.rmdir()
        os.replace(temporary, path)


def load_dated(name: str) -> tuple[dict[str, Any], float] | None:
    """A record that `store_dated` kept, and its age [s]; None where there is none of the past."""
    stored = load(name)
    if stored is None:
        return None
    try:
        record = json.loads(stored)
        age = time.time() - datetime.fromisoformat(record["measured"]).timestamp()
    except (ValueError, TypeError, KeyError):
        return None
    return (record, age) if age >= 0.0 else None


def store_dated(name: str, record: dict[str, Any]) -> str:
    """Keep a record, with its date as "measured", which is returned."""
    date = datetime.now(timezone.utc).isoformat()
    store(name, json.dumps({**record, "measured": date}, indent=1).encode())
    return date


def size_limit() -> int:
    """Bytes that the entries may take. Raises OptionError where GRAPHOPT_CACHE_SIZE is no size."""
    text = os.environ.get("GRAPHOPT_CACHE_SIZE", "") or str(_DEFAULT_SIZE)
    if not re.fullmatch(r"[1-9][0-9]{0,8}", text):
        raise OptionError(
            f"GRAPHOPT_CACHE_SIZE is '{text}', expected a whole number of MiB from 1 on. "
            "GRAPHOPT_CACHE=off keeps nothing."
        )
    return int(text) << 20


def _digest(name: str, content: bytes) -> bytes:
    digest = hashlib.blake2b(name.encode(), digest_size=_DIGEST, person=b"graphopt cache 1")
    digest.update(content)
    return digest.digest()


def _blocks(nbytes: int) -> int:
    return -(-nbytes // _BLOCK)


def _note_written(folder: Path, blocks: int) -> int:
    """Count blocks; returns how many all processes have written since entries were removed."""
    with open(folder / _WRITTEN, "ab", buffering=0) as file:
        file.write(bytes(blocks))
        return file.tell()


def _evict(folder: Path, limit: int) -> None:
    """Remove the entries that were not used for longest; of several processes, one does it."""
    try:
        os.unlink(folder / _WRITTEN)
    except FileNotFoundError:  # another process does it now
        return
    for name in _FOLDERS:
        remove_abandoned(folder / name)
    entries = sorted(_entries(folder))
    excess = sum(nbytes for _, nbytes, _ in entries) - limit
    if excess <= 0:
        return
    excess += limit // 8
    for _, nbytes, path in entries:
        with contextlib.suppress(OSError):
            os.unlink(path)
            excess -= nbytes
        if excess <= 0:
            return


def _entries(folder: Path) -> Iterator[tuple[float, int, str]]:
    """Time of the last use, bytes on the disk, and path of each."""
    for name in _FOLDERS:
        with contextlib.suppress(OSError), os.scandir(folder / name) as files:
            for file in files:
                if _ENTRY.fullmatch(f"{name}/{file.name}" if name else file.name):
                    with contextlib.suppress(OSError):  # another process has removed it
                        state = file.stat(follow_symlinks=False)
                        yield state.st_mtime, _blocks(state.st_size) * _BLOCK, file.path
