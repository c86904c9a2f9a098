"""The folder where compiled programs, shaders and pipeline caches are kept between processes."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path


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


def write_atomically(path: Path, data: bytes) -> None:
    """Write a cache file so that other processes see all of it or nothing; OSError where that fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
