"""Graduated non-convexity: which edges are wrong, found while optimizing (`robust="graduated"`).

Every edge that may be wrong counts at most c^2 (truncated least squares):

    minimise  sum over trusted edges r^2  +  sum over the others min(r^2, c^2),      r^2 = e' Omega e

That has as many minima as there are sets of edges. So it is approached from a convex side: for a control
parameter mu that grows from near 0, the surrogate's weights

    w = 0                              r^2 >= (mu + 1) / mu c^2
        1                              r^2 <= mu / (mu + 1) c^2
        c / r sqrt(mu (mu + 1)) - mu   between

make a weighted least squares problem, which some iterations solve; then weights and mu change, until every
weight is 0 or 1. A last optimization of the edges with weight 1 gives the result.

Which edges may be wrong is the user's to say: those that have a robust kernel, whose width is c. Where no
edge has one, it is every edge between vertices whose ids are not neighbours (loop closures), with c^2 the
99 % quantile of chi2 for the residual's size; edges between neighbouring ids and of one vertex (odometry,
priors) are trusted. Trusted edges alone give the start, where they reach all vertices. From there closures
that confirm each other (`strategies.consistency`) go first; the others are judged by what these lead to.

c is in units of the information matrices. Where these say much less than the measurements know, c is too wide
and wrong edges fit in: then set kernels with a width.

Reference: Yang, Antonante, Tzoumas, Carlone, Graduated Non-Convexity for Robust Spatial Perception: From
Non-Minimal Solvers to Global Outlier Rejection, RA-L 2020.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from graphopt.errors import OptionError
from graphopt.graph import EdgeSet, Graph, Selection, validate
from graphopt.graph.residuals import edge_chi2
from graphopt.optimizer.summary import Summary, TerminationType
from graphopt.strategies.consistency import confirmed
from graphopt.strategies.quantiles import chi2_quantile

_QUANTILE = 0.99  # of chi2, that a right loop closure stays below
_GROWTH = 2.0  # of mu in each round; 1.4 in the paper
_ROUNDS = 100
_INNER_ITERATIONS = 2
_LAST_ROUNDS = 10
_SECOND_START = 0.002  # mu at which edges that nobody confirmed join: up to r = 22 c
_BINARY = 1e-3  # distance of a weight to 0 or 1 that no longer counts

Inner = Callable[[dict[EdgeSet, np.ndarray], int | None], Summary]
"""Optimizes with some edges, for at most some iterations (None: to the end)."""


@dataclass
class _Candidates:
    """Edges of one edge set."""

    edge_set: EdgeSet
    rows: np.ndarray
    """Of the edges that take part."""
    suspect: np.ndarray
    """(len(rows),) bool: may be wrong."""
    threshold: np.ndarray
    """(len(rows),) c^2."""
    weight: np.ndarray
    """(len(rows),)."""
    allowed: np.ndarray
    """(len(rows),) bool: takes part in the rounds; the others are looked at once these are through."""
    noise: float = 1.0
    """c^2 of the rounds, as a share of `threshold`: what closures that agree with each other show."""

    @property
    def kept(self) -> np.ndarray:
        """Rows of the edges with a weight."""
        return self.rows[self.weight > 0.0]


def optimize_graduated(graph: Graph, selection: Selection, inner: Inner) -> Summary:
    """Run the rounds; the graph's information matrices and kernels are as before afterwards."""
    candidates = _candidates(selection)
    if not any(candidate.suspect.any() for candidate in candidates):
        raise OptionError(
            "robust is 'graduated', but no edge may be wrong: none has a robust kernel, and all join "
            "vertices with neighbouring ids. Set a kernel on those in question: edges.kernel, "
            "edges.kernel_width, or graph.set_robust_kernel('Huber', width) for all."
        )
    _refuse_indefinite(candidates)
    with _changing(candidates) as set_weights:
        summaries = list(_rounds(graph, candidates, inner, set_weights))
        summaries += _finished(graph, candidates, inner, set_weights, summaries)
        if not all(candidate.allowed.all() for candidate in candidates):
            for candidate in candidates:
                candidate.allowed[:] = True
            if summaries[-1].termination not in _ENDED_EARLY:
                summaries += _approach(graph, candidates, inner, set_weights, _SECOND_START)
            summaries += _finished(graph, candidates, inner, set_weights, summaries)
    return _joined(summaries, candidates)


def _refuse_indefinite(candidates: list[_Candidates]) -> None:
    """`OptionError` where chi2 of an edge that may be wrong can be negative: it would pass for right."""
    for candidate in candidates:
        rows = candidate.rows[candidate.suspect]
        if not len(rows):
            continue
        indefinite = rows[validate.indefinite_rows(candidate.edge_set.information[rows])]
        if len(indefinite):
            ids = ", ".join(map(str, candidate.edge_set.vertices[indefinite[0]].tolist()))
            tag = candidate.edge_set.type.tag
            raise OptionError(
                f"robust is 'graduated', but {len(indefinite)} of {len(rows)} {tag} that may be wrong have "
                f"an indefinite information matrix, the first between vertices {ids}. Their chi2 can be "
                "negative, which does not tell right from wrong. Make these matrices positive semi-definite, "
                "or remove the edges."
            )


_ENDED_EARLY = (
    TerminationType.TIME_LIMIT,
    TerminationType.USER_STOP,
    TerminationType.USER_INTERRUPT,
    TerminationType.NON_FINITE,
)


def _rounds(
    graph: Graph, candidates: list[_Candidates], inner: Inner, set_weights: Callable[[], None]
) -> Iterator[Summary]:
    """One summary per weighted problem."""
    trusted = {candidate.edge_set: candidate.rows[~candidate.suspect] for candidate in candidates}
    if _reaches_all(candidates):
        summary = inner(trusted, None)
        yield summary
        if summary.termination in _ENDED_EARLY:
            return
        for candidate in candidates:
            chosen, noise = confirmed(graph, candidate.edge_set, candidate.rows, candidate.suspect)
            candidate.allowed = ~candidate.suspect | chosen
            candidate.noise = noise
        if not any((candidate.allowed & candidate.suspect).any() for candidate in candidates):
            for candidate in candidates:
                candidate.allowed[:] = True
    ratios = _ratios(graph, candidates)
    largest = max(float(ratio.max(initial=0.0)) for ratio in ratios)
    mu = 1.0 / max(2.0 * largest - 1.0, 1e-3)
    yield from _approach(graph, candidates, inner, set_weights, mu)


def _approach(
    graph: Graph, candidates: list[_Candidates], inner: Inner, set_weights: Callable[[], None], mu: float
) -> Iterator[Summary]:
    """Rounds with growing mu, until every weight is 0 or 1."""
    ratios = _ratios(graph, candidates)
    for _ in range(_ROUNDS):
        for candidate, ratio in zip(candidates, ratios, strict=True):
            candidate.weight = np.where(candidate.suspect, candidate.allowed * _weights(ratio, mu), 1.0)
        set_weights()
        if mu > 1.0 and all(_is_binary(candidate.weight) for candidate in candidates):
            return
        summary = inner({candidate.edge_set: candidate.kept for candidate in candidates}, _INNER_ITERATIONS)
        yield summary
        if summary.termination in _ENDED_EARLY:
            return
        ratios = _ratios(graph, candidates)
        mu *= _GROWTH


def _finished(
    graph: Graph,
    candidates: list[_Candidates],
    inner: Inner,
    set_weights: Callable[[], None],
    summaries: list[Summary],
) -> list[Summary]:
    """Weights become 0 or 1, and the edges with 1 are optimized; not after an early end."""
    for candidate in candidates:
        candidate.weight = np.round(candidate.weight)
    if summaries and summaries[-1].termination in _ENDED_EARLY:
        return []
    return list(_settled(graph, candidates, inner, set_weights))


def _settled(
    graph: Graph, candidates: list[_Candidates], inner: Inner, set_weights: Callable[[], None]
) -> Iterator[Summary]:
    """Optimize with the edges of weight 1, until those are the edges with r < c."""
    for _ in range(_LAST_ROUNDS):
        set_weights()
        summary = inner({candidate.edge_set: candidate.kept for candidate in candidates}, None)
        yield summary
        if summary.termination in _ENDED_EARLY:
            return
        before = [candidate.weight for candidate in candidates]
        ratios = _ratios(graph, candidates)
        after = [
            np.where(candidate.suspect, (ratio <= 1.0).astype(float), 1.0)
            for candidate, ratio in zip(candidates, ratios, strict=True)
        ]
        if all(map(np.array_equal, before, after)):
            return
        for candidate, weight in zip(candidates, after, strict=True):
            candidate.weight = weight


def _weights(ratio: np.ndarray, mu: float) -> np.ndarray:
    """Weights for r^2 / c^2."""
    with np.errstate(divide="ignore"):
        between = np.sqrt(mu * (mu + 1.0) / ratio) - mu
    return np.clip(between, 0.0, 1.0)


def _is_binary(weight: np.ndarray) -> bool:
    return bool((np.minimum(weight, 1.0 - weight) <= _BINARY).all())


def _ratios(graph: Graph, candidates: list[_Candidates]) -> list[np.ndarray]:
    """r^2 / c^2 of all edges at the present estimates, with their own information."""
    found = []
    for candidate in candidates:
        scale = np.where(candidate.weight > 0.0, candidate.weight, 1.0)
        squared = edge_chi2(graph, candidate.edge_set, candidate.rows) / scale
        bound = candidate.noise * candidate.threshold
        found.append(np.where(candidate.suspect, np.nan_to_num(squared / bound, nan=np.inf), 0.0))
    return found


def _candidates(selection: Selection) -> list[_Candidates]:
    by_kernel = any(part.edge_set.look("kernel")[part.rows].any() for part in selection.edges)
    found = []
    for part in selection.edges:
        edge_set, rows = part.edge_set, part.rows
        if by_kernel:
            suspect = edge_set.kernel[rows] != 0
            threshold = edge_set.kernel_width[rows] ** 2
        else:
            ids = edge_set.vertices[rows]
            spread = ids.max(axis=1) - ids.min(axis=1)
            suspect = spread > 1
            threshold = np.full(len(rows), chi2_quantile(_QUANTILE, edge_set.type.residual_dim))
        found.append(
            _Candidates(
                edge_set,
                rows,
                suspect,
                np.maximum(threshold, 1e-300),
                np.ones(len(rows)),
                np.ones(len(rows), bool),
            )
        )
    return found


def _reaches_all(candidates: list[_Candidates]) -> bool:
    """Trusted edges join all vertices that any edge joins."""
    ids = np.unique(
        np.concatenate([candidate.edge_set.vertices[candidate.rows].ravel() for candidate in candidates])
    )
    pairs = [
        np.stack([candidate.edge_set.vertices[rows, 0], candidate.edge_set.vertices[rows, k]], axis=1)
        for candidate in candidates
        for rows in (candidate.rows[~candidate.suspect],)
        for k in range(1, candidate.edge_set.vertices.shape[1])
    ]
    if not pairs:
        return False
    ends = np.searchsorted(ids, np.concatenate(pairs))
    links = coo_matrix((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(len(ids), len(ids)))
    return connected_components(links, directed=False)[0] == 1


@contextmanager
def _changing(candidates: list[_Candidates]) -> Iterator[Callable[[], None]]:
    """Within it the edges have no kernels; the function it gives scales their information by the weights."""
    before = [
        (candidate.edge_set.information[candidate.rows], candidate.edge_set.kernel[candidate.rows])
        for candidate in candidates
    ]
    written = [information for information, _ in before]

    def set_weights() -> None:
        for number, (candidate, (information, _)) in enumerate(zip(candidates, before, strict=True)):
            scale = np.where(candidate.weight > 0.0, candidate.weight, 1.0)
            written[number] = scale[:, None, None] * information
            candidate.edge_set.information[candidate.rows] = written[number]

    for candidate in candidates:
        candidate.edge_set.kernel[candidate.rows] = 0
    try:
        yield set_weights
    finally:
        for candidate, (information, kernel), scaled in zip(candidates, before, written, strict=True):
            edge_set, rows = candidate.edge_set, candidate.rows
            is_ours = (edge_set.information[rows] == scaled).all(axis=(1, 2))  # not a callback's
            edge_set.information[rows[is_ours]] = information[is_ours]
            is_ours = edge_set.kernel[rows] == 0
            edge_set.kernel[rows[is_ours]] = kernel[is_ours]


def _joined(summaries: list[Summary], candidates: list[_Candidates]) -> Summary:
    """The last summary, with the iterations and seconds of all, and the edges that were left out."""
    last = summaries[-1]
    if last.certifier is not None:
        last.certifier = replace(last.certifier, has_kernels=False)
    last.count_in(summaries[:-1])
    for candidate in candidates:
        for row in candidate.rows[candidate.weight == 0.0].tolist():
            last.outliers.append((candidate.edge_set.type.tag, row))
    suspects = sum(int(candidate.suspect.sum()) for candidate in candidates)
    last.message = (
        f"Left out {len(last.outliers)} of {suspects} edges that might be wrong; chi2 is that of the others. "
        + last.message
    ).strip()
    return last
