"""Ways to end an optimization early: a flag from another thread, a time limit, Ctrl-C, the callback.

Three places look at them:

* the loop of iterations, before each trial (`StopSignals.should_stop`);
* native code that takes long (factorizations, passes over all edges, orderings) asks through a watch, every
  `_PERIOD` seconds, and ends early with `errors.Stopped`; what an algorithm had begun is then taken back;
* Python code that takes long calls `kernels.check_stop()`, which raises the same.

Ctrl-C has two meanings while an optimization runs. Where nothing can be left half done (set-up, a program's
own code inside `UsersCode`) it raises KeyboardInterrupt at once, as everywhere in Python. Elsewhere it asks
to stop; `raise_if_interrupted` then raises `Interrupted`, a KeyboardInterrupt, once the best estimate is in
place. With `on_interrupt="stop"` nothing is raised: the optimization returns what it has.
"""

from __future__ import annotations

import importlib
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from graphopt.cpu_kernels import kernels
from graphopt.errors import OptionError, Stopped
from graphopt.optimizer.summary import Summary, TerminationType

_handlers = importlib.import_module("_signal")
"""What `signal` is made of; `signal` itself makes enum members, which takes longer than a small iteration."""

_RARELY = 1e-3
"""Seconds between two looks at reasons that only another thread or a signal can give."""
_PERIOD = 0.02
"""Seconds between two questions of a native call that takes long."""
ON_INTERRUPT = ("raise", "stop")


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


class Interrupted(KeyboardInterrupt):
    """Ctrl-C ended an optimization; the best estimate so far is in the graph."""

    summary: Summary | None = None
    """What was done until then."""


class StopSignals:
    """All reasons to stop early; `reason` is the first one seen."""

    def __init__(
        self,
        stop: Settable | None,
        time_limit: float | None,
        start: float,
        is_likely: bool = True,
        on_interrupt: str = "raise",
    ):
        """`is_likely`: False if `stop` would be set by surprise only. on_interrupt: one of `ON_INTERRUPT`."""
        if on_interrupt not in ON_INTERRUPT:
            raise OptionError(f"on_interrupt is '{on_interrupt}', expected one of {', '.join(ON_INTERRUPT)}.")
        if stop is not None and not hasattr(stop, "is_set"):
            raise OptionError(f"stop is {stop!r}, expected an object with is_set(), such as StopFlag().")
        self._stop = stop
        self._deadline = None if time_limit is None else start + time_limit
        self._interrupted = False
        self._raises = on_interrupt == "raise"
        self.at_once = False
        """Ctrl-C may raise here and now."""
        self.reason: TerminationType | None = None
        is_watched = time_limit is not None or (stop is not None and is_likely)
        self.patience = 0.0 if is_watched else _RARELY
        """Seconds that native code may go on without asking."""

    def note_interrupt(self) -> None:
        """Stop because of Ctrl-C."""
        self._interrupted = True
        self.ask(TerminationType.USER_INTERRUPT)

    def interrupt(self) -> None:
        """React to Ctrl-C: note it, or raise where that may be done at once."""
        self._interrupted = True
        if self.at_once and self._raises:
            raise KeyboardInterrupt

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

    def should_stop_within(self) -> bool:
        """What native code asks in the middle of a trial."""
        return self.should_stop()

    def check(self) -> None:
        """Raise `Stopped` from the first reason on."""
        if self.should_stop():
            raise Stopped("asked to stop")

    def catching_interrupts(self, at_once: bool = False) -> CatchingInterrupts:
        """Turn the first Ctrl-C within a `with` into a request to stop; at_once: into an exception."""
        return CatchingInterrupts(self, at_once)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Let native code of this thread ask `should_stop_within` within a `with`."""
        watch = kernels.Watch(self.should_stop_within, _PERIOD)
        watch.begin()
        try:
            yield
        finally:
            watch.end()

    def raise_if_interrupted(self, summary: Summary) -> None:
        """Raise `Interrupted` if Ctrl-C was pressed; with "stop" the summary says so instead."""
        if self._interrupted and self._raises:
            error = Interrupted(TerminationType.USER_INTERRUPT.value)
            error.summary = summary
            raise error


_active: list[StopSignals] = []
"""Of the optimizations that run in the main thread, one inside the other."""


class UsersCode:
    """A `with` around code of the program that uses this library: there Ctrl-C raises at once.

    For callbacks, edges that are defined in Python, actions before and after iterations: whatever may take
    long and knows no flag. The exception passes through the optimizer like any other: the last accepted
    estimates stay. Outside of an optimization, and in other threads, it does nothing.
    """

    __slots__ = ("_before", "_signals")

    def __enter__(self) -> None:
        own = _active and threading.get_ident() == threading.main_thread().ident
        self._signals = _active[-1] if own else None
        if self._signals is not None:
            self._before = self._signals.at_once
            self._signals.at_once = True

    def __exit__(self, *error: object) -> None:
        if self._signals is not None:
            self._signals.at_once = self._before


class CatchingInterrupts:
    """The first Ctrl-C asks the signals to stop; a second one raises KeyboardInterrupt as usual.

    Only in the main thread and only where Python's own handler is in place, so a program's handler stays in
    charge. Within another one of the same signals it only says whether Ctrl-C may raise at once.
    """

    def __init__(self, signals: StopSignals, at_once: bool):
        self._signals = signals
        self._at_once = at_once
        self._is_ours = self._is_main = False

    def __enter__(self) -> None:
        self._before, self._signals.at_once = self._signals.at_once, self._at_once
        self._is_main = threading.get_ident() == threading.main_thread().ident
        if self._is_main:
            _active.append(self._signals)
            self._is_ours = _handlers.getsignal(signal.SIGINT) is signal.default_int_handler
        if self._is_ours:
            _handlers.signal(signal.SIGINT, self._handle)

    def _handle(self, number: int, frame: object) -> None:
        _handlers.signal(signal.SIGINT, signal.default_int_handler)
        self._signals.interrupt()

    def __exit__(self, *error: Any) -> None:
        if self._is_ours:
            _handlers.signal(signal.SIGINT, signal.default_int_handler)
        if self._is_main:
            _active.pop()
        self._signals.at_once = self._before
