"""How long a thread waits at most for the Python of others, while threads hand work to each other."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_asked: list[float] = []
"""Seconds, of all who ask now."""
_ordinary = 0.0
"""Before anybody asked."""


def begin(seconds: float) -> None:
    """Let Python's threads take turns at least so often, in the whole process, until `end`."""
    global _ordinary
    with _lock:
        if not _asked:
            _ordinary = sys.getswitchinterval()
        _asked.append(seconds)
        sys.setswitchinterval(min(_ordinary, *_asked))


def end(seconds: float) -> None:
    """Who began with these seconds needs it no more; after the last one all is as before."""
    with _lock:
        _asked.remove(seconds)
        sys.setswitchinterval(min([_ordinary, *_asked]))


@contextmanager
def switching(seconds: float) -> Iterator[None]:
    """`begin` and `end`."""
    begin(seconds)
    try:
        yield
    finally:
        end(seconds)
