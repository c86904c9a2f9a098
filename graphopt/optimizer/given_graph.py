"""What `optimize` is given is a graph, and it stays as it is until the end."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec

from graphopt.errors import OptionError
from graphopt.graph import Graph
from graphopt.optimizer.summary import Summary

P = ParamSpec("P")


def holding_the_graph(
    optimize: Callable[Concatenate[Any, P], Summary],
) -> Callable[Concatenate[Any, P], Summary]:
    """`optimize` during which nothing can be added to the graph or removed from it."""
    has_ranks = "comm" in inspect.signature(optimize).parameters  # those other than rank 0 may pass None

    @functools.wraps(optimize)
    def held(graph: Any, *arguments: P.args, **options: P.kwargs) -> Summary:
        callback = options.get("callback")
        if callback is not None and not callable(callback):
            raise OptionError(f"callback is {callback!r}, expected a function of an Iteration.")
        if isinstance(graph, Graph):
            with graph.held_still():
                return optimize(graph, *arguments, **options)
        if isinstance(graph, (str, bytes, os.PathLike)):
            raise OptionError(
                f"graph is {graph!r}, expected a graphopt.Graph: graphopt.read({graph!r}) reads one."
            )
        if graph is None and not has_ranks:
            raise OptionError("graph is None, expected a graphopt.Graph.")
        return optimize(graph, *arguments, **options)

    return held
