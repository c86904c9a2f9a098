"""What happens after each iteration on all ranks: progress, callbacks, checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphopt.distributed.checkpoint import pieces_of, write_checkpoint
from graphopt.distributed.communicator import Communicator, together
from graphopt.distributed.gathering import Piece, bring_back, each_rank, own_pieces
from graphopt.distributed.scattering import Scattered, Share
from graphopt.distributed.signals import AgreedSignals
from graphopt.graph import Graph
from graphopt.optimizer.progress import watching
from graphopt.optimizer.run import Callback
from graphopt.optimizer.signals import UsersCode
from graphopt.optimizer.summary import Iteration, Summary
from graphopt.problem.rewrite import Rewrite

if TYPE_CHECKING:
    from graphopt.distributed.optimize import RankRequest


class EachIteration:
    """The callback of a distributed run: collective, and the same decisions on all ranks.

    Before a callback of any rank that looks at its graph, the estimates of all ranks are brought there. What
    a callback raises on one rank, all ranks raise; `False` of one stops all.
    """

    looks_at_graph = True

    def __init__(
        self,
        comm: Communicator,
        share: Share,
        graph: Graph | None,
        problem: Rewrite | None,
        scattered: Scattered | None,
        signals: AgreedSignals,
        summary: Summary,
        wanted: RankRequest,
    ):
        self._comm, self._share, self._graph, self._problem = comm, share, graph, problem
        self._scattered, self._signals = scattered, signals
        self._told = watching(summary, wanted.verbose and comm.rank == 0, wanted.callback)
        looks = wanted.callback is not None and getattr(wanted.callback, "looks_at_graph", True)
        asked = comm.share((self._told is not None, looks, problem is not None))
        self._is_heard = any(request[0] for request in asked)
        self._is_parted = not any(request[2] for request in asked)
        self._is_looked_at = any(request[1] for request in asked) and not self._is_parted
        """Of a graph that was read in parts, each rank's share has the estimates anyway."""
        self._checkpoint, self._every = wanted.checkpoint, wanted.every

    def callback(self) -> Callback | None:
        """What `run` calls, None where no rank listens."""
        return self if self._is_heard or self._checkpoint is not None else None

    def __call__(self, done: Iteration) -> object:
        """Once per iteration, on all ranks."""
        is_due = self._checkpoint is not None and (done.iteration + 1) % self._every == 0
        if self._is_looked_at or (is_due and not self._is_parted):
            bring_back(self._comm, self._share, self._graph, self._problem, self._scattered)
        if is_due:
            own = own_pieces(self._comm, self._share) if self._is_parted else []
            pieces = [piece for part in each_rank(self._comm, own) for piece in part]
            together(self._comm, lambda: self._write(done, pieces))
        return together(self._comm, lambda: self._tell(done))

    def _write(self, done: Iteration, pieces: list[Piece]) -> None:
        if self._comm.rank == 0:
            assert self._checkpoint is not None
            found = pieces if self._graph is None else pieces_of(self._graph)
            write_checkpoint(self._checkpoint, found, done.iteration, done.chi2)

    def _tell(self, done: Iteration) -> object:
        if self._told is None:
            return None
        try:
            with UsersCode():
                return self._told(done)
        except KeyboardInterrupt:
            self._signals.note_interrupt()
            return None
