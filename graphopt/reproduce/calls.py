"""Whole calls of `optimize`, from arrays in memory to arrays in memory, of a graph at its start values.

    first        the first one of the process with this graph
    other ids    other vertex ids, edges in another order: what a new set of photographs is
    copy         `graph.copy()`: the same structure in another object
    again        the same graph with its first estimates put back

Medians, the device busy before each call, the garbage collector off. chi2 is recomputed on the CPU, of the
last call of each kind.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from graphopt.graph import Graph
from graphopt.optimizer.summary import Summary
from graphopt.reproduce.graphs import Source, facts, graph_of, with_other_ids

KINDS = ("again", "copy", "other ids")
WARM_UP_SECONDS = 1.0
"""Of calls that are not timed, before each one that is: an idle device runs on low clocks and takes twice the
time until it has left them."""


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
    warms_up = options["device"] != "cpu"
    for kind in kinds:
        done = []
        for _ in range(1 if kind == "first" else repeats):
            solved = make[kind]()
            end = time.perf_counter() + WARM_UP_SECONDS
            while warms_up and kind != "first" and time.perf_counter() < end:
                timed(known(), options)
            done.append(timed(known() if kind == "again" else solved, options))
        seconds, summary = sorted(done, key=lambda call: call[0])[(len(done) - 1) // 2]
        yield kind, seconds, summary, float(solved.chi2(robust=False))


@contextmanager
def undisturbed() -> Iterator[None]:
    """No garbage collection within, and all garbage collected before."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def timed(graph: Graph, options: dict[str, Any], **more: Any) -> tuple[float, Summary]:
    """Seconds and summary of one call."""
    import graphopt

    with undisturbed():
        start = time.perf_counter()
        summary = graphopt.optimize(graph, **options, **more)
        return time.perf_counter() - start, summary
