"""The folder where compiled kernels and pipeline caches are kept between processes."""

from __future__ import annotations

import os
from pathlib import Path


def cache_directory() -> Path | None:
    """`$GRAPHOPT_CACHE_DIR`, else `$XDG_CACHE_HOME/graphopt`, else `~/.cache/graphopt`; None if empty."""
    asked = os.environ.get("GRAPHOPT_CACHE_DIR")
    if asked is not None:
        return Path(asked) if asked else None
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "graphopt"


def write_atomically(path: Path, data: bytes) -> None:
    """Write a cache file so that other processes see all of it or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.new")
    temporary.write_bytes(data)
    temporary.replace(path)
