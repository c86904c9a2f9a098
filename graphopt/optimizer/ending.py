"""What a summary says at the end of an optimization, and chi2 where no iteration has found it."""

from __future__ import annotations

import time
from collections.abc import Iterable

import numpy as np

from graphopt.errors import SolverError
from graphopt.graph import Graph, Selection
from graphopt.graph.behind import num_images
from graphopt.graph.residuals import edge_chi2, robust_chi2
from graphopt.graph.selection import EdgeSelection
from graphopt.optimizer.signals import StopSignals
from graphopt.optimizer.summary import Summary
from graphopt.problem.unseen import points_unseen

MOST_VIEWS = 200_000
"""Images of points up to which those behind their cameras are counted at the end; more would take long."""
NOT_LOOKED_FOR = "Points behind their cameras were not looked for among {} images; Graph.points_behind does."
_LAST_SECONDS = 0.02
"""For chi2 after an end during the set-up."""
_ROWS_AT_ONCE = 10_000


def count_behind(graph: Graph, selection: Selection, summary: Summary) -> None:
    """Fill `points_behind`."""
    count = num_images(selection.edges)
    if count > MOST_VIEWS:
        summary.message = f"{summary.message} {NOT_LOOKED_FOR.format(count)}".strip()
    else:
        summary.points_behind = points_unseen(graph, selection.edges)


def raise_if_unusable(summary: Summary, throw: bool) -> None:
    """`SolverError` for a summary that is not usable, if asked for."""
    if throw and not summary.is_usable:
        raise SolverError(f"{summary.termination.value} {summary.message}".strip())


def lowest_edge(graph: Graph, parts: Iterable[EdgeSelection]) -> str:
    """Name the edge with the lowest chi2, where that is below zero."""
    lowest, name = 0.0, ""
    for part in parts:
        squared = edge_chi2(graph, part.edge_set, part.rows)
        row = int(np.argmin(squared))
        if squared[row] < lowest:
            lowest = float(squared[row])
            ids = ", ".join(map(str, part.edge_set.look("vertices")[part.rows[row]].tolist()))
            name = f"{part.edge_set.type.tag} between vertices {ids}"
    return f"That of {name} is {lowest:.3g}; Graph.check() counts such information matrices." if name else ""


def undetermined(graph: Graph, level: int) -> str:
    """What a graph whose H is singular lacks, as far as its structure and informations say."""
    about = ("information-singular", "components", "misread")
    found = [finding.message for finding in graph.check(level) if finding.kind in about]
    return " ".join([*found, "graphopt.find_singular_directions(graph) names what is undetermined."])


def note_stop_before_chi2(summary: Summary, signals: StopSignals, graph: Graph, selection: Selection) -> None:
    """An optimization was asked to stop before it knew chi2 of its start."""
    assert signals.reason is not None
    summary.termination = signals.reason
    summary.initial_chi2 = summary.final_chi2 = chi2_within(graph, selection.edges, _LAST_SECONDS)
    summary.message = "That was during the set-up: no iteration was done."
    if np.isnan(summary.final_chi2):
        summary.message += " chi2 was not computed."


def chi2_within(graph: Graph, parts: Iterable[EdgeSelection], seconds: float) -> float:
    """chi2 of these edges, NaN if that takes longer; the first rows of each are evaluated in any case."""
    end = time.perf_counter() + seconds
    total = 0.0
    for part in parts:
        if part.edge_set.type.inequality:
            continue
        for first in range(0, len(part.rows), _ROWS_AT_ONCE):
            if first and time.perf_counter() > end:
                return float("nan")
            total += float(robust_chi2(graph, part.edge_set, part.rows[first : first + _ROWS_AT_ONCE]).sum())
    return total


def close_seconds(seconds: dict[str, float], total: float) -> None:
    """What no part has taken is "other"."""
    seconds["other"] = max(total - sum(seconds.values()), 0.0)
    seconds["total"] = sum(seconds.values())
