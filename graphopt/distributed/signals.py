"""Ways to end a distributed optimization early, agreed on by all ranks.

Ctrl-C, a stop flag or a time limit reaches some rank at some time. Ranks that ended one step apart would wait
for each other for ever, so each looks at its own reasons only where all ask each other: before each trial.
Native code goes on until then.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from graphopt.distributed.communicator import Communicator
from graphopt.optimizer.signals import Settable, StopSignals
from graphopt.optimizer.summary import Summary, TerminationType

_PERIOD = 5e-3
"""Seconds between two questions of one rank to all."""


class AgreedSignals(StopSignals):
    """Reasons of all ranks; `reason` is that of the first rank that has one."""

    def __init__(
        self,
        comm: Communicator,
        stop: Settable | None,
        time_limit: float | None,
        start: float,
        on_interrupt: str,
    ):
        super().__init__(stop, time_limit, start, on_interrupt=on_interrupt)
        self._comm = comm
        self._asked: TerminationType | None = None
        self._last = -np.inf

    def ask(self, reason: TerminationType) -> None:
        """Note it until all ranks ask."""
        self._asked = self._asked or reason

    def should_stop(self) -> bool:
        """Collective: true on all ranks once one has a reason."""
        if self.reason is None:
            self._agree(self._comm.share(("ask", self._own())))
        return self.reason is not None

    def is_set(self) -> bool:
        """`should_stop` for an optimization that one rank does, which asks more often than is needed."""
        now = time.perf_counter()
        if self.reason is None and now - self._last > _PERIOD:
            self._last = now
            return self.should_stop()
        return self.reason is not None

    def tell(self, event: str, value: Any) -> None:
        """Let those who `follow` know; every rank that does not calls this."""
        self._comm.share((event, value))

    def follow(self, heard: Callable[[Any], object]) -> Any:
        """Take part in what other ranks ask and tell, until the "end", whose value is returned.

        heard: called with the value of other events, where those who told it go on with the same.
        """
        while True:
            told = self._comm.share(("ask", self._own() if self.reason is None else None))
            event, value = told[0]
            if event == "end":
                return value
            if event != "ask":
                heard(value)
            elif self.reason is None:
                self._agree(told)

    def _own(self) -> TerminationType | None:
        """This rank's reason, which is none before all know it."""
        super().should_stop()
        own, self.reason = self.reason or self._asked, None
        return own

    def _agree(self, told: list[Any]) -> None:
        self.reason = next((reason for _, reason in told if reason is not None), None)
        if self.reason is TerminationType.USER_INTERRUPT:
            self._interrupted = True

    def raise_if_interrupted(self, summary: Summary) -> None:
        """Not yet: the estimates of all ranks have to be collected first."""

    def raise_at_last(self, summary: Summary) -> None:
        """`Interrupted` on all ranks after Ctrl-C on one, where that is asked for."""
        super().raise_if_interrupted(summary)

    def should_stop_within(self) -> bool:
        """Never: the others would not know."""
        return False
