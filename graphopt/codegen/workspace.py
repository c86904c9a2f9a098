"""Where compiling happens: one thread at a time, with expressions of its own."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from graphopt.symbolic import fresh_table

_LOCK = threading.RLock()


@contextmanager
def workspace() -> Iterator[None]:
    """A fresh table of expressions, forgotten at the end, for one thread.

    Meanwhile no cyclic garbage is looked for: expressions have no cycles, and there are so many that the
    search through everything else in the process would be repeated again and again.
    """
    with _LOCK, fresh_table():
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            yield
        finally:
            if was_enabled:
                gc.enable()
