"""Where the host has too little memory, errors say what it was needed for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from graphopt.errors import GraphOptError, HostMemoryError

_SAYS_NOTHING = ("", "Out of memory: the system gives this process no more.")


@contextmanager
def memory_for(what: Callable[[], str]) -> Iterator[None]:
    """Within it a `MemoryError` of Python, numpy or native code becomes a `HostMemoryError`.

    what: the work and the way out, in sentences that follow "Out of memory: ".
    """
    try:
        yield
    except MemoryError as error:
        if isinstance(error, GraphOptError):
            raise
        text = str(error)
        asked = "" if text in _SAYS_NOTHING else f" {text.rstrip('.')}."
        raise HostMemoryError(f"Out of memory: {what()}{asked}") from error
