"""Ways to end a distributed optimization early, agreed on by all ranks.

Ctrl-C, a stop flag or a time limit reaches some rank at some time. Ranks that ended one step apart would wait
for each other for ever, so each looks at its own reasons only where all ask each other: before each trial.
Native code goes on until then.
"""

from __future__ import annotations

from graphopt.distributed.communicator import Communicator
from graphopt.optimizer.signals import Settable, StopSignals
from graphopt.optimizer.summary import Summary, TerminationType


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

    def ask(self, reason: TerminationType) -> None:
        """Note it until all ranks ask."""
        self._asked = self._asked or reason

    def should_stop(self) -> bool:
        """Collective: true on all ranks once one has a reason."""
        if self.reason is not None:
            return True
        super().should_stop()
        own, self.reason = self.reason or self._asked, None
        told = self._comm.share(own)
        self.reason = next((reason for reason in told if reason is not None), None)
        if self.reason is TerminationType.USER_INTERRUPT:
            self._interrupted = True
        return self.reason is not None

    def raise_if_interrupted(self, summary: Summary) -> None:
        """Not yet: the estimates of all ranks have to be collected first."""

    def raise_at_last(self, summary: Summary) -> None:
        """`Interrupted` on all ranks after Ctrl-C on one, where that is asked for."""
        super().raise_if_interrupted(summary)

    def should_stop_within(self) -> bool:
        """Never: the others would not know."""
        return False
