"""How many ranks a problem is worth.

Exact steps are those of one rank: S is factorized as a whole. Conjugate gradients are as fast as their
products with S, of E observations on k ranks

    T(k) = E observation / (k power) + (k > 1) (trip + (k - 1) message)

power: of the slowest of these ranks; of one rank alone, of all cores that it may use. More than one rank are
taken where they are expected to be faster, or where one device has too little memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from graphopt.device import is_driven
from graphopt.errors import OptionError
from graphopt.graph import Selection
from graphopt.linear.options import SolverOptions
from graphopt.linear.systems import ReducedSize, too_large_to_form
from graphopt.linear.table import factorizes, iterates
from graphopt.option_names import RANKS

ITERATED = 600
"""Scalars of kept vertices from which on devices iterate."""
_ON_GPU, _ON_CORE = 5e-11, 1e-8
"""Seconds of an observation in a product: NVIDIA H200 in float64, a core of a server."""
_TRIP, _MESSAGE = 2.1e-4, 4e-5
"""Seconds that ranks with a GPU add to a product (H200: 9 million observations do not gain by a second)."""
_MESSAGE_OF_CORES = 5e-5
"""Of ranks on CPUs, by MPI within a host or a fast network."""
_BYTES, _FILLED = 200, 0.6
"""Of an observation on a device, and what of its memory may be taken."""


@dataclass(frozen=True)
class RankPower:
    """What a rank computes with."""

    device: str
    threads: int
    threads_alone: int
    """While other ranks wait."""

    @property
    def is_gpu(self) -> bool:
        """It has a device."""
        return is_driven(self.device)

    def observation(self, is_alone: bool = False) -> float:
        """Seconds in a product."""
        return _ON_GPU if self.is_gpu else _ON_CORE / (self.threads_alone if is_alone else self.threads)


@dataclass(frozen=True)
class Worth:
    """How many ranks take part, and why."""

    count: int
    reason: str
    is_alone: bool = False
    """One rank, which optimizes without regard to others."""


def check_ranks(asked: str, options: SolverOptions) -> None:
    """`OptionError` for an unknown choice, and for a factorization by all ranks, which one does."""
    if asked not in RANKS:
        raise OptionError(f"ranks is '{asked}', expected one of {', '.join(RANKS)}.")
    if asked == "all" and factorizes(options.linear_solver):
        raise OptionError(
            f"linear_solver='{options.linear_solver}' factorizes on one rank. Use linear_solver='pcg' with "
            "ranks='all', or ranks='auto'."
        )


def ranks_worth(
    selection: Selection, options: SolverOptions, ranks: Sequence[RankPower], asked: str
) -> Worth:
    """How many of the ranks to use. asked: "auto" or "all"."""
    size = len(ranks)
    if asked == "all":
        return Worth(size, "all ranks were asked for")
    if size == 1:
        return Worth(1, "there is one rank", is_alone=True)
    if _is_factorized(selection, options, ranks[0].is_gpu):
        return Worth(1, "steps are factorized, which one rank does faster", is_alone=True)
    edges = selection.num_active_edges
    seconds = [_seconds(edges, ranks[:count]) for count in range(1, size + 1)]
    least = _least_for_memory(edges, ranks)
    best = least - 1 + int(np.argmin(seconds[least - 1 :]))
    words = ", ".join(f"{count}: {1e3 * time:.3g}" for count, time in enumerate(seconds, start=1))
    reason = f"expected milliseconds of a product by number of ranks, {words}"
    return Worth(best + 1, reason, is_alone=best == 0)


def _seconds(edges: int, ranks: Sequence[RankPower]) -> float:
    """Of a product."""
    if len(ranks) == 1:
        return edges * ranks[0].observation(is_alone=True)
    slowest = max(rank.observation() for rank in ranks)
    more = len(ranks) - 1
    talk = _TRIP + more * _MESSAGE if any(rank.is_gpu for rank in ranks) else more * _MESSAGE_OF_CORES
    return edges / len(ranks) * slowest + talk


def _least_for_memory(edges: int, ranks: Sequence[RankPower]) -> int:
    """Ranks whose devices hold the problem together."""
    if not all(rank.is_gpu for rank in ranks):
        return 1
    from graphopt.device.listing import find_device, list_devices

    device = list_devices()[find_device(ranks[0].device.partition(":")[2] or None)]
    memory = _FILLED * device.memory_bytes
    return min(max(int(np.ceil(edges * _BYTES / memory)), 1), len(ranks))


def _is_factorized(selection: Selection, options: SolverOptions, is_gpu: bool) -> bool:
    """One rank would factorize S, or H where nothing is eliminated."""
    if options.schur == "implicit" or iterates(options.linear_solver):
        return False
    free = [selection.free(number) for number in range(len(selection.vertex_sets))]
    sets = list(zip(selection.vertex_sets, free, strict=True))
    gone = [np.count_nonzero(mask & set_.marginalized) for set_, mask in sets]
    if options.schur != "auto" or options.linear_solver != "auto" or not sum(gone):
        return True
    kept = [int(np.count_nonzero(mask)) - number for mask, number in zip(free, gone, strict=True)]
    kept_dim = sum(number * set_.type.tangent_dim for number, (set_, _) in zip(kept, sets, strict=True))
    if is_gpu:
        return kept_dim <= ITERATED
    return not too_large_to_form(ReducedSize(_pairs(selection), kept_dim, sum(kept)))


def _pairs(selection: Selection) -> float:
    """Pairs of edges over the marginalized vertices: of kept neighbours, where each edge has one."""
    degrees = [np.zeros(len(set_)) for set_ in selection.vertex_sets]
    for edges in selection.edges:
        for slot, number in enumerate(edges.vertex_sets):
            degrees[number] += np.bincount(edges.vertex_rows[:, slot], minlength=len(degrees[number]))
    each = zip(degrees, selection.vertex_sets, strict=True)
    return sum(0.5 * float((degree[set_.marginalized] ** 2).sum()) for degree, set_ in each)
