"""Things that take long to build, each built once however many threads ask for it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Generic, TypeVar

T = TypeVar("T")


_MISSING: Any = object()
MAX_BUILDERS = max(4, (os.cpu_count() or 4) // 2)
"""Things that are built at the same time: GLSL compilers and drivers run without Python's lock."""


class BuiltOnce(Generic[T]):
    """What was built for each key; a thread that asks for what another one builds waits for it.

    The `most` that were asked for last are kept here; others live as long as somebody else has them.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._built: dict[Hashable, T] = {}
        """The one that was asked for last comes last."""
        self._in_work: dict[Hashable, threading.Event] = {}
        self._lock = threading.Lock()
        self._builders: ThreadPoolExecutor | None = None
        self._coming: dict[Hashable, Future[T]] = {}

    def __len__(self) -> int:
        return len(self._built)

    def forget(self, key: Hashable) -> None:
        """Keep the thing of this key no longer. Takes no lock: a garbage collection may call it anywhere."""
        self._built.pop(key, None)

    def start(self, key: Hashable, build: Callable[[], T]) -> T | Future[T]:
        """The thing of this key, or what it will be: another thread builds it then."""
        with self._lock:
            found = self._built.pop(key, _MISSING)
            if found is not _MISSING:
                self._built[key] = found
                return found
            coming = self._coming.get(key)
            if coming is None:
                if self._builders is None:
                    self._builders = ThreadPoolExecutor(MAX_BUILDERS, "graphopt-kernel")
                coming = self._coming[key] = self._builders.submit(self._arrive, key, build)
        return coming

    def _arrive(self, key: Hashable, build: Callable[[], T]) -> T:
        try:
            return self.get(key, build)
        finally:
            with self._lock:
                self._coming.pop(key, None)

    def get(self, key: Hashable, build: Callable[[], T]) -> T:
        """The thing of this key. An error of `build` is raised, and the next who asks tries again."""
        while True:
            with self._lock:
                found = self._built.pop(key, _MISSING)
                if found is not _MISSING:
                    self._built[key] = found
                    return found
                others = self._in_work.get(key)
                if others is None:
                    done = self._in_work[key] = threading.Event()
                    break
            others.wait()
        try:
            found = build()
            with self._lock:
                self._built[key] = found
                if len(self._built) > self._most:
                    self._built.pop(next(iter(self._built)), None)
        finally:
            with self._lock:
                del self._in_work[key]
            done.set()
        return found
