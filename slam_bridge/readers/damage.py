"""One way to say that a file is none of its format: `FormatError` with its name, whatever tripped over it."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from graphopt.errors import FormatError
from graphopt.io.files import packed_bytes

_SIGNS = (
    *(ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError),
    *(struct.error, np.linalg.LinAlgError),
)
"""What Python and numpy raise where numbers, counts, names or types are not what a format promises."""
MAX_SECONDS = 2**63 * 1e-9
"""Stamps are nanoseconds in 64 bits."""


def file_bytes(path: str | os.PathLike[str], kind: str) -> bytes:
    """Content of a file; `FormatError` for a folder. Raises `FileNotFoundError` and its kin as they are."""
    if Path(path).is_dir():
        raise FormatError(f"{os.fspath(path)}: is a folder, expected {kind}.")
    return packed_bytes(path)


@contextmanager
def refused_as(name: str, expected: str) -> Iterator[None]:
    """Turn what a damaged file sets off into `FormatError`; those that were said already pass.

    Numbers of any size give no warnings inside: who reads a map ends with `check_map`.
    """
    try:
        with np.errstate(all="ignore"):
            yield
    except FormatError as error:
        if str(error).startswith(name):
            raise
        raise FormatError(f"{name}: {error}") from error
    except KeyError as error:
        raise FormatError(f"{name}: {expected} ({error} is missing, or names nothing in it).") from error
    except _SIGNS as error:
        sentence = str(error) or type(error).__name__
        raise FormatError(f"{name}: {expected} ({sentence}).") from error


def nanoseconds(seconds: np.ndarray, what: str) -> np.ndarray:
    """(n,) int64 stamps of times (n,) [s]; `ValueError` names the first that is none."""
    bad = ~(np.abs(seconds) < MAX_SECONDS)
    if bad.any():
        row = int(np.argmax(bad))
        raise ValueError(f"the {what} number {row} is {seconds[row]} s, expected a finite time below 2^63 ns")
    return np.rint(1e9 * seconds).astype(np.int64)
