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

An edge between kept vertices is dealt like a landmark with one edge.

"auto" takes slabs where they have hardly more copies of poses than there are poses; else the one of both with
fewer, of those that are balanced.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse
from scipy.sparse.csgraph import reverse_cuthill_mckee

from graphopt.cpu_kernels import kernels
from graphopt.distributed.gather import gathered
from graphopt.errors import OptionError

METHODS = ("auto", "slabs", "metis")
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
    """(m, arity) int64: kept vertex in each slot, -1: another one. Missing slots are -1."""
    eliminated: np.ndarray
    """(m,) int64: the edge's eliminated vertex, -1: none."""


@dataclass(frozen=True, eq=False)
class Partition:
    """The rank of each edge."""

    method: str
    num_ranks: int
    edges: np.ndarray
    """(m,) int64: rank of each edge."""
    copies: int
    """Kept vertices of all ranks together."""

    def imbalance(self) -> float:
        """Largest number of edges of a rank over the mean."""
        counts = np.bincount(self.edges, minlength=self.num_ranks)
        return float(counts.max() * self.num_ranks / max(counts.sum(), 1))


@dataclass(frozen=True, eq=False)
class _Items:
    """What is dealt as one: an eliminated vertex with its edges, or an edge between kept vertices."""

    of_edge: np.ndarray
    """(m,) int64: item of each edge."""
    weight: np.ndarray
    """(num_items,) edges."""
    item: np.ndarray
    """(p,) int64 item and ..."""
    pose: np.ndarray
    """(p,) int64 ... kept vertex of each slot that has one."""


def partition(incidence: Incidence, num_ranks: int, method: str = "auto") -> Partition:
    """Deal the edges to ranks; see the module's header."""
    if method not in METHODS:
        raise OptionError(f"partition is '{method}', expected one of {', '.join(METHODS)}.")
    items = _items(incidence)
    if num_ranks == 1 or incidence.num_kept < 2:
        return _dealt(incidence, items, num_ranks, "slabs", cut(items.weight, num_ranks))
    covisibility = _covisibility(items, incidence.num_kept)
    found = []
    if method != "metis":
        found.append(_by_slabs(incidence, items, covisibility, num_ranks))
    if method == "metis" or (method == "auto" and not _has_few_copies(found[0], incidence.num_kept)):
        found.append(_by_metis(incidence, items, covisibility, num_ranks))
    return min(found, key=lambda one: (one.imbalance() > _BALANCED, one.copies))


def _has_few_copies(dealt: Partition, num_kept: int) -> bool:
    """Nothing is left to gain."""
    return dealt.imbalance() <= _BALANCED and dealt.copies <= _FEW_COPIES * num_kept


def _items(incidence: Incidence) -> _Items:
    of_edge, count = incidence.eliminated, incidence.num_eliminated
    alone = np.flatnonzero(of_edge < 0)
    if len(alone):
        of_edge = of_edge.copy()
        of_edge[alone] = count + np.arange(len(alone))
    count += len(alone)
    items, poses = [], []
    for pose in incidence.kept.T:
        seen = pose >= 0
        if seen.all():
            items.append(of_edge)
            poses.append(pose)
        elif seen.any():
            items.append(of_edge[seen])
            poses.append(pose[seen])
    item, pose = (np.concatenate([np.empty(0, np.int64), *one]) for one in (items, poses))
    return _Items(of_edge, np.bincount(of_edge, minlength=count), item, pose)


def _covisibility(items: _Items, count: int) -> scipy.sparse.csr_matrix:
    """(count, count) symmetric: how often two kept vertices share an edge or meet in a landmark.

    Of a landmark's poses, sorted by number, each is paired with the next one only: the graph stays as large
    as the edges are many. Of many landmarks every k-th speaks for the others.
    """
    item, pose = items.item, items.pose
    step = -(-len(item) // max(_SAMPLED, 60 * count))
    if step > 1:
        chosen = item % step == 0
        item, pose = item[chosen], pose[chosen]
    order = np.argsort(item * max(count, 1) + pose, kind="stable")
    item, pose = item[order], pose[order]
    together = (item[1:] == item[:-1]) & (pose[1:] != pose[:-1])
    rows, columns = pose[:-1][together], pose[1:][together]
    half = scipy.sparse.coo_matrix((np.ones(len(rows)), (rows, columns)), shape=(count, count))
    return scipy.sparse.csr_matrix(half + half.T)


def _by_slabs(
    incidence: Incidence, items: _Items, covisibility: scipy.sparse.csr_matrix, num_ranks: int
) -> Partition:
    order = np.asarray(reverse_cuthill_mckee(covisibility, symmetric_mode=True), np.int64)
    place = np.empty(incidence.num_kept)
    place[order] = np.arange(incidence.num_kept)
    count = len(items.weight)
    mean = np.bincount(items.item, weights=gathered(place, items.pose), minlength=count)
    mean /= np.maximum(np.bincount(items.item, minlength=count), 1)
    row = np.argsort(mean, kind="stable")
    ranks = np.empty(count, np.int64)
    ranks[row] = cut(items.weight[row], num_ranks)
    return _dealt(incidence, items, num_ranks, "slabs", ranks)


def cut(weight: np.ndarray, num_ranks: int) -> np.ndarray:
    """Rank of each element of a row that is cut into pieces of equal weight."""
    middle = np.cumsum(weight) - 0.5 * weight
    total = float(weight.sum()) or 1.0
    return np.minimum((middle * num_ranks / total).astype(np.int64), num_ranks - 1)


def _by_metis(
    incidence: Incidence, items: _Items, covisibility: scipy.sparse.csr_matrix, num_ranks: int
) -> Partition:
    degrees = np.bincount(items.pose, minlength=incidence.num_kept)
    labels = np.asarray(
        kernels.partition_graph(
            covisibility.indptr.astype(np.int32),
            covisibility.indices.astype(np.int32),
            np.maximum(degrees, 1).astype(np.int32),
            covisibility.data.astype(np.int32),
            num_ranks,
        ),
        np.int64,
    )
    places = items.item * num_ranks + gathered(labels, items.pose)
    votes = np.bincount(places, minlength=len(items.weight) * num_ranks).reshape(-1, num_ranks).astype(float)
    ranks = _with_room(votes, items.weight.astype(float), num_ranks)
    return _dealt(incidence, items, num_ranks, "metis", ranks)


def _with_room(votes: np.ndarray, weight: np.ndarray, num_ranks: int) -> np.ndarray:
    """Rank of each item: where most of its kept vertices are, while there is room."""
    chosen = np.argmax(votes, axis=1)
    sure = votes[np.arange(len(votes)), chosen] / np.maximum(votes.sum(axis=1), 1.0)
    limit = _ROOM * weight.sum() / num_ranks
    leaving = []
    for rank in range(num_ranks):
        members = np.flatnonzero(chosen == rank)
        members = members[np.argsort(-sure[members], kind="stable")]  # the surest stay
        leaving.append(members[np.cumsum(weight[members]) > limit])
    moved = np.concatenate(leaving)
    loads = np.bincount(chosen, weights=weight, minlength=num_ranks)
    loads -= np.bincount(chosen[moved], weights=weight[moved], minlength=num_ranks)
    ends = np.cumsum(np.maximum(limit - loads, 0.0))
    place = np.cumsum(weight[moved]) - 0.5 * weight[moved]
    chosen[moved] = np.minimum(np.searchsorted(ends, place), num_ranks - 1)
    return chosen


def _dealt(incidence: Incidence, items: _Items, num_ranks: int, method: str, ranks: np.ndarray) -> Partition:
    """The partition that ranks of items mean."""
    edges = gathered(ranks, items.of_edge)
    has = np.zeros((num_ranks, incidence.num_kept), bool)
    has[gathered(ranks, items.item), items.pose] = True
    return Partition(method, num_ranks, edges, int(np.count_nonzero(has)))
