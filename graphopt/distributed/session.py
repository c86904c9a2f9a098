"""What an optimization over ranks leaves for the next one of the same graph.

    first call    graph -> shares -> a block solver per rank
    later calls   estimates, and measurements that are others now -> the same shares, the same block solvers

As long as vertices, edges, who is fixed or marginalized, levels, robust kernels, information matrices,
parameters, options, ranks and devices are the same, nothing is scattered, analysed or sent to a device again.
Rank 0 keeps what it knows with the graph, and every rank its share and block solver under a number that rank
0 tells. A call takes them out and puts them back at its end: one that fails leaves nothing.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from graphopt.distributed.communicator import Communicator, ThreadCommunicator, ThreadRanks
from graphopt.distributed.scattering import Renewal, Scattered, Share
from graphopt.graph import Graph, Selection
from graphopt.solver.reuse import on_forget

_EDGE_COLUMNS = ("information", "kernel", "kernel_width")


@dataclass(eq=False)
class Known:
    """What rank 0 knows of a graph that was scattered."""

    number: int
    key: Hashable
    """Options, and how many ranks."""
    selection: Selection
    digests: bytes
    """Of the numbers that shares and block solvers were made for."""
    measured: list[bytes]
    """Per edge set of the selection, of its measurements."""
    scattered: Scattered
    ranks: ThreadRanks | None
    """Those of one process."""
    is_watched: bool = False
    """What is kept goes with the graph."""


@dataclass(eq=False)
class Own:
    """What one rank keeps."""

    comm: Communicator
    device: str
    share: Share
    solver: Any


known_graphs: weakref.WeakKeyDictionary[Graph, Known] = weakref.WeakKeyDictionary()
own_parts: dict[int, dict[int, Own]] = {}
"""By number and rank, of this process; a process that does not have the graph keeps the last number only."""
_numbers = itertools.count(1)


def ranks_of(graph: Graph | None, size: int) -> ThreadRanks:
    """The threads' ranks of the graph's last optimization, or new ones."""
    known = None if graph is None else known_graphs.get(graph)
    ranks = None if known is None else known.ranks
    return ranks if ranks is not None and ranks.size == size and not ranks.is_aborted else ThreadRanks(size)


def find(graph: Graph, selection: Selection, key: Hashable) -> Known | None:
    """Take out what the last optimization has left, if this one is alike; rank 0's."""
    known = known_graphs.pop(graph, None)
    if known is None:
        return None
    if known.key != key or known.selection is not selection or known.digests != _digests(selection):
        own_parts.pop(known.number, None)
        return None
    return known


def take(number: int, comm: Communicator, device: str) -> Own | None:
    """Take out what this rank has kept under a number."""
    own = own_parts.get(number, {}).pop(comm.rank, None)
    return own if own is not None and own.comm is comm and own.device == device else None


def renewals(known: Known, graph: Graph) -> Callable[[int], Renewal]:
    """What each rank has to know of the graph's present numbers; rank 0's."""
    now = _measured(known.selection)
    changed = {
        number for number, (new, old) in enumerate(zip(now, known.measured, strict=True)) if new != old
    }
    known.measured = now
    return lambda rank: known.scattered.renewal(graph, rank, changed)


def known_of(selection: Selection, key: Hashable, scattered: Scattered, comm: Communicator) -> Known:
    """What rank 0 will keep of a graph that it has just scattered."""
    ranks = comm.ranks.whole if isinstance(comm, ThreadCommunicator) else None
    measured = _measured(selection)
    return Known(next(_numbers), key, selection, _digests(selection), measured, scattered, ranks)


def keep(graph: Graph | None, known: Known | None, number: int, comm: Communicator, own: Own) -> None:
    """Put everything back after a call that went well; graph and known: rank 0's."""
    if known is None or graph is None:
        if comm.rank and not isinstance(comm, ThreadCommunicator):
            own_parts.clear()  # nobody tells this process when rank 0's graph is gone
        own_parts.setdefault(number, {})[comm.rank] = own
        return
    own_parts.setdefault(number, {})[0] = own
    known_graphs[graph] = known
    if not known.is_watched:
        weakref.finalize(graph, own_parts.pop, number, None)
        known.is_watched = True


def forget(graph: Graph) -> None:
    """Release what the graph's ranks of this process have kept."""
    known = known_graphs.pop(graph, None)
    if known is not None:
        own_parts.pop(known.number, None)


on_forget(forget)


def _digests(selection: Selection) -> bytes:
    found = [edges.edge_set.fingerprint(name) for edges in selection.edges for name in _EDGE_COLUMNS]
    return b"".join([*found, *(one.fingerprint("values") for one in selection.parameter_sets)])


def _measured(selection: Selection) -> list[bytes]:
    return [edges.edge_set.fingerprint("measurement") for edges in selection.edges]
