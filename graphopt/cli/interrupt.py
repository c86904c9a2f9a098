"""Ctrl-C during an optimization: the first one asks it to stop and to keep the best estimate so far."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType, TracebackType


class StopOnInterrupt:
    """While active, the first SIGINT or SIGTERM sets `stop`; a second SIGINT raises `KeyboardInterrupt`."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self._previous: dict[int, object] = {}

    def __enter__(self) -> StopOnInterrupt:
        # Only the main thread may install handlers; elsewhere (tests, notebooks) signals stay as they are.
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                # A signal that the caller ignores (nohup, a shell's background job) stays ignored.
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.stop.set()
        # os.write, not print: the handler may run in the middle of another print.
        os.write(2, b"\ngraphopt: stopping after this step; Ctrl-C again to leave at once.\n")
