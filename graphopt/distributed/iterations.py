"""What happens after each iteration on all ranks: progress, callbacks, checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from graphopt.distributed.checkpoint import write_checkpoint
from graphopt.distributed.communicator import Communicator, together
from graphopt.distributed.gathering import tell_all
from graphopt.distributed.signals import AgreedSignals
from graphopt.graph import Graph
from graphopt.optimizer.run import Callback
from graphopt.optimizer.signals import UsersCode
from graphopt.optimizer.summary import Iteration

if TYPE_CHECKING:
    from graphopt.distributed.options import RankRequest


class EachIteration:
    """The callback of a distributed run: collective, and the same decisions on all ranks.

    Before a callback of any rank that looks at its graph, the estimates of all ranks are brought there. What
    a callback raises on one rank, all ranks raise; `False` of one stops all.
    """

    def __init__(
        self,
        comm: Communicator,
        graph: Graph | None,
        signals: AgreedSignals,
        callback: Callback | None,
        request: RankRequest,
    ):
        """callback: this rank's."""
        self._comm, self._graph, self._signals, self._callback = comm, graph, signals, callback
        looks = request.callback is not None and getattr(request.callback, "looks_at_graph", True)
        asked = comm.share((callback is not None, looks))
        self._is_heard = any(request[0] for request in asked)
        self._is_looked_at = any(request[1] for request in asked)
        self._checkpoint, self._every = request.checkpoint, request.every
        self.looks_at_graph = self._is_looked_at or self._checkpoint is not None
        self.bring_back: Callable[[], None] = lambda: None
        """Brings the present estimates into rank 0's graph; of some ranks, together."""
        self.tells = False
        """Ranks that follow have to hear of each iteration."""

    def to_call(self) -> Callback | None:
        """What `run` calls, None where no rank listens."""
        return self if self._is_heard or self._checkpoint is not None else None

    def __call__(self, done: Iteration) -> object:
        """Once per iteration, on the ranks that run."""
        if self.tells:
            self._signals.tell("done", done)
        return self.heard(done)

    def heard(self, done: Iteration) -> object:
        """Once per iteration, on all ranks; False: stop."""
        is_due = self._checkpoint is not None and (done.iteration + 1) % self._every == 0
        if self._is_looked_at or is_due:
            self.bring_back()
        if self._is_looked_at:
            tell_all(self._comm, self._graph)
        if is_due:
            together(self._comm, lambda: self._write(done))
        says = together(self._comm, lambda: self._tell(done))
        return not any(self._comm.share(says is False))

    def _write(self, done: Iteration) -> None:
        if self._comm.rank == 0:
            assert self._checkpoint is not None and self._graph is not None
            write_checkpoint(self._checkpoint, self._graph, done.iteration, done.chi2)

    def _tell(self, done: Iteration) -> object:
        if self._callback is None:
            return None
        try:
            with UsersCode():
                return self._callback(done)
        except KeyboardInterrupt:
            self._signals.note_interrupt()
            return None
