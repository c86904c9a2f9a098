"""What Ctrl-C does while `SparseOptimizer.optimize` runs.

    "raise"   KeyboardInterrupt leaves `optimize` once the best estimates are in the vertices (default)
    "stop"    `optimize` ends as if its stop flag had been set, and returns; a `Flag` that was given to
              `set_force_stop_flag` is set, for programs that look at it

`set_on_interrupt`, or for programs that cannot be changed the environment variable GRAPHOPT_G2O_ON_INTERRUPT,
says which. A program with a handler of SIGINT of its own keeps it; then neither happens.
"""

from __future__ import annotations

import os
import time
from contextlib import AbstractContextManager
from typing import Any

from graphopt.errors import OptionError
from graphopt.g2o.actions import Flag
from graphopt.optimizer.signals import ON_INTERRUPT, StopSignals
from graphopt.optimizer.summary import TerminationType

VARIABLE = "GRAPHOPT_G2O_ON_INTERRUPT"

_WORTH_WATCHING = 5_000
"""Edges from which on native parts of the set-up may take longer than a program would like to wait."""

_chosen: str | None = None


def on_interrupt() -> str:
    """What `set_on_interrupt` or the environment says: "raise" or "stop"."""
    return _checked(_chosen or os.environ.get(VARIABLE) or "raise")


def set_on_interrupt(reaction: str) -> None:
    """Say what Ctrl-C does in every `optimize` from now on: "raise" KeyboardInterrupt, or "stop" and return.

    Either way the vertices have the best estimates so far.
    """
    global _chosen
    _chosen = _checked(reaction)


def _checked(reaction: str) -> str:
    if reaction not in ON_INTERRUPT:
        raise OptionError(
            f"on_interrupt is {reaction!r} ({VARIABLE} or set_on_interrupt), expected one of "
            f"{', '.join(ON_INTERRUPT)}."
        )
    return reaction


class OptimizerSignals(StopSignals):
    """The stop flag of an optimizer, and Ctrl-C."""

    def __init__(self, optimizer: Any):
        is_likely = optimizer._force_stop is not False
        super().__init__(optimizer, None, time.perf_counter(), is_likely, on_interrupt())
        self._optimizer = optimizer

    def setting_up(self, num_edges: int) -> SettingUp:
        """For a `with`, within `catching_interrupts`, in which nothing can be left half done."""
        return SettingUp(self, self.watching() if num_edges >= _WORTH_WATCHING else None)

    def interrupt(self) -> None:
        """Note Ctrl-C, or raise; programs that look at their flag find it set."""
        if not self._raises and isinstance(self._optimizer._force_stop, Flag):
            self._optimizer._force_stop.value = True
        super().interrupt()

    def should_stop_within(self) -> bool:
        """Ctrl-C, or a flag that another thread has set."""
        if self._interrupted:
            return self.should_stop()
        if self.reason is None and self._optimizer.is_set_within():
            self.ask(TerminationType.USER_STOP)
        return self.reason is not None


class SettingUp:
    """Ctrl-C raises at once, in native code that takes long too."""

    __slots__ = ("_signals", "_watching")

    def __init__(self, signals: OptimizerSignals, watching: AbstractContextManager[None] | None):
        self._signals, self._watching = signals, watching

    def __enter__(self) -> None:
        self._signals.at_once = True
        if self._watching is not None:
            self._watching.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._signals.at_once = False
        if self._watching is not None:
            self._watching.__exit__(*error)
