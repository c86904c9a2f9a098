"""Whole calls of `optimize`, from arrays in memory to arrays in memory, of a graph at its start values.

    first        the first one of the process with this graph
    other ids    other vertex ids, edges in another order: what a new set of photographs is
    copy         `graph.copy()`: the same structure in another object
    again        the same graph with its first estimates put back

Medians, the device busy before each kind, the garbage collector off. chi2 is recomputed on the CPU.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from graphopt.graph import Graph
from graphopt.optimizer.summary import Summary
from graphopt.reproduce.graphs import Source, facts, graph_of, with_other_ids

KINDS = ("again", "copy", "other ids")
WARM_UP_SECONDS = 2.0
"""Of calls that are not timed: an idle device runs on low clocks and needs a second to leave them."""


def measure(
    graph: Source, device: str, kinds: Iterable[str] = KINDS, repeats: int = 4, precision: str = "double"
) -> dict[str, Any]:
    """The entry of a row: medians by kind of call, the first call, and chi2 of the same graph."""
    known = graph_of(graph)
    entry, options = facts(known), {"device": device, "precision": precision}
    seconds, chi2 = {}, None
    for kind, call, summary, found in calls(known, options, repeats, ("first", *kinds)):
        seconds[kind] = call
        chi2 = found if kind == "again" or chi2 is None else chi2
        entry["device_name"] = summary.device_name
    return {**entry, "seconds": seconds, "chi2": chi2}


def calls(
    graph: Graph, options: dict[str, Any], repeats: int, kinds: Iterable[str] = ("first", *KINDS)
) -> Iterator[tuple[str, float, Summary, float]]:
    """Kind, seconds, summary and recomputed chi2 of the call with the median time, of each kind."""
    start = graph.copy()
    seeds: Iterator[int] = iter(range(1, 1_000_000))

    def known() -> Graph:
        for vertices, given in zip(graph.vertex_sets, start.vertex_sets, strict=True):
            vertices.estimate[...] = given.estimate
        return graph

    make: dict[str, Callable[[], Graph]] = {
        "first": known,
        "again": known,
        "copy": start.copy,
        "other ids": lambda: with_other_ids(start, next(seeds)),
    }
    for kind in kinds:
        yield kind, *_median_call(make[kind], options, 1 if kind == "first" else repeats, kind != "first")


def _median_call(
    make: Callable[[], Graph], options: dict[str, Any], repeats: int, warms_up: bool
) -> tuple[float, Summary, float]:
    warm = time.perf_counter() + WARM_UP_SECONDS
    while warms_up and time.perf_counter() < warm:
        timed(make(), options)
    done = []
    for _ in range(repeats):
        graph = make()
        seconds, summary = timed(graph, options)
        done.append((seconds, summary, float(graph.chi2(robust=False))))
    middle = statistics.median_low(call[0] for call in done)
    return next(call for call in done if call[0] == middle)


def timed(graph: Graph, options: dict[str, Any], **more: Any) -> tuple[float, Summary]:
    """Seconds and summary of one call."""
    import graphopt

    gc.collect()
    gc.disable()
    start = time.perf_counter()
    try:
        summary = graphopt.optimize(graph, **options, **more)
        return time.perf_counter() - start, summary
    finally:
        gc.enable()
