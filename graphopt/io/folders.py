"""Folders whose files belong together: all new ones, or all old ones.

    new or empty      made beside its place, and renamed to it
    in use            a copy with the new files and links to all others is made beside it; both exchange their
                      names in one call (renameat2, Linux)
    where that fails  (folders inside it, which have no links; this program's working folder; other file
                      systems) the new files are complete in `PENDING` before the first takes its place.
                      Whoever is killed in between leaves that folder, and `in_folder` looks there first.

Files of other names (project.ini, images, a database) stay.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import shutil
import stat
import sys
from collections.abc import Mapping
from pathlib import Path

from graphopt.io.files import Content, PathLike, sync_directory, write_together
from graphopt.temporary_files import locked, temporary_folder

PENDING = ".graphopt-pending"
"""Folder of complete files that are to take their places in the folder around it."""
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # linux/fcntl.h, linux/fs.h


def write_folder(folder: PathLike, contents: Mapping[str, Content]) -> None:
    """Write files, by name, into a folder that is made if it is not there. Raises OSError.

    Whoever looks finds all of them or what was there before, whenever this process ends; in the third case of
    the module's header whoever looks by `in_folder`.
    """
    target = Path(folder).absolute().resolve()
    _complete(target)
    is_used = target.is_dir() and any(target.iterdir())
    if is_used and not _can_exchange(target):
        _replace_in_place(target, contents)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.is_dir() and not os.access(target.parent, os.W_OK | os.X_OK):
        _replace_in_place(target, contents)
        return
    with temporary_folder(target) as made:
        write_together({made / name: data for name, data in contents.items()})
        os.chmod(made, stat.S_IMODE(target.stat().st_mode) if target.is_dir() else 0o777 & ~_umask())
        if not is_used:
            os.replace(made, target)
        elif not _exchange(made, target, set(contents)):
            _replace_in_place(target, contents)
    sync_directory(target.parent)


def in_folder(folder: PathLike, name: str) -> Path:
    """Where a file of a folder is: in its place, or pending after a writer was killed."""
    pending = Path(folder) / PENDING
    waiting = pending / name
    return waiting if waiting.is_file() and not _is_outdated(pending) else Path(folder) / name


# ------------------------------------------------------------------------ exchange of folders


def _can_exchange(target: Path) -> bool:
    """Nothing in it but files and links, its owner is this user, and nobody here works in it."""
    with contextlib.suppress(OSError):
        cwd = Path.cwd()
        if cwd == target or target in cwd.parents:
            return False
    if not sys.platform.startswith("linux") or target.stat().st_uid != os.geteuid():
        return False
    with os.scandir(target) as entries:
        return all(entry.is_symlink() or entry.is_file(follow_symlinks=False) for entry in entries)


def _exchange(made: Path, target: Path, new: set[str]) -> bool:
    """Take the target's place with its other files; `made` is the old folder then. False: not possible."""
    try:
        for entry in target.iterdir():
            if entry.name not in new:
                os.link(entry, made / entry.name, follow_symlinks=False)
        for name in new:
            if (target / name).is_file():
                os.chmod(made / name, stat.S_IMODE((target / name).stat().st_mode))
        sync_directory(made)
        with locked(target):  # it has the name of a temporary folder then
            if not _rename_exchange(made, target):
                return False
            for entry in made.iterdir():  # files that somebody added meanwhile
                if not (target / entry.name).exists() and not (target / entry.name).is_symlink():
                    os.replace(entry, target / entry.name)
    except OSError:
        return False
    return True


def _rename_exchange(first: Path, second: Path) -> bool:
    """Both names change places at once; False where the system cannot do that."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    arguments = (_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE)
    return rename(*arguments) == 0


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


# ------------------------------------------------------------------------ file by file


def _replace_in_place(target: Path, contents: Mapping[str, Content]) -> None:
    """First all files complete in `PENDING`, then one after the other to its place."""
    for name in contents:
        if (target / name).is_dir():
            raise IsADirectoryError(errno.EISDIR, "Is a directory, expected a file", os.fspath(target / name))
        if (target / name).exists() and not os.access(target / name, os.W_OK):
            raise PermissionError(
                errno.EACCES, "The file exists and is not writable", os.fspath(target / name)
            )
    with temporary_folder(target / PENDING) as made:
        write_together({made / name: data for name, data in contents.items()})
        for name in contents:
            if (target / name).exists():
                os.chmod(made / name, stat.S_IMODE((target / name).stat().st_mode))
        os.replace(made, target / PENDING)
    sync_directory(target)
    _complete(target, is_new=True)


def _complete(target: Path, is_new: bool = False) -> None:
    """Bring pending files to their places; is_new: they were written just now."""
    pending = target / PENDING
    if not pending.is_dir():
        return
    if is_new or not _is_outdated(pending):
        for entry in sorted(pending.iterdir()):
            os.replace(entry, target / entry.name)
    shutil.rmtree(pending, ignore_errors=True)
    sync_directory(target)


def _is_outdated(pending: Path) -> bool:
    """Another program has written one of the files since the writer was killed."""
    last = pending.stat().st_mtime_ns
    places = [pending.parent / entry.name for entry in pending.iterdir()]
    return any(place.is_file() and place.stat().st_mtime_ns > last for place in places)
