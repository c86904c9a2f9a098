"""Ways to end an optimization early: a flag from another thread, a time limit, Ctrl-C, the callback."""

from __future__ import annotations

import importlib
import signal
import threading
import time
from typing import Protocol

from graphopt.optimizer.summary import TerminationType

_handlers = importlib.import_module("_signal")
"""What `signal` is made of; `signal` itself makes enum members, which takes longer than a small iteration."""


class Settable(Protocol):
    """Anything with `is_set`, such as `StopFlag` or `threading.Event`."""

    def is_set(self) -> bool:
        """True: stop."""
        ...


class StopFlag:
    """A flag that another thread may set while `optimize` runs; looked at before each trial."""

    def __init__(self, value: bool = False):
        self.value = value

    def set(self) -> None:
        """Ask to stop."""
        self.value = True

    def clear(self) -> None:
        """Withdraw the request."""
        self.value = False

    def is_set(self) -> bool:
        """True once stopping was asked for."""
        return self.value


_RARELY = 1e-3
"""Seconds between two looks at reasons that only another thread or a signal can give."""


class StopSignals:
    """All reasons to stop early; `reason` is the first one seen."""

    def __init__(
        self,
        stop: Settable | None,
        time_limit: float | None,
        start: float,
        is_likely: bool = True,
    ):
        """`is_likely`: False if `stop` would be set by surprise only."""
        self._stop = stop
        self._deadline = None if time_limit is None else start + time_limit
        self._interrupted = False
        self.reason: TerminationType | None = None
        is_watched = time_limit is not None or (stop is not None and is_likely)
        self.patience = 0.0 if is_watched else _RARELY
        """Seconds that native code may go on without asking."""

    def interrupt(self) -> None:
        """Note a Ctrl-C."""
        self._interrupted = True

    def ask(self, reason: TerminationType) -> None:
        """Stop for this reason."""
        self.reason = self.reason or reason

    def should_stop(self) -> bool:
        """True from the first reason on."""
        if self.reason is None:
            if self._interrupted:
                self.reason = TerminationType.USER_INTERRUPT
            elif self._stop is not None and self._stop.is_set():
                self.reason = TerminationType.USER_STOP
            elif self._deadline is not None and time.perf_counter() >= self._deadline:
                self.reason = TerminationType.TIME_LIMIT
        return self.reason is not None

    def catching_interrupts(self) -> CatchingInterrupts:
        """Turn the first Ctrl-C within a `with` into a request to stop."""
        return CatchingInterrupts(self)


class CatchingInterrupts:
    """The first Ctrl-C asks the signals to stop; a second one raises KeyboardInterrupt as usual.

    Only in the main thread and only where Python's own handler is in place, so a program's handler stays in
    charge.
    """

    def __init__(self, signals: StopSignals):
        self._signals = signals
        self._is_ours = False

    def __enter__(self) -> None:
        self._is_ours = (
            threading.get_ident() == threading.main_thread().ident
            and _handlers.getsignal(signal.SIGINT) is signal.default_int_handler
        )
        if self._is_ours:
            _handlers.signal(signal.SIGINT, self._handle)

    def _handle(self, number: int, frame: object) -> None:
        self._signals.interrupt()
        _handlers.signal(signal.SIGINT, signal.default_int_handler)

    def __exit__(self, *error: object) -> None:
        if self._is_ours:
            _handlers.signal(signal.SIGINT, signal.default_int_handler)
