"""Who gets which edges.

    eliminated vertices and their edges     to one rank each, so that every rank has as many edges
    edges between kept vertices             where their vertices are
    kept vertices                           to every rank that has an edge of theirs

An elimination needs all edges of its vertex in one place, and nothing else does. What is to be found are
groups of landmarks of equal weight (edges) that share few poses. Two ways:

* "slabs": the poses are put in an order in which neighbours in the map are near each other (reverse
  Cuthill-McKee on covisibility), landmarks are sorted by the mean place of their poses, and the row is cut
  into pieces of equal weight. Its balance is exact.
* "metis": METIS cuts the covisibility graph of the poses, weighted by edges; a landmark goes where most of
  its poses are, or, where a rank has more than its share, to one that has less.

An edge between kept vertices is assigned like a landmark with one edge.

"auto" takes slabs where they have hardly more copies of poses than there are poses; else the one of both with
fewer, of those that are balanced.

All but the order of the poses and METIS itself is native, on all threads (native/src/edges/edge_partition.h).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from scipy.sparse.csgraph import reverse_cuthill_mckee

from graphopt.cpu_kernels import kernels
from graphopt.errors import OptionError
from graphopt.option_names import PARTITIONS

MOST_RANKS = 65_535
_ROOM = 1.05  # of the mean weight: what a rank may have before landmarks move on
_SAMPLED = 1_000_000  # observations that covisibility is found from, where there are more
_FEW_COPIES = 1.01  # of the kept vertices
_BALANCED = 1.1  # largest over mean weight of a partition that counts as balanced


@dataclass(frozen=True, eq=False)
class Incidence:
    """Which edges have which free vertices."""

    num_kept: int
    num_eliminated: int
    kept: np.ndarray
    """(m, arity) int32: kept vertex in each slot, -1: another one. Missing slots are -1."""
    eliminated: np.ndarray
    """(m,) int32: the edge's eliminated vertex, -1: none."""


@dataclass(frozen=True, eq=False)
class Partition:
    """The rank of each edge."""

    method: str
    num_ranks: int
    edges: np.ndarray
    """(m,) uint16: rank of each edge."""
    counts: np.ndarray
    """(num_ranks,) int64: edges of each rank."""
    copies: int
    """Kept vertices of all ranks together."""

    def imbalance(self) -> float:
        """Largest number of edges of a rank over the mean."""
        return float(self.counts.max() * self.num_ranks / max(self.counts.sum(), 1))


def partition(incidence: Incidence, num_ranks: int, method: str = "auto") -> Partition:
    """Assign the edges to ranks; see the module's header."""
    if method not in PARTITIONS:
        raise OptionError(f"partition is '{method}', expected one of {', '.join(PARTITIONS)}.")
    if num_ranks > MOST_RANKS:
        raise OptionError(f"A graph is partitioned among at most {MOST_RANKS} ranks, these are {num_ranks}.")
    count = incidence.num_kept
    slots = kernels.EdgePartition(incidence.kept, incidence.eliminated, count, incidence.num_eliminated)
    if num_ranks == 1 or count < 2:
        ranks = cut(slots.weights(), num_ranks).astype(np.uint16)
        return _partition_of(slots, "slabs", ranks, num_ranks)
    begin, neighbor, met = slots.covisibility(_SAMPLED)
    covisibility = scipy.sparse.csr_matrix((met, neighbor, begin), (count, count))
    found = []
    if method != "metis":
        found.append(_by_slabs(slots, covisibility, num_ranks))
    if method == "metis" or (method == "auto" and not _has_few_copies(found[0], count)):
        found.append(_by_metis(slots, covisibility, num_ranks))
    return min(found, key=lambda partition: (partition.imbalance() > _BALANCED, partition.copies))


def _has_few_copies(found: Partition, num_kept: int) -> bool:
    """Nothing is left to gain."""
    return found.imbalance() <= _BALANCED and found.copies <= _FEW_COPIES * num_kept


def _by_slabs(slots: Any, covisibility: scipy.sparse.csr_matrix, num_ranks: int) -> Partition:
    order = reverse_cuthill_mckee(covisibility, symmetric_mode=True)
    place = np.empty(len(order), np.int32)
    place[order] = np.arange(len(order))
    return _partition_of(slots, "slabs", slots.slabs(place, num_ranks), num_ranks)


def cut(weight: np.ndarray, num_ranks: int) -> np.ndarray:
    """Rank of each element of a row that is cut into pieces of equal weight."""
    middle = np.cumsum(weight) - 0.5 * weight
    total = float(weight.sum()) or 1.0
    return np.minimum((middle * num_ranks / total).astype(np.int64), num_ranks - 1)


def _by_metis(slots: Any, covisibility: scipy.sparse.csr_matrix, num_ranks: int) -> Partition:
    labels = kernels.partition_graph(
        covisibility.indptr.astype(np.int32),
        covisibility.indices.astype(np.int32),
        np.maximum(slots.degrees(), 1).astype(np.int32),
        covisibility.data.astype(np.int32),
        num_ranks,
    )
    return _partition_of(slots, "metis", slots.nearest(labels, num_ranks, _ROOM), num_ranks)


def _partition_of(slots: Any, method: str, ranks: np.ndarray, num_ranks: int) -> Partition:
    """The partition that ranks of items mean."""
    edges, counts, copies = slots.assign(ranks, num_ranks)
    return Partition(method, num_ranks, edges, counts, copies)
