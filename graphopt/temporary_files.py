"""Files and folders that are complete before they have their name, and what killed writers left of them.

A writer fills `.NAME.TOKEN@HOST.tmp` beside the target, locked (flock) as long as it lives, and renames it.
A killed one leaves that name without a lock: the next writer into the same folder removes it. Those of
another host, whose locks may not be seen here, are removed after a day. So does
native/embed/src/files.cpp.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

_NAME = re.compile(r"\..*\.[0-9a-f]{12}@(.*)\.tmp", re.DOTALL)
_DAY = 86400.0  # [s]


@contextlib.contextmanager
def temporary_file(target: Path, removes_abandoned: bool = True) -> Iterator[tuple[IO[bytes], str]]:
    """Open a new file in the target's folder; it is removed unless the block renames it, while it is open.

    Raises OSError that names the target, also for an OSError of the block that names no file.
    """
    if removes_abandoned:
        remove_abandoned(target.parent)
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
    descriptor, name = _make_locked(target, lambda name: os.open(name, flags, 0o666))
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file, name
    except OSError as error:  # of a write, without the file's name
        error.filename = error.filename or os.fspath(target)
        raise
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)


@contextlib.contextmanager
def temporary_folder(target: Path) -> Iterator[Path]:
    """Make a new folder beside the target; what has its name at the end of the block is removed.

    Raises OSError that names the target.
    """
    remove_abandoned(target.parent)
    descriptor, name = _make_locked(target, _make_folder)
    try:
        yield Path(name)
    finally:
        shutil.rmtree(name, ignore_errors=True)
        os.close(descriptor)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Nobody takes this file or folder for abandoned during the block, whatever its name."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _lock(descriptor)
        yield
    finally:
        os.close(descriptor)


def remove_abandoned(folder: Path) -> None:
    """Remove the temporary files and folders of writers that have ended; leaves what it may not remove."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(".") and (match := _NAME.fullmatch(entry.name)):
                with contextlib.suppress(OSError):
                    _remove_if_abandoned(entry.path, match[1])


def _remove_if_abandoned(path: str, host: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if host != _host() and time.time() - os.fstat(descriptor).st_mtime < _DAY:
            return
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.isdir(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> None:
    """Until it is closed. Not every file system can: there nobody gets a lock, and nothing is abandoned."""
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX)


def _make_locked(target: Path, make: Callable[[str], int]) -> tuple[int, str]:
    """Descriptor, locked, and name of what `make` has made beside the target."""
    begin = os.fsdecode(os.fsencode(target.name)[:100])
    while True:
        name = str(target.parent / f".{begin}.{secrets.token_hex(6)}@{_host()}.tmp")
        try:
            descriptor = make(name)
        except OSError as error:
            raise type(error)(
                error.errno, f"Cannot write here ({error.strerror})", os.fspath(target)
            ) from error
        _lock(descriptor)
        if os.path.lexists(name):
            return descriptor, name
        os.close(descriptor)  # another writer took it for abandoned before it was locked


def _make_folder(name: str) -> int:
    while True:
        os.mkdir(name, 0o700)
        with contextlib.suppress(FileNotFoundError):  # taken for abandoned already
            return os.open(name, os.O_RDONLY | os.O_CLOEXEC)


def _host() -> str:
    return os.uname().nodename[:64]
