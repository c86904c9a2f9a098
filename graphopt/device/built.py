"""Things that take long to build, each built once however many threads ask for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")
MOST_KEPT = 256
"""Things that are kept though nobody uses them; the kernels of a problem are some tens."""


class BuiltOnce(Generic[T]):
    """What was built for each key; a thread that asks for what another one builds waits for it.

    Beyond `most` of them, those that were asked for longest ago are given up, but none that is in use.
    """

    def __init__(self, most: int = MOST_KEPT, in_use: Callable[[T], bool] = lambda built: False) -> None:
        self._built: dict[Hashable, T] = {}  # the last one was asked for last
        self._in_work: dict[Hashable, threading.Event] = {}
        self._lock = threading.Lock()
        self._most, self._in_use = most, in_use

    def __len__(self) -> int:
        return len(self._built)

    def get(self, key: Hashable, build: Callable[[], T]) -> T:
        """The thing of this key. An error of `build` is raised, and the next who asks tries again."""
        while True:
            with self._lock:
                if key in self._built:
                    self._built[key] = built = self._built.pop(key)
                    return built
                others = self._in_work.get(key)
                if others is None:
                    done = self._in_work[key] = threading.Event()
                    break
            others.wait()
        try:
            built = build()
            with self._lock:
                self._built[key] = built
                given_up = self._take_unused()
        finally:
            with self._lock:
                del self._in_work[key]
            done.set()
        del given_up  # their ends come outside the lock
        return built

    def _take_unused(self) -> list[T]:
        """Remove the oldest that are not in use, but never the last one, until `most` are left."""
        count = len(self._built) - self._most
        if count <= 0:
            return []
        unused = (key for key, built in list(self._built.items())[:-1] if not self._in_use(built))
        return [self._built.pop(key) for key, _ in zip(unused, range(count), strict=False)]
