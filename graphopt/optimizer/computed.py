"""Which way an optimization goes with computed values, and the one that inlines them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from graphopt.errors import OptionError
from graphopt.graph import Graph, Selection
from graphopt.optimizer.summary import Summary
from graphopt.solver.computed.inline import inlined
from graphopt.solver.held import brought_up_to_date

WAYS = ("auto", "inline", "materialize")
FEW_VERTICES = 16
"""Of an inlined edge, up to which "auto" inlines: each pair of them is a block of H."""


def inlining_values(function: Callable[..., Summary]) -> Callable[..., Summary]:
    """Let `optimize` see a graph without computed values, where these are to be inlined."""
    signature = inspect.signature(function)

    @wraps(function)
    def optimize(graph: Graph, *arguments: Any, **named: Any) -> Summary:
        given = signature.bind(graph, *arguments, **named).arguments
        way = given.get("computed", "auto")
        if way not in WAYS:
            raise OptionError(f"computed is '{way}', expected one of {', '.join(WAYS)}.")
        if not isinstance(graph, Graph) or not graph.has_computed():  # another rank has it
            if way != "auto":
                raise OptionError(f"computed is '{way}', but the graph has no computed values.")
            return function(graph, *arguments, **named)
        graph.compute()
        selection = graph.select(given.get("level", 0), given.get("vertices"), given.get("edges"))
        if way == "materialize" or (way == "auto" and not is_small(graph, selection)):
            return function(**given)
        other, chosen = inlined(graph, selection)
        edges = {one.edge_set: one.rows for one in chosen.edges} if chosen.chosen_by_edges else None
        callback = brought_up_to_date(graph.compute, given.get("callback"))
        changed = {"graph": other, "level": -1, "vertices": None, "edges": edges, "computed": "auto"}
        try:
            return function(**{**given, **changed, "callback": callback})
        finally:
            graph.compute()

    return optimize


def is_small(graph: Graph, selection: Selection) -> bool:
    """Whether edges have few vertices when their values are inlined."""
    if graph.convolutions:
        return False
    slots: dict[Any, int] = {}
    for edge_set in graph.definitions():
        kind = edge_set.type.vertices[0]
        most = int(np.unique(edge_set.vertices[:, 0], return_counts=True)[1].max())
        inputs = sum(slots.get(one, 1) for one in edge_set.type.vertices[1:])
        slots[kind] = slots.get(kind, 0) + most * inputs
    most_of_edges = (
        sum(slots.get(one, 1) for one in edges.edge_set.type.vertices) for edges in selection.edges
    )
    return max(most_of_edges, default=0) <= FEW_VERTICES
