"""Things that take long to build, each built once however many threads ask for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class BuiltOnce(Generic[T]):
    """What was built for each key; a thread that asks for what another one builds waits for it."""

    def __init__(self) -> None:
        self._built: dict[Hashable, T] = {}
        self._in_work: dict[Hashable, threading.Event] = {}
        self._lock = threading.Lock()

    def get(self, key: Hashable, build: Callable[[], T]) -> T:
        """The thing of this key. An error of `build` is raised, and the next who asks tries again."""
        while key not in self._built:
            with self._lock:
                others = self._in_work.get(key)
                if others is None and key not in self._built:
                    done = self._in_work[key] = threading.Event()
                    break
            if others is not None:
                others.wait()
        else:
            return self._built[key]
        try:
            self._built[key] = build()
        finally:
            with self._lock:
                del self._in_work[key]
            done.set()
        return self._built[key]
